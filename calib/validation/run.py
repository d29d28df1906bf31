"""The validation run: dataset → every precision on the same batches → results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

from calib.data import Array, Dataset, Recipe
from calib.data.task_options import TaskOptions
from calib.files import check_writable
from calib.progress import track
from calib.runners import carrying
from calib.validation.asked import cache_paths, name_of_data, name_of_model
from calib.validation.comparison import Comparison, PrecisionFindings
from calib.validation.engine_options import EngineOptions
from calib.validation.environment import describe_environment
from calib.validation.latency import LatencyPlan, latency_warnings
from calib.validation.model_record import describe_model
from calib.validation.options import Options, default_precisions, ordered_precisions
from calib.validation.peers import Once, PeerFindings, Peers, find_peers, make_peers, rebuild
from calib.validation.provenance import Calibration, read_calibrations
from calib.validation.results import (
    SCHEMA_VERSION,
    EngineRecord,
    Environment,
    Latency,
    PrecisionRun,
    Results,
    write_results,
)
from calib.validation.subject import Subject, batches, latency_batch, open_subject, size_of_batches
from calib.validation.timing import Timing, time_variants
from calib.validation.torch_source import TorchSource
from calib.validation.variants import Variant, make_variants

if TYPE_CHECKING:
    from torch import nn

    from calib.graph import FeedBuilder, OnnxModel

__all__ = ["validate"]

_WORST = 10


def validate(
    model: str | os.PathLike[str] | OnnxModel,
    data: str | os.PathLike[str] | Recipe | Dataset,
    *,
    precisions: Sequence[str] | None = None,
    runner: str = "onnxruntime",
    cache: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    samples: int | None = None,
    batch_size: int = 32,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    latency_batch: int = 1,
    latency_count: int = 100,
    latency_seconds: float = 30.0,
    keep_float: Sequence[str] = (),
    scores: str | None = None,
    allow_overlap: bool = False,
    threads: int | None = None,
    torch: nn.Module | Callable[..., Any] | str | None = None,
    torch_weights: str | os.PathLike[str] | None = None,
    torch_arguments: Mapping[str, Any] | None = None,
    torch_device: str | None = None,
    torch_compile: bool = False,
    engine: EngineOptions | None = None,
    integer_kernels: bool = False,
    task: str | Mapping[str, Any] | TaskOptions | None = None,
) -> Results:
    """Compares a model's precisions with its FP32 baseline: outputs, accuracy, latency.

    Args:
        model: The FP32 ONNX model, or its path.
        data: A recipe, its path or shipped name, or a dataset.
        precisions: "fp32", "fp16", "int8"; None for all that the runner has. FP32 is always run.
        runner: "onnxruntime", where INT8 is simulated in float, as TensorRT computes it; or "pytorch", which
            runs ``torch`` in FP32 and FP16; or "tensorrt", which builds engines and runs them on a GPU. The
            baseline is the model in FP32 on ONNX Runtime.
        cache: The calibration cache, or several to compare: INT8 needs one, and is run once for each.
            Their samples are left out of the validation.
        samples: Number of validation samples; None for all.
        batch_size: Samples a batch. A model with a fixed batch size takes its own.
        seed: Seed of the choice of ``samples`` from a dataset from Python; recipes have their own.
        out: Folder in which ``results.json`` is written; None writes nothing.
        latency_batch: Samples in a timed batch.
        latency_count: Timed batches for each precision; 0 leaves latency out.
        latency_seconds: Time for all of them together.
        keep_float: Regular expressions of nodes (or their outputs) that stay in float in INT8.
        scores: The output that holds class scores; None finds it.
        allow_overlap: Validate on calibration samples too; they are counted and warned of.
        threads: Threads within an operator; None for every core.
        torch: The PyTorch network that the model was exported from: a module, what makes one, or
            "package.module:name".
        torch_weights: File of its state dict, read with ``weights_only=True``.
        torch_arguments: Keyword arguments of what makes it.
        torch_device: "cuda", "cuda:1" or "cpu"; None for a GPU where torch has one.
        torch_compile: Whether ``torch.compile`` is applied to it.
        engine: How TensorRT's engines are built and timed, and how often.
        integer_kernels: Run INT8 by ONNX Runtime's integer kernels too, to see how far they are from the
            simulation.
        task: What the model is for, where no recipe says it: "classification", or a mapping with ``kind`` and
            options, as in recipes.

    Returns:
        Everything that was found.

    Raises:
        UsageError: An option cannot be meant, INT8 has no cache, or two caches are the same.
        CalibError: Model, data or cache cannot be used, with what and why; nothing is written then.
    """
    options = Options(
        precisions=ordered_precisions(default_precisions(runner) if precisions is None else precisions),
        runner=runner,
        caches=cache_paths(cache),
        samples=samples,
        batch_size=batch_size,
        seed=seed,
        out=None if out is None else os.fspath(out),
        latency=LatencyPlan(latency_batch, latency_count, seconds=latency_seconds),
        keep_float=tuple(keep_float),
        scores=scores,
        allow_overlap=allow_overlap,
        threads=threads,
        torch=None
        if torch is None
        else TorchSource(torch, torch_weights, dict(torch_arguments or {}), torch_device, torch_compile),
        engine=engine or EngineOptions(),
        integer_kernels=integer_kernels,
    )
    return _run(model, data, options, task)


def _run(
    model: str | os.PathLike[str] | OnnxModel,
    data: str | os.PathLike[str] | Recipe | Dataset,
    options: Options,
    task: str | Mapping[str, Any] | TaskOptions | None,
) -> Results:
    from calib.graph import load_model

    model_name, data_name = name_of_model(model), name_of_data(data)
    options.check_cache(model_name, data_name)
    if options.results_path is not None:
        check_writable(options.results_path)
    calibrations = read_calibrations(options.caches)
    subject = open_subject(
        data,
        samples=options.samples,
        seed=options.seed,
        exclude=_calibrated_on(calibrations),
        allow_overlap=options.allow_overlap,
        task=task,
    )
    network = load_model(model) if isinstance(model, (str, os.PathLike)) else model
    run = _ValidationRun(network, subject, calibrations, options)
    repeat = options.call if isinstance(data, Dataset) else options.command
    results = run.results(repeat(model_name, data_name))
    if options.results_path is not None:
        write_results(results, options.results_path)
    return results


def _calibrated_on(calibrations: Sequence[Calibration]) -> frozenset[str]:
    return frozenset().union(*(calibration.sample_ids for calibration in calibrations))


@dataclass(frozen=True)
class _Found:
    """What the pass over the data and the clock gave."""

    comparison: Comparison
    variants: tuple[Variant, ...]
    timing: Timing
    engines: tuple[EngineRecord | None, ...]
    settings: dict[str, str]
    peers: PeerFindings


def _settings(variants: Sequence[Variant]) -> dict[str, str]:
    """The settings of all runners, the baseline's first; read while they are open."""
    found: dict[str, str] = {}
    for variant in variants:
        found = {**variant.runner.session_options, **found}
    return found


def _environment(found: _Found) -> Environment:
    described = describe_environment(found.settings)
    # The engines know their TensorRT, which need not have come as a package.
    builders = [engine.tensorrt for engine in found.engines if engine is not None]
    return replace(described, tensorrt=builders[0]) if builders else described


class _ValidationRun:
    """One model, one dataset, all precisions."""

    def __init__(
        self,
        model: OnnxModel,
        subject: Subject,
        calibrations: Sequence[Calibration],
        options: Options,
    ) -> None:
        from calib.graph import FeedBuilder

        self._model = model
        self._subject = subject
        self._calibrations = calibrations
        self._options = options
        self._builder: FeedBuilder = FeedBuilder(model.inputs, str(model.path))

    def results(self, command: str) -> Results:
        """Runs everything and records it."""
        from calib import __version__

        found = self._measure()
        dataset, comparison = self._subject.dataset, found.comparison
        runs = self._runs(found)
        overlap = len(_calibrated_on(self._calibrations).intersection(dataset.ids))
        return Results(
            schema=SCHEMA_VERSION,
            calib_version=__version__,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            command=command,
            task=None if comparison.task is None else comparison.task.kind,
            model=describe_model(self._model),
            dataset=self._subject.record(overlap, (*self._batch_notes(), *self._builder.notes)),
            runs=runs,
            sample_ids=dataset.ids,
            labels=comparison.labels,
            worst=tuple(
                sample
                for candidate in comparison.findings[1:]
                for sample in comparison.worst(candidate, _WORST)
            ),
            environment=_environment(found),
            calibrations=tuple(calibration.record(dataset) for calibration in self._calibrations),
            warnings=self._warnings(found, runs),
            ratios=found.timing.ratios,
            telemetry=found.timing.telemetry,
            rebuilds=found.peers.rebuilds,
            kernels=found.peers.kernels,
            main_metric="" if comparison.task is None else comparison.task.main,
        )

    def _measure(self) -> _Found:
        with ExitStack() as stack:
            variants = []
            for variant in make_variants(self._model, self._options, self._calibrations):
                stack.enter_context(variant.runner)
                variants.append(variant)
            rebuilt = rebuild(variants, self._options.engine.rebuilds, stack)
            every = [*variants, *(one for builds in rebuilt.values() for one in builds)]
            comparison, peers = self._compare(variants, rebuilt, every)
            timing = self._time(every)
            engines = self._engines(every)
            settings = _settings(variants)
        found = find_peers(comparison, peers, every, timing, engines)
        count = len(variants)
        return _Found(
            comparison, tuple(variants), timing.of_first(variants), engines[:count], settings, found
        )

    def _engines(self, variants: Sequence[Variant]) -> tuple[EngineRecord | None, ...]:
        if all(variant.engine is None for variant in variants):
            return (None,) * len(variants)
        from calib.validation.engine_inspection import inspect_variants

        return inspect_variants(variants, self._model, self._latency_feeds, self._options.engine.profile)

    def _compare(
        self,
        variants: Sequence[Variant],
        rebuilt: Mapping[str, tuple[Variant, ...]],
        every: Sequence[Variant],
    ) -> tuple[Comparison, tuple[Peers, ...]]:
        dataset, fixed = self._subject.dataset, self._model.fixed_batch
        # State is carried below what keeps answers: a batch that is asked for again must not move it on.
        carried = carrying([variant.runner for variant in every], dataset.state)
        runners = {variant.name.label: Once(one) for variant, one in zip(every, carried, strict=True)}
        task, context = self._subject.task, self._subject.context(self._model.metadata)
        comparison = Comparison(
            [runners[variant.name.label] for variant in variants],
            dataset,
            task=task,
            scores=self._options.scores,
            names=[variant.name for variant in variants],
            context=context,
        )
        peers = make_peers(
            variants, rebuilt, runners, dataset, task=task, scores=self._options.scores, context=context
        )
        size = size_of_batches(dataset, self._options.batch_size, fixed)
        total = ceil(len(dataset) / size)
        pairs = batches(dataset, size, fixed)
        for batch, fed in track(pairs, total, "Validating"):
            feeds = self._builder.feeds(fed)
            comparison.add(batch, feeds, len(fed))
            for one in peers:
                one.add(batch, feeds, len(fed))
        return comparison, peers

    @property
    def _latency_plan(self) -> LatencyPlan:
        plan, fixed = self._options.latency, self._model.fixed_batch
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

    def _batch_notes(self) -> tuple[str, ...]:
        fixed = self._model.fixed_batch
        if fixed is None or fixed == self._options.batch_size == self._options.latency.batch_size:
            return ()
        missing = -len(self._subject.dataset) % fixed
        filled = f"; the last batch was filled up with {missing} repeats, not counted" if missing else ""
        return (f"The model insists on batches of {fixed}, which was used throughout{filled}.",)

    def _runs(self, found: _Found) -> tuple[PrecisionRun, ...]:
        rows = zip(
            found.comparison.findings, found.variants, found.timing.latencies, found.engines, strict=True
        )
        return tuple(self._precision_run(found.comparison, *row) for row in rows)

    @staticmethod
    def _precision_run(
        comparison: Comparison,
        found: PrecisionFindings,
        variant: Variant,
        latency: Latency | None,
        engine: EngineRecord | None,
    ) -> PrecisionRun:
        baseline, judgement = found is comparison.baseline, comparison.judgement(found)
        predictions = None if found.judge is None else found.judge.predictions
        return PrecisionRun(
            label=variant.name.label,
            precision=variant.name.precision,
            runner=variant.runner.name,
            role="baseline" if baseline else "candidate",
            simulated=variant.runner.simulated,
            description=variant.description,
            outputs=() if baseline else found.judged_outputs(),
            metrics=judgement.metrics,
            predictions=None if predictions is None else tuple(predictions),
            latency=latency,
            model_bytes=variant.runner.model_bytes,
            quantized_tensors=variant.quantized_tensors,
            seconds=found.seconds,
            calibration=variant.name.calibration,
            engine=engine,
            outcomes=found.outcomes(),
            draws=judgement.draws,
            class_metric=judgement.class_metric,
            classes=judgement.classes,
            confusions=judgement.confusions,
        )

    def _warnings(self, found: _Found, runs: Sequence[PrecisionRun]) -> tuple[str, ...]:
        recipe, dataset = self._subject.recipe, self._subject.dataset
        provenance = (
            warning
            for calibration in self._calibrations
            for warning in calibration.warnings(self._model, recipe, dataset)
        )
        left_float = (warning for variant in found.variants for warning in variant.warnings)
        return (
            *found.comparison.warnings(),
            *provenance,
            *left_float,
            *latency_warnings(runs, found.timing.ratios),
            *found.timing.warnings,
            *found.peers.sentences(),
        )
