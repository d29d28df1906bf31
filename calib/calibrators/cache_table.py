"""A calibration cache as a table: tensor, scale, amax, share of the widest range."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from calib.calibrators.amax import amax_of
from calib.calibrators.cache import CalibrationCache, unusable_reason
from calib.errors import UsageError

__all__ = ["CacheRow", "cache_rows"]


@dataclass(frozen=True)
class CacheRow:
    """An entry of a calibration cache.

    Attributes:
        tensor: The tensor's name.
        scale: Its INT8 scale.
        bits: The scale as it stands in the file.
        amax: Its range, 127·scale, in the tensor's unit.
        share: amax as a share of the widest usable range, in 0 … 1; None where the scale is unusable.
        unusable: Why INT8 cannot use the scale; empty where it can.
    """

    tensor: str
    scale: float
    bits: str
    amax: float
    share: float | None
    unusable: str


_ORDERS: Mapping[str, Callable[[CacheRow], Any] | None] = MappingProxyType(
    {
        "file": None,
        "name": lambda row: row.tensor,
        # The unusable ones first: they are what one looks for.
        "scale": lambda row: (not row.unusable, -row.scale if row.scale == row.scale else 0.0, row.tensor),
    }
)


def cache_rows(cache: CalibrationCache, sort: str = "file") -> list[CacheRow]:
    """Every entry of a cache.

    Args:
        cache: The cache.
        sort: "file" (as in the file), "name", or "scale" (unusable ones first, then the widest).

    Raises:
        UsageError: There is no such order.

    >>> cache = CalibrationCache({"x": 1 / 127, "y": 2 / 127})
    >>> [(row.tensor, row.amax, row.share) for row in cache_rows(cache, "scale")]
    [('y', 2.0, 1.0), ('x', 1.0, 0.5)]
    """
    if sort not in _ORDERS:
        raise UsageError(f"--sort must be one of {', '.join(_ORDERS)}, got {sort!r}.")
    widest = max((scale for scale in cache.values() if not unusable_reason(scale)), default=0.0)
    rows = [_row(cache, name, widest) for name in cache]
    order = _ORDERS[sort]
    return rows if order is None else sorted(rows, key=order)


def _row(cache: CalibrationCache, name: str, widest: float) -> CacheRow:
    scale = cache[name]
    reason = unusable_reason(scale)
    share = None if reason else scale / widest
    return CacheRow(name, scale, cache.bits(name), amax_of(scale), share, reason)
