"""Each decoder on outputs that are laid out by hand; all of them find the same two boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_judging import one_batch

from calib.data.task_options import parse_task
from calib.errors import UsageError, ValidationError
from calib.validation.tasks import Context
from calib.validation.tasks.boxes import Detections
from calib.validation.tasks.detection import DetectionTask

pytest.importorskip("pycocotools")

# Left, top, right, bottom; the same as centre and size; score of class 1 or 2 of three.
CORNERS = np.array([[10, 20, 30, 60], [40, 40, 50, 44]], np.float32)
CENTRES = np.array([[20, 40, 20, 40], [45, 42, 10, 4]], np.float32)
SCORES = np.array([[0.0, 0.9, 0.05], [0.0, 0.05, 0.8]], np.float32)


def read(options: dict[str, Any], outputs: dict[str, np.ndarray], samples: int = 1) -> tuple[Detections, ...]:
    task = parse_task({"kind": "detection", "confidence": 0.1, **options})
    context = Context(dataset=None)  # type: ignore[arg-type]
    object.__setattr__(context, "dataset", type("Data", (), {"class_names": None})())
    return DetectionTask(task, context).answers(outputs, one_batch(samples))  # type: ignore[arg-type]


def check(found: Detections) -> None:
    assert found.boxes == pytest.approx(CORNERS.astype(np.float64), abs=1e-4)
    assert found.scores == pytest.approx(np.array([0.9, 0.8]), abs=1e-6)
    assert found.classes.tolist() == [1, 2]


def yolov8(samples: int = 1) -> np.ndarray:
    table = np.concatenate([CENTRES, SCORES], axis=1).T
    return np.stack([np.pad(table, ((0, 0), (0, 6)))] * samples)


def yolov5() -> np.ndarray:
    # Score = objectness · class score.
    table = np.concatenate([CENTRES, np.full((2, 1), 0.5, np.float32), 2 * SCORES], axis=1)
    return np.pad(table, ((0, 8), (0, 0)))[None]


@pytest.mark.parametrize("decoder", ["yolov8", "yolov11"])
@pytest.mark.parametrize("multi", [True, False])
def test_yolov8(decoder: str, multi: bool) -> None:
    for found in read({"decoder": decoder, "multi_label": multi}, {"y": yolov8(2)}, 2):
        check(found)


@pytest.mark.parametrize("decoder", ["yolov5", "yolov7"])
@pytest.mark.parametrize("multi", [True, False])
def test_yolov5(decoder: str, multi: bool) -> None:
    (found,) = read({"decoder": decoder, "multi_label": multi}, {"y": yolov5()})
    check(found)


def test_a_box_counts_for_every_class_above_the_confidence() -> None:
    (found,) = read({"decoder": "yolov8", "confidence": 0.01}, {"y": yolov8()})
    assert found.classes.tolist() == [1, 2, 2, 1]
    (best,) = read({"decoder": "yolov8", "confidence": 0.01, "multi_label": False}, {"y": yolov8()})
    assert best.classes.tolist() == [1, 2]


def test_doubles_are_dropped_unless_they_are_allowed() -> None:
    table = np.concatenate([CENTRES, CENTRES + 0.5]), np.concatenate([SCORES, SCORES * 0.9])
    output = {"y": np.concatenate(table, axis=1).T[None]}
    (found,) = read({"decoder": "yolov8"}, output)
    check(found)
    (kept,) = read({"decoder": "yolov8", "nms": 1.0}, output)
    assert len(kept) == 4
    (first,) = read({"decoder": "yolov8", "nms": 1.0, "max_detections": 1}, output)
    assert first.scores == pytest.approx([0.9])


def test_end2end() -> None:
    rows = np.concatenate([CORNERS, [[0.9], [0.8]], [[1], [2]]], axis=1).astype(np.float32)
    (found,) = read({"decoder": "end2end"}, {"y": np.pad(rows, ((0, 3), (0, 0)))[None]})
    check(found)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("decoder", ["yolov5", "end2end", "detr"])
def test_what_is_not_finite_is_left_out_without_a_word_of_numpy(decoder: str, value: float) -> None:
    broken = np.full((1, 5, 6), value, np.float32)
    broken[:, 1::2] = 0
    outputs = {"y": broken}
    if decoder == "detr":
        outputs = {"pred_logits": broken, "pred_boxes": np.full((1, 5, 4), value, np.float32)}
    (found,) = read({"decoder": decoder}, outputs)
    assert len(found) == 0


@pytest.mark.parametrize("axis", [True, False], ids=["with an axis of samples", "one image without"])
def test_torchvision(axis: bool) -> None:
    outputs = {"boxes": CORNERS, "labels": np.array([1, 2]), "scores": np.array([0.9, 0.8], np.float32)}
    if axis:
        outputs = {name: array[None] for name, array in outputs.items()}
    (found,) = read({"decoder": "torchvision"}, outputs)
    check(found)


def test_torchvision_without_any_detection() -> None:
    outputs = {"boxes": np.zeros((0, 4)), "labels": np.zeros(0, np.int64), "scores": np.zeros(0)}
    (found,) = read({"decoder": "torchvision"}, outputs)
    assert len(found) == 0


def test_torchvision_by_other_names() -> None:
    outputs = {"a": CORNERS, "b": np.array([1, 2]), "c": np.array([0.9, 0.8], np.float32)}
    names = {"boxes": "a", "labels": "b", "scores": "c"}
    (found,) = read({"decoder": "torchvision", "outputs": names}, outputs)
    check(found)
    with pytest.raises(ValidationError, match=r"output of boxes, called boxes; the model has a \[2, 4\]"):
        read({"decoder": "torchvision"}, outputs)
    with pytest.raises(UsageError, match="no output 'z'"):
        read({"decoder": "torchvision", "outputs": {"boxes": "z"}}, outputs)


def test_images_that_cannot_be_told_apart() -> None:
    outputs = {"boxes": CORNERS, "labels": np.array([1, 2]), "scores": np.array([0.9, 0.8])}
    with pytest.raises(ValidationError, match=r"for 3 samples: .* Validate with --batch-size 1"):
        read({"decoder": "torchvision"}, outputs, 3)


def test_detr() -> None:
    # A softmax over three classes and "no object": logits are logarithms of what it shall give.
    shares = np.concatenate([SCORES, 1 - SCORES.sum(axis=1, keepdims=True)], axis=1)
    with np.errstate(divide="ignore"):
        logits = np.log(shares)[None]
    outputs = {"pred_logits": logits.astype(np.float32), "pred_boxes": CENTRES[None]}
    (found,) = read({"decoder": "detr"}, outputs)
    check(found)


def test_box_format_can_be_stated() -> None:
    rows = np.concatenate([CENTRES, [[0.9], [0.8]], [[1], [2]]], axis=1).astype(np.float32)
    (found,) = read({"decoder": "end2end", "box_format": "cxcywh"}, {"y": rows[None]})
    check(found)


class TestOwn:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "own_decoders.py").write_text(
            "def right(outputs, size):\n"
            "    table = outputs['y'][0]\n"
            "    return table[:, :4], table[:, 4], table[:, 5]\n"
            "def broken(outputs, size):\n"
            "    return outputs['z']\n"
            "def uneven(outputs, size):\n"
            "    return [[1, 2, 3, 4]], [0.5, 0.6], [0]\n"
            "def nothing(outputs, size):\n"
            "    return None\n"
        )

    def test_it_gets_the_outputs_of_one_image(self) -> None:
        rows = np.concatenate([CORNERS, [[0.9], [0.8]], [[1], [2]]], axis=1).astype(np.float32)
        for found in read({"decoder": "own_decoders:right"}, {"y": np.stack([rows, rows])}, 2):
            check(found)

    def test_its_mistakes_are_told_with_its_own_line(self) -> None:
        with pytest.raises(ValidationError) as caught:
            read({"decoder": "own_decoders:broken"}, {"y": np.zeros((1, 2, 6))})
        text = str(caught.value)
        assert text.startswith("Decoder 'own_decoders:broken' failed on sample s0: KeyError: 'z' (")
        assert "own_decoders.py, line 5: return outputs['z'])." in text

    def test_what_it_gives_is_checked(self) -> None:
        with pytest.raises(ValidationError, match="gave 1 box, 2 scores and 1 class: they must be equally"):
            read({"decoder": "own_decoders:uneven"}, {"y": np.zeros((1, 2, 6))})
        with pytest.raises(
            ValidationError, match=r"must give boxes \[n, 4\], scores \[n\] and classes \[n\]"
        ):
            read({"decoder": "own_decoders:nothing"}, {"y": np.zeros((1, 2, 6))})


class TestWrongOutputs:
    def test_no_output_fits(self) -> None:
        with pytest.raises(
            ValidationError, match=r"no output is that. The model has y \[1, 10\]. Name it with"
        ):
            read({"decoder": "yolov8"}, {"y": np.zeros((1, 10), np.float32)})

    def test_several_could(self) -> None:
        outputs = {"a": yolov8(), "b": yolov8()}
        with pytest.raises(ValidationError, match="outputs a, b could all be that"):
            read({"decoder": "yolov8"}, outputs)
        (found,) = read({"decoder": "yolov8", "outputs": {"detections": "b"}}, outputs)
        check(found)

    def test_boxes_and_numbers_the_other_way_round(self) -> None:
        wide = np.zeros((1, 84, 8400), np.float32)
        with pytest.raises(ValidationError, match=r"the other way round\. Choose decoder: yolov8"):
            read({"decoder": "yolov5"}, {"y": wide})
        with pytest.raises(ValidationError, match=r"the other way round\. Choose decoder: yolov5"):
            read({"decoder": "yolov8"}, {"y": wide.transpose(0, 2, 1)})

    def test_too_few_numbers(self) -> None:
        with pytest.raises(ValidationError, match=r"output 'y' is \[1, 4, 9\]. Choose another decoder"):
            read({"decoder": "yolov8"}, {"y": np.zeros((1, 4, 9), np.float32)})
        with pytest.raises(ValidationError, match=r"Decoder 'end2end' reads .*; output 'y' is \[1, 9, 7\]"):
            read({"decoder": "end2end"}, {"y": np.zeros((1, 9, 7), np.float32)})
