"""Annotated objects of an image, gathered one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calib.data.truth import Boxes

__all__ = ["BoxList", "faulty"]

Corners = tuple[float, float, float, float]


@dataclass
class BoxList:
    """The objects of one image, in the order of its annotations."""

    corners: list[Corners] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    crowd: list[bool] = field(default_factory=list)
    difficult: list[bool] = field(default_factory=list)
    areas: list[float] = field(default_factory=list)

    def add(
        self,
        corners: Corners,
        number: int,
        *,
        crowd: bool = False,
        difficult: bool = False,
        area: float | None = None,
    ) -> None:
        """Adds an object.

        Args:
            corners: Left, top, right, bottom in pixels of the image.
            number: Its class.
            crowd: Whether it stands for several objects.
            difficult: Whether it is not to be judged.
            area: Its area in pixels; None for that of the box.
        """
        left, top, right, bottom = corners
        self.corners.append(corners)
        self.classes.append(number)
        self.crowd.append(crowd)
        self.difficult.append(difficult)
        self.areas.append((right - left) * (bottom - top) if area is None else area)

    def boxes(self, size: tuple[int, int] | None, *, areas: bool = False) -> Boxes:
        """The objects as ground truth.

        Args:
            size: Height and width of the image, where known.
            areas: Whether areas are other than those of the boxes.
        """
        return Boxes(
            boxes=np.array(self.corners, np.float32).reshape(-1, 4),
            classes=np.array(self.classes, np.int64),
            crowd=np.array(self.crowd, np.bool_),
            difficult=np.array(self.difficult, np.bool_),
            size=size,
            areas=np.array(self.areas, np.float32) if areas else None,
        )


def faulty(corners: Sequence[float]) -> str | None:
    """What is wrong with a box, or None.

    >>> faulty((0, 0, 2, 2)), faulty((0, 0, 0, 2))
    (None, 'width 0')
    """
    if not all(map(math.isfinite, corners)):
        return "not finite"
    left, top, right, bottom = corners
    for name, extent in (("width", right - left), ("height", bottom - top)):
        if extent <= 0:
            return f"{name} {extent:g}"
    return None
