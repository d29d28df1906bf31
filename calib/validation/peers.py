"""Runs that are compared with each other beside FP32: builds of one engine, integer kernels and simulation.

They answer in the same pass over the data as all others; nothing runs twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from calib.data import Array, Batch
from calib.validation.baseline import is_sqnr, sqnr_name
from calib.validation.comparison import Comparison, PrecisionFindings
from calib.validation.peer_records import (
    BuildDifference,
    KernelDifference,
    RebuildRecord,
    SimulationDifference,
)
from calib.validation.results import Latency, OutputError
from calib.validation.simulations import Simulations, simulation_sentence
from calib.validation.speed_records import EngineRecord
from calib.validation.timing import Timing
from calib.validation.variants import Variant
from calib.wording import counted

__all__ = ["Once", "PeerFindings", "Peers", "find_peers", "make_peers", "rebuild", "shared_runners"]


class Once:
    """A runner whose answers to a batch are kept until the next batch comes.

    Args:
        runner: What runs the batch, once.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._feeds: Mapping[str, Array] | None = None
        self._outputs: dict[str, Array] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Answers of the runner; of the same feeds, which must be the same object, those from before."""
        if feeds is not self._feeds:
            self._outputs = self._runner.infer(feeds)
            self._feeds = feeds
        return dict(self._outputs)


@dataclass(frozen=True)
class Peers:
    """One run and those that are compared with it.

    Attributes:
        kind: What they are: builds of one engine, integer kernels, or a simulation and its engines.
        first: The run.
        others: Further builds of its engine, the integer kernels of its Q/DQ model, or engines of its scales.
        between: Their outputs against those of the first.
        against_fp32: Those that are no runs of the validation against FP32, which the others have anyway.
    """

    kind: Literal["builds", "kernels", "simulation"]
    first: Variant
    others: tuple[Variant, ...]
    between: Comparison
    against_fp32: Comparison | None

    def add(self, batch: Batch, feeds: Mapping[str, Array], fed: int) -> None:
        """Counts one batch."""
        if self.against_fp32 is not None:
            self.against_fp32.add(batch, feeds, fed)
        self.between.add(batch, feeds, fed)

    def rebuild_record(
        self,
        findings: PrecisionFindings,
        latencies: Mapping[str, Latency | None],
        engines: Mapping[str, EngineRecord | None],
    ) -> RebuildRecord:
        """What differs between the builds.

        Args:
            findings: What the first one has shown against FP32.
            latencies: Label → latency of every build.
            engines: Label → engine of every build.
        """
        assert self.against_fp32 is not None
        each = [_figures(found) for found in (findings, *self.against_fp32.findings[1:])]
        labels = [variant.name.label for variant in (self.first, *self.others)]
        timed = [found for label in labels if (found := latencies.get(label)) is not None]
        built = [engine for label in labels if (engine := engines.get(label)) is not None]
        return RebuildRecord(
            run=labels[0],
            builds=len(labels),
            figures={name: tuple(one.get(name) for one in each) for name in each[0]},
            between=tuple(
                tuple(
                    BuildDifference(errors.output, errors.sqnr_db, errors.max_abs, errors.verdict)
                    for errors in found.output_errors()
                )
                for found in self.between.findings[1:]
            ),
            changed_answers=self._changed(),
            median_ms=tuple(one.median_ms for one in timed) if len(timed) == len(labels) else (),
            int8_layers=tuple(one.int8_layers for one in built),
            engine_bytes=tuple(one.engine_bytes for one in built),
        )

    def _changed(self) -> tuple[int, ...]:
        """For each other run the number of samples that it answers otherwise; nothing without a task."""
        first = self.between.baseline.judge
        judges = [found.judge for found in self.between.findings[1:]]
        changed = [None if first is None or judge is None else judge.changed(first) for judge in judges]
        return tuple(int(np.sum(one)) for one in changed if one is not None)

    def simulation_differences(
        self, findings: Mapping[str, PrecisionFindings]
    ) -> Iterator[SimulationDifference]:
        """How far each engine is from the simulation, output by output.

        Args:
            findings: Label → what the run has shown against FP32.
        """
        assert self.against_fp32 is not None
        simulated = {one.output: one.sqnr_db for one in self.against_fp32.findings[1].output_errors()}
        changed = self._changed() or (None,) * len(self.others)
        for variant, between, count in zip(self.others, self.between.findings[1:], changed, strict=True):
            engine = {one.output: one.sqnr_db for one in findings[variant.name.label].output_errors()}
            samples = len(between.samples)
            for errors in between.output_errors():
                yield SimulationDifference(
                    run=variant.name.label,
                    simulation=self.first.name.label,
                    output=errors.output,
                    engine_db=engine[errors.output],
                    simulation_db=simulated[errors.output],
                    between_db=errors.sqnr_db,
                    verdict=errors.verdict,
                    agreement=None if count is None or not samples else 1 - count / samples,
                )

    def kernel_differences(self) -> tuple[KernelDifference, ...]:
        """How far the integer kernels are from the simulation, output by output."""
        return tuple(
            _kernel_difference(self.first, variant, errors)
            for variant, found in zip(self.others, self.between.findings[1:], strict=True)
            for errors in found.output_errors()
        )


def _figures(found: PrecisionFindings) -> dict[str, float | None]:
    levels = {sqnr_name(errors.output): errors.sqnr_db for errors in found.output_errors()}
    return {**found.figures(), **levels}


def _kernel_difference(first: Variant, other: Variant, errors: OutputError) -> KernelDifference:
    scale = (other.scales or {}).get(errors.output) or None

    def steps(value: float | None) -> float | None:
        return None if value is None or scale is None else value / scale

    return KernelDifference(
        run=other.name.label,
        simulation=first.name.label,
        output=errors.output,
        scale=scale,
        max_abs=errors.max_abs,
        max_steps=steps(errors.max_abs),
        mean_steps=steps(errors.mean_abs),
        sqnr_db=errors.sqnr_db,
    )


def shared_runners(variants: Sequence[Variant], runners: Sequence[Any], asked_twice: bool) -> dict[str, Any]:
    """Label → runner, which answers a batch once where several comparisons ask it.

    Args:
        variants: All runs, further builds and simulations included.
        runners: Their runners.
        asked_twice: Whether there are further builds or simulations.
    """
    # Kept answers take memory: none are kept where nobody asks twice.
    shared = asked_twice or any(variant.simulation for variant in variants)
    labelled = zip(variants, runners, strict=True)
    return {one.name.label: Once(runner) if shared else runner for one, runner in labelled}


def make_peers(
    comparison: Comparison,
    runners: Mapping[str, Any],
    variants: Sequence[Variant],
    rebuilt: Mapping[str, tuple[Variant, ...]],
    simulations: Simulations,
) -> tuple[Peers, ...]:
    """Finds which runs are compared with which, and starts their comparisons.

    What a run answers is judged by the labels where its figures are wanted: those of further builds. Else it
    is compared with another run's alone.

    Args:
        comparison: The runs of the validation against FP32.
        runners: Label → runner of every run, which answers a batch once.
        variants: The runs of the validation, FP32 first.
        rebuilt: Label → further builds of that run's engine.
        simulations: Simulated runs, each with the engines of its scales.
    """

    def compare(*chosen: Variant, answers: bool = True, labels: bool = False) -> Comparison:
        names = [variant.name for variant in chosen]
        asked = [runners[name.label] for name in names]
        return comparison.beside(asked, names, answers=answers, labels=labels)

    found = []
    for variant in variants:
        others = rebuilt.get(variant.name.label, ())
        if others:
            against = compare(variants[0], *others, labels=True)
            found.append(Peers("builds", variant, others, compare(variant, *others), against))
        kernels = tuple(one for one in variants if one.simulation == variant.name.label)
        if kernels:
            between = compare(variant, *kernels, answers=False)
            found.append(Peers("kernels", variant, kernels, between, None))
    for simulated, engines in simulations:
        against = compare(variants[0], simulated, answers=False)
        found.append(Peers("simulation", simulated, engines, compare(simulated, *engines), against))
    return tuple(found)


def rebuild(variants: Sequence[Variant], builds: int, stack: ExitStack) -> dict[str, tuple[Variant, ...]]:
    """Builds engines again, without kept timings, and opens their runners.

    Args:
        variants: The runs.
        builds: Number of builds of each engine, the first included.
        stack: Closes the runners.

    Returns:
        Label of a run → its further builds.
    """
    found: dict[str, tuple[Variant, ...]] = {}
    for variant in variants:
        if variant.again is None or builds < 2:
            continue
        again = [variant.again(number) for number in range(2, builds + 1)]
        for one in again:
            stack.enter_context(one.runner)
        found[variant.name.label] = tuple(again)
    return found


@dataclass(frozen=True)
class PeerFindings:
    """What the comparisons of runs with each other gave.

    Attributes:
        rebuilds: One for each engine that was built several times.
        kernels: One for each output of each run with integer kernels.
        simulations: One for each output of each INT8 engine.
    """

    rebuilds: tuple[RebuildRecord, ...] = ()
    kernels: tuple[KernelDifference, ...] = ()
    simulations: tuple[SimulationDifference, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """What a reader must know: engines that are wrong, what builds alone change, integer kernels."""
        wrong = filter(None, map(simulation_sentence, self.simulations))
        return (*wrong, *map(_rebuild_sentence, self.rebuilds), *map(kernel_sentence, self.kernels))


def _rebuild_sentence(found: RebuildRecord) -> str:
    """What differs between builds in words.

    >>> far = BuildDifference("y", 40.0, 0.1, "differs")
    >>> _rebuild_sentence(RebuildRecord("INT8", 2, {"top1": (0.76, 0.758)}, ((far,),), (3,), (2.0, 2.1)))
    "INT8 was built 2 times: top1 differs by up to 0.2 points; outputs are 40 dB or more from the first
    build's; up to 3 answers differ; latency differs by up to 1.05 times. A smaller change is noise."
    """
    parts = [f"{name} differs by up to {_spread(name, values)}" for name, values in _moved(found.figures)]
    levels = [one.sqnr_db for build in found.between for one in build if one.sqnr_db is not None]
    if levels:
        parts.append(f"outputs are {min(levels):.3g} dB or more from the first build's")
    if any(found.changed_answers):
        parts.append(f"up to {counted(max(found.changed_answers), 'answer[s] differ[s|]')}")
    if found.median_ms:
        parts.append(f"latency differs by up to {max(found.median_ms) / min(found.median_ms):.3g} times")
    said = "; ".join(parts) or "no figure and no output differs"
    return f"{found.run} was built {found.builds} times: {said}. A smaller change is noise."


def _moved(figures: Mapping[str, Sequence[float | None]]) -> list[tuple[str, list[float]]]:
    known = [(name, [one for one in values if one is not None]) for name, values in figures.items()]
    return [(name, values) for name, values in known if values and max(values) > min(values)]


def _spread(name: str, values: Sequence[float]) -> str:
    size = max(values) - min(values)
    if is_sqnr(name):
        return f"{size:.3g} dB"
    return f"{100 * size:.3g} points" if name.startswith("top") else f"{size:.3g}"


def kernel_sentence(found: KernelDifference) -> str:
    """A difference between integer kernels and simulation in words.

    >>> kernel_sentence(KernelDifference("INT8 integer kernels", "INT8", "y", 0.5, 1.0, 2.0, 0.1, 40.0))
    "INT8 integer kernels output 'y' is up to 2 steps of its scale from INT8 (0.1 on average): that is
    ONNX Runtime's integer arithmetic, not the calibration. TensorRT computes what INT8 simulates."
    """
    what = f"{found.run} output {found.output!r}"
    if found.max_abs is None:
        return f"{what} cannot be compared with {found.simulation}: rows differ, or values are not finite."
    if not found.max_abs:
        return f"{what} equals {found.simulation}, value by value."
    if found.max_steps is None or found.mean_steps is None:
        distance = f"{found.max_abs:.3g} from {found.simulation} (it has no scale to count steps by)"
    else:
        distance = (
            f"{found.max_steps:.3g} steps of its scale from {found.simulation} ({found.mean_steps:.2g} on "
            "average)"
        )
    return (
        f"{what} is up to {distance}: that is ONNX Runtime's integer arithmetic, not the calibration. "
        f"TensorRT computes what {found.simulation} simulates."
    )


def find_peers(
    comparison: Comparison,
    peers: Sequence[Peers],
    every: Sequence[Variant],
    timing: Timing,
    engines: Sequence[EngineRecord | None],
) -> PeerFindings:
    """What runs show beside each other, after the pass over the data.

    Args:
        comparison: The runs against FP32.
        peers: What was compared beside it.
        every: The runs and the further builds of their engines.
        timing: Latency of all of these.
        engines: Engines of all of these.
    """
    labels = [variant.name.label for variant in every]
    latencies = dict(zip(labels, timing.latencies, strict=True))
    built = dict(zip(labels, engines, strict=True))
    findings = {found.name.label: found for found in comparison.findings}
    rebuilds = tuple(
        one.rebuild_record(findings[one.first.name.label], latencies, built)
        for one in peers
        if one.kind == "builds"
    )
    kernels = tuple(found for one in peers if one.kind == "kernels" for found in one.kernel_differences())
    simulations = tuple(
        found for one in peers if one.kind == "simulation" for found in one.simulation_differences(findings)
    )
    return PeerFindings(rebuilds, kernels, simulations)
