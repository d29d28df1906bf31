"""What a validation measures: one pass over the data with all runs, then the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

from calib.data import Array, Batch
from calib.progress import track
from calib.runners import carrying
from calib.validation.comparison import Comparison
from calib.validation.engine_shapes import fixed_batch
from calib.validation.latency import LatencyPlan
from calib.validation.options import Options
from calib.validation.peers import PeerFindings, Peers, find_peers, make_peers, rebuild, shared_runners
from calib.validation.provenance import Calibration
from calib.validation.results import EngineRecord
from calib.validation.simulations import Simulations, simulate
from calib.validation.subject import Subject, batches, latency_batch, size_of_batches
from calib.validation.timing import Timing, time_variants
from calib.validation.variants import Variant, make_variants

if TYPE_CHECKING:
    from calib.graph import FeedBuilder, OnnxModel

__all__ = ["Measured", "Measurement"]


@dataclass(frozen=True)
class Measured:
    """What the pass over the data and the clock gave.

    Attributes:
        comparison: Every run against FP32.
        variants: The runs.
        timing: Their latencies.
        engines: Their TensorRT engines.
        settings: Settings of their runners.
        peers: Runs compared with each other.
    """

    comparison: Comparison
    variants: tuple[Variant, ...]
    timing: Timing
    engines: tuple[EngineRecord | None, ...]
    settings: dict[str, str]
    peers: PeerFindings


class Measurement:
    """One model, one dataset, all precisions.

    Args:
        model: The FP32 model.
        subject: The samples.
        calibrations: Scales for INT8.
        options: Precisions, runner, and what is measured.
        builder: Makes the model's inputs of a batch.
    """

    def __init__(
        self,
        model: OnnxModel,
        subject: Subject,
        calibrations: Sequence[Calibration],
        options: Options,
        builder: FeedBuilder,
    ) -> None:
        self._model = model
        self._subject = subject
        self._calibrations = calibrations
        self._options = options
        self._builder = builder
        self._fixed_batch = fixed_batch(model, options)

    def run(self) -> Measured:
        """Opens every run, passes the data through all of them, times them, and closes them."""
        with ExitStack() as stack:
            variants = []
            for variant in make_variants(self._model, self._options, self._calibrations, self._every_feeds):
                stack.enter_context(variant.runner)
                variants.append(variant)
            rebuilt = rebuild(variants, self._options.engine.rebuilds, stack)
            simulations = simulate(variants, self._model, self._calibrations, self._options, stack)
            every = [*variants, *(one for builds in rebuilt.values() for one in builds)]
            comparison, peers = self._compare(variants, rebuilt, simulations, every)
            timing = self._time(every)
            engines = self._engines(every)
            settings = _settings(variants)
        found = find_peers(comparison, peers, every, timing, engines)
        count = len(variants)
        warned = tuple(one.warned_of(rebuilt.get(one.name.label, ())) for one in variants)
        return Measured(comparison, warned, timing.of_first(variants), engines[:count], settings, found)

    def _engines(self, variants: Sequence[Variant]) -> tuple[EngineRecord | None, ...]:
        if all(variant.engine is None for variant in variants):
            return (None,) * len(variants)
        from calib.validation.engine_inspection import inspect_variants

        return inspect_variants(variants, self._model, self._latency_feeds, self._options.engine.profile)

    def _compare(
        self,
        variants: Sequence[Variant],
        rebuilt: Mapping[str, tuple[Variant, ...]],
        simulations: Simulations,
        every: Sequence[Variant],
    ) -> tuple[Comparison, tuple[Peers, ...]]:
        dataset = self._subject.dataset
        asked = [*every, *(simulated for simulated, _ in simulations)]
        carried = carrying([variant.runner for variant in asked], dataset.state)
        runners = shared_runners(asked, carried, bool(rebuilt) or bool(simulations))
        comparison = Comparison(
            [runners[variant.name.label] for variant in variants],
            dataset,
            task=self._subject.task,
            scores=self._options.scores,
            names=[variant.name for variant in variants],
            context=self._subject.context(self._model.metadata),
        )
        peers = make_peers(comparison, runners, variants, rebuilt, simulations)
        for batch, fed in self._batches("Validating"):
            feeds = self._builder.feeds(fed)
            comparison.add(batch, feeds, len(fed))
            for one in peers:
                one.add(batch, feeds, len(fed))
        return comparison, peers

    def _batches(self, title: str) -> Iterator[tuple[Batch, Batch]]:
        """Every batch of the data, with the one that is fed for it."""
        dataset, fixed = self._subject.dataset, self._fixed_batch
        size = size_of_batches(dataset, self._options.batch_size, fixed)
        return track(batches(dataset, size, fixed), ceil(len(dataset) / size), title)

    def _every_feeds(self) -> Iterator[dict[str, Array]]:
        """What will be run: the timed batch, then the data."""
        yield self._latency_feeds
        for _, fed in self._batches("Reading shapes"):
            yield self._builder.feeds(fed)

    @property
    def _latency_plan(self) -> LatencyPlan:
        plan, fixed = self._options.latency, self._fixed_batch
        return plan if fixed is None else replace(plan, batch_size=fixed)

    @cached_property
    def _latency_feeds(self) -> dict[str, Array]:
        batch = latency_batch(self._subject.dataset, self._latency_plan.batch_size)
        return self._builder.feeds(batch)

    def _time(self, variants: Sequence[Variant]) -> Timing:
        plan = self._latency_plan
        if not plan.count:
            return Timing((None,) * len(variants))
        return time_variants(variants, self._latency_feeds, plan, transfers=self._options.engine.transfers)


def _settings(variants: Sequence[Variant]) -> dict[str, str]:
    """The settings of all runners, the baseline's first; read while they are open."""
    found: dict[str, str] = {}
    for variant in variants:
        found = {**variant.runner.session_options, **found}
    return found
