from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap

from calib.errors import ValidationError
from calib.validation.metric_records import Draws
from calib.validation.resampling import (
    FEW_RESAMPLES,
    bca_ends,
    distribution,
    draw_weights,
    pack_draws,
    paired_draws,
    shortened,
    unpack_draws,
)
from calib.validation.tasks.statistics import Joined, ratio

VALUES = np.random.default_rng(1).gamma(2.0, size=30)


def drawn(rows: int) -> np.ndarray:
    return np.concatenate(list(draw_weights(7, 50, seed=3, rows=rows)))


def test_draws_do_not_depend_on_how_they_are_cut() -> None:
    whole = drawn(1000)
    assert whole.shape == (50, 7)
    assert (whole.sum(axis=1) == 7).all()
    for rows in (1, 3, 49):
        assert (drawn(rows) == whole).all()


def test_the_interval_of_a_mean_is_that_of_scipy() -> None:
    resamples, seed = 999, 5
    found = distribution(ratio("mean", VALUES), resamples, seed)
    theirs = bootstrap(
        (VALUES,), np.mean, n_resamples=resamples, method="BCa", random_state=np.random.default_rng(seed)
    )
    assert np.sort(found.draws[:, 0]) == pytest.approx(np.sort(theirs.bootstrap_distribution))
    interval = found.interval("mean")
    assert interval.low == pytest.approx(theirs.confidence_interval.low)
    assert interval.high == pytest.approx(theirs.confidence_interval.high)
    assert interval.method == "BCa bootstrap, 999 resamples, seed 5"


def test_the_interval_of_a_drop_is_that_of_the_paired_differences() -> None:
    other = VALUES - np.random.default_rng(2).normal(0.1, 0.3, len(VALUES))
    baseline, candidate = (distribution(ratio("mean", values), 999, 5) for values in (VALUES, other))
    interval = candidate.drop_interval(baseline, "mean")
    theirs = bootstrap(
        (VALUES - other,), np.mean, n_resamples=999, method="BCa", random_state=np.random.default_rng(5)
    )
    assert interval.low == pytest.approx(theirs.confidence_interval.low)
    assert interval.high == pytest.approx(theirs.confidence_interval.high)


def test_few_units_and_no_spread_are_said() -> None:
    assert distribution(ratio("mean", [1.0]), 99).interval("mean").note.startswith("one sample")
    flat = distribution(ratio("mean", [2.0, 2.0, 2.0]), 99).interval("mean")
    assert (flat.low, flat.high, flat.method) == (2.0, 2.0, "no spread")
    assert bca_ends(1.0, np.array([1.0, 1.0]), np.array([1.0, 1.0])) is None


def test_resamples_without_a_figure_give_no_interval() -> None:
    found = distribution(ratio("share", [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]), 99)
    assert found.values[0] == 1.0
    assert found.interval("share").note == "some resamples have no finite figure"
    assert found.packed == {}


def test_joined_statistics_are_evaluated_on_the_same_draws() -> None:
    both = distribution(Joined((ratio("a", VALUES), ratio("b", 2 * VALUES))), 99)
    assert both.draws[:, 1] == pytest.approx(2 * both.draws[:, 0])


def test_packed_draws_come_back_as_float32() -> None:
    draws = distribution(ratio("mean", VALUES), 600).packed["mean"]
    values = unpack_draws(draws.values)
    assert (len(values), max(map(len, draws.values))) == (600, 76)
    assert pack_draws(values) == draws.values
    assert (unpack_draws(shortened(draws).values) == values[:FEW_RESAMPLES]).all()


@pytest.mark.parametrize("lines", [("A",), ("!!!!",), ("AAA=",), ("AADAfw==",)])
def test_broken_draws_are_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match=r"mAP: the packed draws .* Make the file again"):
        unpack_draws(lines, "mAP")


def test_draws_are_paired_on_the_same_resamples_alone() -> None:
    long, short = Draws(0, 9, pack_draws(np.arange(5.0))), Draws(0, 9, pack_draws(np.arange(3.0)))
    found = paired_draws(long, short, "x")
    assert found is not None
    assert [part.tolist() for part in found] == [[0, 1, 2], [0, 1, 2]]
    assert paired_draws(long, Draws(1, 9, short.values), "x") is None
    assert paired_draws(long, Draws(0, 8, short.values), "x") is None
    assert paired_draws(None, long, "x") is None
