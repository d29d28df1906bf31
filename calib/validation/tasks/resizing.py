"""Scores of pixels at another size, as PyTorch's ``interpolate`` computes them (``align_corners=False``)."""

from __future__ import annotations

import numpy as np

from calib.data import Array
from calib.validation.intervals import Floats

__all__ = ["resize_bilinear", "resize_nearest"]


def resize_nearest(scores: Array, size: tuple[int, int]) -> Array:
    """Each new pixel is the old one at ⌊index · old / new⌋.

    Args:
        scores: Shape [channels, height, width].
        size: New height and width.

    >>> resize_nearest(np.array([[[1, 2]]]), (2, 4)).tolist()
    [[[1, 1, 2, 2], [1, 1, 2, 2]]]
    """
    rows, columns = (np.arange(new) * old // new for new, old in zip(size, scores.shape[1:], strict=True))
    return scores[:, rows[:, None], columns[None, :]]


def resize_bilinear(scores: Floats, size: tuple[int, int]) -> Floats:
    """Each new pixel mixes the four old ones around (index + ½) · old / new − ½.

    Args:
        scores: Shape [channels, height, width].
        size: New height and width.

    >>> resize_bilinear(np.array([[[0.0, 1.0]]]), (1, 4)).tolist()
    [[[0.0, 0.25, 0.75, 1.0]]]
    """
    return _along(_along(scores, size[0], 1), size[1], 2)


def _along(scores: Floats, new: int, axis: int) -> Floats:
    old = scores.shape[axis]
    place = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0.0, None)
    low = np.minimum(place.astype(np.int64), old - 1)
    high = np.minimum(low + 1, old - 1)
    shape = [1, 1, 1]
    shape[axis] = new
    share = (place - low).reshape(shape)
    # A score may be infinite, of a class that is ruled out; 0 times that would be NaN.
    with np.errstate(invalid="ignore"):
        other = np.where(share == 0, 0.0, np.take(scores, high, axis) * share)
        mixed: Floats = np.take(scores, low, axis) * (1 - share) + other
    return mixed
