"""Under which conditions latency was measured on a GPU, and what speaks against the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calib.validation.speed_records import Telemetry, is_host_bound
from calib.wording import counted

if TYPE_CHECKING:
    from calib.engine.telemetry import GpuReading, GpuReadings
    from calib.runners import BatchTimes

__all__ = ["clock_warnings", "part_warnings", "spread_warnings", "summarize_telemetry"]

# trtexec's threshold (sampleReporting.cpp) of the coefficient of variation.
_UNSTABLE = 0.01
_CLOCK_MOVE = 0.05

# Clocks that somebody fixed are no throttling.
_CHOSEN = frozenset({"GPU idle", "applications clocks setting", "display clock setting", "sync boost"})


def summarize_telemetry(found: GpuReadings) -> Telemetry:
    """Lowest, median and highest of each reading.

    Readings of an idle GPU are left out where there are others: they tell nothing of the measurement.
    """
    readings = _busy(found.readings)
    return Telemetry(
        samples=len(readings),
        sm_clock_mhz=_range([reading.sm_clock_mhz for reading in readings]),
        memory_clock_mhz=_range([reading.memory_clock_mhz for reading in readings]),
        power_w=_range([reading.power_w for reading in readings]),
        temperature_c=_range([reading.temperature_c for reading in readings]),
        throttle_reasons=tuple(
            dict.fromkeys(
                reason for reading in readings for reason in reading.reasons if reason != "GPU idle"
            )
        ),
        problem=found.problem,
    )


def _busy(readings: Sequence[GpuReading]) -> Sequence[GpuReading]:
    return [reading for reading in readings if not reading.idle] or readings


def _range(values: Sequence[float | None]) -> tuple[float, float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), float(np.median(known)), max(known)) if known else None


def clock_warnings(telemetry: Telemetry) -> tuple[str, ...]:
    """What the clocks say against the figures: that they moved, or were lowered.

    >>> clock_warnings(Telemetry(samples=2, sm_clock_mhz=(1500.0, 1900.0, 1980.0)))[0][:53]
    'The SM clock moved between 1500 and 1980 MHz, 25% of '
    """
    found = []
    for name, clock in (("SM", telemetry.sm_clock_mhz), ("memory", telemetry.memory_clock_mhz)):
        if clock is not None and clock[1] and (clock[2] - clock[0]) / clock[1] > _CLOCK_MOVE:
            share = (clock[2] - clock[0]) / clock[1] * 100
            found.append(
                f"The {name} clock moved between {clock[0]:.0f} and {clock[2]:.0f} MHz, {share:.0f}% of its "
                "median, while latency was measured. Lock it to compare engines: nvidia-smi "
                "--lock-gpu-clocks (and --lock-memory-clocks)."
            )
    if lowered := [reason for reason in telemetry.throttle_reasons if reason not in _CHOSEN]:
        found.append(
            f"The GPU lowered its clocks while latency was measured: {', '.join(lowered)}. "
            "Figures of a cooler or less loaded GPU would be better."
        )
    return tuple(found)


def part_warnings(label: str, batches: Sequence[BatchTimes], cuda_graph: bool) -> tuple[str, ...]:
    """What the parts of a batch say: that the host, or a transfer, takes as long as the GPU.

    Args:
        label: The run's label.
        batches: Every timed batch.
        cuda_graph: Whether a CUDA graph was launched.
    """
    compute = float(np.median([batch.compute_ms for batch in batches]))
    enqueue = float(np.median([batch.enqueue_ms for batch in batches]))
    found = []
    if is_host_bound(enqueue, compute):
        found.append(
            f"{label}: enqueueing takes {enqueue:.3f} ms of the host, computing {compute:.3f} ms of the GPU: "
            f"the host may be what is measured. {_unbound(cuda_graph)}"
        )
    for name, times in (
        ("host to device", [batch.host_to_device_ms for batch in batches]),
        ("device to host", [batch.device_to_host_ms for batch in batches]),
    ):
        if (transfer := float(np.median(times))) >= compute:
            found.append(
                f"{label}: the transfer from {name} takes {transfer:.3f} ms, computing {compute:.3f} ms: in "
                "a stream of batches the transfer decides, whatever the precision."
            )
    return tuple(found)


def _unbound(cuda_graph: bool) -> str:
    if cuda_graph:
        return "Give it a larger batch, or a faster or less loaded processor."
    return "Use CUDA graphs, or a larger batch."


def spread_warnings(label: str, times_ms: Sequence[float]) -> tuple[str, ...]:
    """Says that the coefficient of variation (standard deviation / mean) is above 1 %.

    >>> spread_warnings("INT8", [1.0, 1.0, 1.0, 1.1])[0][:52]
    'INT8: latency is unstable, coefficient of variation '
    """
    mean = float(np.mean(times_ms))
    variation = float(np.std(times_ms)) / mean if mean else 0.0
    if variation <= _UNSTABLE:
        return ()
    return (
        f"{label}: latency is unstable, coefficient of variation {variation * 100:.1f}% over "
        f"{counted(len(times_ms), 'batch[es]')}. Lock the clocks, keep other work off the machine, or "
        "measure longer.",
    )
