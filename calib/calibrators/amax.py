"""From an INT8 scale back to the range that it stands for."""

from __future__ import annotations

import math

import numpy as np

from calib.calibrators.ranges import scale_of

__all__ = ["LEAST_MASK", "amax_of", "has_exact_amax"]

LEAST_MASK = 1e3
"""The least range of a constant that stands for minus infinity: exp(-100) is not zero yet."""

_LARGEST = float(np.finfo(np.float32).max)


def amax_of(scale: float) -> float:
    """The float32 range of a scale: 127·scale, rounded to float32.

    It is the inverse of ``scale_of`` for every scale that ``scale_of`` makes. Write s = m·2^e with
    1 ≤ m < 2 and u for the distance of neighbouring float32 numbers at s.
    For m ≥ 128/127, ranges near 127·s are 128·u apart; a range that gives s lies within 127·u/2 of
    127·s, which is less than half of their distance, so it is the nearest one. For m < 128/127, ranges
    are 64·u apart; the nearest lies within 32·u of 127·s, and its quotient within u/4 of s.
    Other neighbours need not be tried: where the nearest range does not give the scale back, none does.
    That happens to 0.8 % of all float32 numbers, none of which is a float32 range divided by 127:
    ``has_exact_amax`` tells.

    Args:
        scale: An INT8 scale.

    Returns:
        amax, in the tensor's unit; infinite where 127·scale is beyond float32.

    >>> amax_of(scale_of(2.64)) == float(np.float32(2.64))
    True
    """
    exact = 127.0 * float(np.float32(scale))
    if exact > _LARGEST:
        # The largest float32 has a scale too, and 127 times that overflows in the last bit.
        return _LARGEST if float(np.float32(scale)) <= scale_of(_LARGEST) else math.inf
    return float(np.float32(exact))


def has_exact_amax(scale: float) -> bool:
    """Whether a float32 range gives this scale, bit for bit.

    >>> has_exact_amax(1 / 127), has_exact_amax(float(np.float32(1.5)))
    (True, True)
    """
    amax = amax_of(scale)
    return math.isfinite(amax) and scale_of(amax) == float(np.float32(scale))
