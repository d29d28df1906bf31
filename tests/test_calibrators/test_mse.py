from __future__ import annotations

import numpy as np
import pytest

from calib.calibrators import MagnitudeHistogram, MSECalibrator
from calib.calibrators.mse import mse_amax

N = 20_000


def mse_of(values: np.ndarray) -> float:
    calibrator = MSECalibrator()
    calibrator.collect({"x": values})
    return calibrator.compute()["x"]


def squared_error(values: np.ndarray, amax: float) -> float:
    """The definition, on the values themselves."""
    scale = float(np.float32(amax) / np.float32(127))
    quantised = np.clip(np.rint(values / scale), -127, 127) * scale
    return float(np.sum((values - quantised) ** 2))


def best_of(values: np.ndarray, candidates: np.ndarray) -> float:
    return min(squared_error(values, float(amax)) for amax in candidates)


def distribution(name: str) -> np.ndarray:
    rng = np.random.default_rng(11)
    normal = rng.standard_normal(N)
    made = {
        "normal": normal,
        "laplace": rng.laplace(size=N),
        "lognormal": rng.lognormal(size=N),
        "student-t": rng.standard_t(3, N),
        "uniform": rng.uniform(-1, 1, N),
        "relu": np.maximum(normal, 0),
        "outlier": np.append(normal, 20.0),
        "tiny": 1e-30 * normal,
        "huge": 1e37 * normal,
        "sigmoid": 1 / (1 + np.exp(-5 * normal)),
        "two values": np.where(normal > 0, 0.3, 1.0),
    }
    return made[name].astype(np.float32)


@pytest.mark.parametrize(
    "name",
    [
        "normal", "laplace", "lognormal", "student-t", "uniform", "relu",
        "outlier", "tiny", "huge", "sigmoid", "two values",
    ],
)  # fmt: skip
def test_sqnr_is_within_a_twentieth_of_a_decibel_of_the_best(name: str) -> None:
    values = distribution(name).astype(np.float64)
    largest = float(np.abs(values).max())
    brute = best_of(values, largest * np.append(np.geomspace(1 / 64, 1, 500), np.linspace(0.8, 1, 200)))
    found = mse_of(values.astype(np.float32))
    assert 10 * np.log10(squared_error(values, found) / brute) < 0.05
    assert found <= largest


def test_many_values_and_one_far_outlier_are_clipped_far_below_it() -> None:
    # 2·10⁷ values in ±1 and one of 500: least near 500 / (1 + 2·10⁷ / 193548) = 4.79, two hundredths of amax.
    histogram = MagnitudeHistogram()
    values = np.random.default_rng(0).uniform(-1, 1, 100_000).astype(np.float32)
    part = MagnitudeHistogram()
    part.add(values)
    for _ in range(200):
        histogram.merge(part)
    histogram.add(np.array([500.0]))

    def brute(amax: float) -> float:
        return 200 * squared_error(values.astype(float), amax) + (500 - amax) ** 2

    best = min(brute(amax) for amax in np.geomspace(1, 500, 300))
    found = mse_amax(histogram)
    assert 1 < found < 10
    assert 10 * np.log10(brute(found) / best) < 0.05


@pytest.mark.parametrize("value", [1.0, 0.3, 2.64, 255.0, 3.4e38, 1e-42])
def test_a_constant_keeps_its_value(value: float) -> None:
    assert mse_of(np.full(1000, -value, np.float32)) == np.float32(value)


def test_exactly_representable_values_keep_their_maximum() -> None:
    # Integers up to 127 are the levels of amax 127, whose error is then zero.
    values = np.random.default_rng(0).integers(-127, 128, 5000).astype(np.float32)
    values[0] = 127
    assert mse_of(values) == 127.0


def test_the_largest_of_equals_is_taken() -> None:
    # Up to rounding, no candidate errs on a single 1 beside zeros but those below it.
    assert mse_of(np.array([0.0, 0.0, 1.0], np.float32)) == 1.0


def test_zeros_change_nothing() -> None:
    values = distribution("laplace")
    assert mse_of(np.append(values, np.zeros(10 * N))) == mse_of(values)
    assert str(mse_of(np.zeros(7))) == "0.0"


@pytest.mark.parametrize("power", [-90, -3, 5, 80])
def test_scaling_by_a_power_of_two_scales_the_range(power: int) -> None:
    values = distribution("lognormal")
    assert mse_of(np.ldexp(values, power)) == np.ldexp(mse_of(values), power)
