"""Latency of a validation's runs: those on a GPU measured as such, in turn, and those on the CPU apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from calib.data import Array
from calib.validation.gpu_latency import GpuLatencyPlan, measure_gpu_latency
from calib.validation.latency import LatencyPlan, measure_latency
from calib.validation.speed_records import Latency, LatencyRatio, Telemetry
from calib.validation.variants import Variant

__all__ = ["Timing", "time_variants"]


@dataclass(frozen=True)
class Timing:
    """What the clocks gave.

    Attributes:
        latencies: One for each run, None where none was measured.
        ratios: Runs on a GPU against each other.
        telemetry: The GPU meanwhile; None where nothing ran on one.
        warnings: What a reader of the figures must know.
    """

    latencies: tuple[Latency | None, ...]
    ratios: tuple[LatencyRatio, ...] = ()
    telemetry: Telemetry | None = None
    warnings: tuple[str, ...] = ()

    def of_first(self, variants: Sequence[Variant]) -> Timing:
        """The same of the first runs alone: what concerns other ones is left out."""
        labels = {variant.name.label for variant in variants}
        return replace(
            self,
            latencies=self.latencies[: len(variants)],
            ratios=tuple(one for one in self.ratios if {one.candidate, one.against} <= labels),
        )


def time_variants(
    variants: Sequence[Variant],
    feeds: Mapping[str, Array],
    plan: LatencyPlan,
    *,
    transfers: bool = False,
) -> Timing:
    """Times one batch on every run.

    Runs on a GPU share the time, in turn, after those on the CPU, which get a fifth of it.

    Args:
        variants: The runs, their runners open.
        feeds: The batch.
        plan: How much to time.
        transfers: Whether a GPU's latency includes the transfers.
    """
    on_gpu = [index for index, variant in enumerate(variants) if variant.runner.on_gpu]
    on_cpu = [index for index in range(len(variants)) if index not in on_gpu]
    found: dict[int, Latency] = {}
    if on_cpu:
        host = replace(plan, seconds=plan.seconds / 5) if on_gpu else plan
        runners = [variants[index].runner for index in on_cpu]
        simulated = [variants[index].simulated_latency for index in on_cpu]
        measured = measure_latency(runners, [feeds] * len(runners), host, simulated=simulated)
        found.update(zip(on_cpu, measured, strict=True))
    if not on_gpu:
        return Timing(_placed(variants, found))
    gpu = measure_gpu_latency(
        [variants[index].runner for index in on_gpu],
        [feeds] * len(on_gpu),
        GpuLatencyPlan.of(plan, transfers=transfers),
        [variants[index].name.label for index in on_gpu],
    )
    found.update(zip(on_gpu, gpu.latencies, strict=True))
    return Timing(_placed(variants, found), gpu.ratios, gpu.telemetry, gpu.warnings)


def _placed(variants: Sequence[Variant], found: Mapping[int, Latency]) -> tuple[Latency | None, ...]:
    """The latency of each run, with what it ran on."""
    return tuple(
        replace(latency, device=variant.runner.place, on_gpu=variant.runner.on_gpu) if latency else None
        for latency, variant in ((found.get(index), variant) for index, variant in enumerate(variants))
    )
