"""A histogram of absolute values on a grid that no data can move, and the calibrators built on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Self, override

from calib.calibrators.amax import LEAST_MASK
from calib.calibrators.base import Arrays, Calibrator, checked, refuse_state
from calib.calibrators.kernels import FINE, LOW, OCTAVES, flat_float32, float_of_bits, load_kernels
from calib.data import Array

__all__ = ["FINE", "LOW", "OCTAVES", "MagnitudeCalibrator", "MagnitudeHistogram"]

_EXPONENTS = 256
_DOMINATED = 1e6
_ORDINARY = 1e-3
_ORDINARY_SHARE = 0.05


class MagnitudeHistogram:
    """Counts of |x| in bins cut from the bits of float32.

    A positive float32 read as an integer is ``exponent · 2²³ + mantissa``, and grows with the value.
    Its upper bits are therefore a bin number: without the lower 12 bits an octave [2ᵉ, 2ᵉ⁺¹) has 2048
    bins of relative width at most 2⁻¹¹; without the lower 18 bits it has 32, of at most 2⁻⁵. Fine bins
    are kept for the octave of amax and the 15 below, the 32 low bins for every octave further down.
    Zeros and subnormals, which processors commonly flush to zero, are one bin of their own. float16
    is counted exactly; float64 is rounded to float32 first.

    **The state depends on the multiset of counted values alone**, not on their order, nor on how they
    were cut into batches or shared out between histograms that are merged: amax is their maximum,
    which is such a function. Let t be its octave. A value of octave e is in a fine bin if e > t − 16,
    and else in a low bin. It was counted when the top octave was some t′ ≤ t, in a fine bin if
    e > t′ − 16; each time the top rises, the octaves that fall out of the window are added up into
    their low bins, each of which is exactly 64 fine ones. So whichever way a value went, it ends in the
    bin that its own bits and t name, and counts are sums of integers.

    Memory: 320 KiB, for any number of values.

    >>> histogram = MagnitudeHistogram()
    >>> histogram.add(np.array([0.0, -3.0, 0.5, 1.0], np.float32))
    True
    >>> histogram.total, histogram.zeros, histogram.amax
    (4, 1, 3.0)

    Attributes:
        amax: max|x|, exact, as float32 holds it; 0.0 until a value other than zero came.
    """

    unopened = False
    grid = 0.0

    def __init__(self) -> None:
        self.amax = 0.0
        # One array, so that counting a value is one addition wherever it falls.
        self._bins: npt.NDArray[np.int64] = np.zeros(OCTAVES * FINE + _EXPONENTS * LOW, np.int64)

    @property
    def fine(self) -> npt.NDArray[np.int64]:
        """Counts of the fine bins, shape (16, 2048), ascending; the last row is the octave of amax."""
        return self._bins[: OCTAVES * FINE].reshape(OCTAVES, FINE)

    @property
    def low(self) -> npt.NDArray[np.int64]:
        """Counts of the low bins, shape (256, 32), by float32's biased exponent; row 0 holds the zeros."""
        return self._bins[OCTAVES * FINE :].reshape(_EXPONENTS, LOW)

    @property
    def top(self) -> int:
        """Biased exponent of amax: its octave is [2^(top − 127), 2^(top − 126)); 0 for zero or subnormal."""
        return int(np.float32(self.amax).view(np.uint32)) >> 23

    @property
    def zeros(self) -> int:
        """Number of zeros and subnormals."""
        return int(self.low[0, 0])

    @property
    def total(self) -> int:
        """Number of values counted."""
        return int(self._bins.sum())

    def add(self, values: Array) -> bool:
        """Counts values.

        Args:
            values: Floats of any shape.

        Returns:
            Whether all are finite in float32; if not, nothing is counted.
        """
        kernels, flat = load_kernels(), flat_float32(values)
        amax = float_of_bits(kernels.largest(flat))
        if not np.isfinite(amax):
            return False
        self._raise_to(amax)
        kernels.tally_bits(flat.view(np.uint32), (self.top - OCTAVES + 1) * FINE, self._bins)
        return True

    def open(self, amax: float) -> None:
        """Nothing hangs on the first batch."""

    def end_batch(self) -> None:
        """Nothing hangs on the cut of the batches."""

    def merge(self, later: MagnitudeHistogram) -> None:
        """Adds what another histogram counted; the same as counting its values here."""
        aligned = MagnitudeHistogram()
        aligned.amax, aligned._bins = later.amax, later._bins.copy()
        aligned._raise_to(self.amax)
        self._raise_to(later.amax)
        self._bins += aligned._bins

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """All of the histogram as plain arrays: "amax", "fine" and "low"."""
        return {"amax": np.array(self.amax, np.float32), "fine": self.fine.copy(), "low": self.low.copy()}

    @classmethod
    def from_state(cls, state: Arrays) -> Self:
        """The histogram whose state was saved.

        Raises:
            CalibrationError: It is no state of a histogram of this grid.
        """
        made = cls()
        for key, kept in (("fine", made.fine), ("low", made.low)):
            kept[:] = checked(state, key, kept.shape, np.int64)
        made.amax = float(checked(state, "amax", (), np.float32))
        fault = made._fault()
        if fault:
            refuse_state(fault)
        return made

    def median(self) -> float:
        """The median of the magnitudes other than zero, to its bin's width; 0.0 if there are none."""
        counted = self.total - self.zeros
        return self.magnitude(self.zeros + (counted + 1) // 2) if counted else 0.0

    def dominated_by_outliers(self) -> float | None:
        """How far amax lies above the ordinary values, where that is more than INT8 could ever span.

        Mask constants such as −3.4e38 do that. Ordinary are the magnitudes below amax / 1000, zeros left
        out. They must be at least 5 % and their median a million times below amax. The share is that low
        because padded batches can be mask for the most part; where the median of all magnitudes is a
        million times below amax, this holds too. amax must be large by itself: probabilities behind a
        Softmax, and channels whose weights training let die out, lie a million times apart as well.

        Returns:
            amax over the median of the ordinary values; None for a tensor of common spread.
        """
        lower, _, counts = self.filled()
        ordinary = int(counts[lower < _ORDINARY * self.amax].sum())
        few = not ordinary or ordinary < _ORDINARY_SHARE * (self.total - self.zeros)
        if few or self.amax < LEAST_MASK:
            return None
        ratio = self.amax / self.magnitude(self.zeros + (ordinary + 1) // 2)
        return ratio if ratio >= _DOMINATED else None

    def magnitude(self, rank: int) -> float:
        """The value of a rank, when all |x| are sorted.

        value = min(lower edge + width · (rank − values in lower bins) / values in this bin, amax)

        The order statistic lies in the same bin: the two differ by at most the bin's width, which is
        2⁻¹¹ of the value down to amax / 2¹⁵, and 2⁻⁵ below.

        Args:
            rank: 1 for the smallest, ``total`` for the largest, which is exactly amax.

        Returns:
            The value, as float32 holds it, in the tensor's unit; 0.0 for zeros and subnormals.
        """
        if rank >= self.total:
            return self.amax
        if rank <= self.zeros:
            return 0.0
        lower, width, counts = self.filled()
        reached = np.cumsum(counts) + self.zeros
        at = int(np.searchsorted(reached, rank))
        inside = rank - (int(reached[at]) - int(counts[at]))
        return float(np.float32(min(lower[at] + width[at] * (inside / int(counts[at])), self.amax)))

    def filled(
        self,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Lower edge, width and count of every bin that is not empty, ascending, zeros left out."""
        low = np.flatnonzero(self._bins[OCTAVES * FINE + LOW :]) + LOW
        fine = np.flatnonzero(self.fine)
        first = (self.top - OCTAVES + 1) * FINE
        keys = np.concatenate([low * (FINE // LOW), fine + first])
        width = np.concatenate([np.full(low.size, FINE // LOW), np.ones(fine.size, np.int64)])
        # exponent and mantissa of a key: (1 + mantissa / 2048) · 2^(exponent − 127)
        lower = np.ldexp((keys % FINE + FINE) / FINE, keys // FINE - 127)
        counts = np.concatenate([self.low.reshape(-1)[low], self.fine.reshape(-1)[fine]])
        return lower, np.ldexp(width / FINE, keys // FINE - 127), counts

    def _raise_to(self, amax: float) -> None:
        """Moves the window of fine bins up to a larger amax."""
        if amax <= self.amax:
            return
        first = self.top - OCTAVES + 1
        self.amax = amax
        leaving = min(self.top - OCTAVES + 1 - first, OCTAVES)
        if not leaving:
            return
        for row in range(max(0, 1 - first), leaving):
            self.low[first + row] += self.fine[row].reshape(LOW, -1).sum(axis=1)
        self.fine[: OCTAVES - leaving] = self.fine[leaving:].copy()
        self.fine[OCTAVES - leaving :] = 0

    def _fault(self) -> str | None:
        """What no series of values could have brought about."""
        if not np.isfinite(self.amax) or self.amax < 0:
            return f"amax is {self.amax}"
        if (self._bins < 0).any():
            return "a count is negative"
        first = self.top - OCTAVES + 1
        if self.low[max(first, 1) :].any() or self.low[0, 1:].any() or self.fine[: max(0, 1 - first)].any():
            return "values lie outside their bins"
        mantissa = int(np.float32(self.amax).view(np.uint32)) >> 12 & FINE - 1
        if self.top and (not self.fine[-1, mantissa] or self.fine[-1, mantissa + 1 :].any()):
            return "amax is not the largest value"
        return None


class MagnitudeCalibrator(Calibrator[MagnitudeHistogram]):
    """A calibrator whose statistics are one `MagnitudeHistogram` a tensor.

    Its ranges are the same, to the bit, for every order of the samples, every cut into batches and
    every split into merged parts. A subclass says which range a histogram has.
    """

    @override
    def _fresh(self) -> MagnitudeHistogram:
        return MagnitudeHistogram()

    @override
    def _restored(self, state: Arrays) -> MagnitudeHistogram:
        return MagnitudeHistogram.from_state(state)
