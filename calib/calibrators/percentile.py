"""Percentile calibration: the range that keeps a given percentage of the values."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import ClassVar

from typing_extensions import override

from calib.calibrators.magnitude import MagnitudeCalibrator, MagnitudeHistogram
from calib.errors import UsageError

__all__ = ["PercentileCalibrator"]


class PercentileCalibrator(MagnitudeCalibrator):
    """amax = the smallest value that at least ``percentile`` percent of all |x| do not exceed.

    Of N values, zeros included, that is the one of rank ⌈N · percentile / 100⌉ in ascending order:
    numpy's method "inverted_cdf". It is read from a `MagnitudeHistogram`, linearly within the bin, and
    so differs from the order statistic by at most 2⁻¹¹ of its value down to amax / 2¹⁵, and 2⁻⁵ below
    that; it is never beyond max|x|, and exactly max|x| at 100 percent. The same to the bit for every
    order, cut and split of the data.

    Right for transformers, and for convolutional networks whose activations have few far outliers.
    Where the percentile itself is zero, although the tensor is not, it says nothing of the values that
    matter: max|x| is taken, and `sparse` names the tensor.

    TensorRT has no such algorithm. IInt8EntropyCalibrator2 reads the cache, which is why its header
    says EntropyCalibration2; the sidecar names the method.

    Args:
        percentile: Percentage of the values to keep, above 1 and at most 100.

    Raises:
        UsageError: The percentage cannot be meant.

    >>> import numpy as np
    >>> calibrator = PercentileCalibrator(99.9)
    >>> calibrator.collect({"x": np.arange(10000, dtype=np.float32)})
    >>> calibrator.compute()["x"]  # values 9988 … 9991 share a bin: 9988 + 4 · (9990 − 9988) / 4
    9990.0
    """

    method: ClassVar[str] = "percentile"
    algorithm: ClassVar[str] = "EntropyCalibration2"
    order_dependent: ClassVar[bool] = False

    def __init__(self, percentile: float = 99.99) -> None:
        super().__init__()
        self.percentile = _percentage(percentile)
        # As written, so that 99.9 percent of 10000 are 9990 and not one more by rounding.
        self._share = Fraction(repr(self.percentile)) / 100

    @override
    def _range_of(self, statistic: MagnitudeHistogram) -> float:
        rank = self._rank(statistic)
        return statistic.magnitude(rank) if rank > statistic.zeros else statistic.amax

    @override
    def options(self) -> dict[str, float]:
        return {"percentile": self.percentile}

    def _rank(self, histogram: MagnitudeHistogram) -> int:
        return ceil(self._share * histogram.total)

    @property
    def sparse(self) -> tuple[str, ...]:
        """Tensors so full of zeros that their percentile is zero, and which got max|x| instead."""
        return tuple(
            name for name, h in self.statistics.items() if h.amax > 0 and self._rank(h) <= h.zeros < h.total
        )


def _percentage(percentile: float) -> float:
    try:
        value = float(percentile)
    except (TypeError, ValueError):
        raise UsageError(f"Percentile must be a percentage such as 99.99, got {percentile!r}.") from None
    if 0 < value <= 1:
        raise UsageError(
            f"Percentile is the percentage of values to keep, above 1 and at most 100; {value:.10g} looks "
            f"like a fraction: give {value * 100:.10g}."
        )
    if not 0 < value <= 100:
        raise UsageError(
            f"Percentile is the percentage of values to keep, above 1 and at most 100, got {value:.10g}."
        )
    return value
