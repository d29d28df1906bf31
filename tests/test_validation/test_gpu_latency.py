from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

import numpy as np
import pytest
from plain_runner import PlainRunner
from typing_extensions import Self

from calib.data import Array
from calib.engine import GpuReading, GpuReadings
from calib.errors import UsageError
from calib.runners import BatchTimes
from calib.validation import gpu_latency
from calib.validation.gpu_latency import GpuLatency, GpuLatencyPlan, measure_gpu_latency
from calib.validation.latency import LatencyPlan
from calib.validation.latency_conditions import clock_warnings, summarize_telemetry
from calib.validation.speed_records import Telemetry

FEEDS = {"x": np.zeros((1, 1), np.float32)}


def reading(sm: float | None, *reasons: str, memory: float = 2619.0) -> GpuReading:
    return GpuReading(0.0, sm, memory, 300.0, 40.0, reasons)


class Sampler:
    """Knows what it is going to read, and when it was asked."""

    def __init__(self, log: list[str], readings: Sequence[GpuReading] = (), problem: str = "") -> None:
        self.log = log
        self.readings = GpuReadings(tuple(readings), problem)

    def __enter__(self) -> Self:
        self.log.append("sampling")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.log.append("sampled")


class Scripted(PlainRunner):
    """Takes the compute times it is told to, on a clock of its own; the last one forever."""

    name, clock, note, simulated = "scripted", "script", "", False
    output_names = ("y",)

    def __init__(self, bench: Bench, precision: str, script: Sequence[float]) -> None:
        self.precision = precision
        self.bench = bench
        self.script = list(script)
        self.transfer_ms, self.enqueue_ms = 0.25, 0.125
        self.cuda_graph, self.graph_problem = False, ""
        self.gpu: str | int = 0

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": np.zeros((1, 1), np.float32)}

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        return self.time_batch(feeds).compute_ms

    def time_batch(self, feeds: Mapping[str, Array]) -> BatchTimes:
        self.bench.log.append(self.precision)
        compute = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        end_to_end = compute + 2 * self.transfer_ms + 1.0
        self.bench.seconds += end_to_end / 1e3
        return BatchTimes(compute, self.transfer_ms, self.transfer_ms, end_to_end, self.enqueue_ms)


class Bench:
    def __init__(self, **scripts: Sequence[float]) -> None:
        self.log: list[str] = []
        self.seconds = 0.0
        self.runners = [Scripted(self, name, script) for name, script in scripts.items()]

    def measure(
        self, plan: GpuLatencyPlan, readings: Sequence[GpuReading] = (), problem: str = ""
    ) -> GpuLatency:
        return measure_gpu_latency(
            self.runners,
            [FEEDS] * len(self.runners),
            plan,
            [runner.precision.upper() for runner in self.runners],
            sampler=Sampler(self.log, readings, problem),
            now=lambda: self.seconds,
        )


def test_warm_up_is_kept_apart_with_the_numbers_of_both() -> None:
    found = Bench(fp32=[100, 100, 100, 10]).measure(GpuLatencyPlan(count=20)).latencies[0]
    # Ten batches, of which three take 100 ms: more than 200 ms of the GPU.
    assert found.warmup_ms == (100, 100, 100, *[10] * 7)
    assert (found.first_ms, found.median_ms, found.mean_ms, found.p99_ms) == (100, 10, 10, 10)
    assert (found.warmup, found.count) == (10, 20)


def test_warm_up_lasts_until_each_runner_had_its_gpu_time() -> None:
    found = Bench(fp32=[8], int8=[2]).measure(GpuLatencyPlan(count=10, warmup=1, warmup_ms=200)).latencies
    assert [latency.warmup for latency in found] == [25, 100]


def test_the_warm_up_takes_a_fifth_of_the_time_at_most() -> None:
    # 100 s in all; a round of the two takes 10 s and a little, so that the third ends after 20 s.
    bench = Bench(fp32=[6000], int8=[4000])
    found = bench.measure(GpuLatencyPlan(seconds=100, minimum=1)).latencies
    assert [latency.warmup for latency in found] == [2, 2]
    assert [latency.count for latency in found] == [8, 8]


def test_a_warm_up_that_time_cut_short_is_told() -> None:
    # A fifth of 100 ms; a batch and its transfers take 12.5 ms on the host, so that the second ends it.
    bench = Bench(fp32=[10.4], int8=[0.5])
    found = bench.measure(GpuLatencyPlan(seconds=0.1, minimum=1, count=1))
    assert [latency.warmup for latency in found.latencies] == [2, 2]
    assert [warning for warning in found.warnings if "warm-up" in warning] == [
        f"{label}: there was time for {spent} ms of warm-up on the GPU instead of 200 ms: clocks may not "
        "have been up. Give it more time with --latency-seconds."
        for label, spent in (("FP32", 21), ("INT8", 1))
    ]
    # Ten batches or not: these are two of 12 s of the GPU.
    slow = Bench(fp32=[6000]).measure(GpuLatencyPlan(seconds=50, minimum=1))
    assert not any("warm-up" in warning for warning in slow.warnings)


def test_a_few_rounds_are_timed_whatever_they_take() -> None:
    found = Bench(fp32=[60_000]).measure(GpuLatencyPlan(seconds=1.0)).latencies[0]
    assert (found.warmup, found.count) == (1, 10)


def test_precisions_take_turns_and_the_gpu_is_watched_meanwhile() -> None:
    bench = Bench(fp32=[3], fp16=[2], int8=[1])
    bench.measure(GpuLatencyPlan(count=3, minimum=3, warmup=1, warmup_ms=0))
    assert bench.log == [
        *["fp32", "fp16", "int8"],
        "sampling",
        *["fp32", "fp16", "int8", "fp16", "int8", "fp32", "int8", "fp32", "fp16"],
        "sampled",
    ]


def test_ratios_and_slower_than_fp16() -> None:
    found = Bench(fp32=[10], fp16=[4], int8=[5]).measure(GpuLatencyPlan(count=10))
    assert [(ratio.candidate, ratio.against, ratio.ratio) for ratio in found.ratios] == [
        ("FP16", "FP32", 0.4),
        ("INT8", "FP32", 0.5),
        ("INT8", "FP16", 1.25),
    ]
    assert all(ratio.low == ratio.ratio == ratio.high for ratio in found.ratios)
    assert found.warnings == ()


def test_the_parts_are_told_and_apart_from_the_latency() -> None:
    compute = list(range(1, 102))
    found = (
        Bench(fp32=[1, *compute]).measure(GpuLatencyPlan(4, count=101, warmup=1, warmup_ms=0)).latencies[0]
    )
    parts = {part.name: (part.median_ms, part.p90_ms, part.p99_ms) for part in found.parts}
    # Of 1 … 101 the ranks 50, 90 and 99 of numpy's rule are whole: 51, 91, 100.
    assert (found.median_ms, found.p90_ms, found.p99_ms) == (51, 91, 100)
    assert parts == {
        "host to device": (0.25, 0.25, 0.25),
        "device to host": (0.25, 0.25, 0.25),
        "enqueue": (0.125, 0.125, 0.125),
        "end to end": (52.5, 92.5, 101.5),
        "with transfers": (51.5, 91.5, 100.5),
    }
    assert found.clock == "script"
    assert found.throughput_per_s == pytest.approx(4 / 51e-3)


def test_the_mode_that_includes_transfers() -> None:
    found = Bench(fp32=[4], int8=[1]).measure(GpuLatencyPlan(count=10, transfers=True))
    fp32, int8 = found.latencies
    assert (fp32.median_ms, int8.median_ms) == (4.5, 1.5)
    assert {part.name: part.median_ms for part in int8.parts}["GPU compute"] == 1
    assert "host to device + GPU compute + device to host" in int8.clock
    assert found.ratios[0].ratio == pytest.approx(1.5 / 4.5)


class Plain(Scripted):
    """Tells one time only, as PyTorch's runner does."""

    time_batch = None  # type: ignore[assignment]

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        return Scripted.time_batch(self, feeds).compute_ms


def test_a_runner_that_tells_one_time_takes_part() -> None:
    bench = Bench(fp32=[10], int8=[2])
    bench.runners[0] = Plain(bench, "fp32", [10])
    found = bench.measure(GpuLatencyPlan(count=10))
    assert found.latencies[0].parts == ()
    assert len(found.latencies[1].parts) == 5
    assert found.ratios[0].ratio == 0.2


def test_the_host_may_be_what_is_measured() -> None:
    bench = Bench(fp32=[10], int8=[1])
    bench.runners[1].enqueue_ms = 0.81
    (warning,) = bench.measure(GpuLatencyPlan(count=10)).warnings
    assert "INT8: enqueueing takes 0.810 ms of the host, computing 1.000 ms of the GPU" in warning
    assert "CUDA graphs" in warning
    bench.runners[1].cuda_graph = True
    found = bench.measure(GpuLatencyPlan(count=10))
    assert "Give it a larger batch" in found.warnings[0]
    assert [latency.cuda_graph for latency in found.latencies] == [False, True]
    bench.runners[1].enqueue_ms = 0.8
    assert bench.measure(GpuLatencyPlan(count=10)).warnings == ()


def test_transfers_as_long_as_the_computing() -> None:
    bench = Bench(int8=[1])
    bench.runners[0].transfer_ms = 1.0
    found = bench.measure(GpuLatencyPlan(count=10)).warnings
    assert [warning[:37] for warning in found] == [
        "INT8: the transfer from host to devic",
        "INT8: the transfer from device to hos",
    ]


def test_a_wide_spread() -> None:
    # 10 and 10.3 in turn: mean 10.15, deviation 0.15, 1.48 %.
    bench = Bench(fp32=[10, 10, 10.3, 10, 10.3, 10, 10.3, 10, 10.3, 10, 10.3])
    (warning,) = bench.measure(GpuLatencyPlan(count=10, warmup=1, warmup_ms=0)).warnings
    assert "FP32: latency is unstable, coefficient of variation 1.5% over 10 batches" in warning


def test_a_graph_that_could_not_be_had() -> None:
    bench = Bench(fp32=[10])
    bench.runners[0].graph_problem = "the shape of y depends on the data"
    (warning,) = bench.measure(GpuLatencyPlan(count=10)).warnings
    assert warning == (
        "FP32: no CUDA graph could be had, the plain enqueue was timed: the shape of y depends on the data."
    )


def test_clocks_that_moved_and_throttling() -> None:
    readings = [reading(1800.0), reading(1980.0, "software power cap"), reading(1980.0)]
    found = Bench(fp32=[10]).measure(GpuLatencyPlan(count=10), readings)
    assert found.telemetry == Telemetry(
        samples=3,
        sm_clock_mhz=(1800.0, 1980.0, 1980.0),
        memory_clock_mhz=(2619.0, 2619.0, 2619.0),
        power_w=(300.0, 300.0, 300.0),
        temperature_c=(40.0, 40.0, 40.0),
        throttle_reasons=("software power cap",),
    )
    moved, lowered = found.warnings
    assert "The SM clock moved between 1800 and 1980 MHz, 9% of its median" in moved
    assert "lowered its clocks while latency was measured: software power cap." in lowered


def test_an_idle_gpu_and_locked_clocks_are_no_fault() -> None:
    readings = [reading(345.0, "GPU idle"), reading(1980.0), reading(1900.0, "applications clocks setting")]
    found = summarize_telemetry(GpuReadings(tuple(readings)))
    assert (found.samples, found.sm_clock_mhz) == (2, (1900.0, 1940.0, 1980.0))
    assert found.throttle_reasons == ("applications clocks setting",)
    assert clock_warnings(found) == ()
    idle = summarize_telemetry(GpuReadings((reading(345.0, "GPU idle"),)))
    assert (idle.samples, idle.throttle_reasons) == (1, ())


def test_the_memory_clock_moves_too() -> None:
    found = summarize_telemetry(GpuReadings((reading(1980.0), reading(1980.0, memory=1593.0))))
    (warning,) = clock_warnings(found)
    assert "The memory clock moved between 1593 and 2619 MHz" in warning


def test_without_telemetry_the_reason_is_recorded() -> None:
    found = Bench(fp32=[10]).measure(GpuLatencyPlan(count=10), problem="NVML Shared Library Not Found")
    assert found.telemetry == Telemetry(problem="NVML Shared Library Not Found")
    partly = summarize_telemetry(GpuReadings((reading(None),), "no SM clock: Not Supported"))
    assert (partly.sm_clock_mhz, partly.problem) == (None, "no SM clock: Not Supported")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "at least 1, got 0"),
        ({"count": 0}, "at least 1"),
        ({"warmup": 0}, "at least 1"),
        ({"minimum": 0}, "at least 1"),
        ({"warmup_ms": -1.0}, "at least 0 ms"),
        ({"seconds": float("nan")}, "a time above 0 s"),
        ({"confidence": 1.0}, "between 0 and 1"),
    ],
)
def test_a_plan_that_cannot_be_meant(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        GpuLatencyPlan(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", [["A"], ["A", "A"], ["A", "B", "C"]])
def test_one_batch_and_one_label_for_each_runner(labels: list[str]) -> None:
    bench = Bench(fp32=[1], int8=[1])
    with pytest.raises(UsageError, match="one batch and one label of its own for each runner"):
        measure_gpu_latency(bench.runners, [FEEDS] * 2, GpuLatencyPlan(), labels, sampler=Sampler([]))


def test_the_plan_of_any_runner() -> None:
    plan = GpuLatencyPlan.of(LatencyPlan(32, 50, 5, 7.0, 4), transfers=True)
    assert (plan.batch_size, plan.count, plan.warmup, plan.seconds) == (32, 50, 5, 7.0)
    assert (plan.warmup_ms, plan.transfers) == (200.0, True)


@pytest.mark.parametrize(("count", "minimum", "expected"), [(50, 4, 10), (50, 20, 20), (6, 3, 6), (2, 3, 3)])
def test_trtexecs_ten_rounds_are_timed_unless_fewer_are_asked_for(
    count: int, minimum: int, expected: int
) -> None:
    assert GpuLatencyPlan.of(LatencyPlan(1, count, 5, 7.0, minimum)).minimum == expected


def test_the_gpu_that_runs_is_the_one_that_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's first GPU need not be NVML's first, nor need the first one be the one that was chosen."""
    watched: list[object] = []

    def sampler(device: object = "the first") -> Sampler:
        watched.append(device)
        return Sampler([])

    monkeypatch.setattr(gpu_latency, "TelemetrySampler", sampler)
    bench = Bench(fp32=[1])
    plan = GpuLatencyPlan(count=1, minimum=1, warmup=1, warmup_ms=0)
    for gpu in ("0000:1B:00.0", 1):
        bench.runners[0].gpu = gpu
        measure_gpu_latency(bench.runners, [FEEDS], plan, ["FP32"])
    assert watched == ["0000:1B:00.0", 1]
