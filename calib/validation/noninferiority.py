"""Is a candidate worse than its baseline by less than a margin, and how sure is that?

Each test asks both ways: ``p_value`` is small where the drop is surely below the margin, ``p_worse`` where
it is surely above. Where neither is, the samples do not decide it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from calib.errors import UsageError, ValidationError
from calib.validation.intervals import RESAMPLES, SEED, bootstrap_draws, bootstrap_interval
from calib.validation.paired import PairedTable, score_statistic, tango_interval

__all__ = [
    "Decision",
    "NonInferiority",
    "decide",
    "mean_non_inferiority",
    "ratio_statistic",
    "relative_non_inferiority",
    "share_non_inferiority",
]

Decision = Literal["pass", "fail", "undecided"]

_MOST_RATIO = 1e6
_LEAST_RATIO = 1e-9


@dataclass(frozen=True)
class NonInferiority:
    """A one-sided non-inferiority test, and the same for the other side.

    Attributes:
        drop: Baseline minus candidate, signed; a share of the baseline for relative tests; None where
            nothing was measured.
        low: Lower bound of the drop, one-sided with confidence 1 − α; None where there is none.
        high: Upper bound of the drop, one-sided with confidence 1 − α.
        margin: The largest drop that is allowed.
        alpha: α, the chance of a wrong verdict that is taken, on each side.
        p_value: Of "the drop is as large as the margin, or larger".
        p_worse: Of "the drop is as small as the margin, or smaller".
        method: How it was made.
        note: What to know of it; may be empty.
    """

    drop: float | None
    low: float | None
    high: float | None
    margin: float
    alpha: float
    p_value: float
    p_worse: float
    method: str
    note: str = ""

    @property
    def verdict(self) -> Decision:
        """What the test alone says."""
        return decide(self.p_value, self.p_worse, self.alpha)


def decide(p_value: float, p_worse: float, alpha: float) -> Decision:
    """The verdict of two p-values: below α on either side, or undecided.

    >>> decide(0.01, 0.99, 0.05), decide(0.97, 0.03, 0.05), decide(0.2, 0.8, 0.05)
    ('pass', 'fail', 'undecided')
    """
    if p_value < alpha:
        return "pass"
    return "fail" if p_worse < alpha else "undecided"


def _check(margin: float, alpha: float) -> None:
    if not (math.isfinite(margin) and 0 <= margin < 1):
        raise UsageError(
            f"A margin is a share from 0 to below 1, such as 1% or 0.01 for one point; got {margin}."
        )
    if not 0 < alpha < 0.5:
        raise UsageError(f"Alpha lies between 0 and 0.5, such as 0.05; got {alpha}.")


def share_non_inferiority(table: PairedTable, margin: float, alpha: float = 0.05) -> NonInferiority:
    """Tests a drop of a share of right answers, by Tango's score statistic at the margin.

    The statistic z = (n10 − n01 − n·margin) / √(n(2q + margin(1 − margin))) is standard normal where the true
    drop is the margin (Tango 1998; see ``score_statistic``); p = Φ(z).

    Args:
        table: Right answers of both on the same samples.
        margin: The largest drop that is allowed, as a share: 0.01 is one percentage point.
        alpha: Chance of a wrong verdict that is taken, on each side.

    Raises:
        UsageError: The margin or alpha is none.

    >>> share_non_inferiority(PairedTable(900, 5, 5, 90), 0.01).verdict
    'pass'
    >>> share_non_inferiority(PairedTable(90, 1, 0, 9), 0.01).verdict
    'undecided'
    """
    from scipy.stats import norm

    _check(margin, alpha)
    if not table.count:
        return _nothing(margin, alpha)
    z = score_statistic(table, margin)
    interval = tango_interval(table, 1 - 2 * alpha)
    p_value, p_worse = float(norm.cdf(z)), float(norm.sf(z))
    return NonInferiority(
        table.drop, interval.low, interval.high, margin, alpha, p_value, p_worse, "Tango score test"
    )


def _nothing(margin: float, alpha: float, note: str = "nothing was measured: no samples") -> NonInferiority:
    return NonInferiority(None, None, None, margin, alpha, 1.0, 1.0, "none", note)


def ratio_statistic(table: PairedTable, ratio: float) -> float:
    """Score statistic of the hypothesis that candidate share = ratio · baseline share.

    T = √n·(p₁ − θp₂) / √(θ(p̃₁₀ + p̃₀₁)) with candidate share p₁, baseline share p₂ and ratio θ; p̃ are the
    most likely shares under the hypothesis, p̃₁₀ of samples that only the candidate answers rightly:
    p̃₁₀ = (−p₁ + θ²(p₂ + 2p₁₀) + √((p₁ − θ²p₂)² + 4θ²p₁₀p₀₁)) / 2θ(θ + 1), p̃₀₁ = θp̃₁₀ − (θ − 1)(1 − p₀₀)
    (Nam and Blackwelder, Statistics in Medicine 21, 2002, pp. 689-699). Standard normal under it.

    Args:
        table: The disagreement table, with at least one sample.
        ratio: θ, above 0.

    >>> round(ratio_statistic(PairedTable(0, 9, 1, 10), 1.0), 4)   # at 1 McNemar's (c − b)/√(b + c)
    -2.5298
    """
    n = table.count
    first, second = (table.both + table.only_candidate) / n, (table.both + table.only_baseline) / n
    gained, lost = table.only_candidate / n, table.only_baseline / n
    root = math.sqrt((first - ratio**2 * second) ** 2 + 4 * ratio**2 * gained * lost)
    most_likely = (-first + ratio**2 * (second + 2 * gained) + root) / (2 * ratio * (ratio + 1))
    other = ratio * most_likely - (ratio - 1) * (1 - table.neither / n)
    variance = ratio * (most_likely + other)
    distance = first - ratio * second
    if abs(distance) < 1e-12:
        return 0.0
    return distance * math.sqrt(n / variance) if variance > 0 else math.copysign(math.inf, distance)


def relative_non_inferiority(table: PairedTable, margin: float, alpha: float = 0.05) -> NonInferiority:
    """Tests a drop relative to the baseline, 1 − candidate share / baseline share.

    Args:
        table: Right answers of both on the same samples.
        margin: The largest part of the baseline's share that may be lost: 0.01 of 0.76 is 0.0076.
        alpha: Chance of a wrong verdict that is taken, on each side.

    Raises:
        UsageError: The margin or alpha is none.

    >>> relative_non_inferiority(PairedTable(900, 5, 5, 90), 0.01).verdict
    'pass'
    """
    from scipy.optimize import bisect
    from scipy.stats import norm

    _check(margin, alpha)
    right = table.both + table.only_baseline
    if not right:
        note = "the baseline is never right: nothing to be relative to" if table.count else ""
        return _nothing(margin, alpha, note) if note else _nothing(margin, alpha)
    limit = float(norm.ppf(1 - alpha))

    def bound(sign: int) -> float | None:
        def excess(logarithm: float) -> float:
            return ratio_statistic(table, math.exp(logarithm)) - sign * limit

        ends = (math.log(_LEAST_RATIO), math.log(_MOST_RATIO))
        if excess(ends[0]) * excess(ends[1]) >= 0:
            return None
        return 1 - math.exp(float(bisect(excess, *ends, xtol=1e-10)))

    z = ratio_statistic(table, 1 - margin)
    drop = 1 - (table.both + table.only_candidate) / right
    # The statistic falls with the ratio: its upper bound is the drop's lower one.
    return NonInferiority(
        drop, bound(-1), bound(1), margin, alpha, float(norm.sf(z)), float(norm.cdf(z)), "ratio score test"
    )


def mean_non_inferiority(
    baseline: npt.ArrayLike,
    candidate: npt.ArrayLike,
    margin: float,
    alpha: float = 0.05,
    *,
    higher_is_better: bool = True,
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> NonInferiority:
    """Tests a drop of the mean of any per-sample figure, by bootstrap of the paired differences.

    Bounds are those of the BCa interval; p is (1 + resamples at or beyond the margin) / (resamples + 1).

    Args:
        baseline: One value a sample, shape [samples].
        candidate: The same samples' values, in the same order.
        margin: The largest drop that is allowed, in the values' unit.
        alpha: Chance of a wrong verdict that is taken, on each side.
        higher_is_better: Direction of the figure; where lower is better, a rise is the drop.
        seed: Seed of the draws.
        resamples: Number of draws.

    Raises:
        ValidationError: The numbers of samples differ, or a value is not finite.
        UsageError: The margin or alpha is none.

    >>> mean_non_inferiority([0.9, 0.8, 0.7, 0.9], [0.89, 0.8, 0.69, 0.9], 0.05).verdict
    'pass'
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise UsageError(f"A margin is a finite number of at least 0; got {margin}.")
    _check(0.0, alpha)
    drops = np.asarray(baseline, np.float64) - np.asarray(candidate, np.float64)
    if np.shape(baseline) != np.shape(candidate) or drops.ndim != 1:
        raise ValidationError("Paired values must be of the same samples, one value each.")
    if not np.isfinite(drops).all():
        raise ValidationError("A non-inferiority test needs finite values; some are NaN or infinite.")
    drops = drops if higher_is_better else -drops
    interval = bootstrap_interval([drops], np.mean, confidence=1 - 2 * alpha, seed=seed, resamples=resamples)
    if len(drops) < 2:
        return _nothing(margin, alpha, interval.note)
    draws = bootstrap_draws([drops], np.mean, seed=seed, resamples=resamples)
    p_value = (1 + int((draws >= margin).sum())) / (resamples + 1)
    p_worse = (1 + int((draws <= margin).sum())) / (resamples + 1)
    return NonInferiority(
        float(drops.mean()),
        interval.low,
        interval.high,
        margin,
        alpha,
        p_value,
        p_worse,
        interval.method,
        interval.note,
    )
