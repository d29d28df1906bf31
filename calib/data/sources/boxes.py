"""Annotated objects of an image, gathered one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calib.data.findings import Doubt
from calib.data.sources.base import listed
from calib.data.truth import Boxes
from calib.wording import counted, inflected

__all__ = ["BoxList", "Corners", "beyond_notes", "faulty", "reaches_beyond"]

_SLACK = 2.0

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


def faulty(corners: Sequence[float], size: tuple[int, int] | None = None) -> str | None:
    """What is wrong with a box, or None.

    Args:
        corners: Left, top, right, bottom in pixels.
        size: Height and width of the image, where known.

    >>> faulty((0, 0, 2, 2)), faulty((0, 0, 0, 2)), faulty((40, 0, 50, 2), (32, 32))
    (None, 'width 0', 'outside of the image of 32 × 32 pixels, height × width')
    """
    if not all(map(math.isfinite, corners)):
        return "not finite"
    left, top, right, bottom = corners
    for name, extent in (("width", right - left), ("height", bottom - top)):
        if extent <= 0:
            return f"{name} {extent:g}"
    if size is not None and (right <= 0 or bottom <= 0 or left >= size[1] or top >= size[0]):
        return f"outside of the image of {size[0]} × {size[1]} pixels, height × width"
    return None


def reaches_beyond(corners: Sequence[float], size: tuple[int, int] | None) -> bool:
    """Whether a box reaches further beyond the edges of its image than rounding explains.

    >>> reaches_beyond((-3, 0, 4, 9), (9, 8)), reaches_beyond((0, 0, 9, 9), (8, 8))
    (True, False)
    """
    if size is None:
        return False
    left, top, right, bottom = corners
    return max(-left, -top, right - size[1], bottom - size[0]) > _SLACK


def beyond_notes(names: Sequence[str]) -> list[Doubt]:
    """What there is to say of such boxes: they are judged by as they are, as COCO's own tools do.

    Args:
        names: The boxes, as messages name them.
    """
    if not names:
        return []
    reach = counted(
        len(names), f"box[ reaches|es reach] more than {_SLACK:g} pixels beyond [its image|their images]"
    )
    used = inflected(len(names), "[is used as it is|are used as they are]")
    text = f"{reach}, and {used}: {listed(list(names))}. Are they of images of another size?"
    return [Doubt(text, "boxes-beyond")]
