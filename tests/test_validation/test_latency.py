from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from plain_runner import PlainRunner

from calib.data import Array
from calib.errors import UsageError
from calib.validation.latency import (
    LatencyPlan,
    latency_warnings,
    measure_latency,
    median_ratios,
    summarize,
)
from calib.validation.latency_ratios import ratio_sentence
from calib.validation.results import Latency, PrecisionRun
from calib.validation.speed_records import LatencyRatio

FEEDS = {"x": np.zeros((1, 1), np.float32)}


class ScriptedRunner(PlainRunner):
    """Takes the times it is told to, on a clock of its own; the last one forever."""

    name, clock, note = "scripted", "script", ""
    output_names = ("y",)

    def __init__(self, precision: str, script: list[float], log: list[str], ticks: list[float]) -> None:
        self.precision = precision
        self._script = list(script)
        self._log = log
        self._ticks = ticks

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": np.zeros((1, 1), np.float32)}

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        self._log.append(self.precision)
        value = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        self._ticks[0] += value / 1e3
        return value


class Bench:
    def __init__(self, **scripts: list[float]) -> None:
        self.log: list[str] = []
        self.ticks = [0.0]
        self.runners = [
            ScriptedRunner(name, script, self.log, self.ticks) for name, script in scripts.items()
        ]

    def measure(self, plan: LatencyPlan, simulated: bool = False) -> dict[str, Latency]:
        found = measure_latency(
            self.runners,
            [FEEDS] * len(self.runners),
            plan,
            simulated=simulated,
            now=lambda: self.ticks[0],
        )
        return {runner.precision: latency for runner, latency in zip(self.runners, found, strict=True)}


def test_warm_up_is_kept_apart() -> None:
    """A-L2."""
    found = Bench(fp32=[100, 100, 100, 10]).measure(LatencyPlan(count=20, warmup=5))["fp32"]
    assert (found.median_ms, found.mean_ms, found.p99_ms) == (10, 10, 10)
    assert found.first_ms == 100
    assert found.warmup_ms == (100, 100, 100, 10, 10)
    assert (found.warmup, found.count) == (5, 20)
    assert found.throughput_per_s == 100


def test_precisions_take_turns() -> None:
    bench = Bench(fp32=[3], fp16=[2], int8=[1])
    bench.measure(LatencyPlan(count=3, warmup=1))
    assert bench.log[3:] == ["fp32", "fp16", "int8", "fp16", "int8", "fp32", "int8", "fp32", "fp16"]


def test_the_time_budget_ends_it_early() -> None:
    # 100 ms a round of two; 1 s of budget, of which 2 rounds go to the warm-up.
    found = Bench(fp32=[60], int8=[40]).measure(LatencyPlan(count=1000, warmup=50, seconds=1.0))
    assert found["fp32"].warmup == found["int8"].warmup == 2
    assert found["fp32"].count == found["int8"].count == 8


def test_a_few_batches_are_timed_whatever_they_take() -> None:
    found = Bench(fp32=[60_000]).measure(LatencyPlan(count=100, seconds=1.0, minimum=3))["fp32"]
    assert (found.warmup, found.count) == (1, 3)


def test_percentiles_are_numpys() -> None:
    times = list(range(1, 101))
    found = summarize(times, [5.0], 4, clock="host", simulated=False)
    # Linear interpolation at rank 0.9·99 = 89.1, and 0.99·99 = 98.01, of 1 … 100.
    assert found.median_ms == 50.5
    assert found.p90_ms == pytest.approx(90.1)
    assert found.p99_ms == pytest.approx(99.01)
    assert found.min_ms == 1
    assert found.times_ms == tuple(times)
    assert found.throughput_per_s == pytest.approx(4 / 50.5e-3)


class AsynchronousRunner(ScriptedRunner):
    """Submits at once; the result is there 50 ms later."""

    def __init__(self) -> None:
        super().__init__("fp32", [0.0], [], [0.0])
        self._pool = ThreadPoolExecutor(1)

    def _submit(self) -> Future[None]:
        return self._pool.submit(time.sleep, 0.05)

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        start = time.perf_counter()
        self._submit().result()
        return (time.perf_counter() - start) * 1e3


def test_a_batch_ends_when_its_result_is_there() -> None:
    """A-L1."""
    plan = LatencyPlan(count=3, warmup=1)
    (found,) = measure_latency([AsynchronousRunner()], [FEEDS], plan, simulated=False)
    assert 50 <= found.median_ms < 500


@pytest.mark.parametrize(
    "wrong",
    [{"batch_size": 0}, {"warmup": 0}, {"minimum": 0}, {"count": -1}, {"seconds": 0.0}],
)
def test_a_plan_that_cannot_be_meant(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="Latency needs"):
        LatencyPlan(**wrong)  # type: ignore[arg-type]


def test_one_batch_for_each_runner() -> None:
    with pytest.raises(UsageError, match=r"one batch for each runner .* got 2 runners, 1 batch "):
        measure_latency(Bench(a=[1], b=[1]).runners, [FEEDS], LatencyPlan(), simulated=False)


def runs(simulated: bool, **medians: float) -> list[PrecisionRun]:
    blank = PrecisionRun("FP32", "fp32", "tensorrt", "baseline", False, "", (), (), None, None, 0, None, 0.0)
    return [
        replace(
            blank,
            label=name.upper(),
            precision=name,
            latency=summarize([median], [median], 1, clock="", simulated=simulated),
        )
        for name, median in medians.items()
    ]


def said(measured: list[PrecisionRun]) -> list[str]:
    return [ratio_sentence(one) for one in median_ratios(measured)]


def test_ratios_against_both_and_slower_is_said() -> None:
    """A-L4."""
    measured = runs(False, fp32=10, fp16=4, int8=5)
    assert said(measured) == [
        "FP16 is 2.50x faster than FP32 (ratio of medians 0.400).",
        "INT8 is 2.00x faster than FP32 (ratio of medians 0.500).",
        "INT8 is 1.25x slower than FP16 (ratio of medians 1.250).",
    ]
    assert latency_warnings(measured) == ("INT8 is 1.25x slower than FP16 (ratio of medians 1.250).",)


def test_a_measured_interval_decides_what_is_slower() -> None:
    measured = runs(False, fp32=10, fp16=4, int8=5)
    wide = LatencyRatio("INT8", "FP16", 1.25, 0.95, 1.3)
    assert latency_warnings(measured, [wide]) == ()
    narrow = LatencyRatio("INT8", "FP16", 1.25, 1.2, 1.3)
    assert latency_warnings(measured, [narrow]) == (
        "INT8 is 1.25x slower than FP16 (ratio of medians 1.250, 95% interval 1.200 to 1.300).",
    )


def test_each_calibration_is_compared_with_the_others_precisions() -> None:
    fp16, entropy, minmax = runs(False, fp16=4, int8=5, best=3)
    entropy = replace(entropy, label="INT8 entropy", calibration="entropy")
    minmax = replace(minmax, precision="int8", label="INT8 minmax", calibration="minmax")
    assert said([fp16, entropy, minmax]) == [
        "INT8 entropy is 1.25x slower than FP16 (ratio of medians 1.250).",
        "INT8 minmax is 1.33x faster than FP16 (ratio of medians 0.750).",
    ]
    assert len(latency_warnings([fp16, entropy, minmax])) == 1


def test_other_software_is_not_compared() -> None:
    fp32, fp16 = runs(False, fp32=10, fp16=20)
    assert median_ratios([fp32, replace(fp16, runner="pytorch")]) == ()


def test_simulated_figures_are_never_compared() -> None:
    """A-L3."""
    simulated = runs(True, fp32=10, fp16=4, int8=5)
    assert median_ratios(simulated) == ()
    (warning,) = latency_warnings(simulated)
    assert "CPU simulation: it says nothing of TensorRT's speed" in warning
