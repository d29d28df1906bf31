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
    "FINE",
    "LEVELS",
    "LOW",
    "OCTAVES",
    "SMALLEST_NORMAL",
    "Kernels",
    "flat_float32",
    "float_of_bits",
    "load_kernels",
    "plain_kernels",
]

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

OCTAVES = 16
"""Octaves that a ``MagnitudeHistogram`` counts finely, downwards from the one that holds amax.

An INT8 range needs fine bins in its own octave and five below: further down a fine bin is narrower
than 1/16 of a quantisation step. Sixteen leave the MSE search ten octaves below amax, which is where
the best range of one outlier among 10⁸ values lies.
"""

FINE = 2048
"""Fine bins an octave: the upper 11 of float32's 23 mantissa bits."""

LOW = 32
"""Bins an octave below the fine ones: the upper 5 mantissa bits."""

SMALLEST_NORMAL = 1 << 23
"""Bits of 2⁻¹²⁶ as float32."""

LEVELS = 128
"""Levels of INT8 magnitudes that the entropy search merges bins to."""

_BLOCK = 1 << 14
"""Values at a time: they stay in the processor's cache between one pass and the next."""


class Kernels(NamedTuple):
    """The inner loops.

    Attributes:
        largest: Flat float32 array → the largest bits of |x| as an integer, by which magnitudes are
            ordered as by value; NaN and infinities are larger than those of any finite value.
        tally: Flat float32 array, bins for each unit, counts → overwrites the counts with the number of
            values of each ⌊|x|·factor⌋; the last one takes all that lie beyond, and NaN.
        tally_bits: Flat float32 array as uint32, key of the first fine bin, bins → adds to the bins of a
            ``MagnitudeHistogram``.
        spread: Prefix sums of bins and of non-empty bins, first candidate → for each candidate m the sum
            over levels of S·ln(S/n), and ln(S/n) of the last level, where S is a level's sum and n the
            number of its non-empty bins; 0 for an empty level. See ``entropy.divergences``.
    """

    largest: Callable[[Floats], int]
    tally: Callable[[Floats, float, Counts], None]
    tally_bits: Callable[[npt.NDArray[np.uint32], int, Counts], None]
    spread: Callable[[Doubles, Doubles, int], tuple[Doubles, Doubles]]


@lru_cache(maxsize=1)
def load_kernels() -> Kernels:
    """The compiled loops where numba is installed, else those of numpy."""
    return _compiled() if importlib.util.find_spec("numba") else plain_kernels()


def plain_kernels() -> Kernels:
    """The loops of numpy."""
    return Kernels(_largest, _tally, _tally_bits, _spread)


def flat_float32(values: Array) -> Floats:
    """Values as one flat float32 array, without a copy where they are that already.

    What is beyond float32's range becomes infinite.
    """
    if values.dtype == np.float32:
        return np.ascontiguousarray(values).reshape(-1)
    with np.errstate(over="ignore", under="ignore"):
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
    counts[:] = 0
    for start in range(0, values.size, _BLOCK):
        position = values[start : start + _BLOCK].astype(np.float64)
        np.abs(position, out=position)
        position *= factor
        # Unlike minimum, fmin takes the number where the other one is NaN.
        np.fmin(position, counts.size - 1, out=position)
        counts += np.bincount(position.astype(np.intp), minlength=counts.size)


def _tally_bits(bits: npt.NDArray[np.uint32], first: int, bins: Counts) -> None:
    for start in range(0, bits.size, _BLOCK):
        _tally_block(bits[start : start + _BLOCK] & np.uint32(0x7FFF_FFFF), first, bins)


def _tally_block(bits: npt.NDArray[np.uint32], first: int, bins: Counts) -> None:
    normal = bits >= SMALLEST_NORMAL
    zeros = bits.size - np.count_nonzero(normal)
    # Key 0 stands for everything below the window.
    start = max(first, FINE) - 1
    keys = np.maximum(bits >> 12, np.uint32(start)) - np.uint32(start)
    counts = np.bincount(keys.astype(np.int64))
    offset = start + 1 - first
    bins[offset : offset + counts.size - 1] += counts[1:]
    low = OCTAVES * FINE
    bins[low] += zeros
    if counts[0] > zeros:
        below = bits[normal & (bits < first << 12)]
        found = np.bincount((below >> 18).astype(np.int64))
        bins[low : low + found.size] += found


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
    from numba import float32, float64, int64, njit, types, uint32, void

    options: dict[str, Any] = {"nogil": True, "cache": True, "boundscheck": False}
    # Read-only arrays, such as memory maps, are a type of their own, for which others are taken too.
    values, bits = (types.Array(kind, 1, "C", readonly=True) for kind in (float32, uint32))
    return Kernels(
        largest=njit(int64(values), **options)(_largest_loop),
        tally=njit(void(values, float64, int64[::1]), **options)(_tally_loop),
        tally_bits=njit(void(bits, int64, int64[::1]), **options)(_tally_bits_loop),
        spread=njit("Tuple((float64[::1], float64[::1]))(float64[::1], float64[::1], int64)", **options)(
            _spread_loop
        ),
    )


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
    last = np.float64(counts.size - 1)
    for start in range(0, values.size, 4096):
        block = values[start : start + 4096]
        for i in range(block.size):
            position = abs(np.float64(block[i])) * factor
            # NaN compares false and goes to the last bin, too.
            index[i] = np.int32(position if position < last else last)
        whole = block.size // 4 * 4
        for i in range(0, whole, 4):
            a[index[i]] += np.uint32(1)
            b[index[i + 1]] += np.uint32(1)
            c[index[i + 2]] += np.uint32(1)
            d[index[i + 3]] += np.uint32(1)
        for i in range(whole, block.size):
            a[index[i]] += np.uint32(1)
    for i in range(counts.size):
        counts[i] = np.int64(a[i]) + np.int64(b[i]) + np.int64(c[i]) + np.int64(d[i])


def _tally_bits_loop(bits: npt.NDArray[np.uint32], first: int, bins: Counts) -> None:
    low = OCTAVES * FINE
    for each in bits:
        magnitude = np.int32(each & np.uint32(0x7FFF_FFFF))
        fine = (magnitude >> 12) - first
        place = low + (magnitude >> 18) if fine < 0 or magnitude < SMALLEST_NORMAL else fine
        bins[place] += 1
    # Subnormals join the zeros.
    for i in range(low + 1, low + LOW):
        bins[low] += bins[i]
        bins[i] = 0


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
