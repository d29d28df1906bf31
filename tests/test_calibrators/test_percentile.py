from __future__ import annotations

import numpy as np
import pytest

from calib.calibrators import PercentileCalibrator
from calib.errors import UsageError

N = 99_991  # a prime, so that no percentage of it is a whole number that floats miss by a rank


def percentile_of(percentile: float, *batches: np.ndarray) -> float:
    calibrator = PercentileCalibrator(percentile)
    for batch in batches:
        calibrator.collect({"x": np.asarray(batch, np.float32)})
    return calibrator.compute()["x"]


def distribution(name: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    made = {
        "normal": lambda: rng.standard_normal(N),
        "laplace": lambda: rng.laplace(size=N),
        "lognormal": lambda: rng.lognormal(size=N),
        "student-t": lambda: rng.standard_t(2, N),
        "uniform": lambda: rng.uniform(-1, 1, N),
        "relu": lambda: np.maximum(rng.standard_normal(N), 0),
        "pixels": lambda: rng.integers(0, 256, N) / 255,
        "tiny": lambda: 1e-20 * rng.standard_normal(N),
    }
    return made[name]().astype(np.float32)


@pytest.mark.parametrize("percentile", [1.5, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0])
@pytest.mark.parametrize(
    "name", ["normal", "laplace", "lognormal", "student-t", "uniform", "relu", "pixels", "tiny"]
)
def test_result_is_numpys_to_the_width_of_a_bin(name: str, percentile: float) -> None:
    values = distribution(name)
    expected = np.percentile(np.abs(values), percentile, method="inverted_cdf")
    if expected == 0:
        expected = np.abs(values).max()
    finely_counted = expected >= np.abs(values).max() / 2**15
    found = percentile_of(percentile, values)
    assert found == pytest.approx(expected, rel=2**-11 if finely_counted else 2**-5)
    assert found <= np.abs(values).max()


def test_one_wide_batch_does_not_spoil_the_rest() -> None:
    # Of 5000064 values the 62 from 2 to 63 are 0.00124 %: 99.99 percent lie below 1.
    rng = np.random.default_rng(0)
    wide, rest = np.arange(64), rng.random(5_000_000, dtype=np.float32)
    expected = np.percentile(np.append(wide, rest), 99.99, method="inverted_cdf")
    assert expected == pytest.approx(0.9999, abs=1e-4)
    assert percentile_of(99.99, wide, rest) == pytest.approx(expected, rel=2**-11)
    assert percentile_of(99.99, rest[:17], wide, rest[17:]) == percentile_of(99.99, wide, rest)


@pytest.mark.parametrize(
    ("percentile", "rank"),
    # numpy's type 7 gives 9989.001 for 99.9; the value of rank 9990 is 9989.
    [(99.9, 9990), (99.99, 9999), (50, 5000), (100, 10000), (99.991, 10000)],
)
def test_percentage_to_keep(percentile: float, rank: int) -> None:
    width = 4 if rank > 8192 else 2
    assert percentile_of(percentile, np.arange(10000)) == pytest.approx(rank - 1, abs=width)


def test_the_whole_percentage_is_exactly_the_maximum() -> None:
    values = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    assert percentile_of(100, values) == np.abs(values).max()


@pytest.mark.parametrize("value", [0.3, 1.0, 2.64, 3e38, 1e-42])
def test_a_constant_keeps_its_value(value: float) -> None:
    assert percentile_of(99.99, np.full(100_000, -value)) == np.float32(value)


@pytest.mark.parametrize(
    ("percentile", "advice"), [(0.999, "99.9"), (0.9999, "99.99"), (1, "100"), (0.5, "50")]
)
def test_a_fraction_is_refused(percentile: float, advice: str) -> None:
    with pytest.raises(UsageError, match=f"looks like a fraction: give {advice}\\."):
        PercentileCalibrator(percentile)


@pytest.mark.parametrize("percentile", [0, -1, 100.001, 101, float("nan"), float("inf")])
def test_what_is_no_percentage_is_refused(percentile: float) -> None:
    with pytest.raises(UsageError, match="above 1 and at most 100, got"):
        PercentileCalibrator(percentile)


def test_words_are_refused() -> None:
    with pytest.raises(UsageError, match=r"must be a percentage such as 99\.99, got 'most'"):
        PercentileCalibrator("most")  # type: ignore[arg-type]


def test_a_percentile_of_zero_takes_the_maximum_and_says_so() -> None:
    calibrator = PercentileCalibrator()
    fires_rarely = np.zeros(100_000, np.float32)
    fires_rarely[:10] = np.arange(1, 11)  # 99990 zeros are 99.99 percent
    fires_oftener = fires_rarely.copy()
    fires_oftener[10] = 0.5
    calibrator.collect({"rare": fires_rarely, "oftener": fires_oftener, "zero": np.zeros(50)})
    assert calibrator.compute()["rare"] == 10.0
    assert calibrator.compute()["oftener"] == pytest.approx(0.5, rel=2**-11)
    assert str(calibrator.compute()["zero"]) == "0.0"
    assert calibrator.sparse == ("rare",)


def test_a_rare_mask_constant_is_cut_off() -> None:
    scores = np.random.default_rng(0).standard_normal(100_000)
    scores[:5] = -3.4e38
    expected = np.percentile(np.abs(scores), 99.9, method="inverted_cdf")
    assert percentile_of(99.9, scores) == pytest.approx(expected, rel=2**-5)
