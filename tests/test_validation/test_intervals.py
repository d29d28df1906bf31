from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap
from statsmodels.stats.proportion import proportion_confint

from calib.errors import UsageError
from calib.validation.intervals import (
    bootstrap_draws,
    bootstrap_interval,
    mean_interval,
    share_interval,
    sqnr_interval,
)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize(("successes", "count"), [(8, 10), (0, 20), (20, 20), (1, 1), (761, 1000)])
@pytest.mark.parametrize(("method", "theirs"), [("wilson", "wilson"), ("exact", "beta")])
def test_shares_as_statsmodels_has_them(
    successes: int, count: int, confidence: float, method: str, theirs: str
) -> None:
    found = share_interval(successes, count, confidence, method)  # type: ignore[arg-type]
    expected = proportion_confint(successes, count, 1 - confidence, theirs)
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-9)


def test_without_samples_a_share_may_be_anything() -> None:
    found = share_interval(0, 0)
    assert (found.low, found.high, found.method) == (0.0, 1.0, "none")
    assert "no samples" in found.note


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 2), "3 of 2 is no share"),
        ((-1, 2), "no share"),
        ((1, 2, 1.0), "between 0 and 1"),
        ((1, 2, 0.95, "wald"), "Unknown interval 'wald'"),
    ],
)
def test_shares_that_are_none(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        share_interval(*arguments)  # type: ignore[arg-type]


def test_bca_is_scipys() -> None:
    values = np.random.default_rng(4).exponential(size=40)
    found = bootstrap_interval([values], np.mean, seed=11, resamples=999)
    theirs = bootstrap(
        (values,), np.mean, n_resamples=999, method="BCa", random_state=np.random.default_rng(11)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))
    assert found.method == "BCa bootstrap, 999 resamples, seed 11"


def test_the_seed_decides() -> None:
    values = np.random.default_rng(4).normal(size=30)
    assert mean_interval(values, seed=1) == mean_interval(values, seed=1)
    assert mean_interval(values, seed=1) != mean_interval(values, seed=2)


def test_samples_are_drawn_with_all_their_values() -> None:
    # y is 2x on every sample: however they are drawn, the ratio of the sums is 2.
    x = np.random.default_rng(0).uniform(1, 2, 25)
    draws = bootstrap_draws([2 * x, x], lambda a, b, axis=-1: np.sum(a, axis=axis) / np.sum(b, axis=axis))
    assert draws == pytest.approx(np.full(1999, 2.0))


def test_many_samples_get_percentiles_near_the_normal_interval() -> None:
    values = np.random.default_rng(1).normal(5.0, 2.0, 4000)
    found = mean_interval(values)
    half = 1.96 * values.std(ddof=1) / np.sqrt(4000)
    assert found.method.startswith("percentile bootstrap")
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.01)


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ([], "no samples: nothing was measured"),
        ([3.0], "one sample: its spread is not known"),
        ([1.0, float("nan")], "the figure itself is not finite"),
        ([1.0, float("inf"), 2.0], "the figure itself is not finite"),
    ],
)
def test_without_a_basis_there_are_no_ends(values: list[float], note: str) -> None:
    found = mean_interval(values)
    assert (found.low, found.high, found.method, found.note) == (None, None, "none", note)


def test_no_spread_gives_no_width_and_says_so() -> None:
    found = mean_interval([0.5] * 8)
    assert (found.low, found.high, found.method) == (0.5, 0.5, "no spread")
    assert found.note == "all 8 samples are alike: the bootstrap sees no spread"


def test_where_bca_has_no_value_percentiles_stand_in() -> None:
    # The largest of the samples: leaving any other out changes nothing, and BCa's correction is not finite.
    values = [1.0] * 30 + [2.0]
    found = bootstrap_interval([values], np.max)
    assert found.low is not None
    assert found.high == 2.0
    assert np.isfinite(found.low)


def test_a_statistic_that_some_resamples_lack() -> None:
    # Noise on one sample alone: resamples without it have no SQNR.
    found = sqnr_interval([1.0, 1.0, 1.0], [0.1, 0.0, 0.0])
    assert (found.low, found.high) == (None, None)
    assert found.note == "some resamples have no finite figure"


def test_sqnr_of_equal_samples_is_exact() -> None:
    found = sqnr_interval([100.0, 200.0, 50.0], [1.0, 2.0, 0.5])  # 20 dB on each
    assert (found.low, found.high) == pytest.approx((20.0, 20.0))


def test_arrays_of_other_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match=r"one length; got shapes \(2,\), \(3,\)"):
        bootstrap_interval([[1.0, 2.0], [1.0, 2.0, 3.0]], np.mean)
