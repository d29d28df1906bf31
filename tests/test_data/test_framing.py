"""Where pixels go: sizes and corners by arithmetic, boxes and masks by the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from calib.data import Preprocess
from calib.data.framing import frame, place_mask
from calib.data.geometry import Geometry
from calib.errors import DatasetError


@pytest.mark.parametrize(
    ("size", "steps", "resized"),
    [
        # One number: that of torchvision's Resize, the other side cut off to a whole pixel.
        ((300, 427), {"resize": 256}, (256, 364)),  # 256 · 427 / 300 = 364.37
        ((427, 300), {"resize": 256}, (364, 256)),
        ((300, 427), {"resize": 256, "fit": "long_side"}, (179, 256)),  # 256 · 300 / 427 = 179.9
        ((427, 300), {"resize": 256, "fit": "long_side"}, (256, 179)),
        ((300, 427), {"resize": 256, "fit": "stretch"}, (256, 256)),
        # Two numbers: the larger ratio covers them, the smaller lies inside; rounded.
        ((100, 200), {"resize": [50, 60]}, (50, 60)),
        ((100, 200), {"resize": [50, 60], "fit": "short_side"}, (50, 100)),  # ratios 0.5 and 0.3
        ((100, 200), {"resize": [50, 60], "fit": "long_side"}, (30, 60)),
        # PP-OCR's recogniser: ceil(48 · w / h), at most 320.
        ((31, 100), {"resize": [48, 320], "fit": "height"}, (48, 155)),  # 154.8
        ((31, 900), {"resize": [48, 320], "fit": "height"}, (48, 320)),
        ((31, 900), {"resize": 48, "fit": "height"}, (48, 1394)),  # 1393.5
        # timm's crop_pct: floor(224 / 0.875) = 256, floor(224 / 0.9) = 248.
        ((300, 427), {"crop": 224, "crop_fraction": 0.875}, (256, 364)),
        ((300, 427), {"crop": 224, "crop_fraction": 0.9}, (248, 352)),  # 248 · 427 / 300 = 352.99
        ((1, 900), {"resize": 300, "fit": "long_side"}, (1, 300)),
    ],
)
def test_sizes(size, steps, resized):
    assert frame(size, Preprocess(**steps), "a.png").resized == resized


@pytest.mark.parametrize(
    ("size", "steps", "resized", "target", "margin"),
    [
        # 640 / 1280 = 0.5: 720 · 0.5 = 360, so (640 - 360) / 2 = 140 above and below.
        ((720, 1280), {"size": 640}, (360, 640), (640, 640), (140, 0)),
        ((720, 1280), {"size": 640, "place": "corner"}, (360, 640), (640, 640), (0, 0)),
        ((720, 1280), {"size": 640, "multiple": 32}, (360, 640), (384, 640), (12, 0)),
        # An odd pixel goes to the bottom: 640 - 427 = 213 = 106 + 107.
        ((480, 720), {"size": 640}, (427, 640), (640, 640), (106, 0)),
        ((10, 20), {"size": 40, "enlarge": False}, (10, 20), (40, 40), (15, 10)),
        ((10, 20), {"size": [40, 30]}, (15, 30), (40, 30), (12, 0)),
    ],
)
def test_letterbox(size, steps, resized, target, margin):
    plan = frame(size, Preprocess(letterbox=steps), "a.png")
    assert (plan.resized, plan.target, plan.margin) == (resized, target, margin)


@pytest.mark.parametrize(
    ("pad", "target", "margin"),
    [
        ({"size": [40, 60]}, (40, 60), (0, 0)),
        ({"size": [41, 60], "place": "center"}, (41, 60), (5, 5)),
        ({"multiple": 32}, (32, 64), (0, 0)),
        ({"multiple": 10}, (30, 50), (0, 0)),
    ],
)
def test_pad(pad, target, margin):
    plan = frame((30, 50), Preprocess(pad=pad), "a.png")
    assert (plan.target, plan.margin) == (target, margin)


def test_an_image_larger_than_its_padding_is_named():
    with pytest.raises(
        DatasetError, match=r"a\.png: 30 × 50 pixels .* larger than preprocess\.pad\.size, 40"
    ):
        frame((30, 50), Preprocess(pad={"size": 40}), "a.png")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"letterbox": {"size": 64}, "resize": 32}, "letterbox does all of resize, crop and pad.*out resize"),
        ({"letterbox": {"size": 63, "multiple": 32}}, "multiple of 32, got 63"),
        ({"crop_fraction": 0.875}, "crop_fraction goes with crop"),
        ({"crop_fraction": 0.875, "crop": 224, "resize": 256}, "leave out resize"),
        ({"crop": 224, "crop_fraction": 1.5}, "above 0 and at most 1, got 1.5"),
        ({"crop": 224, "pad": {"size": 256}}, "crop takes pixels away and pad adds them"),
        ({"pad": {}}, "expected size or multiple, one of them"),
        ({"pad": {"size": 8, "multiple": 8}}, "expected size or multiple, one of them"),
        ({"pad": {"size": 8, "value": 256}}, "grey value from 0 to 255, .* got 256"),
        ({"fit": "stretch"}, "there is no resize"),
        ({"resize": 8, "interpolation": "lanczos", "antialias": False}, "lanczos is always antialiased"),
    ],
)
def test_steps_that_contradict_each_other(steps, message):
    with pytest.raises(ValidationError, match=message):
        Preprocess(**steps)


def test_boxes_follow_the_pixels():
    # 480 × 640 to a short side of 240 is × 0.5; the crop of 200 begins at (20, 60).
    geometry = frame((480, 640), Preprocess(resize=240, crop=200), "a.png").geometry
    moved = geometry.to_model([[120, 40, 520, 440]])
    np.testing.assert_array_equal(moved, [[0, 0, 200, 200]])
    np.testing.assert_array_equal(geometry.to_source(moved), [[120, 40, 520, 440]])
    # Letterboxed into 320: × 0.5, 240 rows of image from row 40.
    geometry = frame((480, 640), Preprocess(letterbox={"size": 320}), "a.png").geometry
    np.testing.assert_array_equal(geometry.to_model([[0, 0, 640, 480]]), [[0, 40, 320, 280]])


@given(
    st.tuples(st.integers(1, 400), st.integers(1, 400)),
    st.sampled_from(
        [
            {"resize": 64},
            {"resize": [31, 77]},
            {"letterbox": {"size": 96}},
            {"resize": [40, 50], "fit": "short_side", "crop": [40, 50]},
            {"pad": {"multiple": 32, "place": "center"}},
        ]
    ),
)
def test_corners_of_any_image_come_back(size, steps):
    geometry = frame(size, Preprocess(**steps), "a.png").geometry
    whole = [[0, 0, size[1], size[0]]]
    np.testing.assert_allclose(geometry.to_source(geometry.to_model(whole)), whole, atol=1e-9)


@pytest.mark.parametrize(
    "steps",
    [
        {"resize": [20, 31]},
        {"resize": 90, "crop": [64, 80]},
        {"letterbox": {"size": 64}},
        {"letterbox": {"size": [48, 96], "place": "corner"}},
        {"pad": {"multiple": 32}},
    ],
)
def test_a_mask_is_moved_as_the_image_is(steps):
    """The same numbers as an image and as a mask: the image resized by its nearest pixel is the mask."""
    pytest.importorskip("torchvision")
    from calib.data.pixels import prepare_pixels

    # Odd sizes: no pixel's centre then falls between two of the source's.
    classes = np.random.default_rng(0).integers(0, 20, (41, 101)).astype(np.uint8)
    filled = {key: {**value, "value": 255} for key, value in steps.items() if isinstance(value, dict)}
    preprocess = Preprocess(**{**steps, **filled}, interpolation="nearest")
    prepared = prepare_pixels(classes, preprocess, "mask")
    mask = place_mask(classes, prepared.geometry)
    assert mask.dtype == np.int32
    np.testing.assert_array_equal(mask, prepared.values[0])


def test_a_mask_for_swapped_axes_is_swapped():
    mask = np.arange(6).reshape(2, 3)
    placed = place_mask(mask, Geometry.identity((2, 3)), Preprocess(layout="whc"))
    np.testing.assert_array_equal(placed, mask.T)


def test_a_mask_of_another_size_is_refused():
    with pytest.raises(DatasetError, match=r"shape \(2, 3\) does not fit its image of 4 × 3 pixels"):
        place_mask(np.zeros((2, 3)), Geometry.identity((4, 3)))
