from __future__ import annotations

import numpy as np
import pytest

from calib.errors import UsageError
from calib.validation.latency_ratios import compare_pairs, latency_ratio, ratio_sentence
from calib.validation.speed_records import LatencyRatio


def test_int8_is_compared_with_fp32_and_with_fp16() -> None:
    medians = {"fp32": 10.0, "fp16": 4.0, "int8": 5.0}
    names = list(medians)
    found = {
        (names[candidate], names[against]): latency_ratio(
            names[candidate], names[against], [medians[names[candidate]]] * 9, [medians[names[against]]] * 9
        )
        for candidate, against in compare_pairs(names)
    }
    assert {pair: ratio.ratio for pair, ratio in found.items()} == {
        ("fp16", "fp32"): 0.4,
        ("int8", "fp32"): 0.5,
        ("int8", "fp16"): 1.25,
    }
    assert ratio_sentence(found["int8", "fp16"]).startswith("int8 is 1.25x slower than fp16 (")
    assert ratio_sentence(found["int8", "fp32"]).startswith("int8 is 2.00x faster than fp32 (")


def test_rounds_are_paired() -> None:
    # A round that is slow is slow for both, by three orders of magnitude; the ratio is 2 in every round.
    slow = 10.0 ** np.random.default_rng(1).uniform(0, 3, 50)
    found = latency_ratio("a", "b", (2 * slow).tolist(), slow.tolist())
    assert (found.ratio, found.low, found.high) == (2.0, 2.0, 2.0)


def test_the_interval_is_that_of_a_bootstrap_written_out() -> None:
    random = np.random.default_rng(2)
    first, second = random.lognormal(0.0, 0.2, 40), random.lognormal(0.5, 0.2, 40)
    ratios = []
    for _ in range(4000):
        rounds = random.integers(0, 40, 40)
        ratios.append(np.median(first[rounds]) / np.median(second[rounds]))
    low, high = np.percentile(ratios, (5, 95))
    found = latency_ratio("a", "b", first.tolist(), second.tolist(), confidence=0.9)
    assert found.ratio == np.median(first) / np.median(second)
    assert found.low == pytest.approx(low, rel=0.02)
    assert found.high == pytest.approx(high, rel=0.02)
    assert found.confidence == 0.9


def test_the_seed_decides_and_is_recorded() -> None:
    random = np.random.default_rng(3)
    first, second = random.random(20).tolist(), random.random(20).tolist()
    one, again = (latency_ratio("a", "b", first, second, resamples=200, seed=4) for _ in range(2))
    other = latency_ratio("a", "b", first, second, resamples=200, seed=5)
    assert one == again
    assert (one.low, one.high) != (other.low, other.high)
    assert one.method == "percentile bootstrap of rounds: 20 rounds, 200 resamples, seed 4"


def test_too_few_rounds_have_no_interval() -> None:
    # Six values hold the median between them with 1 - 2/64 = 96.9 %, five with 1 - 2/32 = 93.8 %.
    found = latency_ratio("a", "b", [2.0] * 5, [1.0] * 5)
    assert (found.ratio, found.low, found.high) == (2.0, None, None)
    assert found.method == "no interval: 5 rounds, at least 6 are needed"
    assert latency_ratio("a", "b", [2.0] * 6, [1.0] * 6).low == 2.0


@pytest.mark.parametrize(("first", "second"), [([1.0], [1.0, 2.0]), ([], [])])
def test_the_same_rounds(first: list[float], second: list[float]) -> None:
    with pytest.raises(UsageError, match="a and b must have the same rounds"):
        latency_ratio("a", "b", first, second)


def test_every_calibration_and_every_other_runner_is_compared() -> None:
    assert compare_pairs(["fp32", "int8", "int8", "fp32"]) == [(1, 0), (1, 3), (2, 0), (2, 3)]
    assert compare_pairs(["best", "fp16"]) == [(0, 1)]
    assert compare_pairs(["fp32"]) == []


def test_equal_without_interval() -> None:
    sentence = ratio_sentence(LatencyRatio("INT8", "FP16", 1.0, None, None))
    assert sentence == "INT8 is as fast as FP16 (ratio of medians 1.000)."
