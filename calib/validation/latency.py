"""Latency of several runners, timed in turn so that none has the cooler or the quieter machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from calib.data import Array
from calib.errors import UsageError
from calib.runners import Runner
from calib.validation.latency_ratios import compare_pairs, ratio_sentence
from calib.validation.results import Latency, PrecisionRun
from calib.validation.speed_records import LatencyRatio
from calib.wording import counted

__all__ = [
    "LatencyPlan",
    "latency_warnings",
    "measure_latency",
    "median_ratios",
    "run_rounds",
    "summarize",
    "turns",
]

T = TypeVar("T")


@dataclass(frozen=True)
class LatencyPlan:
    """How much to time.

    Attributes:
        batch_size: Samples a batch.
        count: Timed batches for each runner, at most; 0 measures nothing.
        warmup: Batches run before, for each runner, at most; at least 1 is run.
        seconds: Time for all runners and batches together, warm-up included. At least
            ``minimum`` batches are timed for each runner even if they take longer.
        minimum: The fewest timed batches.
    """

    batch_size: int = 1
    count: int = 100
    warmup: int = 10
    seconds: float = 30.0
    minimum: int = 3

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.warmup < 1 or self.minimum < 1:
            raise UsageError(
                "Latency needs a batch size, warm-up and minimum of at least 1, got "
                f"{self.batch_size}, {self.warmup} and {self.minimum}."
            )
        if self.count < 0 or not self.seconds > 0:
            raise UsageError(
                "Latency needs a count of at least 0 and a time above 0 s, got "
                f"{self.count} and {self.seconds}."
            )


def measure_latency(
    runners: Sequence[Runner],
    feeds: Sequence[Mapping[str, Array]],
    plan: LatencyPlan,
    *,
    simulated: bool | Sequence[bool],
    now: Callable[[], float] = time.monotonic,
) -> tuple[Latency, ...]:
    """Times one batch on each runner, again and again, the runners in turn.

    Each round times every runner once and starts with another one, so that drifts of the machine's
    clock, temperature and load fall on all alike. Warm-up batches come first and are kept apart.

    Args:
        runners: What to time, each through its ``time_ms``.
        feeds: One batch for each runner.
        plan: How many batches and how long.
        simulated: True where the figures say nothing of TensorRT's speed: for all, or for each runner.
        now: The clock of the budget, in seconds.

    Returns:
        One record for each runner, in their order.

    Raises:
        UsageError: The numbers of runners and feeds differ, or the plan times nothing.
    """
    if len(runners) != len(feeds) or not plan.count:
        raise UsageError(
            "Latency needs one batch for each runner and a count above 0, got "
            f"{counted(len(runners), 'runner[s]')}, "
            f"{counted(len(feeds), 'batch[es]')} and count {plan.count}."
        )
    marks = [simulated] * len(runners) if isinstance(simulated, bool) else simulated
    start = now()

    def time_one(index: int) -> float:
        return runners[index].time_ms(feeds[index])

    # A fifth of the budget at most goes to the warm-up, whatever a batch takes.
    warmup = run_rounds(len(runners), time_one, plan.warmup, 1, lambda: now() - start < plan.seconds / 5)
    timed = run_rounds(len(runners), time_one, plan.count, plan.minimum, lambda: now() - start < plan.seconds)
    return tuple(
        summarize(timed[i], warmup[i], plan.batch_size, clock=runner.clock, simulated=marks[i])
        for i, runner in enumerate(runners)
    )


def run_rounds(
    runners: int,
    time_one: Callable[[int], T],
    count: int,
    minimum: int,
    in_budget: Callable[[], bool],
) -> list[list[T]]:
    """Times every runner once a round; each round starts with another one.

    Args:
        runners: How many there are.
        time_one: Times one batch on the runner of a number.
        count: Rounds at most.
        minimum: Rounds at least, whatever they take.
        in_budget: Whether there is time for another round.

    Returns:
        What ``time_one`` gave, for each runner in the order of the rounds.
    """
    found: list[list[T]] = [[] for _ in range(runners)]
    for done in range(count):
        if done >= minimum and not in_budget():
            break
        for index in turns(runners, done):
            found[index].append(time_one(index))
    return found


def turns(runners: int, done: int) -> Iterator[int]:
    """The numbers of all runners, in the order of a round.

    >>> list(turns(3, 0)), list(turns(3, 4))
    ([0, 1, 2], [1, 2, 0])
    """
    return ((done + position) % runners for position in range(runners))


def summarize(
    times_ms: Sequence[float],
    warmup_ms: Sequence[float],
    batch_size: int,
    *,
    clock: str,
    simulated: bool,
) -> Latency:
    """Median, percentiles and throughput of timed batches.

    Percentiles are numpy's default: linear interpolation between the two nearest ranks. Below 100
    batches p99 is close to the largest value. Throughput is batch size / median.

    Args:
        times_ms: Every timed batch, in milliseconds; at least one.
        warmup_ms: Every warm-up batch; at least one, the first is the very first call.
        batch_size: Samples a batch.
        clock: How it was measured.
        simulated: True where the figures say nothing of TensorRT's speed.

    >>> found = summarize([1.0, 2.0, 3.0, 4.0, 5.0], [90.0], 6, clock="host", simulated=True)
    >>> found.median_ms, found.p90_ms, found.first_ms, found.throughput_per_s
    (3.0, 4.6, 90.0, 2000.0)
    """
    median, p90, p99 = (float(value) for value in np.percentile(times_ms, (50, 90, 99)))
    return Latency(
        batch_size=batch_size,
        count=len(times_ms),
        warmup=len(warmup_ms),
        median_ms=median,
        p90_ms=p90,
        p99_ms=p99,
        mean_ms=float(np.mean(times_ms)),
        min_ms=float(np.min(times_ms)),
        first_ms=float(warmup_ms[0]),
        throughput_per_s=batch_size * 1e3 / median,
        clock=clock,
        simulated=simulated,
        times_ms=tuple(float(value) for value in times_ms),
        warmup_ms=tuple(float(value) for value in warmup_ms),
    )


def latency_warnings(runs: Sequence[PrecisionRun], ratios: Sequence[LatencyRatio] = ()) -> tuple[str, ...]:
    """What a reader of the latency must know: that it is simulated, or that a candidate is slower.

    Args:
        runs: Precisions of one model on one machine.
        ratios: Ratios that were measured with intervals; they take the place of those of the medians.
    """
    timed = [run for run in runs if run.latency is not None]
    simulated = [run.label for run in timed if run.latency is not None and run.latency.simulated]
    scope = f" of {', '.join(simulated)}" if len(simulated) < len(timed) else ""
    found = [f"Latency{scope} is of a CPU simulation: it says nothing of TensorRT's speed."]
    known = {(one.candidate, one.against): one for one in ratios}
    every = [known.get((one.candidate, one.against), one) for one in median_ratios(runs)]
    slower = [ratio_sentence(one) for one in every if (one.ratio if one.low is None else one.low) > 1]
    return (*(found if simulated else ()), *slower)


def median_ratios(runs: Sequence[PrecisionRun]) -> tuple[LatencyRatio, ...]:
    """Ratios of medians without intervals, each candidate against FP32 and FP16 of the same software.

    Args:
        runs: Precisions of one model on one machine; INT8 may be there several times.

    Returns:
        One for each pair; none for simulated figures, which say nothing of TensorRT's speed.
    """
    timed = [run for run in runs if run.latency is not None and not run.latency.simulated]
    runners = dict.fromkeys(run.runner for run in timed)
    groups = [[run for run in timed if run.runner == runner] for runner in runners]
    return tuple(
        _median_ratio(group[one], group[other])
        for group in groups
        for one, other in compare_pairs([run.precision for run in group])
    )


def _median_ratio(candidate: PrecisionRun, against: PrecisionRun) -> LatencyRatio:
    ratio = _median(candidate) / _median(against)
    return LatencyRatio(candidate.label, against.label, ratio, None, None, method="no interval")


def _median(run: PrecisionRun) -> float:
    assert run.latency is not None
    return run.latency.median_ms
