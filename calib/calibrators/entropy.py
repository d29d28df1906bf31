"""TensorRT's entropy (Kullback–Leibler) calibration, bit for bit."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from calib.calibrators.base import Arrays, Calibrator
from calib.calibrators.histogram import BINS, GrowingHistogram
from calib.calibrators.kernels import LEVELS, load_kernels

__all__ = ["EntropyCalibrator", "divergences", "entropy_amax"]

_TIE = 1e-12
"""Divergences closer than this are equal: rounding must not decide between them."""

_LARGEST = float(np.finfo(np.float32).max)

Floats = npt.NDArray[np.float64]


class EntropyCalibrator(Calibrator[GrowingHistogram]):
    """Ranges that lose the least information, exactly as IInt8EntropyCalibrator2 finds them.

    Right for the activations of convolutional networks. Clips rare large values, so box coordinates
    and other regression outputs are better served by min-max.

    >>> import numpy as np
    >>> calibrator = EntropyCalibrator()
    >>> calibrator.collect({"x": np.linspace(0, 1, 4096, dtype=np.float32)})
    >>> calibrator.compute()["x"]
    1.000244140625
    """

    method: ClassVar[str] = "entropy"
    algorithm: ClassVar[str] = "EntropyCalibration2"
    order_dependent: ClassVar[bool] = True

    @override
    def _fresh(self) -> GrowingHistogram:
        return GrowingHistogram()

    @override
    def _restored(self, state: Arrays) -> GrowingHistogram:
        return GrowingHistogram.from_state(state)

    @override
    def _range_of(self, statistic: GrowingHistogram) -> float:
        return entropy_amax(statistic.counts, statistic.limit)


def entropy_amax(counts: npt.NDArray[np.int64], limit: float) -> float:
    """The range with the smallest divergence.

    amax = (m + ½)·R / 2048 for the m of 128 … 2048 whose divergence is smallest, the last of equals.

    Args:
        counts: Number of values of |x| in each bin, shape (2048,).
        limit: R, upper edge of the last bin, in the tensor's unit; 0.0 for an all-zero tensor.

    Returns:
        amax in the tensor's unit, rounded to float32; 0.0 for an all-zero tensor. It is at most the largest
        float32, which is what attention masks hold: half a bin more would be infinite.
    """
    if limit == 0.0:
        return 0.0
    kl = divergences(counts)
    smallest = kl.min()
    best = BINS if not np.isfinite(smallest) else LEVELS + int(np.flatnonzero(kl <= smallest + _TIE)[-1])
    return float(np.float32(min((best + 0.5) * limit / BINS, _LARGEST)))


def divergences(counts: npt.NDArray[np.int64]) -> Floats:
    """KL(P‖Q) of every candidate m = 128 … 2048.

    P is the first m bins with everything above folded into the last of them. Q is those bins without
    the fold, merged to 128 levels (bin t belongs to level ⌊128·t/m⌋), each level spread evenly over
    its non-empty bins. Both are divided by their own sum:

    KL = (Σ P·ln P − Σ P·ln Q) / N − ln N + ln M, with N = Σ P and M = Σ Q.

    The form is that of S. Migacz, "8-bit inference with TensorRT", GTC 2017; levels, the treatment of
    the zero bin and of ties were measured on TensorRT 8.6.0. Prefix sums make a level's sum one
    subtraction.

    Args:
        counts: Number of values of |x| in each bin, shape (2048,).

    Returns:
        Divergences in nats, shape (1921,). Infinite where P > 0 and Q = 0, or where fewer than two of
        the first m bins are filled.
    """
    bins = counts.astype(np.float64)
    # The zero bin of a ReLU's output would outweigh everything else.
    bins[0] = bins[1]
    candidates = np.arange(LEVELS, BINS + 1)
    sums, filled = _prefix(bins), _prefix(bins > 0)
    weighted_logs, last_log = load_kernels().spread(sums, filled, LEVELS)
    total, inside = sums[-1], sums[candidates]
    outliers = total - inside
    last = bins[candidates - 1]
    p_log_p = _prefix(_x_log_x(bins))[candidates - 1] + _x_log_x(last + outliers)
    p_log_q = weighted_logs + outliers * last_log
    usable = (filled[candidates] >= 2) & ~((last == 0) & (outliers > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = (p_log_p - p_log_q) / total - np.log(total) + np.log(inside)
    return np.where(usable, kl, np.inf)


def _prefix(values: npt.NDArray[np.generic]) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def _x_log_x(values: Floats) -> Floats:
    return values * np.log(np.where(values > 0, values, 1.0))
