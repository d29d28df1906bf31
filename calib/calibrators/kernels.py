"""The inner loops of calibration, compiled where numba is installed.

Both forms of counting give the same bits, and sums of the search the same to rounding; the compiled one
is about three times as fast and does not hold Python's global lock, so that tensors go side by side.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calib.data import Array

__all__ = [
    "INFINITE_BITS",
    "LEVELS",
    "Kernels",
    "flat_float32",
    "float_of_bits",
    "load_kernels",
    "plain_kernels",
]

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

LEVELS = 128
"""Levels of INT8 magnitudes that the entropy search merges bins to."""

INFINITE_BITS = 0x7F800000
"""Bits of infinity: those of finite magnitudes are smaller, those of NaN larger."""

_BLOCK = 1 << 14
"""Values at a time: they stay in the processor's cache between one pass and the next."""


class Kernels(NamedTuple):
    """The inner loops.

    Attributes:
        largest: Flat float32 array → the largest bits of |x| as an integer, by which magnitudes are
            ordered as by value; NaN and infinities are ``INFINITE_BITS`` or more.
        tally: Flat float32 array, bins for each unit, counts → adds one to ``counts[⌊|x|·factor⌋]``
            for each value. All values must be finite and within the counts.
        spread: Prefix sums of bins and of non-empty bins, levels, first candidate → for each candidate m
            the sum over levels of S·ln(S/n), and ln(S/n) of the last level, where S is a level's sum and
            n the number of its non-empty bins; 0 for an empty level. See ``entropy.divergences``.
    """

    largest: Callable[[Floats], int]
    tally: Callable[[Floats, float, Counts], None]
    spread: Callable[[Doubles, Doubles, int], tuple[Doubles, Doubles]]


@lru_cache(maxsize=1)
def load_kernels() -> Kernels:
    """The compiled loops where numba is installed, else those of numpy."""
    return _compiled() if importlib.util.find_spec("numba") else plain_kernels()


def plain_kernels() -> Kernels:
    """The loops of numpy."""
    return Kernels(_largest, _tally, _spread)


def flat_float32(values: Array) -> Floats:
    """Values as one flat float32 array, without a copy where they are that already.

    What is beyond float32's range becomes infinite.
    """
    if values.dtype == np.float32:
        return np.ascontiguousarray(values).reshape(-1)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32).reshape(-1)


def float_of_bits(bits: int) -> float:
    """The float32 number of some bits."""
    return float(np.uint32(bits).view(np.float32))


def _largest(values: Floats) -> int:
    bits = values.view(np.int32)
    # The sign is cut off block by block, so that no copy of the whole array is made.
    blocks = (bits[start : start + _BLOCK] & 0x7FFFFFFF for start in range(0, bits.size, _BLOCK))
    return max((int(block.max()) for block in blocks), default=0)


def _tally(values: Floats, factor: float, counts: Counts) -> None:
    for start in range(0, values.size, _BLOCK):
        position = values[start : start + _BLOCK].astype(np.float64)
        np.abs(position, out=position)
        position *= factor
        counts += np.bincount(position.astype(np.intp), minlength=counts.size)


def _spread(sums: Doubles, filled: Doubles, first: int) -> tuple[Doubles, Doubles]:
    edges = _edges(first, sums.size - 1)
    sums_of, filled_of = (np.diff(prefix.take(edges), axis=1) for prefix in (sums, filled))
    logs = np.divide(sums_of, filled_of, out=np.ones_like(sums_of), where=filled_of > 0)
    np.log(logs, out=logs)
    return np.einsum("ml,ml->m", sums_of, logs), logs[:, -1]


@lru_cache(maxsize=1)
def _edges(first: int, last: int) -> npt.NDArray[np.intp]:
    """The first bin of each level of each candidate: ⌈level·m / 128⌉, level = 0 … 128."""
    candidates = np.arange(first, last + 1)
    return -(-(candidates[:, None] * np.arange(LEVELS + 1)) // LEVELS)


def _compiled() -> Kernels:
    from numba import njit

    options: dict[str, Any] = {"nogil": True, "cache": True, "boundscheck": False}
    largest = njit("int64(float32[::1])", **options)(_largest_loop)
    tally = njit("void(float32[::1], float64, int64[::1])", **options)(_tally_loop)
    spread = njit("Tuple((float64[::1], float64[::1]))(float64[::1], float64[::1], int64)", **options)
    return Kernels(largest, tally, spread(_spread_loop))


def _largest_loop(values: Floats) -> int:
    largest = np.int32(0)
    # An integer maximum is what compilers turn into vector instructions; one of floats is not.
    for bits in values.view(np.int32):
        largest = max(largest, bits & np.int32(0x7FFFFFFF))
    return int(largest)


def _tally_loop(values: Floats, factor: float, counts: Counts) -> None:
    # Four histograms: equal neighbours, such as zeros, would wait for each other's additions.
    a = np.zeros(counts.size, np.uint32)
    b = np.zeros(counts.size, np.uint32)
    c = np.zeros(counts.size, np.uint32)
    d = np.zeros(counts.size, np.uint32)
    index = np.zeros(4096, np.int32)
    for start in range(0, values.size, 4096):
        block = values[start : start + 4096]
        for i in range(block.size):
            index[i] = np.int32(abs(np.float64(block[i])) * factor)
        whole = block.size // 4 * 4
        for i in range(0, whole, 4):
            a[index[i]] += np.uint32(1)
            b[index[i + 1]] += np.uint32(1)
            c[index[i + 2]] += np.uint32(1)
            d[index[i + 3]] += np.uint32(1)
        for i in range(whole, block.size):
            a[index[i]] += np.uint32(1)
    for i in range(counts.size):
        counts[i] += np.int64(a[i]) + np.int64(b[i]) + np.int64(c[i]) + np.int64(d[i])


def _spread_loop(sums: Doubles, filled: Doubles, first: int) -> tuple[Doubles, Doubles]:
    size = sums.size - first
    weighted = np.zeros(size)
    last = np.zeros(size)
    for place in range(size):
        start = 0
        for level in range(128):
            stop = ((first + place) * (level + 1) + 127) // 128
            total = sums[stop] - sums[start]
            logarithm = 0.0
            if total > 0:
                logarithm = np.log(total / (filled[stop] - filled[start]))
                weighted[place] += total * logarithm
            start = stop
        last[place] = logarithm
    return weighted, last
