"""What is known of the values of a model's tensors, and what float16 holds of them.

float16 has 11 significant bits between 2^-14 and 65504; below 2^-14 it loses a bit an octave, and below
2^-25 all is 0.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from calib.calibrators import CalibrationCache, Sidecar, read_sidecar
from calib.calibrators.amax import amax_of
from calib.errors import UsageError

__all__ = ["ENTROPY_BOUND", "LARGEST", "SMALLEST_NORMAL", "KnownRanges", "Ranges", "known_ranges"]

LARGEST = 65504.0
"""The largest float16."""

SMALLEST_NORMAL = 2.0**-14
"""The smallest float16 with all of its bits."""

ENTROPY_BOUND = 2048 / 128.5
"""By how much the largest value can exceed an entropy range.

TensorRT's entropy search keeps at least 128 of 2048 bins, (128 + ½)/2048 of a histogram that holds every
value.

>>> round(ENTROPY_BOUND, 2)
15.94
"""

Ranges = Mapping[str, float] | CalibrationCache | str | os.PathLike[str]
"""Tensor → amax, or a calibration cache, or its path."""

_METHODS = {"minmax": 1.0, "entropy": ENTROPY_BOUND}


@dataclass
class KnownRanges:
    """Largest absolute values of tensors.

    Attributes:
        amax: Tensor → the largest value, where it is known.
        slack: By how much true values can exceed these.
        notes: What is worth knowing of where they come from.
        suspects: Tensors without a range that are computed from what leaves float16's range.
    """

    amax: dict[str, float] = field(default_factory=dict)
    slack: float = 1.0
    notes: tuple[str, ...] = ()
    suspects: set[str] = field(default_factory=set)

    def reach(self, name: str) -> float | None:
        """What a tensor's values do not exceed; None where nothing is known."""
        return None if name not in self.amax else self.amax[name] * self.slack


def known_ranges(ranges: Ranges | None) -> KnownRanges:
    """The largest values that ranges stand for.

    Args:
        ranges: amax of each tensor; or a calibration cache, whose scales stand for 127·scale. A min-max
            cache holds the largest values themselves. An entropy cache cuts large values off, by a
            factor of ``ENTROPY_BOUND`` at most. Nothing bounds what percentile and MSE ranges cut off.

    Raises:
        CacheError: The cache cannot be read.
        UsageError: A range is negative or NaN.
    """
    if ranges is None:
        return KnownRanges()
    if isinstance(ranges, (str, os.PathLike)):
        cache = CalibrationCache.read(ranges)
        return _of_cache(cache, os.fspath(ranges), read_sidecar(ranges))
    if isinstance(ranges, CalibrationCache):
        return _of_cache(ranges, "the cache", None)
    for name, value in ranges.items():
        if math.isnan(value) or value < 0:
            raise UsageError(f"The range of tensor {name!r} must be ≥ 0, got {value}.")
    return KnownRanges({name: float(value) for name, value in ranges.items()})


def _of_cache(cache: CalibrationCache, name: str, sidecar: Sidecar | None) -> KnownRanges:
    method = sidecar.method if sidecar else _method(cache.algorithm)
    slack = _METHODS.get(method, ENTROPY_BOUND)
    amax = {tensor: amax_of(scale) for tensor, scale in cache.items()}
    return KnownRanges(amax, slack, tuple(_remarks(name, method, sidecar is not None)))


def _method(algorithm: str) -> str:
    if algorithm == "MinMaxCalibration":
        return "minmax"
    return "entropy" if algorithm.startswith("EntropyCalibration") else "legacy"


def _remarks(name: str, method: str, sure: bool) -> list[str]:
    better = "Ranges of calib calibrate --method minmax hold the largest values themselves."
    if method == "minmax":
        return []
    if method == "entropy":
        whose = "" if sure else "its header says that "
        return [
            f"{name}: {whose}it holds entropy ranges, which values can exceed {ENTROPY_BOUND:.1f} times; "
            f"that was allowed for. {better}"
        ]
    return [
        f"{name} holds {method} ranges: how far values exceed them is not known, {ENTROPY_BOUND:.1f} times "
        f"was taken. {better}"
    ]
