"""Model inputs back to pictures: what the model sees, shown to people."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib.data.dataset import Array, Dataset
from calib.data.overview import channel_axis, steps_of
from calib.data.preprocess import Preprocess

__all__ = ["Display", "restored"]

Picture = npt.NDArray[np.uint8]

_TOLERANCE = 0.75


def restored(values: Array, steps: Preprocess) -> Array:
    """Undoes std, mean, scale and layout: values as they were stored, channels last.

    Args:
        values: One input of one sample, of two or three axes.
        steps: The preprocessing that was done.

    Returns:
        float64, shape (height, width, channels).

    >>> steps = Preprocess(scale="1/255", mean=0.5, std=0.25)
    >>> restored(steps.apply(np.full((1, 1, 2), 51.0), "x", "chw"), steps).ravel().round(4).tolist()
    [51.0, 51.0]
    """
    exact = np.asarray(values, np.float64)
    if exact.ndim == 2:
        exact = exact[None]
    axis = channel_axis(exact.shape, steps.layout) if values.ndim == 3 else 0
    last = np.moveaxis(exact, 0 if axis is None else axis, -1)
    if steps.layout in ("cwh", "whc") and values.ndim == 3:
        last = last.swapaxes(0, 1)
    numbers = (np.asarray(number, np.float64) for number in (steps.std, steps.mean))
    std, mean = (number if number.size in (1, last.shape[-1]) else np.float64(1) for number in numbers)
    undone: Array = (last * std + mean) / steps.scale
    return undone


@dataclass(frozen=True)
class Display:
    """How values become grey: the same for all pictures of a sheet, so that they can be compared.

    Attributes:
        steps: The preprocessing that is undone.
        low: What is drawn black, as stored.
        high: What is drawn white.
        note: Says so.
    """

    steps: Preprocess
    low: float
    high: float
    note: str

    @classmethod
    def of(cls, dataset: Dataset, arrays: list[Array]) -> Display:
        """Decides how to draw some samples of a dataset.

        Args:
            dataset: Where they come from.
            arrays: What is going to be drawn.
        """
        steps = steps_of(dataset)
        if "decoder" in dataset.description.get("preprocess", {}):
            return cls(steps, 0.0, 255.0, "scale, mean and std undone: grey values 0 to 255")
        shown = [_ends(restored(array, steps)) for array in arrays]
        low, high = min(ends[0] for ends in shown), max(ends[1] for ends in shown)
        for top in (1.0, 255.0):
            if low >= 0 and top / 2 < high <= top:
                return cls(steps, 0.0, top, f"before scale, mean and std from 0 (black) to {top:g} (white)")
        return cls(
            steps, low, high, f"before scale, mean and std from {low:.4g} (black) to {high:.4g} (white)"
        )

    def picture(self, values: Array) -> tuple[Picture, bool]:
        """Draws one input of one sample.

        Args:
            values: Of two axes, or three with 1, 3 or 4 channels.

        Returns:
            Shape (height, width, 3), and whether values lay beyond black or white.
        """
        stored = restored(values, self.steps)
        grey = (stored - self.low) * (255.0 / ((self.high - self.low) or 1.0))
        known = grey[np.isfinite(grey)]
        outside = bool(
            known.size < grey.size or (known < -_TOLERANCE).any() or (known > 255 + _TOLERANCE).any()
        )
        rounded = np.clip(np.rint(np.nan_to_num(grey)), 0, 255).astype(np.uint8)
        colors = np.repeat(rounded, 3, axis=2) if rounded.shape[2] == 1 else rounded[..., :3]
        return (colors[..., ::-1] if self.steps.color == "bgr" else colors), outside


def _ends(values: Array) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
