"""Average precision against pycocotools, on scenes at random and by hand."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from calib.data.truth import Boxes
from calib.validation.tasks.average_precision import IOU_THRESHOLDS, AveragePrecision
from calib.validation.tasks.boxes import Detections
from calib.validation.tasks.coco import evaluated, match_images

coco = pytest.importorskip("pycocotools.coco")
cocoeval = pytest.importorskip("pycocotools.cocoeval")

Scene = tuple[list[Boxes], list[Detections]]


def boxes_of(rows: Any, classes: Any, **more: Any) -> Boxes:
    count = len(classes)
    nothing = np.zeros(count, np.bool_)
    fields: dict[str, Any] = {"crowd": nothing, "difficult": nothing, **more}
    return Boxes(np.array(rows, np.float32).reshape(-1, 4), np.array(classes, np.int64), **fields)


def scene(images: int, classes: int, seed: int, *, crowds: float = 0.1) -> Scene:
    random = np.random.default_rng(seed)
    truth, found = [], []
    for _ in range(images):
        count = int(random.integers(0, 7))
        corner, size = random.uniform(0, 80, (count, 2)), random.uniform(5, 40, (count, 2))
        rows = np.concatenate([corner, corner + size], axis=1)
        labels = random.integers(0, classes, count)
        truth.append(boxes_of(rows, labels, crowd=random.random(count) < crowds))
        near = np.repeat(rows, 3, axis=0) + random.normal(0, 2, (3 * count, 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        guessed = np.repeat(labels, 3)
        wrong = random.random(len(guessed)) < 0.2
        guessed[wrong] = random.integers(0, classes, wrong.sum())
        found.append(Detections.of(near, random.random(len(guessed)), guessed).ordered(100))
    return truth, found


def by_pycocotools(truth: list[Boxes], found: list[Detections]) -> list[float]:
    """mAP, mAP50, mAP75, AR by pycocotools alone, from COCO's JSON."""
    objects, answers = [], []
    for image, (one, guesses) in enumerate(zip(truth, found, strict=True), start=1):
        for box, label, crowd in zip(one.boxes.astype(np.float64), one.classes, one.crowd, strict=True):
            width, height = (box[2:] - box[:2]).tolist()
            entry = {
                "bbox": [*box[:2].tolist(), width, height],
                "area": width * height,
                "iscrowd": int(crowd),
            }
            ids = {"id": len(objects) + 1, "image_id": image, "category_id": int(label)}
            objects.append({**entry, **ids})
        for box, score, label in zip(guesses.boxes, guesses.scores, guesses.classes, strict=True):
            bbox = [*box[:2].tolist(), *(box[2:] - box[:2]).tolist()]
            answers.append(
                {"image_id": image, "category_id": int(label), "bbox": bbox, "score": float(score)}
            )
    labels = sorted({entry["category_id"] for entry in objects})
    reference = coco.COCO()
    reference.dataset = {
        "images": [{"id": image + 1} for image in range(len(truth))],
        "annotations": objects,
        "categories": [{"id": label} for label in labels],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        reference.createIndex()
        evaluation = cocoeval.COCOeval(reference, reference.loadRes(answers), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    stats = evaluation.stats
    return [float(stats[index]) for index in (0, 1, 2, 8)]


def once(truth: list[Boxes], found: list[Detections]) -> list[float]:
    precision = AveragePrecision(match_images(truth, found, 100))
    return precision(np.ones((1, precision.units)))[0, :4].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_figures_are_those_of_pycocotools(seed: int) -> None:
    truth, found = scene(25, 4, seed)
    assert once(truth, found) == pytest.approx(by_pycocotools(truth, found), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_an_image_of_weight_k_counts_as_k_copies(seed: int) -> None:
    truth, found = scene(20, 3, seed)
    weights = np.random.default_rng(seed).integers(0, 4, 20)
    copies = [index for index, weight in enumerate(weights.tolist()) for _ in range(weight)]
    precision = AveragePrecision(match_images(truth, found, 100))
    figures = precision(np.stack([weights, np.ones(20)]).astype(np.float64))[:, :4]
    expected = by_pycocotools([truth[index] for index in copies], [found[index] for index in copies])
    assert figures[0].tolist() == pytest.approx(expected, abs=1e-12)
    assert figures[1].tolist() == pytest.approx(once(truth, found), abs=1e-15)


def test_each_class_has_its_own_average() -> None:
    truth, found = scene(25, 3, 1)
    precision = AveragePrecision(match_images(truth, found, 100))
    row = precision(np.ones((1, 25)))[0]
    assert precision.classes == (0, 1, 2)
    assert row[4:].mean() == pytest.approx(row[0], abs=1e-12)
    for place, label in enumerate(precision.classes):
        own = [
            boxes_of(
                t.boxes[t.classes == label], t.classes[t.classes == label], crowd=t.crowd[t.classes == label]
            )
            for t in truth
        ]
        guesses = [one.take(one.classes == label) for one in found]
        assert row[4 + place] == pytest.approx(by_pycocotools(own, guesses)[0], abs=1e-12)


def test_a_case_by_hand() -> None:
    # Two objects. By score: a hit, a miss, a hit; precision 1, 1/2, 2/3 at recall 1/2, 1/2, 1.
    truth = [boxes_of([[0, 0, 10, 10], [50, 50, 60, 60]], [0, 0])]
    found = [Detections.of([[0, 0, 10, 10], [80, 80, 90, 90], [50, 50, 60, 60]], [0.9, 0.8, 0.7], [0, 0, 0])]
    # Recalls 0, 0.01 … 0.5 have precision 1 (51 of them), 0.51 … 1 have 2/3 (50).
    expected = (51 * 1 + 50 * 2 / 3) / 101
    assert once(truth, found) == pytest.approx([expected, expected, expected, 1.0])


def test_overlap_decides_at_which_thresholds_an_object_is_found() -> None:
    # 8 of 10 columns in common: IoU 80 / 120 = 2/3, found at 0.5, 0.55, 0.6 and 0.65 of ten thresholds.
    truth = [boxes_of([[0, 0, 10, 10]], [0])]
    found = [Detections.of([[2, 0, 12, 10]], [0.9], [0])]
    assert once(truth, found) == pytest.approx([0.4, 1.0, 0.0, 0.4])
    assert len(IOU_THRESHOLDS) == 10


def test_crowds_and_difficult_objects_count_neither_for_nor_against() -> None:
    yes, no = np.array([True]), np.array([False])
    hit = boxes_of([[0, 0, 10, 10]], [0])
    for skipped in (
        boxes_of([[0, 0, 10, 10]], [0], crowd=yes),
        boxes_of([[0, 0, 10, 10]], [0], difficult=yes, crowd=no),
    ):
        found = [Detections.of([[0, 0, 10, 10]], [0.5], [0]), Detections.of([[0, 0, 10, 10]], [0.9], [0])]
        # The surest detection is on an ignored object: it is no false alarm before the other.
        assert once([hit, skipped], found) == pytest.approx([1.0] * 4)
        assert evaluated([hit, skipped], found, 100).params.catIds == [0]


def test_nothing_found_is_zero_and_no_object_is_nothing() -> None:
    empty = Detections.of([], [], [])
    truth = [boxes_of([[0, 0, 10, 10]], [0])]
    assert once(truth, [empty]) == [0.0, 0.0, 0.0, 0.0]
    assert match_images([boxes_of([], [])], [empty], 100) == ()
    draws = AveragePrecision(match_images([*truth, boxes_of([], [])], [empty, empty], 100))
    assert np.isnan(draws(np.array([[0.0, 2.0]]))).all()
