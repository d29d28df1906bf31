"""Two calibration caches compared, scale by scale."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection
from dataclasses import dataclass

from calib.calibrators.cache import CalibrationCache

__all__ = ["CacheDiff", "ScaleRatio", "diff_caches"]


@dataclass(frozen=True)
class ScaleRatio:
    """A tensor that both caches have.

    Attributes:
        tensor: The tensor's name.
        first: Its scale in the first cache.
        second: Its scale in the second cache.
        ratio: second / first; infinite where only the first is zero, NaN where there is no ratio.
        equal_bits: Whether both hold the same float32.
    """

    tensor: str
    first: float
    second: float
    ratio: float
    equal_bits: bool

    @property
    def factor(self) -> float:
        """How far apart the scales are: the ratio or its inverse, whichever is larger; at least 1.

        Infinite where there is no ratio but the bits differ.
        """
        if math.isnan(self.ratio) or self.ratio == 0:
            return math.inf
        return max(self.ratio, 1 / self.ratio)


@dataclass(frozen=True)
class CacheDiff:
    """What differs between two caches.

    Attributes:
        ratios: Tensors in both, the furthest apart first.
        only_first: Tensors of the first cache alone, in its order.
        only_second: Tensors of the second cache alone, in its order.
    """

    ratios: tuple[ScaleRatio, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def equal(self) -> int:
        """Number of tensors whose scales are equal bit for bit."""
        return sum(row.equal_bits for row in self.ratios)

    @property
    def identical(self) -> bool:
        """Whether both hold the same entries."""
        return self.equal == len(self.ratios) and not self.only_first and not self.only_second

    @property
    def largest_factor(self) -> float:
        """How far the most different pair of scales is apart; 1 where there is no pair."""
        return self.ratios[0].factor if self.ratios else 1.0

    @property
    def median_factor(self) -> float:
        """How far a pair of scales is apart in the median; 1 where there is no pair."""
        return statistics.median(row.factor for row in self.ratios) if self.ratios else 1.0


def diff_caches(
    first: CalibrationCache, second: CalibrationCache, names: Collection[str] | None = None
) -> CacheDiff:
    """Compares two caches; headers are not looked at.

    Args:
        first: A cache.
        second: Another.
        names: Tensors to compare; None for all.

    >>> first = CalibrationCache({"x": 0.25, "y": 0.5, "z": 1.0})
    >>> diff = diff_caches(first, CalibrationCache({"y": 0.5, "x": 0.125}))
    >>> [(row.tensor, row.ratio) for row in diff.ratios], diff.only_first
    ([('x', 0.5), ('y', 1.0)], ('z',))
    """
    ours = [name for name in first if names is None or name in names]
    theirs = [name for name in second if names is None or name in names]
    rows = [_ratio(name, first, second) for name in ours if name in second]
    return CacheDiff(
        tuple(sorted(rows, key=lambda row: (-row.factor, row.tensor))),
        tuple(name for name in ours if name not in second),
        tuple(name for name in theirs if name not in first),
    )


def _ratio(name: str, first: CalibrationCache, second: CalibrationCache) -> ScaleRatio:
    old, new = first[name], second[name]
    equal = first.bits(name) == second.bits(name)
    if equal:
        ratio = 1.0
    elif old == 0:
        ratio = math.inf
    else:
        ratio = new / old
    return ScaleRatio(name, old, new, ratio, equal)
