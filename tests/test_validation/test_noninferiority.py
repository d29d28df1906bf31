from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm
from statsmodels.stats.multitest import multipletests

from calib.errors import UsageError, ValidationError
from calib.validation.corrections import adjust, bonferroni, holm
from calib.validation.noninferiority import (
    mean_non_inferiority,
    ratio_statistic,
    relative_non_inferiority,
    share_non_inferiority,
)
from calib.validation.paired import PairedTable


class TestShares:
    def test_verdicts(self) -> None:
        # Drops of 0, 5 and 0.8 points against a margin of one.
        assert share_non_inferiority(PairedTable(4900, 25, 25, 50), 0.01).verdict == "pass"
        assert share_non_inferiority(PairedTable(900, 60, 10, 30), 0.01).verdict == "fail"
        assert share_non_inferiority(PairedTable(480, 6, 2, 12), 0.01).verdict == "undecided"

    def test_the_verdict_is_where_the_bounds_lie(self) -> None:
        for wrong in range(0, 30, 3):
            test = share_non_inferiority(PairedTable(900, wrong, 5, 95 - wrong), 0.01)
            assert test.low is not None
            assert test.high is not None
            expected = "pass" if test.high < 0.01 else "fail" if test.low > 0.01 else "undecided"
            assert test.verdict == expected

    def test_p_of_a_hand_made_case(self) -> None:
        # Nothing disagrees: z = −√n·√(Δ/(1 − Δ)).
        test = share_non_inferiority(PairedTable(360, 0, 0, 0), 0.01)
        assert test.p_value == pytest.approx(norm.cdf(-np.sqrt(360 * 0.01 / 0.99)))
        assert test.p_value + test.p_worse == pytest.approx(1.0)

    def test_no_loss_at_all_cannot_be_shown(self) -> None:
        assert share_non_inferiority(PairedTable(360, 0, 0, 0), 0.0).verdict == "undecided"

    def test_without_samples(self) -> None:
        test = share_non_inferiority(PairedTable(0, 0, 0, 0), 0.01)
        assert (test.verdict, test.drop, test.p_value) == ("undecided", None, 1.0)
        assert test.note == "nothing was measured: no samples"

    @pytest.mark.parametrize("margin", [-0.1, 1.0, float("nan"), float("inf")])
    def test_margins_that_are_none(self, margin: float) -> None:
        with pytest.raises(UsageError, match="margin is a share"):
            share_non_inferiority(PairedTable(1, 1, 1, 1), margin)

    def test_alpha_that_is_none(self) -> None:
        with pytest.raises(UsageError, match="Alpha"):
            share_non_inferiority(PairedTable(1, 1, 1, 1), 0.1, 0.5)


def ratio_by_likelihood(table: PairedTable, ratio: float) -> float:
    """The ratio's score statistic, its most likely shares found by search."""
    counts = np.array([table.both, table.only_candidate, table.only_baseline, table.neither])
    n = table.count

    def shares(x: np.ndarray) -> np.ndarray:
        # Free: the baseline's share and what the candidate gained; the hypothesis gives the rest.
        both = ratio * x[0] - x[1]
        return np.array([both, x[1], x[0] - both, 1 - x[0] - x[1]])

    def loss(x: np.ndarray) -> float:
        p = shares(x)
        return 1e9 if (p <= 0).any() else -float((counts * np.log(p)).sum())

    start = np.array([(table.both + table.only_baseline) / n, 0.01])
    options = {"xatol": 1e-12, "fatol": 1e-13, "maxiter": 5000}
    x = minimize(loss, start, method="Nelder-Mead", options=options).x
    p = shares(x)
    observed = (table.both + table.only_candidate - ratio * (table.both + table.only_baseline)) / n
    return observed * np.sqrt(n / (ratio * (p[1] + p[2])))


class TestRatios:
    @pytest.mark.parametrize("table", [PairedTable(59, 16, 6, 80), PairedTable(900, 12, 3, 85)])
    @pytest.mark.parametrize("ratio", [0.9, 0.97, 0.99])
    def test_statistic_by_maximum_likelihood(self, table: PairedTable, ratio: float) -> None:
        assert ratio_statistic(table, ratio) == pytest.approx(ratio_by_likelihood(table, ratio), rel=2e-4)

    def test_published_example(self) -> None:
        # Bentur et al., 2 of 21 against 8 of 21: ratio 0.25, Tang's score interval 0.065 to 0.907
        # (Fagerland, Lydersen and Laake, Statistics in Medicine 33, 2014).
        test = relative_non_inferiority(PairedTable(1, 7, 1, 12), 0.01, alpha=0.025)
        assert test.low is not None
        assert test.high is not None
        assert (round(1 - test.high, 3), round(1 - test.low, 3)) == (0.065, 0.907)

    def test_a_baseline_that_is_never_right(self) -> None:
        test = relative_non_inferiority(PairedTable(0, 0, 3, 7), 0.1)
        assert test.verdict == "undecided"
        assert test.note == "the baseline is never right: nothing to be relative to"

    def test_relative_is_stricter_for_a_poor_baseline(self) -> None:
        table = PairedTable(200, 4, 4, 792)  # 20 % right: 5 % of that is one point
        absolute = share_non_inferiority(table, 0.05)
        relative = relative_non_inferiority(table, 0.05)
        assert absolute.verdict == "pass"
        assert relative.verdict == "pass"
        assert absolute.p_value < relative.p_value


class TestMeans:
    def test_verdicts(self) -> None:
        rng = np.random.default_rng(2)
        base = rng.normal(30, 2, 300)
        noise = rng.normal(0, 0.5, 300)
        assert mean_non_inferiority(base, base + noise, 0.5).verdict == "pass"
        assert mean_non_inferiority(base, base + noise - 2, 0.5).verdict == "fail"
        assert mean_non_inferiority(base, base + noise - noise.mean() - 0.5, 0.5).verdict == "undecided"

    def test_where_lower_is_better_a_rise_is_the_drop(self) -> None:
        base = np.linspace(1, 2, 50)
        test = mean_non_inferiority(base, base + 0.3, 0.1, higher_is_better=False)
        assert test.drop == pytest.approx(0.3)
        assert test.verdict == "fail"

    def test_one_sample_decides_nothing(self) -> None:
        test = mean_non_inferiority([1.0], [1.0], 0.5)
        assert (test.verdict, test.note) == ("undecided", "one sample: its spread is not known")

    def test_refusals(self) -> None:
        with pytest.raises(ValidationError, match="finite"):
            mean_non_inferiority([1.0, float("nan")], [1.0, 1.0], 0.5)
        with pytest.raises(ValidationError, match="same samples"):
            mean_non_inferiority([1.0, 2.0], [1.0], 0.5)
        with pytest.raises(UsageError, match="finite number"):
            mean_non_inferiority([1.0, 2.0], [1.0, 2.0], float("nan"))


class TestCorrections:
    @pytest.mark.parametrize("count", [1, 2, 7, 40])
    def test_as_statsmodels_has_them(self, count: int) -> None:
        values = np.random.default_rng(count).uniform(0, 0.3, count)
        assert holm(values) == pytest.approx(multipletests(values, method="holm")[1])
        assert bonferroni(values) == pytest.approx(multipletests(values, method="bonferroni")[1])

    def test_nothing_and_none(self) -> None:
        assert holm([]) == ()
        assert adjust([0.2, 0.1], "none") == (0.2, 0.1)

    def test_refusals(self) -> None:
        with pytest.raises(UsageError, match="Unknown correction 'sidak'"):
            adjust([0.1], "sidak")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="between 0 and 1"):
            holm([0.1, float("nan")])
