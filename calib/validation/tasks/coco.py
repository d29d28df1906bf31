"""Which detections find which objects, by COCO's rules: pycocotools matches, the rest is counted here."""

from __future__ import annotations

import contextlib
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.data.truth import Boxes
from calib.errors import require
from calib.validation.intervals import Floats
from calib.validation.tasks.boxes import Detections

__all__ = ["ClassMatches", "evaluated", "match_images"]

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ClassMatches:
    """The detections of one class in all images, the highest score first.

    Attributes:
        label: The class number.
        images: Image of each detection, shape (n,).
        found: Whether each finds an object at each IoU threshold, shape (thresholds, n).
        ignored: Whether each counts neither for nor against: it is on a crowd or a difficult object.
        objects: Objects of the class in each image that are to be found, shape (images,).
    """

    label: int
    images: npt.NDArray[np.int64]
    found: Flags
    ignored: Flags
    objects: Floats


def evaluated(truth: Sequence[Boxes], found: Sequence[Detections], most: int) -> Any:
    """Pycocotools' evaluation of some images, matched but not accumulated.

    Objects marked difficult are ignored, as crowds are, but overlap like any other.

    Args:
        truth: The objects of each image.
        found: The detections of each image.
        most: Detections of an image that count.

    Returns:
        A ``COCOeval`` whose ``accumulate`` may be called.

    Raises:
        MissingExtraError: pycocotools is not installed.
    """
    module = require("pycocotools.cocoeval", "coco", "Judging detections")

    class Evaluation(module.COCOeval):  # type: ignore[misc, name-defined]
        def _prepare(self) -> None:
            """Objects and detections as they are at hand, in place of COCO's JSON."""
            self._gts, self._dts = _objects(truth), _detections(found)
            self.evalImgs: Any = defaultdict(list)
            self.eval: Any = {}

    evaluation = Evaluation(iouType="bbox")
    evaluation.params.imgIds = list(range(len(truth)))
    evaluation.params.catIds = sorted({int(label) for one in truth for label in one.classes})
    evaluation.params.maxDets = sorted({1, min(10, most), most})
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
        evaluation.evaluate()
    return evaluation


def _objects(truth: Sequence[Boxes]) -> Any:
    groups: Any = defaultdict(list)
    number = 0
    for image, one in enumerate(truth):
        sizes = one.boxes[:, 2:] - one.boxes[:, :2]
        areas = sizes.prod(axis=1) if one.areas is None else one.areas
        for index, label in enumerate(one.classes):
            number += 1  # 0 would read as "no match"
            crowd = bool(one.crowd[index])
            groups[image, int(label)].append(
                {
                    "id": number,
                    "bbox": [*map(float, one.boxes[index, :2]), *map(float, sizes[index])],
                    "area": float(areas[index]),
                    "iscrowd": int(crowd),
                    "ignore": int(crowd or bool(one.difficult[index])),
                }
            )
    return groups


def _detections(found: Sequence[Detections]) -> Any:
    groups: Any = defaultdict(list)
    number = 0
    for image, one in enumerate(found):
        sizes = one.boxes[:, 2:] - one.boxes[:, :2]
        for index, label in enumerate(one.classes):
            number += 1
            box = [*one.boxes[index, :2].tolist(), *sizes[index].tolist()]
            area = float(sizes[index].prod())
            score = float(one.scores[index])
            groups[image, int(label)].append({"id": number, "bbox": box, "area": area, "score": score})
    return groups


def match_images(truth: Sequence[Boxes], found: Sequence[Detections], most: int) -> tuple[ClassMatches, ...]:
    """Matches once what every resample of the images is made of.

    Args:
        truth: The objects of each image.
        found: The detections of each image.
        most: Detections of an image and class that count.

    Returns:
        One for each class that has objects.
    """
    evaluation = evaluated(truth, found, most)
    classes, images = evaluation.params.catIds, len(truth)
    thresholds = len(evaluation.params.iouThrs)
    return tuple(
        _class_matches(label, evaluation.evalImgs[index * images : (index + 1) * images], thresholds)
        for index, label in enumerate(classes)
    )


def _class_matches(label: int, parts: Sequence[Any], thresholds: int) -> ClassMatches:
    objects = np.zeros(len(parts))
    scores, images, found, ignored = [np.empty(0)], [np.empty(0, np.int64)], [], []
    for image, part in enumerate(parts):
        if part is None:
            continue
        objects[image] = np.count_nonzero(np.asarray(part["gtIgnore"]) == 0)
        scores.append(np.asarray(part["dtScores"], np.float64))
        images.append(np.full(len(part["dtScores"]), image))
        found.append(np.asarray(part["dtMatches"]).reshape(thresholds, -1) > 0)
        ignored.append(np.asarray(part["dtIgnore"]).reshape(thresholds, -1) > 0)
    nothing = np.empty((thresholds, 0), np.bool_)
    order = np.argsort(-np.concatenate(scores), kind="mergesort")
    skipped = np.concatenate([nothing, *ignored], axis=1)[:, order]
    return ClassMatches(
        label=label,
        images=np.concatenate(images)[order],
        found=np.concatenate([nothing, *found], axis=1)[:, order] & ~skipped,
        ignored=skipped,
        objects=objects,
    )
