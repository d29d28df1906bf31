"""How the medians of two runs of one measurement compare, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calib.errors import UsageError
from calib.validation.speed_records import LatencyRatio
from calib.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["compare_pairs", "is_candidate", "latency_ratio", "ratio_sentence"]

_CANDIDATES = {"fp32": ("fp16", "int8", "best"), "fp16": ("int8", "best")}
"""Precision → those that are there to be faster than it."""

# The interval between the smallest and the largest of n values holds the median with probability
# 1 - 2·0.5^n: below six rounds no resampling can make 95 % of it.
_FEWEST_ROUNDS = 6

# Resamples held at a time, so that a thousand rounds need some megabytes.
_BATCH = 512


def is_candidate(precision: str, against: str) -> bool:
    """Whether a precision is there to be faster than another one.

    >>> is_candidate("int8", "fp16"), is_candidate("fp32", "fp16"), is_candidate("fp16", "int8")
    (True, False, False)
    """
    return precision in _CANDIDATES.get(against, ())


def compare_pairs(precisions: Sequence[str]) -> list[tuple[int, int]]:
    """Who is compared with whom: each candidate with every FP32 run and every FP16 run.

    Args:
        precisions: Precision of each run.

    Returns:
        Positions of the candidate and of the run that it is divided by.

    >>> compare_pairs(["fp32", "fp16", "int8"])
    [(1, 0), (2, 0), (2, 1)]
    """
    return [
        (candidate, against)
        for other in _CANDIDATES
        for candidate, precision in enumerate(precisions)
        if is_candidate(precision, other)
        for against, found in enumerate(precisions)
        if found == other
    ]


def latency_ratio(
    candidate: str,
    against: str,
    times_ms: Sequence[float],
    against_ms: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> LatencyRatio:
    """Ratio of two medians and its percentile bootstrap interval.

    Whole rounds are drawn with replacement, so that what slowed a round slows both of its times: the two
    runs are paired (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13). The
    interval speaks of this measurement; another build of the same engine may choose other kernels.

    Args:
        candidate: Label of the run.
        against: Label of the run that it is divided by.
        times_ms: Time of each round, of the candidate.
        against_ms: Time of the same rounds, of the other.
        confidence: Confidence of the interval, between 0 and 1.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resampling.

    Returns:
        The ratio, below 1 where the candidate is faster; without interval below 6 rounds.

    Raises:
        UsageError: The two have different numbers of rounds, or none.

    >>> latency_ratio("INT8", "FP16", [5.0] * 8, [4.0] * 8).ratio
    1.25
    """
    if len(times_ms) != len(against_ms) or not len(times_ms):
        raise UsageError(
            f"{candidate} and {against} must have the same rounds, at least one; got {len(times_ms)} and "
            f"{len(against_ms)}."
        )
    first, second = np.asarray(times_ms, np.float64), np.asarray(against_ms, np.float64)
    ratio = float(np.median(first) / np.median(second))
    if len(first) < _FEWEST_ROUNDS:
        method = f"no interval: {counted(len(first), 'round[s]')}, at least {_FEWEST_ROUNDS} are needed"
        return LatencyRatio(candidate, against, ratio, None, None, confidence, method)
    low, high = _interval(first, second, confidence, resamples, seed)
    method = f"percentile bootstrap of rounds: {len(first)} rounds, {resamples} resamples, seed {seed}"
    return LatencyRatio(candidate, against, ratio, low, high, confidence, method)


def _interval(
    first: NDArray[np.float64], second: NDArray[np.float64], confidence: float, resamples: int, seed: int
) -> tuple[float, float]:
    from scipy.stats import bootstrap

    found = bootstrap(
        (first, second),
        _ratio_of_medians,
        n_resamples=resamples,
        batch=_BATCH,
        vectorized=True,
        paired=True,
        confidence_level=confidence,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def _ratio_of_medians(first: Any, second: Any, axis: int = -1) -> Any:
    return np.median(first, axis=axis) / np.median(second, axis=axis)


def ratio_sentence(ratio: LatencyRatio) -> str:
    """A comparison in plain words.

    >>> ratio_sentence(LatencyRatio("INT8", "FP16", 1.25, 1.24, 1.27))
    'INT8 is 1.25x slower than FP16 (ratio of medians 1.250, 95% interval 1.240 to 1.270).'
    >>> ratio_sentence(LatencyRatio("INT8", "FP16", 0.99, 0.97, 1.02))
    'INT8 and FP16 do not differ measurably (ratio of medians 0.990, 95% interval 0.970 to 1.020).'
    """
    figures = f"ratio of medians {ratio.ratio:.3f}"
    if ratio.low is not None and ratio.high is not None:
        figures += f", {ratio.confidence * 100:g}% interval {ratio.low:.3f} to {ratio.high:.3f}"
        if ratio.low <= 1 <= ratio.high:
            return f"{ratio.candidate} and {ratio.against} do not differ measurably ({figures})."
    if ratio.ratio == 1:
        return f"{ratio.candidate} is as fast as {ratio.against} ({figures})."
    word, factor = ("slower", ratio.ratio) if ratio.ratio > 1 else ("faster", 1 / ratio.ratio)
    return f"{ratio.candidate} is {factor:.2f}x {word} than {ratio.against} ({figures})."
