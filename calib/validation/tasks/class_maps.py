"""From the classes that a detector answers to those of the annotations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["COCO_80_TO_91", "mapped_classes", "named_classes"]

_LEFT_OUT = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
"""The ids between 1 and 90 that COCO's annotations of 2014 and 2017 do not use."""

COCO_80_TO_91: Mapping[int, int] = dict(
    enumerate(number for number in range(1, 91) if number not in _LEFT_OUT)
)
"""Class in a row, as YOLO models answer it → COCO's id: 0 → 1 (person) … 79 → 90 (toothbrush)."""


def named_classes(given: str | Mapping[int, int]) -> Mapping[int, int] | None:
    """The map that a recipe names; None for "identity"."""
    if given == "identity":
        return None
    return COCO_80_TO_91 if isinstance(given, str) else given


def mapped_classes(
    classes: npt.NDArray[np.int64], mapping: Mapping[int, int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Maps classes.

    Args:
        classes: Shape (n,).
        mapping: Class → class.

    Returns:
        The new classes, and whether the map has each of them.

    >>> found, known = mapped_classes(np.array([0, 79, 80]), COCO_80_TO_91)
    >>> found[known].tolist(), known.tolist()
    ([1, 90], [True, True, False])
    """
    known = np.array([int(label) in mapping for label in classes], np.bool_)
    found = np.array([mapping.get(int(label), -1) for label in classes], np.int64)
    return found, known
