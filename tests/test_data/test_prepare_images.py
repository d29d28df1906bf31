"""Every step on pixels, against Pillow, torchvision's presets, OpenCV's numbers and arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from calib.data import Preprocess
from calib.data.pixels import prepare_image, prepare_pixels
from calib.errors import DatasetError

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("torchvision")

NOISE = np.random.default_rng(1).integers(0, 256, (40, 100, 3), np.uint8)
PHOTO = np.random.default_rng(2).integers(0, 256, (300, 427, 3), np.uint8)
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def prepared(pixels=NOISE, **steps):
    return prepare_pixels(pixels, Preprocess(**steps), "x")


@pytest.mark.parametrize(
    ("weights", "steps"),
    [
        ("ResNet50_Weights.IMAGENET1K_V1", {"resize": 256, "crop": 224}),
        ("ResNet50_Weights.IMAGENET1K_V2", {"resize": 232, "crop": 224}),
        ("EfficientNet_B0_Weights.IMAGENET1K_V1", {"resize": 256, "crop": 224, "interpolation": "bicubic"}),
        ("ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1", {"resize": 384, "crop": 384, "interpolation": "bicubic"}),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_same_values_as_the_presets_of_torchvision(weights, steps, turned):
    import torchvision

    enum, member = weights.split(".")
    preset = getattr(torchvision.models, enum)[member].transforms()
    pixels = PHOTO.transpose(1, 0, 2).copy() if turned else PHOTO
    ours = prepared(pixels, scale="1/255", **IMAGENET, **steps)
    theirs = preset(Image.fromarray(pixels)).numpy()
    # Torchvision rounds to float32 after each of 3 steps, calib once at the end; values are below 4.
    np.testing.assert_allclose(ours.values, theirs, rtol=0, atol=5e-7)
    mean, std = (np.reshape(IMAGENET[key], (3, 1, 1)) for key in ("mean", "std"))
    grey = np.rint((theirs * std + mean) * 255)
    np.testing.assert_array_equal(prepared(pixels, **steps).values, grey)


def test_the_same_values_as_timm_would_give():
    """timm's evaluation transform for crop_pct 0.9: Resize(floor(224 / 0.9)), CenterCrop on Pillow."""
    from torchvision import transforms

    chain = transforms.Compose(
        [transforms.Resize(248, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(224)]
    )
    expected = np.asarray(chain(Image.fromarray(PHOTO))).transpose(2, 0, 1)
    ours = prepared(PHOTO, crop=224, crop_fraction=0.9, interpolation="bicubic").values
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("kernel", ["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"])
@pytest.mark.parametrize("size", [[20, 31], [64, 160]])
def test_kernels_are_those_of_pillow(kernel, size):
    pillow = Image.fromarray(NOISE).resize(size[::-1], Image.Resampling[kernel.upper()])
    result = prepared(resize=size, interpolation=kernel).values
    np.testing.assert_array_equal(result, np.asarray(pillow).transpose(2, 0, 1))


def test_box_is_the_mean_of_an_area():
    result = prepared(resize=[20, 50], interpolation="box").values
    means = NOISE.reshape(20, 2, 50, 2, 3).mean(axis=(1, 3)).transpose(2, 0, 1)
    # Rounded along each axis by itself, by half a grey value each.
    assert np.abs(result - means).max() <= 1


# cv2.resize of opencv-python-headless 5.0.0 of GREY to (width, height), which never smooths.
GREY = np.array(
    [[0, 10, 200, 30, 77], [250, 40, 90, 60, 5], [7, 128, 255, 64, 32], [90, 180, 45, 22, 11]], np.uint8
)
OPENCV = {
    ("bilinear", (3, 2)): [[91, 145, 42], [84, 150, 29]],
    ("bicubic", (3, 2)): [[100, 130, 36], [69, 165, 23]],
    ("bilinear", (7, 6)): [
        [0, 6, 64, 200, 78, 50, 77],
        [125, 68, 59, 145, 74, 43, 41],
        [209, 121, 72, 117, 77, 39, 9],
        [47, 85, 146, 227, 110, 48, 27],
        [49, 109, 153, 150, 74, 34, 22],
        [90, 141, 141, 45, 29, 17, 11],
    ],
    ("bicubic", (7, 6)): [
        [0, 0, 72, 210, 78, 32, 88],
        [158, 60, 36, 130, 73, 33, 38],
        [250, 125, 51, 108, 84, 34, 0],
        [33, 67, 163, 248, 125, 32, 26],
        [15, 105, 183, 165, 78, 22, 23],
        [90, 164, 153, 27, 15, 14, 8],
    ],
}


@pytest.mark.parametrize(("kernel", "size"), sorted(OPENCV))
def test_without_antialias_it_is_opencv_within_a_grey_value(kernel, size):
    steps = {"resize": size[::-1], "interpolation": kernel}
    plain = prepared(GREY, **steps, antialias=False).values[0].astype(int)
    assert np.abs(plain - OPENCV[kernel, size]).max() <= 1
    if size == (3, 2):
        smooth = prepared(GREY, **steps).values[0].astype(int)
        assert np.abs(smooth - OPENCV[kernel, size]).max() > 10


def test_without_antialias_a_checkerboard_shows_it():
    board = np.repeat((np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)[..., None], 3, 2)
    smooth = prepared(board, resize=32).values
    assert np.abs(smooth - 127.5).max() <= 2
    # 256 / 51 = 5.02: pixel i takes the values about 5.02 · i + 2, where the board is black or white.
    assert np.ptp(prepared(board, resize=51, antialias=False).values) > 50


def test_letterbox_fills_in_every_color():
    result = prepared(letterbox={"size": 120, "value": [1, 2, 3]}, color="bgr")
    # 120 / 100 = 1.2: 48 rows of image from row (120 - 48) / 2 = 36.
    assert result.values.shape == (3, 120, 120)
    assert [np.unique(result.values[c, :36]).tolist() for c in range(3)] == [[3], [2], [1]]
    assert [np.unique(result.values[c, 84:]).tolist() for c in range(3)] == [[3], [2], [1]]
    inner = prepared(resize=[48, 120], color="bgr").values
    np.testing.assert_array_equal(result.values[:, 36:84], inner)
    assert result.geometry.offset == (0, 36)


def test_a_text_line_is_prepared_as_by_pp_ocr():
    line = NOISE[:31, :100]
    steps = {"scale": "1/255", "mean": 0.5, "std": 0.5, "color": "bgr", "antialias": False}
    result = prepared(
        line, resize=[48, 320], fit="height", pad={"size": [48, 320], "value": "mean"}, **steps
    ).values
    assert result.shape == (3, 48, 320)
    # 48 · 100 / 31 = 154.8, rounded up; the rest is zero for the model, as numpy.zeros is in PP-OCR.
    assert not result[:, :, 155:].any()
    np.testing.assert_array_equal(result[:, :, :155], prepared(line, resize=[48, 155], **steps).values)


@pytest.mark.parametrize("layout", ["chw", "hwc", "cwh", "whc"])
def test_every_layout_holds_the_same_pixels(layout):
    result = prepared(layout=layout, pad={"size": [50, 110], "value": "mean"}, mean=[1, 2, 3]).values
    upright = np.moveaxis(result, [layout.index(axis) for axis in "hwc"], [0, 1, 2])
    np.testing.assert_array_equal(upright[:40, :100], NOISE.astype(np.float32) - [1, 2, 3])
    assert not upright[40:].any()
    assert not upright[:, 100:].any()


def test_whole_numbers_for_a_quantized_input():
    result = prepared(mean=128, dtype="int8").values
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result.transpose(1, 2, 0), NOISE.astype(int) - 128)


def test_grey_pixels_from_memory_become_three_channels():
    np.testing.assert_array_equal(prepared(GREY).values, np.stack([GREY] * 3))
    np.testing.assert_array_equal(prepared(GREY[..., None], color="gray").values, GREY[None])


@pytest.mark.parametrize("pixels", [NOISE.astype(np.float32), NOISE[..., :2], NOISE[:0]])
def test_other_arrays_are_no_image(pixels):
    with pytest.raises(DatasetError, match=r"x: expected 8-bit pixels of shape .* got"):
        prepared(pixels)


def test_a_turned_photo_keeps_its_geometry_after_turning(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(NOISE).save(tmp_path / "a.png", exif=exif)
    result = prepare_image(tmp_path / "a.png", Preprocess(resize=[50, 20]))
    # Stored 40 high and 100 wide, seen 100 high and 40 wide: both halved.
    assert (result.geometry.source, result.geometry.scale) == ((100, 40), (0.5, 0.5))
    upright = Image.fromarray(np.rot90(NOISE, -1)).resize((20, 50), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(result.values, np.asarray(upright).transpose(2, 0, 1))


def test_new_steps_leave_the_record_of_old_recipes_alone():
    record = Preprocess(resize=256, crop=224).record()
    assert {"fit", "pad", "letterbox", "crop_fraction"}.isdisjoint(record)
    assert record["resizer"] != Preprocess(resize=256, antialias=False).record()["resizer"]
    boxed = Preprocess(letterbox={"size": 640}).record()
    assert boxed["letterbox"] == {"size": 640, "value": 114, "place": "center", "enlarge": True}
