from __future__ import annotations

from math import comb

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from scipy.stats import permutation_test as scipy_permutation
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from calib.errors import ValidationError
from calib.validation.paired import (
    PairedTable,
    exact_interval,
    mcnemar,
    mean_drop_interval,
    newcombe_interval,
    permutation_test,
    score_statistic,
    tango_interval,
)

BENTUR = PairedTable(both=1, only_baseline=1, only_candidate=7, neither=12)
"""Airway hyper-responsiveness before and after transplantation (Bentur et al., 2009)."""

TABLES = [
    BENTUR,
    PairedTable(59, 6, 16, 80),
    PairedTable(900, 12, 3, 85),
    PairedTable(0, 9, 1, 10),
    PairedTable(40, 0, 5, 5),
    PairedTable(5, 5, 0, 0),
]


def score_by_likelihood(table: PairedTable, drop: float) -> float:
    """The score statistic with the most likely n01 share found by search instead of by formula."""
    n, b, c = table.count, table.only_baseline, table.only_candidate

    def loss(q: float) -> float:
        rest = n - b - c
        parts = ((b, q + drop), (c, q), (rest, 1 - 2 * q - drop))
        return -sum(k * np.log(max(p, 1e-300)) for k, p in parts if k)

    low, high = max(0.0, -drop), (1 - drop) / 2
    q = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12}).x
    return (b - c - n * drop) / np.sqrt(n * (2 * q + drop - drop**2))


class TestTable:
    def test_counts_and_drop(self) -> None:
        table = PairedTable.from_hits([1, 1, 1, 0, 0], [1, 0, 0, 1, 0])
        assert table == PairedTable(1, 2, 1, 1)
        assert (table.count, table.disagreements, table.drop) == (5, 3, 0.2)

    def test_other_samples_are_refused(self) -> None:
        with pytest.raises(ValidationError, match=r"same samples; got shapes \(2,\) and \(3,\)"):
            PairedTable.from_hits([True, False], [True, False, True])


class TestMcNemar:
    @pytest.mark.parametrize("pair", [(9, 4), (4, 9), (1, 0), (0, 30), (50, 50), (900, 1000)])
    def test_exact_is_that_of_statsmodels(self, pair: tuple[int, int]) -> None:
        wrong, right = pair
        theirs = statsmodels_mcnemar([[10, wrong], [right, 5]], exact=True).pvalue
        assert mcnemar(*pair).p_value == pytest.approx(theirs, rel=1e-9)

    def test_mid_p_by_hand(self) -> None:
        # b = 1, c = 7: 2·(1 + 8)/2⁸ − 8/2⁸ (Fagerland et al. 2013 print 0.0391)
        assert mcnemar(1, 7).mid_p == pytest.approx((2 * (1 + 8) - 8) / 2**8)
        assert mcnemar(1, 7).mid_p == pytest.approx(0.0391, abs=5e-5)
        assert mcnemar(3, 3).mid_p == pytest.approx(1 - comb(6, 3) / 2**6 / 2)

    def test_without_moved_samples(self) -> None:
        assert (mcnemar(0, 0).p_value, mcnemar(0, 0).mid_p) == (1.0, 1.0)


class TestTango:
    @pytest.mark.parametrize("table", TABLES)
    @pytest.mark.parametrize("drop", [-0.3, -0.02, 0.01, 0.05, 0.4])
    def test_statistic_by_maximum_likelihood(self, table: PairedTable, drop: float) -> None:
        expected = score_by_likelihood(table, drop)
        assert score_statistic(table, drop) == pytest.approx(expected, rel=1e-4, abs=1e-6)

    def test_published_example(self) -> None:
        # Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014), table of the example.
        found = tango_interval(BENTUR)
        assert (round(found.low or 0, 3), round(found.high or 0, 3)) == (-0.517, -0.026)
        assert found.method == "Tango score"

    @pytest.mark.parametrize("table", TABLES)
    def test_ends_are_where_the_test_turns(self, table: PairedTable) -> None:
        found, z = tango_interval(table, 0.9), norm.ppf(0.95)
        assert found.low is not None
        assert found.high is not None
        assert -1 <= found.low <= table.drop <= found.high <= 1
        assert score_statistic(table, found.low) == pytest.approx(z, abs=1e-5)
        assert score_statistic(table, found.high) == pytest.approx(-z, abs=1e-5)

    def test_no_disagreement_still_has_a_width(self) -> None:
        # At b = c = 0 the statistic is −√n·√(Δ/(1 − Δ)), so the end is z²/(n + z²).
        found, z = tango_interval(PairedTable(360, 0, 0, 0)), 1.959963985
        assert found.high == pytest.approx(z**2 / (360 + z**2), rel=1e-6)
        assert found.low == pytest.approx(-(z**2) / (360 + z**2), rel=1e-6)

    @pytest.mark.parametrize("table", [PairedTable(0, 10, 0, 0), PairedTable(0, 0, 10, 0)])
    def test_all_moved(self, table: PairedTable) -> None:
        found = tango_interval(table)
        assert table.drop in (found.low, found.high)
        assert all(np.isfinite([found.low, found.high]))

    def test_exchange_of_parts_turns_the_sign(self) -> None:
        one, other = tango_interval(BENTUR), tango_interval(BENTUR.swapped)
        assert (one.low, one.high) == pytest.approx((-(other.high or 0), -(other.low or 0)), abs=1e-8)

    def test_without_samples(self) -> None:
        found = tango_interval(PairedTable(0, 0, 0, 0))
        assert (found.low, found.high, found.method) == (-1.0, 1.0, "none")


class TestOtherIntervals:
    def test_newcombes_published_example(self) -> None:
        found = newcombe_interval(BENTUR)
        assert (round(found.low or 0, 3), round(found.high or 0, 3)) == (-0.507, -0.026)

    @pytest.mark.parametrize(
        "table", [PairedTable(0, 0, 0, 9), PairedTable(9, 0, 0, 0), PairedTable(0, 3, 0, 0)]
    )
    def test_newcombe_with_empty_margins(self, table: PairedTable) -> None:
        found = newcombe_interval(table)
        assert found.low is not None
        assert found.high is not None
        assert found.low <= table.drop <= found.high

    def test_newcombe_without_samples(self) -> None:
        assert newcombe_interval(PairedTable(0, 0, 0, 0)).note == "no samples: the drop may be anything"

    def test_exact_by_hand(self) -> None:
        # 10 of 10 disagreements one way, of 100 samples: π ≥ 0.025^(1/10).
        found = exact_interval(PairedTable(80, 10, 0, 10))
        assert found.low == pytest.approx((2 * 0.025**0.1 - 1) * 0.1)
        assert found.high == pytest.approx(0.1)

    def test_exact_without_disagreement_says_nothing(self) -> None:
        found = exact_interval(PairedTable(80, 0, 0, 10))
        assert (found.low, found.high) == (-1.0, 1.0)
        assert found.note == "no sample disagrees: the exact interval has nothing to go by"

    def test_mean_drop_holds_the_difference(self) -> None:
        rng = np.random.default_rng(0)
        values = rng.normal(size=200)
        found = mean_drop_interval(values, values - rng.normal(0.5, 0.1, 200))
        assert found.low is not None
        assert found.high is not None
        assert 0.45 < found.low < 0.5 < found.high < 0.55


class TestPermutation:
    def test_exact_by_hand(self) -> None:
        # Of 2³ sign patterns of (1, 2, 3) a sum of at least 6 either way: 2.
        found = permutation_test([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
        assert (found.drop, found.p_value, found.method) == (2.0, 0.25, "exact permutation test")

    def test_drawn_signs_find_the_exact_p_value(self) -> None:
        rng = np.random.default_rng(5)
        first, second = rng.normal(0.3, 1, 12), rng.normal(0, 1, 12)
        exact = scipy_permutation((first - second,), np.mean, permutation_type="samples", n_resamples=4096)
        assert permutation_test(first, second).p_value == pytest.approx(exact.pvalue)
        drawn = permutation_test(first, second, seed=7, resamples=4000)
        assert drawn.method == "permutation test, 4000 draws, seed 7"
        # Twice a tail of p/2: its standard error is 2·√(p/2·(1 − p/2)/4000).
        tail = exact.pvalue / 2
        assert abs(drawn.p_value - exact.pvalue) < 3 * 2 * np.sqrt(tail * (1 - tail) / 4000)

    def test_drawn_like_scipys_draws(self) -> None:
        rng = np.random.default_rng(5)
        first, second = rng.normal(0.1, 1, 50), rng.normal(0, 1, 50)
        theirs = scipy_permutation(
            (first - second,),
            np.mean,
            permutation_type="samples",
            n_resamples=4000,
            random_state=np.random.default_rng(7),
        )
        found = permutation_test(first, second, seed=7, resamples=4000)
        tail = theirs.pvalue / 2
        assert abs(found.p_value - theirs.pvalue) < 3 * 2 * np.sqrt(2 * tail * (1 - tail) / 4000)
        assert found == permutation_test(first, second, seed=7, resamples=4000)

    def test_the_smallest_p_value_that_draws_can_show(self) -> None:
        found = permutation_test(np.arange(1.0, 101.0), np.zeros(100), resamples=999)
        assert found.p_value == pytest.approx(2 / 1000)

    def test_nothing_to_test(self) -> None:
        assert permutation_test([], []).drop is None
        assert permutation_test([], []).p_value == 1.0
        assert permutation_test([1.0, 2.0], [1.0, 2.0]).p_value == 1.0

    def test_refusals(self) -> None:
        with pytest.raises(ValidationError, match="finite"):
            permutation_test([float("nan"), 1.0], [0.0, 0.0])
        with pytest.raises(ValidationError, match="same samples"):
            permutation_test([1.0], [0.0, 0.0])
