"""What a dataset holds, and how it is drawn."""

from __future__ import annotations

import io

import numpy as np
import pytest

from calib.data import Dataset, Preprocess, Sample, describe, draw_sheet, from_arrays
from calib.data.display import Display, restored
from calib.data.overview import Tally, label_figures, sample_kind, spread
from calib.data.truth import Boxes, Pair
from calib.errors import MissingExtraError, UsageError

Image = pytest.importorskip("PIL.Image")

RANDOM = np.random.default_rng(0)


def opened(sheet):
    return np.asarray(Image.open(io.BytesIO(sheet.png)).convert("RGB"))


class TestFigures:
    def test_are_those_of_numpy(self):
        values = RANDOM.normal(1e4, 2.0, (7, 3, 4, 5))
        overview = describe(from_arrays("a", {"x": values}))
        found = overview.inputs[0]
        assert found.shapes == {(3, 4, 5): 7}
        np.testing.assert_allclose(
            [found.values.minimum, found.values.mean, found.values.maximum, found.values.std],
            [values.min(), values.mean(), values.max(), values.std()],
            rtol=1e-12,
        )
        for channel in range(3):
            part = values[:, channel]
            np.testing.assert_allclose(found.channels[channel].std, part.std(), rtol=1e-12)
            np.testing.assert_allclose(found.channels[channel].mean, part.mean(), rtol=1e-12)

    def test_of_nothing_finite(self):
        tally = Tally()
        tally.add(np.array([np.nan, np.inf]))
        assert tally.figures().not_finite == 2
        assert tally.figures().mean is None

    def test_only_some_samples_are_read(self):
        values = np.arange(100.0).reshape(100, 1)
        overview = describe(from_arrays("a", {"x": values}), samples=3)
        # Indices 0, 49 and 99 of 99 · i / 2, cut off.
        assert (overview.read, overview.inputs[0].values.mean) == (3, pytest.approx((0 + 49 + 99) / 3))
        assert spread(100, 3) == [0, 49, 99]

    def test_constant_samples_are_counted(self):
        values = np.stack([np.zeros((1, 4, 4)), np.ones((1, 4, 4)), RANDOM.random((1, 4, 4))])
        assert describe(from_arrays("a", {"x": values})).inputs[0].constant == 2


class TestLabels:
    def test_classes(self):
        found = label_figures([2, 0, 2, None])
        assert (found.kind, found.counts, found.missing) == ("classes", {0: 1, 2: 2}, 1)

    def test_names_that_recur_are_classes(self):
        assert label_figures(["cat", "dog", "cat", "cat"]).counts == {"cat": 3, "dog": 1}

    def test_boxes(self):
        no = np.zeros(2, bool)
        truth = Boxes(np.zeros((2, 4), np.float32), np.array([3, 1]), no, no)
        assert label_figures([truth, truth]).counts == {1: 2, 3: 2}

    def test_masks_without_what_is_not_judged(self):
        found = label_figures([np.array([[0, 1], [255, 1]], np.int32)])
        assert (found.kind, found.counts) == ("pixels", {0: 1, 1: 2})

    @pytest.mark.parametrize(
        ("labels", "kind", "low", "high"),
        [
            ([0.5, 2.0], "numbers", 0.5, 2.0),
            ([np.array([1.0, -3.0])], "numbers", -3.0, 1.0),
            (["ab", "abcd"], "texts", 2, 4),
            ([Pair("a", 3.5), Pair("a", 1.0)], "pairs", 1.0, 3.5),
            ([None, None], "none", None, None),
        ],
    )
    def test_others(self, labels, kind, low, high):
        found = label_figures(labels)
        assert (found.kind, found.lowest, found.highest) == (kind, low, high)


@pytest.mark.parametrize(
    "steps",
    [
        Preprocess(scale="1/255", mean=[0.1, 0.2, 0.3], std=[0.5, 0.6, 0.7]),
        Preprocess(scale="1/128", mean="127/128", layout="hwc"),
        Preprocess(layout="whc", scale=2),
        Preprocess(layout="cwh"),
    ],
)
def test_preprocessing_is_undone(steps):
    pixels = RANDOM.integers(0, 256, (3, 4, 6)).astype(np.uint8)
    values = steps.apply(pixels, "x", "chw")
    np.testing.assert_allclose(restored(values, steps), pixels.transpose(1, 2, 0), atol=1e-3)


def test_bgr_is_shown_as_rgb():
    steps = Preprocess(color="bgr")
    dataset = Dataset("a", ("a",), lambda index: Sample("a", {}), description={"preprocess": steps.record()})
    values = np.stack([np.full((2, 2), blue) for blue in (10, 20, 30)]).astype(np.float32)
    picture, outside = Display.of(dataset, [values]).picture(values)
    assert (picture[0, 0].tolist(), outside) == ([30, 20, 10], False)
    assert Display.of(dataset, [values]).picture(values * 20)[1]


class TestSheet:
    def test_pixels_of_a_small_image_are_seen_enlarged(self):
        # 44 pixels: 176 / 44 = 4 pixels of the sheet for each.
        values = RANDOM.integers(0, 256, (1, 44, 44, 3)).astype(np.uint8)
        dataset = from_arrays("a", {"x": values})
        sheet = draw_sheet(dataset)
        pixels = opened(sheet)
        rows = [r for r in range(len(pixels) - 4) if (pixels[r : r + 4, 10:14] == values[0, 0, 0]).all()]
        assert rows
        top = rows[0]
        np.testing.assert_array_equal(pixels[top : top + 176 : 4, 10:186:4], values[0])
        assert "from 0 (black) to 255 (white)" in sheet.notes[0]

    def test_boxes_lie_where_the_pixels_went(self):
        pytest.importorskip("torchvision")
        from calib.data.pixels import prepare_pixels

        photo = np.zeros((200, 400, 3), np.uint8)
        photo[50:150, 100:300] = 255
        steps = Preprocess(letterbox={"size": 176, "value": 0})
        prepared = prepare_pixels(photo, steps, "a")
        no = np.zeros(1, bool)
        truth = Boxes(np.array([[100, 50, 300, 150]], np.float32), np.array([0]), no, no, (200, 400))
        sample = Sample("a", {"x": prepared.values}, truth, "a", prepared.geometry)
        dataset = Dataset("a", ("a",), lambda i: sample, description={"preprocess": steps.record()})
        pixels = opened(draw_sheet(dataset))
        orange = (pixels == (230, 159, 0)).all(axis=2)
        rows, columns = np.nonzero(orange)
        # × 0.44, 44 rows from the top: the box is at 44 … 132 and 66 … 110, 10 pixels from the left.
        assert (columns.min() - 10, columns.max() - 10) == (44, 131)
        assert rows.max() - rows.min() == 43

    def test_masks_colour_the_image(self):
        mask = np.zeros((176, 176), np.int32)
        mask[:88], mask[100:] = 1, 255
        sample = Sample("a", {"x": np.full((1, 176, 176), 200, np.uint8)}, mask)
        dataset = Dataset("a", ("a",), lambda i: sample, class_names=("ground", "sky"))
        pixels = opened(draw_sheet(dataset))
        # Half of the grey value and half of the first colour, (230, 159, 0).
        grey = 200
        assert (pixels == ((grey + 230) // 2, (grey + 159) // 2, grey // 2)).all(axis=2).sum() == 88 * 176
        assert (pixels == (grey, grey, grey)).all(axis=2).sum() == 88 * 176

    def test_what_cannot_be_drawn_is_said(self):
        sheet = draw_sheet(from_arrays("a", {"ids": np.arange(12).reshape(3, 4)}))
        assert sheet.notes == ("3 inputs are neither pictures nor curves: types, shapes and ranges instead.",)

    def test_sound_is_a_curve(self):
        wave = np.sin(np.linspace(0, 9, 3 * 2000)).reshape(3, 1, 2000).astype(np.float32)
        sheet = draw_sheet(from_arrays("a", {"x": wave}))
        assert sheet.notes == ("Curves from -1 (bottom) to 1 (top).",)
        assert (opened(sheet) == (0, 114, 178)).all(axis=2).sum() > 500

    @pytest.mark.parametrize(
        ("shape", "dtype", "kind"),
        [
            ((3, 8, 8), "f4", "image"),
            ((8, 8, 1), "u1", "image"),
            ((8, 9), "f4", "image"),
            ((5, 8, 9), "f4", "none"),
            ((40,), "f4", "plot"),
            ((1, 40, 1), "f4", "plot"),
            ((40,), "i8", "none"),
            ((), "f4", "none"),
        ],
    )
    def test_kinds(self, shape, dtype, kind):
        assert sample_kind(Sample("a", {"x": np.zeros(shape, dtype)}), "x") == kind

    @pytest.mark.parametrize("samples", [0, 401])
    def test_number_of_samples(self, samples):
        with pytest.raises(UsageError, match=f"from 1 to 400 samples, got {samples}"):
            draw_sheet(from_arrays("a", {"x": np.zeros((2, 4))}), samples)

    def test_missing_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
        with pytest.raises(MissingExtraError, match=r"'int8-calib\[images\]'"):
            draw_sheet(from_arrays("a", {"x": np.zeros((2, 4))}))
