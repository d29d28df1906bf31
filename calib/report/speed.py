"""Which runs are faster than which: by the intervals of their ratios, where there are any."""

from __future__ import annotations

from typing import Literal, NamedTuple

from calib.report import numbers
from calib.report.merge import Merged, Row
from calib.validation.latency_ratios import is_candidate

__all__ = ["Pace", "pace_against"]

_CLOSE = 0.02
"""What medians without an interval may differ by and still be called the same."""


class Pace(NamedTuple):
    """How fast a run is beside one that it was made to be faster than.

    Attributes:
        peer: The other run.
        speedup: Its median latency divided by the run's own; above 1 the run is faster.
        verdict: "not shown" where the interval of the ratio includes 1, "same" where there is no interval and
            the medians hardly differ.
    """

    peer: Row
    speedup: float
    verdict: Literal["faster", "slower", "same", "not shown"]


def pace_against(merged: Merged, row: Row, precision: str) -> Pace | None:
    """How fast a run is beside the one of another precision.

    Args:
        merged: Everything that is reported.
        row: The run.
        precision: "fp32" or "fp16".

    Returns:
        None where the two cannot be compared, or where nobody expects the run to be faster: FP32 is no
        failure where it is slower than FP16.
    """
    peer = merged.peer(row, precision)
    if peer is None or row.simulated_latency or not is_candidate(row.run.precision, precision):
        return None
    speedup = numbers.speedup(peer.median_ms, row.median_ms)
    return None if speedup is None else Pace(peer, speedup, _verdict(row, peer, speedup))


def _verdict(row: Row, peer: Row, speedup: float) -> Literal["faster", "slower", "same", "not shown"]:
    pair = (row.run.label, peer.run.label)
    for ratio in row.source.results.ratios:
        if (ratio.candidate, ratio.against) == pair and ratio.low is not None and ratio.high is not None:
            return "faster" if ratio.high < 1 else "slower" if ratio.low > 1 else "not shown"
    if abs(speedup - 1) < _CLOSE:
        return "same"
    return "faster" if speedup > 1 else "slower"
