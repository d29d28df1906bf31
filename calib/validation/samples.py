"""How far each sample's outputs moved, and which samples moved most."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from calib.validation.tensors import RowErrors

__all__ = ["SampleErrors", "rank_samples"]


class SampleErrors:
    """Three numbers for each sample, over all of its float outputs together."""

    def __init__(self) -> None:
        self._signal = array("d")
        self._noise = array("d")
        self._max_abs = array("d")

    def __len__(self) -> int:
        return len(self._noise)

    def add(self, samples: int, outputs: Iterable[RowErrors]) -> None:
        """Adds one batch.

        Args:
            samples: Number of samples in it.
            outputs: The sums of each output whose rows are the samples. A value that is finite in the
                baseline only counts as an error without bound.
        """
        signal, noise, largest = np.zeros(samples), np.zeros(samples), np.zeros(samples)
        for rows in outputs:
            lost = rows.broken > rows.both_broken
            signal += rows.reference_power
            noise += np.where(lost, math.inf, rows.error_power)
            largest = np.maximum(largest, np.where(lost, math.inf, rows.max_abs))
        self._signal.extend(signal)
        self._noise.extend(noise)
        self._max_abs.extend(largest)

    def sqnr_db(self, index: int) -> float | None:
        """SQNR of a sample in dB; None where there is no error, no signal or no bound."""
        value = float(self.sqnr_values()[index])
        return value if math.isfinite(value) else None

    def max_abs(self, index: int) -> float | None:
        """Largest absolute error of a sample; None where it has no bound."""
        value = self._max_abs[index]
        return value if math.isfinite(value) else None

    def sqnr_values(self) -> npt.NDArray[np.float64]:
        """SQNR of every sample in dB: +inf without error, -inf without bound or signal."""
        signal, noise = np.array(self._signal), np.array(self._noise)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = 10.0 * (np.log10(signal) - np.log10(noise))
        values[np.isnan(values)] = -math.inf
        return np.where(noise == 0, math.inf, values)


def rank_samples(samples: SampleErrors, changed: npt.NDArray[np.bool_] | None, count: int) -> list[int]:
    """Picks the samples worth looking at: changed answers first, then by SQNR, the lowest first.

    Args:
        samples: Errors of every sample.
        changed: Whether a sample's answer changed, shape [samples]; None where there are no answers.
        count: How many to pick, at most. Samples without any error and change are never picked.

    Returns:
        Indices of samples, the worst first; of equals the earlier.
    """
    sqnr = samples.sqnr_values()
    moved = np.zeros(len(sqnr), np.bool_) if changed is None else changed
    order = np.lexsort((sqnr, ~moved))
    worth = moved | (sqnr < math.inf)
    return [int(index) for index in order if worth[index]][:count]
