"""Ground truth of tasks whose label is more than a class number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["IGNORED", "Boxes", "Mask", "Pair"]

Mask = npt.NDArray[np.int32]
"""Class number of every pixel of the model's input, shape (height, width); ``IGNORED`` is not judged."""

IGNORED = 255


@dataclass(frozen=True, eq=False)
class Boxes:
    """The objects in one image.

    Attributes:
        boxes: Left, top, right, bottom in pixels of the image as it was decoded; float32, shape (n, 4).
        classes: Class number of each object as the recipe counts them; int64, shape (n,).
        crowd: Whether each box stands for a crowd of objects (COCO's ``iscrowd``); bool, shape (n,).
        difficult: Whether each object is not to be judged (Pascal VOC's ``difficult``); bool, shape (n,).
        size: Height and width of the image; None where the annotations do not say.
        areas: Area of each object in pixels, as the annotations give it; None where it is the box's.
    """

    boxes: npt.NDArray[np.float32]
    classes: npt.NDArray[np.int64]
    crowd: npt.NDArray[np.bool_]
    difficult: npt.NDArray[np.bool_]
    size: tuple[int, int] | None = None
    areas: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Pair:
    """One of two samples whose similarity is known.

    Attributes:
        pair: Names the pair; both of its samples have it.
        score: How alike the two are, in the data's own unit.
    """

    pair: str
    score: float
