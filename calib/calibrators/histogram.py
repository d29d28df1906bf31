"""TensorRT's growing histogram of absolute values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from calib.calibrators.base import Arrays, absolute_maximum, checked, refuse_state
from calib.calibrators.kernels import flat_float32, load_kernels
from calib.data import Array
from calib.errors import CalibrationError

__all__ = ["BINS", "GrowingHistogram"]

BINS = 2048

_LAST = BINS - 1

_LEVELS = 300
"""More doublings than lie between the smallest and the largest float32."""

_ROUND_UP = 1.0 + 2.0**-45
"""See ``GrowingHistogram._tallied``."""


class GrowingHistogram:
    """2048 equal bins of |x| over [0, R], where R doubles as often as needed.

    R is R₀ = max|x| of the first batch that is not all zero. When a batch goes beyond it, R doubles and
    neighbouring pairs of bins merge into the lower half until R covers the batch. Bins include their
    lower edge; the value R itself is counted in the last bin. This is what TensorRT 8.6.0 does.

    Cutting a batch into parts changes no bit, and neither does counting batches in several histograms
    of one R₀ that are merged in order. One kind of value needs care there: |x| = R. TensorRT grows
    before it counts a batch, so such a value lies in bin 2047 if R stayed and in bin 1024 if R doubled
    in this batch or any earlier one. Until the batch ends those values wait beside the bins, and it is
    remembered how many came to the last bin at which R.

    Attributes:
        first: R₀ in the tensor's unit; 0.0 until it is known.
        level: Number of doublings: R = R₀·2^level.
    """

    def __init__(self) -> None:
        self.first = 0.0
        self.level = 0
        # One more than the bins: the values |x| = R of the batch that is being counted.
        self._bins = np.zeros(BINS + 1, np.int64)
        self._edges = np.zeros(_LEVELS, np.int64)

    @property
    def limit(self) -> float:
        """R, the upper edge of the last bin, in the tensor's unit; 0.0 for an all-zero tensor."""
        return self.first * 2.0**self.level

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Number of values in each bin, int64, shape (2048,)."""
        counts: npt.NDArray[np.int64] = self._bins[:BINS].copy()
        counts[_LAST] += self._bins[BINS]
        return counts

    @property
    def total(self) -> int:
        """Number of values counted."""
        return int(self._bins.sum())

    @property
    def unopened(self) -> bool:
        """Whether R₀ is not known yet."""
        return self.first == 0.0

    @property
    def grid(self) -> float:
        """R₀; 0.0 until it is known."""
        return self.first

    def open(self, amax: float) -> None:
        """Sets R₀, once."""
        if self.unopened:
            self.first = amax

    def add(self, values: Array) -> bool:
        """Counts values of the current batch.

        Args:
            values: Floats of any shape.

        Returns:
            Whether all are finite in float32; if not, nothing is counted.

        Raises:
            CalibrationError: There are values other than zero, and R₀ was not told.
        """
        flat = flat_float32(values)
        if not self.unopened:
            found = self._tallied(flat)
            if not found[BINS:].any():
                self._bins += found[: BINS + 1]
                return True
        # Some values may lie beyond R, which is seldom: only then is the largest one looked for.
        amax = absolute_maximum(flat)
        if not np.isfinite(amax):
            return False
        if amax == 0.0:
            self._bins[0] += flat.size
            return True
        if self.unopened:
            raise CalibrationError("open() must tell the largest value of the batch before add().")
        if amax > self.limit:
            self._grow_to(amax)
            found = self._tallied(flat)
        self._bins += found[: BINS + 1]
        return True

    def _tallied(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Number of values in each bin, then of those at or just above R, then of those beyond and NaN.

        ⌊|x|·2048/R⌋ without a division: |x| and R are 24-bit numbers times powers of two, so the exact
        quotient is a whole number or at least 2⁻²⁴ away from one. The product of |x| and 2048/R, both
        rounded, is off by less than 2⁻⁴⁰; rounding the factor up by 2⁻⁴⁵ keeps whole numbers from
        falling below themselves and brings no other across.
        """
        found = np.empty(BINS + 2, np.int64)
        load_kernels().tally(values, BINS / self.limit * _ROUND_UP, found)
        return found

    def end_batch(self) -> None:
        """Puts the values |x| = R into the last bin."""
        waiting = self._bins[BINS]
        if waiting:
            self._edges[self.level] += waiting
            self._bins[_LAST] += waiting
            self._bins[BINS] = 0

    def merge(self, later: GrowingHistogram) -> None:
        """Takes in the histogram of the batches that follow.

        Raises:
            CalibrationError: The two have different R₀; nothing changes.
        """
        if later.unopened:
            self._bins += later._bins
            return
        if not self.unopened and self.first != later.first:
            raise CalibrationError(f"The grids differ: they begin at {self.first!r} and {later.first!r}.")
        self.open(later.first)
        reached = self.level
        aligned = GrowingHistogram.from_state(later.state())
        # In one pass R would have doubled before these batches: their edges were no edges then.
        for level in np.flatnonzero(aligned._edges[:reached]):
            aligned._move_edge(int(level))
        aligned._grow_by(reached - aligned.level)
        self._grow_by(aligned.level - self.level)
        self._bins += aligned._bins
        self._edges += aligned._edges

    def _move_edge(self, level: int) -> None:
        """Moves what was put into the last bin at a level to where it lies on a wider grid."""
        moved = self._edges[level]
        self._edges[level] = 0
        if level == self.level:
            # It waits again, as if its batch had not ended.
            self._bins[_LAST] -= moved
            self._bins[BINS] += moved
        else:
            self._bins[_LAST >> (self.level - level)] -= moved
            self._bins[BINS >> (self.level - level)] += moved

    def _grow_to(self, amax: float) -> None:
        while amax > self.limit:
            self._grow_by(1)

    def _grow_by(self, doublings: int) -> None:
        for _ in range(doublings):
            waiting = self._bins[BINS]
            self._bins[: BINS // 2] = self._bins[:BINS].reshape(-1, 2).sum(axis=1)
            self._bins[BINS // 2 :] = 0
            self._bins[BINS // 2] = waiting
            self.level += 1

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything as plain arrays: "first", "level", "bins" and "edges"."""
        return {
            "first": np.array(self.first, np.float32),
            "level": np.array(self.level, np.int64),
            "bins": self._bins.copy(),
            "edges": self._edges.copy(),
        }

    @classmethod
    def from_state(cls, state: Arrays) -> Self:
        """The histogram whose state was saved.

        Raises:
            CalibrationError: It is no state of such a histogram.
        """
        made = cls()
        made.first = float(checked(state, "first", (), np.float32))
        made.level = int(checked(state, "level", (), np.int64))
        made._bins = checked(state, "bins", (BINS + 1,), np.int64).copy()
        made._edges = checked(state, "edges", (_LEVELS,), np.int64).copy()
        if not np.isfinite(made.first) or made.first < 0 or not 0 <= made.level < _LEVELS:
            refuse_state(f"R₀ is {made.first}, doubled {made.level} times")
        if (made._bins < 0).any() or (made._edges < 0).any():
            refuse_state("a count is negative")
        return made
