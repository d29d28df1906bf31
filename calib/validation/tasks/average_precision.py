"""Average precision from matches, for any weights of the images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.validation.intervals import Floats
from calib.validation.tasks.coco import ClassMatches

__all__ = ["IOU_THRESHOLDS", "AveragePrecision"]

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)
_AT = {"mAP50": 0, "mAP75": 5}


class _Curve:
    """One class at one threshold: where in the order of scores objects are found.

    Between two objects found precision only falls, so that the envelope needs those places alone.
    """

    def __init__(self, matches: ClassMatches, threshold: int) -> None:
        self.places = np.flatnonzero(matches.found[threshold])
        self.images = matches.images[self.places]
        ignored = np.flatnonzero(matches.ignored[threshold])
        self.ignored_images = matches.images[ignored]
        self.before = np.searchsorted(ignored, self.places)

    def evaluate(self, weights: Floats, total: Floats, objects: Floats) -> tuple[Floats, Floats]:
        """Average precision and largest recall of each draw.

        Args:
            weights: Of the images, shape [draws, images].
            total: Detections up to each place of the order, shape [draws, places].
            objects: Objects to be found, shape [draws, 1].
        """
        if not len(self.places):
            return np.zeros(len(weights)), np.zeros(len(weights))
        right = np.cumsum(weights[:, self.images], axis=1)
        counted = total[:, self.places]
        if len(self.ignored_images):
            skipped = np.cumsum(weights[:, self.ignored_images], axis=1)
            counted = counted - np.pad(skipped, ((0, 0), (1, 0)))[:, self.before]
        # The smallest number beside the divisor, and the order of divisions, are pycocotools'.
        precision = right / (counted + np.spacing(1))
        recall = right / objects
        envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        passed = np.searchsorted(_RECALLS, recall, side="right")
        steps = np.diff(passed, axis=1, prepend=0)
        return (envelope * steps).sum(axis=1) / len(_RECALLS), recall[:, -1]


class AveragePrecision:
    """COCO's mAP, mAP50, mAP75 and AR as a function of image weights.

    For a class and an IoU threshold the precision at each of 101 recalls is the highest at that recall or
    beyond, and their mean is the average precision; mAP is its mean over classes and ten thresholds from
    0.5 to 0.95, AR that of the largest recall. Classes without objects are left out. An image of weight k
    counts as k copies of it.

    These figures are higher the fewer images there are, since the envelope takes the best of what chance
    gives. In 120 simulated sets of 40 images the 95 % BCa interval of mAP held the mAP of 4000 images in 81 %
    (in 150 sets of 100 images in 86 %; percentiles in 48 % and 64 %). In differences of two runs the bias
    cancels: percentiles held the true one in 95 % and 94 %, BCa in 92 % and 89 %.

    Args:
        matches: Of each class that has objects.

    Attributes:
        classes: Class numbers; each has its average precision over the thresholds.
    """

    names = ("mAP", "mAP50", "mAP75", "AR")
    biased = names

    def __init__(self, matches: Sequence[ClassMatches]) -> None:
        self.matches = tuple(matches)
        self.classes = tuple(one.label for one in self.matches)
        self.units = len(matches[0].objects) if matches else 0

    @cached_property
    def _curves(self) -> tuple[tuple[_Curve, ...], ...]:
        thresholds = range(len(IOU_THRESHOLDS))
        return tuple(tuple(_Curve(one, threshold) for threshold in thresholds) for one in self.matches)

    @cached_property
    def work(self) -> int:
        """Numbers that one evaluation touches."""
        found = sum(6 * len(curve.places) for curves in self._curves for curve in curves)
        return found + sum(2 * len(one.images) for one in self.matches) + self.units

    def __call__(self, weights: Floats) -> Floats:
        """The figures of each draw, then the average precision of each class."""
        precision, recall = self.table(weights)
        figures = [
            _mean(precision, (0, 1)),
            *(_mean(precision[:, place : place + 1], (0, 1)) for place in _AT.values()),
            _mean(recall, (0, 1)),
        ]
        return np.concatenate([np.stack(figures, axis=1), _mean(precision, (1,)).T], axis=1)

    def table(self, weights: Floats) -> tuple[Floats, Floats]:
        """Average precision and largest recall, each of shape [classes, thresholds, draws]; NaN for none."""
        shape = (len(self.matches), len(IOU_THRESHOLDS), len(weights))
        precision, recall = np.full(shape, np.nan), np.full(shape, np.nan)
        for row, (matches, curves) in enumerate(zip(self.matches, self._curves, strict=True)):
            objects = (weights @ matches.objects)[:, None]
            known = objects[:, 0] > 0
            total = np.cumsum(weights[:, matches.images], axis=1)
            safe = np.where(objects > 0, objects, 1.0)
            for column, curve in enumerate(curves):
                found = curve.evaluate(weights, total, safe)
                precision[row, column, known], recall[row, column, known] = (part[known] for part in found)
        return precision, recall


def _mean(values: Floats, axes: Any) -> Floats:
    """The mean over axes of what is no NaN; NaN where nothing is."""
    known: npt.NDArray[np.bool_] = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(known, values, 0.0).sum(axis=axes) / known.sum(axis=axes)
    return found
