"""Boxes: overlap, suppression of doubles, one-to-one matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.validation.intervals import Floats

__all__ = ["Detections", "corners", "count_matches", "overlaps", "suppress"]

_CENTRES = 0.5


@dataclass(frozen=True, eq=False)
class Detections:
    """What a model finds in one image, the highest score first.

    Attributes:
        boxes: Left, top, right, bottom in pixels; float64, shape (n, 4).
        scores: Shape (n,).
        classes: Class numbers; int64, shape (n,).
    """

    boxes: Floats
    scores: Floats
    classes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, index: npt.NDArray[Any]) -> Detections:
        """Some of them, by index or mask."""
        return Detections(self.boxes[index], self.scores[index], self.classes[index])

    def ordered(self, most: int) -> Detections:
        """At most so many, the highest score first; of equals the earlier."""
        return self.take(np.argsort(-self.scores, kind="stable")[:most])

    @classmethod
    def of(cls, boxes: npt.ArrayLike, scores: npt.ArrayLike, classes: npt.ArrayLike) -> Detections:
        """Detections of arrays of any number types."""
        return cls(
            np.asarray(boxes, np.float64).reshape(-1, 4),
            np.asarray(scores, np.float64).reshape(-1),
            np.asarray(classes).reshape(-1).astype(np.int64),
        )


def corners(boxes: npt.ArrayLike) -> Floats:
    """Centre and size → left, top, right, bottom.

    >>> corners([[10, 20, 4, 6]]).tolist()
    [[8.0, 17.0, 12.0, 23.0]]
    """
    given = np.asarray(boxes, np.float64).reshape(-1, 4)
    centre, half = given[:, :2], given[:, 2:] * _CENTRES
    return np.concatenate([centre - half, centre + half], axis=1)


def overlaps(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """Intersection over union of every pair of boxes, shape (n, m); 0 where both boxes are empty.

    >>> overlaps([[0, 0, 2, 2]], [[1, 0, 3, 2], [5, 5, 6, 6]]).round(4).tolist()   # 2 / (4 + 4 − 2)
    [[0.3333, 0.0]]
    """
    left = np.asarray(first, np.float64).reshape(-1, 1, 4)
    right = np.asarray(second, np.float64).reshape(1, -1, 4)
    low, high = np.maximum(left[..., :2], right[..., :2]), np.minimum(left[..., 2:], right[..., 2:])
    common = np.prod(np.clip(high - low, 0.0, None), axis=-1)
    union = _areas(left) + _areas(right) - common
    shared: Floats = np.divide(common, union, out=np.zeros_like(union), where=union > 0)
    return shared


def _areas(boxes: Floats) -> Floats:
    areas: Floats = np.prod(boxes[..., 2:] - boxes[..., :2], axis=-1)
    return areas


def suppress(found: Detections, overlap: float, most: int) -> Detections:
    """Drops the weaker of two boxes of one class that overlap more than allowed.

    Boxes are taken by score, and each that overlaps one of its class which was taken already is left out
    (non-maximum suppression, as ``torchvision.ops.batched_nms``).

    Args:
        found: Detections of one image.
        overlap: IoU that two boxes of a class may have.
        most: Detections that are wanted, at most.
    """
    rest = found.ordered(len(found))
    index = np.arange(len(rest))
    kept: list[int] = []
    while len(index) and len(kept) < most:
        first, others = index[0], index[1:]
        kept.append(int(first))
        shared = overlaps(rest.boxes[first], rest.boxes[others])[0]
        index = others[(shared <= overlap) | (rest.classes[others] != rest.classes[first])]
    return rest.take(np.array(kept, np.int64))


def count_matches(first: Detections, second: Detections, overlap: float = 0.5) -> int:
    """How many of two sets of detections are the same: of one class, overlapping, each used once.

    The strongest of the first set chooses first, and takes the box that it overlaps most.
    """
    if not len(first) or not len(second):
        return 0
    shared = overlaps(first.boxes, second.boxes)
    shared[first.classes[:, None] != second.classes[None, :]] = -1.0
    matched = 0
    for row in np.argsort(-first.scores, kind="stable"):
        column = int(shared[row].argmax())
        if shared[row, column] >= overlap:
            matched += 1
            shared[:, column] = -1.0
    return matched
