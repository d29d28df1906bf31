"""Where a pixel of the model's input lies in the image it came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Geometry"]


@dataclass(frozen=True)
class Geometry:
    """How preprocessing moved pixels: resizing, cropping and letterboxing together.

    Coordinates are those of pixel edges: ``model_x = source_x * scale_x + offset_x``, and so for y.

    Attributes:
        source: Height and width of the image as it was decoded.
        target: Height and width of the model's input.
        scale: Factors in x and y.
        offset: Shifts in x and y, in pixels of the model's input.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    scale: tuple[float, float] = (1.0, 1.0)
    offset: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def identity(cls, size: tuple[int, int]) -> Geometry:
        """Nothing moved: an image of a height and width, as it is."""
        return cls(size, size)

    def to_model(self, boxes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Boxes of the image in pixels of the model's input.

        Args:
            boxes: Left, top, right, bottom; shape (n, 4).

        Returns:
            Shape (n, 4), not clipped.

        >>> Geometry((100, 200), (50, 50), (0.25, 0.25), (0.0, 12.5)).to_model([[0, 0, 200, 100]]).tolist()
        [[0.0, 12.5, 50.0, 37.5]]
        """
        moved: npt.NDArray[np.float64] = _corners(boxes) * np.tile(self.scale, 2) + np.tile(self.offset, 2)
        return moved

    def to_source(self, boxes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Boxes of the model's input in pixels of the image, clipped to it.

        Args:
            boxes: Left, top, right, bottom; shape (n, 4).

        Returns:
            Shape (n, 4).

        >>> Geometry((100, 200), (50, 50), (0.25, 0.25), (0.0, 12.5)).to_source([[0, 0, 50, 37.5]]).tolist()
        [[0.0, 0.0, 200.0, 100.0]]
        """
        height, width = self.source
        moved = (_corners(boxes) - np.tile(self.offset, 2)) / np.tile(self.scale, 2)
        inside: npt.NDArray[np.float64] = np.clip(moved, 0.0, np.array([width, height, width, height]))
        return inside


def _corners(boxes: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return np.asarray(boxes, np.float64).reshape(-1, 4)
