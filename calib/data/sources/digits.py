"""scikit-learn's handwritten digits: real images that need no download."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from calib.data.dataset import Array, Dataset, Sample
from calib.data.sources.base import Opening, SourceModel

__all__ = ["DigitsSource", "enlarge"]

_STORED = 8


class DigitsSource(SourceModel):
    """1,797 grey images of the digits 0 to 9, values 0 to 16, shape (1, size, size).

    Attributes:
        kind: ``digits``.
        size: Pixels a side. Other sizes than the stored 8 are interpolated linearly between pixel
            centres (scipy.ndimage.zoom, order 1, the border repeated).
        input: Name of the model's input.
    """

    kind: Literal["digits"]
    size: Annotated[int, Field(strict=True, ge=_STORED, le=1024)] = _STORED
    input: Annotated[str, Field(min_length=1)] = "input"

    def open(self, opening: Opening) -> Dataset:
        """Reads the images that scikit-learn brings."""
        images, labels = _digits()
        preprocess = opening.preprocess
        ids = tuple(f"digits#{index}" for index in range(len(images)))

        def load(index: int) -> Sample:
            origin = f"scikit-learn digits: image {index}"
            image = preprocess.apply(enlarge(images[index], self.size)[None], origin, "chw")
            return Sample(ids[index], {self.input: image}, labels[index], origin)

        return Dataset(
            name=opening.name,
            ids=ids,
            load=load,
            labels=labels,
            class_names=tuple("0123456789"),
            description=self.description(opening),
        )


@cache
def _digits() -> tuple[Array, tuple[int, ...]]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.images.astype(np.float32), tuple(int(label) for label in bunch.target)


def enlarge(image: Array, size: int) -> Array:
    """Interpolates a square image linearly to a larger one, on a grid of pixel areas.

    Args:
        image: Shape (height, width), both the same.
        size: Pixels a side of the result.

    Returns:
        Shape (size, size), the image's type.

    >>> enlarge(np.array([[0.0, 4.0], [0.0, 4.0]]), 4)[0].tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    from scipy.ndimage import zoom

    if size == image.shape[0]:
        same: Array = image.copy()
        return same
    result: Array = zoom(image, size / image.shape[0], order=1, mode="nearest", grid_mode=True)
    return result
