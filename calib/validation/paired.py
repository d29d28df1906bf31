"""Two precisions on the same samples: what their answers tell of the difference.

Only samples on which one is right and the other wrong tell anything of a difference of shares, so all of it
is made from the disagreement table. "Drop" is baseline minus candidate throughout: positive is a loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib.errors import ValidationError
from calib.validation.intervals import SEED, Interval, bootstrap_interval, check_confidence, share_interval

__all__ = [
    "McNemar",
    "PairedTable",
    "PermutationTest",
    "difference_interval",
    "exact_interval",
    "mcnemar",
    "mean_drop_interval",
    "newcombe_interval",
    "permutation_test",
    "score_statistic",
    "tango_interval",
]

_PERMUTATIONS = 9999
_BATCH_VALUES = 1 << 22


@dataclass(frozen=True)
class PairedTable:
    """How often a baseline and a candidate are right on the same samples.

    Attributes:
        both: Both are right (n11).
        only_baseline: Only the baseline is right: "became wrong" (n10).
        only_candidate: Only the candidate is right: "became right" (n01).
        neither: Neither is right (n00).
    """

    both: int
    only_baseline: int
    only_candidate: int
    neither: int

    @classmethod
    def from_hits(cls, baseline: npt.ArrayLike, candidate: npt.ArrayLike) -> PairedTable:
        """Counts right answers, sample by sample.

        Args:
            baseline: Whether the baseline is right, shape [samples].
            candidate: Whether the candidate is right, for the same samples in the same order.

        Raises:
            ValidationError: The numbers of samples differ.

        >>> PairedTable.from_hits([True, True, False, False], [True, False, True, False])
        PairedTable(both=1, only_baseline=1, only_candidate=1, neither=1)
        """
        first, second = np.asarray(baseline, np.bool_), np.asarray(candidate, np.bool_)
        if first.shape != second.shape or first.ndim != 1:
            raise ValidationError(
                f"Paired answers must be of the same samples; got shapes {first.shape} and {second.shape}."
            )
        counts = np.bincount(2 * first.astype(np.int64) + second, minlength=4)
        return cls(int(counts[3]), int(counts[2]), int(counts[1]), int(counts[0]))

    @property
    def count(self) -> int:
        """Number of samples, n."""
        return self.both + self.only_baseline + self.only_candidate + self.neither

    @property
    def disagreements(self) -> int:
        """Samples on which just one of them is right."""
        return self.only_baseline + self.only_candidate

    @property
    def drop(self) -> float:
        """(n10 − n01) / n; 0 without samples.

        >>> PairedTable(70, 6, 2, 22).drop
        0.04
        """
        return (self.only_baseline - self.only_candidate) / self.count if self.count else 0.0

    @property
    def swapped(self) -> PairedTable:
        """The same with the parts of baseline and candidate exchanged."""
        return PairedTable(self.both, self.only_candidate, self.only_baseline, self.neither)


@dataclass(frozen=True)
class McNemar:
    """McNemar's test: could samples have moved either way with equal chance?

    Attributes:
        p_value: Exact and two-sided; never too small.
        mid_p: The same with half the probability of what was seen, which is nearer to the truth.
    """

    p_value: float
    mid_p: float


def mcnemar(became_wrong: int, became_right: int) -> McNemar:
    """McNemar's exact two-sided test of two counts of samples that moved.

    With n = b + c and X ~ Binomial(n, ½): p = min(1, 2·P(X ≤ min(b, c))), and the mid-p is
    2·P(X ≤ min) − P(X = min), or 1 − P(X = b)/2 where b = c (Agresti, Categorical Data Analysis, 3rd ed.,
    §11.1; Fagerland, Lydersen and Laake, BMC Medical Research Methodology 13:91, 2013).

    Args:
        became_wrong: b, samples that only the baseline answers rightly.
        became_right: c, samples that only the candidate answers rightly.

    Returns:
        Both p-values; 1 where no sample moved.

    >>> found = mcnemar(5, 1)   # 2 · (1 + 6) / 2⁶, and less 6 / 2⁶
    >>> round(found.p_value, 6), round(found.mid_p, 6)
    (0.21875, 0.125)
    """
    from scipy.stats import binom

    moved, least = became_wrong + became_right, min(became_wrong, became_right)
    if not moved:
        return McNemar(1.0, 1.0)
    seen = float(binom.pmf(least, moved, 0.5))
    double = 2.0 * float(binom.cdf(least, moved, 0.5))
    if became_wrong == became_right:
        return McNemar(1.0, 1.0 - seen / 2)
    return McNemar(min(1.0, double), double - seen)


def score_statistic(table: PairedTable, drop: float) -> float:
    """Tango's score statistic of the hypothesis that the true drop is ``drop``; standard normal under it.

    (n10 − n01 − nΔ) / √(n·(2q + Δ(1 − Δ))), where q is the most likely share of n01 under the hypothesis:
    q = (√(B² − 4AC) − B) / 2A with A = 2n, B = (2n − n10 + n01)Δ − n10 − n01, C = −n01·Δ(1 − Δ)
    (Tango, Statistics in Medicine 17, 1998, pp. 891-908).

    Args:
        table: The disagreement table, with at least one sample.
        drop: Δ, between −1 and 1.

    >>> round(score_statistic(PairedTable(0, 9, 1, 10), 0.0), 4)   # at Δ = 0 McNemar's (b − c)/√(b + c)
    2.5298
    """
    if drop < 0:
        return -score_statistic(table.swapped, -drop)
    n, b, c = table.count, table.only_baseline, table.only_candidate
    linear = (2 * n - b + c) * drop - b - c
    root = math.sqrt(linear**2 + 8 * n * c * drop * (1 - drop))
    variance = n * ((root - linear) / (2 * n) + drop * (1 - drop))
    distance = b - c - n * drop
    if variance <= 0 or abs(distance) < 1e-12 * n:
        return 0.0 if abs(distance) < 1e-12 * n else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def tango_interval(table: PairedTable, confidence: float = 0.95) -> Interval:
    """Tango's score interval of a drop: every Δ that the score test does not reject.

    It neither collapses where no sample moved nor leaves [−1, 1], and its coverage is close to what it says
    from small samples on (Fagerland, Lydersen and Laake, Statistics in Medicine 33, 2014).

    Args:
        table: The disagreement table; without samples the whole range from −1 to 1.
        confidence: Confidence of the interval.

    >>> found = tango_interval(PairedTable(1, 1, 7, 12))
    >>> round(found.low, 3), round(found.high, 3)
    (-0.517, -0.026)
    """
    from scipy.optimize import bisect
    from scipy.stats import norm

    check_confidence(confidence)
    if not table.count:
        return _nothing(confidence)
    z = float(norm.ppf((1 + confidence) / 2))

    def end(sign: int) -> float:
        # The statistic falls with Δ and is 0 at the observed drop.
        inner, outer = table.drop, -float(sign)
        if abs(inner - outer) < 1e-12:
            return outer
        return float(bisect(lambda drop: score_statistic(table, drop) - sign * z, inner, outer, xtol=1e-10))

    return Interval(end(1), end(-1), confidence, "Tango score")


def _nothing(confidence: float) -> Interval:
    return Interval(-1.0, 1.0, confidence, "none", "no samples: the drop may be anything")


def newcombe_interval(table: PairedTable, confidence: float = 0.95) -> Interval:
    """Newcombe's interval of a drop, from the Wilson intervals of both shares and their correlation.

    Square-and-add, his method 10: with shares p, q, Wilson intervals [l₁, u₁] and [l₂, u₂],
    φ = D / √(product of the four margins), 0 where a margin is 0, and D = n11·n00 − n10·n01, which is
    lessened by n/2, to no less than 0, where it is positive:
    low = d − √((p−l₁)² − 2φ(p−l₁)(u₂−q) + (u₂−q)²), high likewise (Newcombe, Statistics in Medicine 17,
    1998, pp. 2635-2650).

    >>> found = newcombe_interval(PairedTable(1, 1, 7, 12))
    >>> round(found.low, 3), round(found.high, 3)
    (-0.507, -0.026)
    """
    if not table.count:
        return _nothing(confidence)
    first, second = table.both + table.only_baseline, table.both + table.only_candidate
    p, q = first / table.count, second / table.count
    ends = []
    for successes in (first, second):
        interval = share_interval(successes, table.count, confidence)
        assert interval.low is not None
        assert interval.high is not None
        ends.append((interval.low, interval.high))
    (low1, high1), (low2, high2) = ends
    phi = _phi(table)

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one**2 - 2 * phi * one * other + other**2))

    low, high = table.drop - reach(p - low1, high2 - q), table.drop + reach(high1 - p, q - low2)
    return Interval(low, high, confidence, "Newcombe square-and-add")


def _phi(table: PairedTable) -> float:
    margins = (
        (table.both + table.only_baseline)
        * (table.only_candidate + table.neither)
        * (table.both + table.only_candidate)
        * (table.only_baseline + table.neither)
    )
    if not margins:
        return 0.0
    product = table.both * table.neither - table.only_baseline * table.only_candidate
    corrected = product if product < 0 else max(0.0, product - table.count / 2)
    return corrected / math.sqrt(margins)


def exact_interval(table: PairedTable, confidence: float = 0.95) -> Interval:
    """The exact interval of a drop, given how many samples disagree.

    Of the m samples that disagree, n10 ~ Binomial(m, π); the Clopper-Pearson interval of π becomes that of
    the drop, (2π − 1)·m/n. It takes m as given, so it tells nothing where m is 0.

    >>> found = exact_interval(PairedTable(80, 10, 0, 10))
    >>> round(found.low, 4), found.high   # π ≥ 0.025^(1/10) = 0.6915
    (0.0383, 0.1)
    """
    if not table.disagreements:
        note = "no sample disagrees: the exact interval has nothing to go by" if table.count else ""
        return Interval(-1.0, 1.0, confidence, "none", note or "no samples: the drop may be anything")
    share = share_interval(table.only_baseline, table.disagreements, confidence, "exact")
    assert share.low is not None
    assert share.high is not None
    rate = table.disagreements / table.count
    ends = ((2 * share.low - 1) * rate, (2 * share.high - 1) * rate)
    return Interval(*ends, confidence, "exact, given the disagreements")


def difference_interval(table: PairedTable, confidence: float = 0.95) -> Interval:
    """The interval of a drop that tables and gates use: Tango's."""
    return tango_interval(table, confidence)


def mean_drop_interval(
    baseline: npt.ArrayLike, candidate: npt.ArrayLike, confidence: float = 0.95, seed: int = SEED
) -> Interval:
    """The bootstrap interval of mean(baseline) − mean(candidate), of values of the same samples.

    >>> mean_drop_interval([1.0, 2.0, 3.0], [0.5, 1.5, 2.5]).low
    0.5
    """
    differences = _differences(baseline, candidate)
    return bootstrap_interval([differences], np.mean, confidence=confidence, seed=seed)


def _differences(baseline: npt.ArrayLike, candidate: npt.ArrayLike) -> npt.NDArray[np.float64]:
    first, second = np.asarray(baseline, np.float64), np.asarray(candidate, np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValidationError(
            f"Paired values must be of the same samples; got shapes {first.shape} and {second.shape}."
        )
    return first - second


@dataclass(frozen=True)
class PermutationTest:
    """A paired permutation test of a difference of means.

    Attributes:
        drop: Mean of baseline minus candidate.
        p_value: Two-sided.
        method: Exact over all sign changes, or so many drawn with which seed.
    """

    drop: float | None
    p_value: float
    method: str


def permutation_test(
    baseline: npt.ArrayLike,
    candidate: npt.ArrayLike,
    *,
    seed: int = SEED,
    resamples: int = _PERMUTATIONS,
) -> PermutationTest:
    """Tests whether exchanging the two values of samples at random would move the means as far apart.

    Args:
        baseline: One value a sample, shape [samples].
        candidate: The same samples' values, in the same order.
        seed: Seed of the draws; not needed where all 2ⁿ exchanges are few enough to be tried.
        resamples: Number of draws.

    Returns:
        The test; p is 1 where there are no samples or no differences.

    Raises:
        ValidationError: The numbers of samples differ, or a value is not finite.

    >>> permutation_test([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0])   # 2 of 2⁴ sign patterns
    PermutationTest(drop=1.0, p_value=0.125, method='exact permutation test')
    """
    differences = _differences(baseline, candidate)
    if not np.isfinite(differences).all():
        raise ValidationError("A permutation test needs finite values; some are NaN or infinite.")
    if not differences.any():
        return PermutationTest(0.0 if len(differences) else None, 1.0, "none: no differences")
    drop = float(differences.mean())
    if 2.0 ** min(len(differences), 64) <= resamples:
        return PermutationTest(drop, _exact_p_value(differences, resamples), "exact permutation test")
    method = f"permutation test, {resamples} draws, seed {seed}"
    return PermutationTest(drop, _drawn_p_value(differences, resamples, seed), method)


def _exact_p_value(differences: npt.NDArray[np.float64], resamples: int) -> float:
    from scipy.stats import permutation_test as scipy_test

    found = scipy_test(
        (differences,), np.mean, permutation_type="samples", vectorized=True, n_resamples=resamples
    )
    return float(found.pvalue)


def _drawn_p_value(differences: npt.NDArray[np.float64], resamples: int, seed: int) -> float:
    """Twice the smaller of both tails, each (1 + draws at or beyond what was seen) / (1 + draws).

    Signs are drawn as bits: scipy, which draws the same, takes thirty times as long.
    """
    rng, count, total = np.random.default_rng(seed), len(differences), differences.sum()
    # Rounding must not tell a draw from what was seen where they are the same.
    slack = 1e-12 * np.abs(differences).sum()
    below = above = 0
    step = max(1, _BATCH_VALUES // count)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        packed = rng.integers(0, 256, (rows, (count + 7) // 8), dtype=np.uint8)
        sums = total - 2.0 * (np.unpackbits(packed, axis=1, count=count) @ differences)
        below += int((sums <= total + slack).sum())
        above += int((sums >= total - slack).sum())
    return min(1.0, 2.0 * (1 + min(below, above)) / (1 + resamples))
