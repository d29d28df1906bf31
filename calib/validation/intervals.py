"""Intervals of one figure: of a share, or of any statistic of paired samples.

Every function answers with an interval and how it was made. Where there is nothing to make one from, its
ends are None (or those of the figure's whole range) and its method says so; NaN is never an answer.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from calib.errors import UsageError

__all__ = [
    "RESAMPLES",
    "SEED",
    "Floats",
    "Interval",
    "bootstrap_draws",
    "bootstrap_interval",
    "check_confidence",
    "mean_interval",
    "share_interval",
    "sqnr_interval",
]

Floats = npt.NDArray[np.float64]

RESAMPLES = 1999
"""Bootstrap resamples; the ends of a 95 % interval are then the 50th lowest and highest."""

SEED = 0
"""Seed of every resampling where none is given; it stands in each interval's method."""

_BCA_LIMIT = 2000
_BATCH_VALUES = 1 << 22


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    Attributes:
        low: Lower end; None where nothing is known of it.
        high: Upper end; None where nothing is known of it.
        confidence: How often an interval made this way holds the true figure.
        method: How it was made, with the seed where one was used.
        note: Why it is not the usual one; empty where it is.
    """

    low: float | None
    high: float | None
    confidence: float
    method: str
    note: str = ""


def check_confidence(confidence: float) -> None:
    """Refuses a confidence that is none.

    Raises:
        UsageError: It is not between 0 and 1.
    """
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"A confidence lies between 0 and 1, such as 0.95; got {confidence}.")


def share_interval(
    successes: int, count: int, confidence: float = 0.95, method: Literal["wilson", "exact"] = "wilson"
) -> Interval:
    """The interval of a share.

    "wilson": (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n) (Wilson, JASA 22, 1927). It holds the true
    share about as often as it says. "exact": Clopper and Pearson, Biometrika 26 (1934), by quantiles of the
    beta distribution; it holds it at least so often, and is wider. Both stay within [0, 1] and do not
    collapse where every sample is right.

    Args:
        successes: Number of samples that are right.
        count: Number of samples; 0 gives the whole range from 0 to 1.
        confidence: Confidence of the interval.
        method: "wilson" or "exact".

    Raises:
        UsageError: The counts are no share, or the method or confidence is none.

    >>> found = share_interval(8, 10)
    >>> round(found.low, 4), round(found.high, 4)
    (0.4902, 0.9433)
    >>> found = share_interval(10, 10, method="exact")
    >>> round(found.low, 4), found.high   # (α/2)^(1/n)
    (0.6915, 1.0)
    """
    from scipy.stats import binomtest

    check_confidence(confidence)
    names = {"wilson": "Wilson", "exact": "exact (Clopper-Pearson)"}
    if method not in names:
        raise UsageError(f"Unknown interval {method!r} of a share. Choose from {', '.join(names)}.")
    if not 0 <= successes <= count:
        raise UsageError(f"{successes} of {count} is no share: give counts with 0 ≤ successes ≤ count.")
    if not count:
        return Interval(0.0, 1.0, confidence, "none", "no samples: the share may be anything")
    found = binomtest(successes, count).proportion_ci(confidence, method=method)
    return Interval(float(found.low), float(found.high), confidence, names[method])


def bootstrap_interval(
    samples: Sequence[npt.ArrayLike],
    statistic: Callable[..., Any],
    *,
    confidence: float = 0.95,
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> Interval:
    """The bootstrap interval of any statistic of paired samples.

    Whole samples are drawn again and again, with all their values. Up to 2000 samples the ends are
    bias-corrected and accelerated (BCa; Efron, JASA 82, 1987), as ``scipy.stats.bootstrap`` computes them;
    beyond, where that corrects next to nothing and costs time by the square, they are percentiles.

    Args:
        samples: One or more arrays of shape [samples], all of one length.
        statistic: Called as ``statistic(*arrays, axis=-1)``; gives one number along that axis.
        confidence: Confidence of the interval.
        seed: Seed of the draws.
        resamples: Number of draws.

    Returns:
        The interval. Without ends where there is at most one sample, or the statistic is not finite; of no
        width, with a note, where all samples are alike.

    Raises:
        UsageError: The arrays differ in length, or are not one-dimensional.

    >>> found = bootstrap_interval([[1.0, 2.0, 3.0, 4.0, 5.0]], np.mean, seed=1)
    >>> 1.0 < found.low < 3.0 < found.high < 5.0, found.method
    (True, 'BCa bootstrap, 1999 resamples, seed 1')
    >>> bootstrap_interval([[7.0]], np.mean).note
    'one sample: its spread is not known'
    """
    check_confidence(confidence)
    arrays = _as_columns(samples)
    count = len(arrays[0])
    if count < 2:
        note = "one sample: its spread is not known" if count else "no samples: nothing was measured"
        return Interval(None, None, confidence, "none", note)
    value = _finite(statistic, arrays)
    if value is None:
        return Interval(None, None, confidence, "none", "the figure itself is not finite")
    if all(bool((array == array[0]).all()) for array in arrays):
        note = f"all {count} samples are alike: the bootstrap sees no spread"
        return Interval(value, value, confidence, "no spread", note)
    methods = ("BCa", "percentile") if count <= _BCA_LIMIT else ("percentile",)
    for method in methods:
        ends = _bootstrap(arrays, statistic, confidence, seed, resamples, method)
        if ends is not None:
            fell_back = "BCa has no value for these samples" if method != methods[0] else ""
            made = f"{method} bootstrap, {resamples} resamples, seed {seed}"
            return Interval(*ends, confidence, made, fell_back)
    return Interval(None, None, confidence, "none", "some resamples have no finite figure")


def _as_columns(samples: Sequence[npt.ArrayLike]) -> tuple[Floats, ...]:
    arrays = tuple(np.asarray(sample, np.float64) for sample in samples)
    if not arrays or any(array.ndim != 1 or len(array) != len(arrays[0]) for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays) or "none"
        raise UsageError(f"Paired samples are arrays of one axis and one length; got shapes {shapes}.")
    return arrays


def _finite(statistic: Callable[..., Any], arrays: Sequence[Floats]) -> float | None:
    with np.errstate(all="ignore"):
        value = float(statistic(*arrays, axis=-1))
    return value if math.isfinite(value) else None


def _bootstrap(
    arrays: Sequence[Floats],
    statistic: Callable[..., Any],
    confidence: float,
    seed: int,
    resamples: int,
    method: str,
) -> tuple[float, float] | None:
    """The interval of scipy; None where it has no finite one."""
    found = _resampled(arrays, statistic, seed, resamples, method=method, confidence_level=confidence)
    low, high = float(found.confidence_interval.low), float(found.confidence_interval.high)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _resampled(
    arrays: Sequence[Floats], statistic: Callable[..., Any], seed: int, resamples: int, **options: Any
) -> Any:
    from scipy.stats import bootstrap

    options["random_state"] = np.random.default_rng(seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of degenerate resamples: the result tells that too
        return bootstrap(
            arrays,
            statistic,
            paired=True,
            vectorized=True,
            axis=-1,
            n_resamples=resamples,
            batch=max(1, _BATCH_VALUES // len(arrays[0])),
            **options,
        )


def bootstrap_draws(
    samples: Sequence[npt.ArrayLike],
    statistic: Callable[..., Any],
    *,
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> Floats:
    """The statistic of each resample, shape [resamples], as ``bootstrap_interval`` draws them.

    Args:
        samples: One or more arrays of shape [samples], all of one length, of at least two samples.
        statistic: Called as ``statistic(*arrays, axis=-1)``.
        seed: Seed of the draws.
        resamples: Number of draws.

    >>> draws = bootstrap_draws([[0.0, 1.0]], np.mean, resamples=99)
    >>> sorted({float(value) for value in draws})
    [0.0, 0.5, 1.0]
    """
    found = _resampled(_as_columns(samples), statistic, seed, resamples, method="percentile")
    draws: Floats = np.asarray(found.bootstrap_distribution, np.float64)
    return draws


def mean_interval(
    values: npt.ArrayLike, *, confidence: float = 0.95, seed: int = SEED, resamples: int = RESAMPLES
) -> Interval:
    """The bootstrap interval of a mean of per-sample values, shape [samples].

    >>> mean_interval([2.0, 2.0, 2.0]).method
    'no spread'
    """
    return bootstrap_interval([values], np.mean, confidence=confidence, seed=seed, resamples=resamples)


def sqnr_interval(
    signal: npt.ArrayLike,
    noise: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> Interval:
    """The bootstrap interval of an SQNR over all samples, 10·log10(Σ signal / Σ noise), in dB.

    Args:
        signal: Σ reference² of each sample, shape [samples].
        noise: Σ (candidate − reference)² of each sample.
        confidence: Confidence of the interval.
        seed: Seed of the draws.
        resamples: Number of draws.

    >>> found = sqnr_interval([4.0, 4.0, 4.0, 4.0], [0.04, 0.02, 0.04, 0.02])
    >>> 20.0 <= found.low < 10 * np.log10(16 / 0.12) < found.high <= 23.0103
    True
    """

    def decibels(power: Any, error: Any, axis: int = -1) -> Any:
        return 10.0 * (np.log10(np.sum(power, axis=axis)) - np.log10(np.sum(error, axis=axis)))

    arrays = (signal, noise)
    return bootstrap_interval(arrays, decibels, confidence=confidence, seed=seed, resamples=resamples)
