"""MSE calibration: the range with the smallest mean squared quantisation error."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from calib.calibrators.magnitude import FINE, LOW, OCTAVES, MagnitudeCalibrator, MagnitudeHistogram

__all__ = ["MSECalibrator", "mse_amax"]

Floats = npt.NDArray[np.float64]

_SEARCHED = OCTAVES - 5
"""Octaves with candidates: all whose own octave and the five below are finely counted."""

_STEPS = 32
"""Candidates an octave in the first pass."""

_REFINED = (8, 64)
"""Parts into which the second and the third pass cut the first one's spacing."""

_REACH = 8
"""How many of those parts a pass looks to either side."""

_TIE = 1e-12
"""Errors closer than this share of the signal's energy (120 dB) are equal: rounding must not decide."""


class MSECalibrator(MagnitudeCalibrator):
    """amax = the range whose INT8 values come closest to the float ones, by mean squared error.

    It minimises Σ (x − Q(x))² with Q(x) = clamp(round(x / s), −127, 127) · s, s = float32(amax) / 127,
    halves rounded to even, which is to say that it maximises the SQNR of the tensor; the largest amax
    of equals. See `mse_amax`. The same to the bit for every order, cut and split of the data.

    Right where a tensor's error counts as a whole. Like entropy it clips rare large values, but only
    as far as that gains more than it costs.

    TensorRT has no such algorithm. IInt8EntropyCalibrator2 reads the cache, which is why its header
    says EntropyCalibration2; the sidecar names the method.

    >>> calibrator = MSECalibrator()
    >>> calibrator.collect({"x": np.append(np.linspace(-3, 3, 10**6), 30.0)})
    >>> round(calibrator.compute()["x"], 2)  # mse_amax derives 30 / (1 + 10⁶ / 193548) = 4.87
    4.87
    """

    method: ClassVar[str] = "mse"
    algorithm: ClassVar[str] = "EntropyCalibration2"
    order_dependent: ClassVar[bool] = False

    @override
    def _range_of(self, statistic: MagnitudeHistogram) -> float:
        return mse_amax(statistic)


def mse_amax(histogram: MagnitudeHistogram) -> float:
    """The range with the smallest squared error, of max|x| and candidates below it.

    First pass: 32 evenly spaced candidates in each of the 11 octaves from max|x| down. Second and third
    pass: 7 on either side of the best so far, at 1/8 and then 1/64 of that spacing, and max|x| itself.

    With n, Σx and Σx² of bins that lie on one quantisation level q, their error is Σx² − 2·q·Σx + q²·n.
    The sums of all bins below a candidate's octave are merged to 2048 equal ones, 1/16 of its step wide
    at most, so a candidate costs 4096 multiplications; levels are found at bin centres, and one octave's
    levels serve all. For B bins, C candidates an octave and O octaves the time is O(B·C·O) and does not
    depend on the number of values: about 5 ms. A value counts as the middle of its bin of relative width
    2⁻¹¹; those in the topmost bin count as max|x|, so that a constant keeps its value.

    For one outlier A among N values below c the error of a range c is about (A − c)² + N·c²/193548, as
    c/127 is the step and step²/12 its mean squared error: least at c = A / (1 + N / 193548).

    Args:
        histogram: The counted magnitudes.

    Returns:
        amax in the tensor's unit, as float32 holds it; 0.0 for an all-zero tensor.
    """
    if histogram.top == 0:
        return histogram.amax
    exponent = histogram.top - 127
    amax = float(np.ldexp(histogram.amax, -exponent))
    moments = _moments(histogram, amax)
    steps = 1 + np.arange(_STEPS) / _STEPS
    # Row k, column j: candidate (1 + k/32) · 2^-j in units of the octave of amax.
    candidates = np.ldexp(steps[:, None], -np.arange(_SEARCHED))
    errors = np.where(candidates <= amax, _first_pass(moments), np.inf).ravel()
    candidates = candidates.ravel()
    tie = _TIE * float(moments[0, 2].sum())
    for divisor in _REFINED:
        near = _neighbourhood(_best(candidates, errors, tie), amax, divisor)
        candidates = np.concatenate([candidates, near])
        errors = np.concatenate([errors, [_error(moments, c) for c in near.tolist()]])
    return float(np.float32(np.ldexp(_best(candidates, errors, tie), exponent)))


def _best(candidates: Floats, errors: Floats, tie: float) -> float:
    """The largest of the candidates whose errors are smallest."""
    return float(candidates[errors <= errors.min() + tie].max())


def _moments(histogram: MagnitudeHistogram, amax: float) -> Floats:
    """Count, Σx and Σx² of what each octave's candidates see.

    Returns:
        Shape (11, 3, 4096), in units of the octave of amax. Entry j is for candidates in [2^-j, 2^(1-j)):
        4096 equal bins over [0, 2^(1-j)), then everything above in the last of them.
    """
    depth = _SEARCHED + 11
    octaves = _octaves(histogram, depth, amax)
    seen = np.empty((depth, 3, 2 * FINE))
    lower = np.zeros((3, FINE))
    for j in range(depth - 1, -1, -1):
        seen[j, :, :FINE] = lower
        seen[j, :, FINE:] = octaves[j]
        lower = seen[j, :, ::2] + seen[j, :, 1::2]
    above = np.zeros(3)
    for j in range(_SEARCHED):
        seen[j, :, -1] += above
        above += octaves[j].sum(axis=1)
    return seen[:_SEARCHED]


def _octaves(histogram: MagnitudeHistogram, depth: int, amax: float) -> Floats:
    """Count, Σx and Σx² of every bin, shape (depth, 3, 2048), from the octave of amax downwards.

    What lies further down is zero for every candidate, and its error the same for all.
    """
    counts = np.zeros((depth, FINE))
    counts[:OCTAVES] = histogram.fine[::-1]
    for j in range(OCTAVES, min(depth, histogram.top)):
        counts[j, FINE // LOW // 2 :: FINE // LOW] = histogram.low[histogram.top - j]
    x = np.ldexp(1 + (np.arange(FINE) + 0.5) / FINE, -np.arange(depth)[:, None])
    x[0, int((amax - 1) * FINE)] = amax
    return np.stack([counts, counts * x, counts * x * x], axis=1)


@lru_cache(maxsize=1)
def _middles() -> Floats:
    return (np.arange(2 * FINE) + 0.5) / FINE


@lru_cache(maxsize=1)
def _first_levels() -> tuple[Floats, Floats]:
    """Levels, and their squares, of the candidates 1 + k/32 on 4096 bins over [0, 2), shape (32, 4096)."""
    levels = np.stack([_levels(1 + k / _STEPS) for k in range(_STEPS)])
    return levels, levels * levels


def _levels(candidate: float) -> Floats:
    """Quantised value of each of 4096 bins over [0, 2), for a candidate in [1, 2)."""
    step = float(np.float32(candidate) / np.float32(127))
    return np.minimum(np.rint(_middles() / step), 127) * step


def _first_pass(moments: Floats) -> Floats:
    """Squared error of all candidates of the first pass, shape (32, 11)."""
    levels, squares = _first_levels()
    # Levels of an octave further down are these, halved.
    scale = np.ldexp(1.0, -np.arange(_SEARCHED))
    # einsum, unlike BLAS, adds in one order, and starts no threads for so little.
    crossed = np.einsum("ki,ji->kj", levels, moments[:, 1]) * scale
    squared = np.einsum("ki,ji->kj", squares, moments[:, 0]) * scale**2
    errors: Floats = moments[:, 2].sum(axis=1) - 2 * crossed + squared
    return errors


def _neighbourhood(best: float, amax: float, divisor: int) -> Floats:
    """max|x| and candidates on both sides of the best one, spaced 1/divisor of the first pass's spacing."""
    exponent = np.log2(best)
    spacing = np.array([np.ceil(exponent) - 1, np.floor(exponent)])  # an octave begins at its power of two
    below, above = np.exp2(spacing) / (_STEPS * divisor)
    away = np.arange(1, _REACH)
    near = np.concatenate([best - away * below, best + away * above])
    return np.append(near[(near < amax) & (near >= 2.0 ** (1 - _SEARCHED))], amax)


def _error(moments: Floats, candidate: float) -> float:
    """Squared error of one candidate, in units of the octave of amax."""
    mantissa, exponent = np.frexp(candidate)
    count, first, second = moments[1 - int(exponent)]
    levels = _levels(2 * float(mantissa)) * 2.0 ** (int(exponent) - 1)
    return float(second.sum() + levels @ (levels * count - 2 * first))
