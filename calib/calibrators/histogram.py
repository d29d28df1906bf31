"""TensorRT's growing histogram of absolute values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calib.data import Array

__all__ = ["BINS", "GrowingHistogram"]

BINS = 2048

_BLOCK = 1 << 16
"""Values counted at a time: their float64 copies stay in the processor's cache."""


class GrowingHistogram:
    """2048 equal bins of |x| over [0, R], where R doubles as often as needed.

    R is max|x| of the first batch that is not all zero. When a later batch goes beyond it, R doubles
    and neighbouring pairs of bins merge into the lower half until R covers the batch. This is what
    TensorRT 8.6.0 does; order and cut of the batches therefore matter a little.

    Attributes:
        limit: R, in the tensor's unit; 0.0 until a value other than zero came.
        counts: Number of values in each bin, int64, shape (2048,).
        total: Number of values counted, zeros of the leading all-zero batches included.
    """

    def __init__(self) -> None:
        self.limit = 0.0
        self.counts: npt.NDArray[np.int64] = np.zeros(BINS, np.int64)
        self.total = 0

    def add(self, values: Array, amax: float) -> None:
        """Counts a batch.

        Args:
            values: Finite floats of any shape.
            amax: max|values|, which the caller has computed already.
        """
        self.total += values.size
        if self.limit == 0.0:
            if amax == 0.0:
                self.counts[0] += values.size
                return
            self.limit = amax
        self.grow(amax)
        flat = values.reshape(-1)
        for start in range(0, flat.size, _BLOCK):
            self._count(flat[start : start + _BLOCK])

    def grow(self, amax: float) -> None:
        """Doubles R until it covers a value."""
        while amax > self.limit:
            self.limit *= 2.0
            half = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts[: BINS // 2] = half
            self.counts[BINS // 2 :] = 0

    def _count(self, values: Array) -> None:
        # |x|·2048 is exact; one division gives the same bin as TensorRT's arithmetic.
        position = np.abs(values, dtype=np.float64)
        position *= BINS
        position /= self.limit
        index = position.astype(np.int64)
        np.minimum(index, BINS - 1, out=index)
        self.counts += np.bincount(index, minlength=BINS)
