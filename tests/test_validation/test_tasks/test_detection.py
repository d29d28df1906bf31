from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from task_judging import TableRunner, judged, metrics, numbered, values

from calib.data import Dataset
from calib.data.geometry import Geometry
from calib.data.truth import Boxes
from calib.errors import DatasetError, MissingExtraError, UsageError, ValidationError
from calib.validation.comparison import Comparison
from calib.validation.tasks.class_maps import COCO_80_TO_91

pytest.importorskip("pycocotools")

SQUARES = ((0, 0, 10, 10), (20, 20, 30, 30), (40, 0, 50, 10), (0, 40, 10, 50))


def truth(*classes: int) -> Boxes:
    """Squares of some classes, in the order of ``SQUARES``."""
    count = len(classes)
    nothing = np.zeros(count, np.bool_)
    rows = np.array(SQUARES[:count], np.float32).reshape(-1, 4)
    return Boxes(rows, np.array(classes, np.int64), nothing, nothing, (64, 64))


def end2end(*images: list[tuple[int, float, int]], rows: int = 4) -> dict[str, np.ndarray]:
    """(square, score, class) of each image as [N, rows, 6]; rows without a detection are all 0."""
    table = np.zeros((len(images), rows, 6), np.float32)
    for image, entries in enumerate(images):
        for row, (square, score, label) in enumerate(entries):
            table[image, row] = [*SQUARES[square], score, label]
    return {"y": table}


TASK = {"kind": "detection", "decoder": "end2end"}


def test_exact_answers_are_all_right_whatever_the_batch() -> None:
    labels = [truth(0, 1), truth(2), truth(), truth(0), truth(1, 1)]
    answers = end2end(
        [(0, 0.9, 0), (1, 0.8, 1)], [(0, 0.7, 2)], [], [(0, 0.6, 0)], [(0, 0.9, 1), (1, 0.5, 1)]
    )
    for batch in (1, 2, 5, 8):
        found = judged(TASK, numbered(labels), answers, batch=batch)
        expected = {"mAP": 1.0, "mAP50": 1.0, "mAP75": 1.0, "AR": 1.0}
        assert values(found) == pytest.approx(expected)
        assert values(found, 1) == pytest.approx({**expected, "detection_agreement": 1.0})
        assert found.warnings() == ()


def test_lost_detections_cost_what_they_should() -> None:
    """One of two objects of a class is lost: recall ½ with precision 1 at 51 of 101 recalls."""
    labels = [truth(0), truth(0), truth(1)]
    fp32 = end2end([(0, 0.9, 0)], [(0, 0.8, 0)], [(0, 0.7, 1)])
    int8 = end2end([(0, 0.9, 0)], [], [(0, 0.7, 1)])
    found = judged(TASK, numbered(labels, class_names=("cat", "dog")), fp32, int8)
    mean = metrics(found, 1)["mAP"]
    assert mean.value == pytest.approx((51 / 101 + 1) / 2)
    assert mean.drop == pytest.approx(1 - (51 / 101 + 1) / 2)
    assert mean.drop_low is not None
    assert mean.drop_high is not None
    assert mean.drop_low <= mean.drop <= mean.drop_high
    agreement = metrics(found, 1)["detection_agreement"]
    assert agreement.value == pytest.approx(2 * 2 / (3 + 2))
    assert agreement.note == "1 of FP32's 3 detections with a score of 0.25 or more lost, 0 new"
    cat, dog = found.judgements[1].classes
    assert (cat.name, cat.count, cat.value, cat.drop) == (
        "cat",
        2,
        pytest.approx(51 / 101),
        pytest.approx(50 / 101),
    )
    assert (dog.name, dog.count, dog.value, dog.drop) == ("dog", 1, pytest.approx(1.0), 0.0)
    assert cat.drop_error is not None
    assert cat.drop_error > 0
    worst = found.worst(found.findings[1])[0]
    assert (worst.sample_id, worst.change) == ("s1", "1 of 1 detections lost, 0 new")


class TestEmptyOutputs:
    """Models that suppress doubles themselves answer with as many rows as they find."""

    @staticmethod
    def rows(*counts: int) -> Any:
        def answer(index: np.ndarray) -> dict[str, np.ndarray]:
            (image,) = index.tolist()
            count = counts[image]
            table = [[*SQUARES[row], 0.9, 0] for row in range(count)]
            return {"y": np.array(table, np.float32).reshape(count, 6)}

        return answer

    @staticmethod
    def compared(fp32: Any, int8: Any, labels: list[Boxes]) -> Comparison:
        return judged(
            {**TASK, "decoder": "test_validation.own:decode"}, numbered(labels), fp32, int8, batch=1
        )

    @pytest.fixture(autouse=True)
    def _own_decoder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def decode(outputs: dict[str, np.ndarray], size: Any) -> tuple[Any, Any, Any]:
            table = outputs["y"]
            return table[:, :4], table[:, 4], table[:, 5]

        monkeypatch.setattr("calib.validation.tasks.decoders.load_object", lambda name: decode)

    def test_three_lost(self) -> None:
        found = self.compared(self.rows(3, 1), self.rows(0, 1), [truth(0, 0, 0), truth(0)])
        assert values(found)["mAP"] == pytest.approx(1.0)
        # 1 of 4 objects found, with precision 1: 26 of 101 recalls.
        assert values(found, 1)["mAP"] == pytest.approx(26 / 101)
        assert "3 of FP32's 4 detections" in metrics(found, 1)["detection_agreement"].note
        assert found.worst(found.findings[1])[0].change == "3 of 3 detections lost, 0 new"

    def test_empty_in_both_is_equal(self) -> None:
        found = self.compared(self.rows(0, 0), self.rows(0, 0), [truth(0), truth(0)])
        agreement = metrics(found, 1)["detection_agreement"]
        assert (agreement.value, agreement.count) == (1.0, 0)
        assert "neither precision finds anything" in agreement.note
        assert values(found, 1)["mAP"] == 0.0
        assert not found.judgements[1].metrics[0].note
        assert found.warnings()[0].startswith("The FP32 model finds nothing")


class TestClasses:
    """80 classes in a row against COCO's ids from 1 to 90."""

    LABELS = (0, 11, 12, 79)

    def data(self) -> tuple[Dataset, dict[str, np.ndarray]]:
        ids = [COCO_80_TO_91[label] for label in self.LABELS]
        answers = end2end(*([(0, 0.9, label)] for label in self.LABELS))
        return numbered([truth(label) for label in ids]), answers

    def test_the_known_ids(self) -> None:
        assert [COCO_80_TO_91[label] for label in (0, 10, 11, 12, 23, 24, 79)] == [1, 11, 13, 14, 25, 27, 90]
        assert len(COCO_80_TO_91) == 80

    def test_no_class_in_common_is_said_before_anything_else(self) -> None:
        dataset, answers = self.data()
        found = judged(TASK, dataset, answers)
        assert values(found)["mAP"] == 0.0
        assert found.warnings()[0] == (
            "No predicted class occurs in the annotations: FP32 answers classes 0, 11, 12, 79, the "
            "annotations have classes 1, 13, 14, 90. State which is which with task: {class_map: …}, such as "
            "coco80_to_91, or with class_ids of the source, before judging INT8."
        )

    def test_the_map_makes_it_right(self) -> None:
        dataset, answers = self.data()
        found = judged({**TASK, "class_map": "coco80_to_91"}, dataset, answers)
        assert values(found)["mAP"] == pytest.approx(1.0)
        assert found.warnings() == ()

    def test_some_classes_in_common_by_chance_are_found_out(self) -> None:
        labels = list(range(14))
        dataset = numbered([truth(COCO_80_TO_91[label]) for label in labels])
        found = judged(TASK, dataset, end2end(*([(0, 0.9, label)] for label in labels)))
        (warning,) = found.warnings()
        assert warning.startswith("FP32 mAP is only 0.0%")
        assert warning.endswith("With the map coco80_to_91 it would be 100.0%: set task: {class_map: …}.")

    def test_an_own_map_leaves_out_what_it_does_not_know(self) -> None:
        dataset = numbered([truth(7), truth(7)])
        answers = end2end([(0, 0.9, 3), (1, 0.95, 4)], [(0, 0.8, 3)])
        found = judged({**TASK, "class_map": {3: 7}}, dataset, answers)
        assert values(found)["mAP"] == pytest.approx(1.0)
        assert found.warnings() == (
            "class_map has no class for the model's classes 4: these detections were left out.",
        )


class TestPlaces:
    def test_boxes_go_back_through_the_letterbox(self) -> None:
        # 128×64 pixels (width × height) halved to 64×32, with 16 rows of padding above and below.
        geometry = Geometry((64, 128), (64, 64), (0.5, 0.5), (0.0, 16.0))
        one = np.zeros(1, np.bool_)
        label = Boxes(np.array([[0, 0, 20, 20]], np.float32), np.zeros(1, np.int64), one, one)
        table = np.zeros((2, 2, 6), np.float32)
        table[:, 0] = [0, 16, 10, 26, 0.9, 0]
        table[:, 1] = [0, 0, 60, 15, 0.95, 0]  # in the padding alone: no part of the image
        found = judged(TASK, numbered([label] * 2, geometries=[geometry] * 2), {"y": table})
        assert values(found)["mAP"] == pytest.approx(1.0)

    def test_relative_boxes_are_scaled_to_the_input(self) -> None:
        table = np.zeros((1, 1, 6), np.float32)
        table[0, 0] = [0, 0, 10 / 64, 10 / 32, 0.9, 0]
        images = {"x": np.zeros((1, 3, 32, 64), np.float32)}
        task = {**TASK, "coordinates": "relative"}
        assert values(judged(task, numbered([truth(0)], inputs=images), {"y": table}))[
            "mAP"
        ] == pytest.approx(1.0)
        with pytest.raises(UsageError, match="coordinates is relative, and the model has no input that is"):
            judged(task, numbered([truth(0)]), {"y": table})

    def test_wrong_places_are_doubted(self) -> None:
        table = np.zeros((1, 1, 6), np.float32)
        table[0, 0] = [30, 30, 40, 40, 0.9, 0]
        (warning,) = judged(TASK, numbered([truth(0)]), {"y": table}).warnings()
        assert warning == (
            "FP32 mAP is only 0.0%: doubt the classes, the boxes' coordinates or the preprocessing before "
            "INT8. Boxes were taken as pixels of the image, since the dataset does not say how it was "
            "resized."
        )


class TestLabels:
    def test_without_boxes_only_agreement_is_measured(self) -> None:
        found = judged(TASK, numbered([None, None]), end2end([(0, 0.9, 0)], []), end2end([], []))
        assert values(found) == {}
        assert values(found, 1) == {"detection_agreement": 0.0}

    def test_boxes_for_some_samples_alone_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="Sample file 1 has no label, unlike those before it"):
            judged(TASK, numbered([truth(0), None]), end2end([], []))

    def test_class_numbers_are_no_boxes(self) -> None:
        with pytest.raises(
            ValidationError, match=r"Sample file 0 has the label 3, which is not boxes \(calib"
        ):
            judged(TASK, numbered([3]), end2end([]))

    def test_no_object_at_all(self) -> None:
        found = judged(TASK, numbered([truth(), truth()]), end2end([], []))
        mean = metrics(found)["mAP"]
        expected = "no image has an object that is to be found"
        assert (mean.value, mean.note) == (None, expected)


def test_detections_that_are_not_finite_are_no_detections() -> None:
    table = end2end([(0, 0.9, 0), (1, 0.8, 0)])["y"]
    table[0, 1, 2] = np.nan
    found = judged(TASK, numbered([truth(0)]), {"y": table})
    assert values(found)["mAP"] == pytest.approx(1.0)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pycocotools.cocoeval", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'int8-calib\[coco\]'"):
        judged(TASK, numbered([truth(0)]), end2end([]))


def test_an_unknown_function_is_named() -> None:
    with pytest.raises(DatasetError, match="there is no module 'nowhere'"):
        judged({**TASK, "decoder": "nowhere:decode"}, numbered([truth(0)]), end2end([]))


def test_the_runner_of_these_tests_gives_rows() -> None:
    assert TableRunner("fp32", {"y": np.arange(3)}).infer({"i": np.array([[2], [0]])})["y"].tolist() == [2, 0]
