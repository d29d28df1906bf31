"""Latency on a GPU: runners timed in turn, warm-up by GPU time, with the conditions of the measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import NamedTuple, Protocol

import numpy as np
from typing_extensions import Self

from calib.data import Array
from calib.engine import GpuReadings, TelemetrySampler
from calib.errors import UsageError
from calib.runners import BatchTimes, Runner
from calib.validation.latency import LatencyPlan, run_rounds, summarize, turns
from calib.validation.latency_conditions import (
    clock_warnings,
    part_warnings,
    spread_warnings,
    summarize_telemetry,
)
from calib.validation.latency_ratios import compare_pairs, latency_ratio
from calib.validation.speed_records import Latency, LatencyPart, LatencyRatio, Telemetry
from calib.wording import counted

__all__ = ["GpuLatency", "GpuLatencyPlan", "Sampler", "measure_gpu_latency"]

_TRANSFERS_CLOCK = "CUDA events: host to device + GPU compute + device to host, one batch in flight"


@dataclass(frozen=True)
class GpuLatencyPlan:
    """How much to time on a GPU.

    Attributes:
        batch_size: Samples a batch.
        count: Timed rounds at most; each times every runner once.
        warmup: Batches run before, for each runner, at least.
        warmup_ms: GPU time run before, for each runner, at least; trtexec's 200 ms.
        seconds: Time of the host for everything, of which a fifth at most goes to the warm-up. At least
            ``minimum`` rounds are timed even if they take longer.
        minimum: The fewest timed rounds; trtexec's 10.
        transfers: Whether the latency includes the transfers; the parts tell both in any case.
        confidence: Confidence of the ratios' intervals.
        resamples: Bootstrap resamples of an interval.
        seed: Seed of the resampling.
    """

    batch_size: int = 1
    count: int = 1000
    warmup: int = 10
    warmup_ms: float = 200.0
    seconds: float = 30.0
    minimum: int = 10
    transfers: bool = False
    confidence: float = 0.95
    resamples: int = 9999
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.batch_size, self.count, self.warmup, self.minimum, self.resamples) < 1:
            raise UsageError(
                "GPU latency needs a batch size, count, warm-up, minimum and resamples of at least 1, got "
                f"{self.batch_size}, {self.count}, {self.warmup}, {self.minimum} and {self.resamples}."
            )
        if not (self.warmup_ms >= 0 and self.seconds > 0 and 0 < self.confidence < 1):
            raise UsageError(
                "GPU latency needs a warm-up of at least 0 ms, a time above 0 s and a confidence between 0 "
                f"and 1, got {self.warmup_ms}, {self.seconds} and {self.confidence}."
            )

    @classmethod
    def of(cls, plan: LatencyPlan, *, transfers: bool = False) -> GpuLatencyPlan:
        """The plan of any runner, with a GPU's warm-up and as many rounds at least as trtexec times."""
        return cls(
            batch_size=plan.batch_size,
            count=plan.count,
            warmup=plan.warmup,
            seconds=plan.seconds,
            minimum=max(plan.minimum, min(plan.count, cls.minimum)),
            transfers=transfers,
        )


class GpuLatency(NamedTuple):
    """What was measured.

    Attributes:
        latencies: One record for each runner, in their order.
        ratios: Each candidate against every FP32 run and every FP16 run.
        telemetry: The GPU during the timed rounds.
        warnings: What a reader of the figures must know.
    """

    latencies: tuple[Latency, ...]
    ratios: tuple[LatencyRatio, ...]
    telemetry: Telemetry
    warnings: tuple[str, ...]


class _Timed(NamedTuple):
    """One batch: what counts as its latency, and its parts where the runner tells them."""

    latency_ms: float
    parts: BatchTimes | None


class Sampler(Protocol):
    """A context manager that samples a GPU until its block ends, such as ``TelemetrySampler``."""

    @property
    def readings(self) -> GpuReadings:
        """What was sampled."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class _Measurement:
    """Runners that are timed in turn."""

    def __init__(
        self,
        runners: Sequence[Runner],
        feeds: Sequence[Mapping[str, Array]],
        plan: GpuLatencyPlan,
        now: Callable[[], float],
    ) -> None:
        self._runners = runners
        self._feeds = feeds
        self._plan = plan
        self._now = now
        self._start = now()
        self._warmed_ms = [0.0] * len(runners)

    @property
    def warmed_ms(self) -> tuple[float, ...]:
        """The GPU time of each runner's warm-up."""
        return tuple(self._warmed_ms)

    def warm_up(self) -> list[list[_Timed]]:
        """Runs each runner until it had its warm-up, or the time for it is over."""
        plan, spent = self._plan, self._warmed_ms
        found: list[list[_Timed]] = [[] for _ in self._runners]
        done = 0
        while cold := [
            index
            for index, times in enumerate(found)
            if len(times) < plan.warmup or spent[index] < plan.warmup_ms
        ]:
            if done and self._elapsed() >= plan.seconds / 5:
                break
            for index in turns(len(self._runners), done):
                if index in cold:
                    timed = self._time(index)
                    found[index].append(timed)
                    spent[index] += timed.parts.compute_ms if timed.parts else timed.latency_ms
            done += 1
        return found

    def rounds(self) -> list[list[_Timed]]:
        """Times every runner once a round; each round starts with another one."""
        plan = self._plan
        count = max(plan.count, plan.minimum)
        return run_rounds(
            len(self._runners), self._time, count, plan.minimum, lambda: self._elapsed() < plan.seconds
        )

    def _elapsed(self) -> float:
        return self._now() - self._start

    def _time(self, index: int) -> _Timed:
        runner, feeds = self._runners[index], self._feeds[index]
        time_batch = getattr(runner, "time_batch", None)
        if time_batch is None:
            return _Timed(runner.time_ms(feeds), None)
        parts: BatchTimes = time_batch(feeds)
        return _Timed(parts.with_transfers_ms if self._plan.transfers else parts.compute_ms, parts)


def measure_gpu_latency(
    runners: Sequence[Runner],
    feeds: Sequence[Mapping[str, Array]],
    plan: GpuLatencyPlan,
    labels: Sequence[str],
    *,
    sampler: Sampler | None = None,
    now: Callable[[], float] = time.monotonic,
) -> GpuLatency:
    """Times one batch on each runner, again and again, the runners in turn.

    Each round times every runner once and starts with another one, so that drifts of clocks, temperature
    and load fall on all alike. Warm-up batches come first and are kept apart. Percentiles are numpy's
    default: linear interpolation between the two nearest ranks; trtexec takes the nearest rank.

    Args:
        runners: What to time: through ``time_batch`` where it exists, else ``time_ms``.
        feeds: One batch for each runner.
        plan: How many batches and how long.
        labels: A name for each runner.
        sampler: Samples the GPU during the timed rounds; None takes the GPU of the first runner.
        now: The clock of the budget, in seconds.

    Returns:
        Latencies, ratios with intervals, telemetry and warnings.

    Raises:
        UsageError: The numbers of runners, feeds and labels differ, or labels repeat.
    """
    if not len(runners) == len(feeds) == len(labels) == len(set(labels)) or not runners:
        raise UsageError(
            "GPU latency needs one batch and one label of its own for each runner, at least one; got "
            f"{counted(len(runners), 'runner[s]')}, {counted(len(feeds), 'batch[es]')} and labels "
            f"{list(labels)}."
        )
    measurement = _Measurement(runners, feeds, plan, now)
    warmup = measurement.warm_up()
    watch: Sampler = TelemetrySampler(getattr(runners[0], "gpu", 0)) if sampler is None else sampler
    with watch:
        timed = measurement.rounds()
    latencies = tuple(
        _latency(runner, found, before, plan)
        for runner, found, before in zip(runners, timed, warmup, strict=True)
    )
    telemetry = summarize_telemetry(watch.readings)
    return GpuLatency(
        latencies,
        _ratios([runner.precision for runner in runners], labels, latencies, plan),
        telemetry,
        (
            *_cold_warnings(labels, measurement.warmed_ms, plan.warmup_ms),
            *_run_warnings(runners, labels, timed),
            *clock_warnings(telemetry),
        ),
    )


def _latency(
    runner: Runner, timed: Sequence[_Timed], warmup: Sequence[_Timed], plan: GpuLatencyPlan
) -> Latency:
    batches = _batches(timed)
    found = summarize(
        [batch.latency_ms for batch in timed],
        [batch.latency_ms for batch in warmup],
        plan.batch_size,
        clock=_TRANSFERS_CLOCK if batches and plan.transfers else runner.clock,
        simulated=False,
    )
    return replace(found, parts=_parts(batches, plan.transfers), cuda_graph=_uses_graph(runner))


def _batches(timed: Sequence[_Timed]) -> list[BatchTimes]:
    return [batch.parts for batch in timed if batch.parts is not None]


def _uses_graph(runner: Runner) -> bool:
    return bool(getattr(runner, "cuda_graph", False))


def _parts(batches: Sequence[BatchTimes], transfers: bool) -> tuple[LatencyPart, ...]:
    """The times beside the latency."""
    if not batches:
        return ()
    other = (
        ("GPU compute", [batch.compute_ms for batch in batches])
        if transfers
        else ("with transfers", [batch.with_transfers_ms for batch in batches])
    )
    named = (
        ("host to device", [batch.host_to_device_ms for batch in batches]),
        ("device to host", [batch.device_to_host_ms for batch in batches]),
        ("enqueue", [batch.enqueue_ms for batch in batches]),
        ("end to end", [batch.end_to_end_ms for batch in batches]),
        other,
    )
    return tuple(
        LatencyPart(name, *(float(value) for value in np.percentile(times, (50, 90, 99))))
        for name, times in named
    )


def _ratios(
    precisions: Sequence[str],
    labels: Sequence[str],
    latencies: Sequence[Latency],
    plan: GpuLatencyPlan,
) -> tuple[LatencyRatio, ...]:
    return tuple(
        latency_ratio(
            labels[candidate],
            labels[against],
            latencies[candidate].times_ms,
            latencies[against].times_ms,
            confidence=plan.confidence,
            resamples=plan.resamples,
            seed=plan.seed,
        )
        for candidate, against in compare_pairs(precisions)
    )


def _cold_warnings(labels: Sequence[str], warmed_ms: Sequence[float], wanted_ms: float) -> list[str]:
    return [
        f"{label}: there was time for {warmed:.0f} ms of warm-up on the GPU instead of {wanted_ms:.0f} ms: "
        "clocks may not have been up. Give it more time with --latency-seconds."
        for label, warmed in zip(labels, warmed_ms, strict=True)
        if warmed < wanted_ms
    ]


def _run_warnings(
    runners: Sequence[Runner], labels: Sequence[str], timed: Sequence[Sequence[_Timed]]
) -> list[str]:
    found: list[str] = []
    for runner, label, batches in zip(runners, labels, timed, strict=True):
        if problem := getattr(runner, "graph_problem", ""):
            found.append(f"{label}: no CUDA graph could be had, the plain enqueue was timed: {problem}.")
        if parts := _batches(batches):
            found += part_warnings(label, parts, _uses_graph(runner))
        found += spread_warnings(label, [batch.latency_ms for batch in batches])
    return found
