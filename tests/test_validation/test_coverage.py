"""How often intervals hold the true figure, and tests err, in simulated runs with a known truth."""

from __future__ import annotations

import numpy as np
import pytest

from calib.validation.intervals import mean_interval, share_interval, sqnr_interval
from calib.validation.noninferiority import relative_non_inferiority, share_non_inferiority
from calib.validation.paired import PairedTable, newcombe_interval, tango_interval
from calib.validation.shifts import sqnr_difference

pytestmark = pytest.mark.slow


def tables(count: int, shares: list[float], runs: int, seed: int = 0) -> list[PairedTable]:
    draws = np.random.default_rng(seed).multinomial(count, shares, size=runs)
    return [PairedTable(*map(int, draw)) for draw in draws]


@pytest.mark.parametrize("count", [30, 300])
@pytest.mark.parametrize("share", [0.76, 0.97])
def test_shares(count: int, share: float) -> None:
    from scipy.stats import binom

    # Exactly: the probability of each count times whether its interval holds the share.
    held = {
        method: sum(
            binom.pmf(k, count, share)
            for k in range(count + 1)
            if (found := share_interval(k, count, method=method)).low <= share <= found.high  # type: ignore[operator, arg-type]
        )
        for method in ("wilson", "exact")
    }
    assert held["exact"] >= 0.95
    assert held["wilson"] == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize("interval", [tango_interval, newcombe_interval])
@pytest.mark.parametrize(
    ("count", "shares"),
    [(50, [0.7, 0.08, 0.04, 0.18]), (400, [0.74, 0.02, 0.01, 0.23]), (1000, [0.95, 0.01, 0.01, 0.03])],
)
def test_drops(interval: object, count: int, shares: list[float]) -> None:
    truth, runs = shares[1] - shares[2], 1000
    found = [interval(table) for table in tables(count, shares, runs)]  # type: ignore[operator]
    held = sum(one.low <= truth <= one.high for one in found) / runs
    # 0.95 less 2 standard errors, and 1.5 points where only six samples disagree; Newcombe's is a bit wide.
    assert (0.92 if count == 50 else 0.935) <= held <= 0.985


@pytest.mark.parametrize("test", [share_non_inferiority, relative_non_inferiority])
def test_a_model_at_the_margin_seldom_passes(test: object) -> None:
    # True drop 2 points of 80: the absolute margin, and 2.5 % of the baseline.
    margin = 0.02 if test is share_non_inferiority else 0.025
    runs = 3000
    verdicts = [test(table, margin).verdict for table in tables(500, [0.75, 0.05, 0.03, 0.17], runs)]  # type: ignore[operator]
    for verdict in ("pass", "fail"):
        assert verdicts.count(verdict) / runs == pytest.approx(0.05, abs=0.013)


def test_bootstrap_of_a_mean_and_an_sqnr() -> None:
    rng, runs, count = np.random.default_rng(0), 250, 80
    mean = ratio = 0
    for _ in range(runs):
        values = rng.gamma(2.0, 1.0, count)  # skewed, mean 2
        found = mean_interval(values, resamples=599)
        mean += found.low <= 2.0 <= found.high  # type: ignore[operator]
        signal = rng.gamma(4.0, 25.0, count)  # mean 100
        noise = rng.gamma(2.0, 0.5, count)  # mean 1: 20 dB
        held = sqnr_interval(signal, noise, resamples=599)
        ratio += held.low <= 20.0 <= held.high  # type: ignore[operator]
    # Three standard errors of a share of 250 runs are 4.1 points.
    assert mean / runs == pytest.approx(0.94, abs=0.041)
    assert ratio / runs == pytest.approx(0.94, abs=0.041)


def test_bootstrap_of_a_difference_of_two_sqnrs() -> None:
    """Of the same samples: noise of two versions, the second's 10 % up, 0.414 dB."""
    rng, runs, count = np.random.default_rng(1), 80, 80
    held = called = 0
    for _ in range(runs):
        signal = rng.gamma(4.0, 25.0, count)
        noise = rng.gamma(2.0, 0.5, count)
        equal, louder = (noise * rng.uniform(factor - 0.1, factor + 0.1, count) for factor in (1.0, 1.1))
        found = sqnr_difference(np.stack([signal, noise]), np.stack([signal, louder]))
        held += found["low"] <= -10 * np.log10(1.1) <= found["high"]
        called += sqnr_difference(np.stack([signal, noise]), np.stack([signal, equal]))["p_value"] < 0.05
    # Three standard errors of 94 % of 80 runs are 8 points, of 5 % 7.3.
    assert held / runs == pytest.approx(0.94, abs=0.08)
    assert called / runs == pytest.approx(0.05, abs=0.073)


def test_bootstrap_of_the_difference_of_macro_f1() -> None:
    """Answers of two runs to the same samples; the true difference is that of very many of them."""
    from calib.validation.resampling import distribution
    from calib.validation.tasks.classification import MacroF1

    random = np.random.default_rng(0)

    def answered(count: int) -> tuple[MacroF1, MacroF1]:
        labels = random.choice(3, count, p=[0.5, 0.3, 0.2])
        scores = random.normal(size=(count, 3))
        scores[np.arange(count), labels] += 1.5
        noisy = scores + random.normal(0, 0.7, scores.shape)
        return MacroF1(labels, scores.argmax(axis=1)), MacroF1(labels, noisy.argmax(axis=1))

    many = [side(np.ones((1, side.units)))[0, 0] for side in answered(2_000_000)]
    true, held = many[0] - many[1], 0
    runs = 300
    for _ in range(runs):
        baseline, candidate = (distribution(side, 499) for side in answered(120))
        found = candidate.drop_interval(baseline, "macro_f1")
        assert found.low is not None
        assert found.high is not None
        held += found.low <= true <= found.high
    # 0.95 ± 2.6 standard errors of 300 runs, and 2 points for the few samples.
    assert 0.90 <= held / runs <= 0.985


def test_bootstrap_of_a_difference_of_two_means_of_average_precision() -> None:
    """Detections at random, and the same in other places; the true difference is that of very many images."""
    pytest.importorskip("pycocotools")
    from test_validation.test_tasks.test_average_precision import scene

    from calib.validation.resampling import distribution
    from calib.validation.tasks.average_precision import AveragePrecision
    from calib.validation.tasks.boxes import Detections
    from calib.validation.tasks.coco import match_images

    def sides(images: int, seed: int) -> list[AveragePrecision]:
        truth, found = scene(images, 3, seed)
        random = np.random.default_rng(seed + 10_000)
        noisy = [
            Detections(one.boxes + np.tile(random.normal(0, 2, (len(one), 2)), 2), one.scores, one.classes)
            for one in found
        ]
        return [AveragePrecision(match_images(truth, one, 100)) for one in (found, noisy)]

    many = [side(np.ones((1, side.units)))[0, 0] for side in sides(2000, 999)]
    true, held, runs = many[0] - many[1], 0, 40
    assert true > 0.02
    for seed in range(runs):
        baseline, candidate = (distribution(side, 299) for side in sides(60, seed))
        found = candidate.drop_interval(baseline, "mAP")
        assert found.method.startswith("percentile bootstrap")
        assert found.low is not None
        assert found.high is not None
        held += found.low <= true <= found.high
    # 0.95 less three standard errors of 40 runs.
    assert held / runs >= 0.85
