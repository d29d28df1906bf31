"""The validation run: dataset → every precision on the same batches → results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from calib.data import Dataset, Recipe
from calib.data.task_options import TaskOptions
from calib.errors import UsageError
from calib.files import check_writable
from calib.validation.comparison import Comparison, PrecisionFindings
from calib.validation.engine_options import EngineOptions
from calib.validation.engine_shapes import fixed_batch
from calib.validation.environment import describe_environment
from calib.validation.latency import LatencyPlan, latency_warnings
from calib.validation.measuring import Measured, Measurement
from calib.validation.model_record import describe_model, model_name
from calib.validation.options import Options, default_precisions, ordered_precisions
from calib.validation.provenance import Calibration, read_calibrations
from calib.validation.pytorch_options import PyTorchOptions
from calib.validation.results import (
    SCHEMA_VERSION,
    EngineRecord,
    Environment,
    Latency,
    PrecisionRun,
    Results,
    write_results,
)
from calib.validation.subject import Subject, data_name, open_subject
from calib.validation.variants import Variant
from calib.wording import as_several, counted

if TYPE_CHECKING:
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
    workers: int | None = None,
    torch: PyTorchOptions | None = None,
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
            runs the network of ``torch`` in FP32 and FP16; or "tensorrt", which builds engines and runs them
            on a GPU. The baseline is the model in FP32 on ONNX Runtime.
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
        workers: Processes that read and prepare samples; None for what the recipe says. The results are the
            same.
        torch: The PyTorch network that the model was exported from, and how it is run.
        engine: How TensorRT's engines are built and timed, and how often.
        integer_kernels: Run INT8 by ONNX Runtime's integer kernels too, to see how far they are from the
            simulation.
        task: What the model is for, where no recipe says it: "classification", or a mapping with ``kind`` and
            options, as in recipes.

    Returns:
        Everything that was found.

    Raises:
        UsageError: An option cannot be meant, INT8 has no cache, a cache is not given by its path, or two
            caches are the same.
        CalibError: Model, data or cache cannot be used, with what and why; nothing is written then.
    """
    options = Options(
        precisions=ordered_precisions(default_precisions(runner) if precisions is None else precisions),
        runner=runner,
        caches=_cache_paths(cache),
        samples=samples,
        batch_size=batch_size,
        seed=seed,
        out=None if out is None else os.fspath(out),
        latency=LatencyPlan(latency_batch, latency_count, seconds=latency_seconds),
        keep_float=as_several(keep_float),
        scores=scores,
        allow_overlap=allow_overlap,
        threads=threads,
        workers=workers,
        torch=torch,
        engine=engine or EngineOptions(),
        integer_kernels=integer_kernels,
    )
    return _run(model, data, options, task)


def _cache_paths(
    cache: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
) -> tuple[str, ...]:
    if cache is None:
        return ()
    if isinstance(cache, Mapping):
        raise UsageError(
            "A validation reads its cache from a file, beside which lies what made it: write the cache, and "
            "give its path."
        )
    paths = (cache,) if isinstance(cache, (str, os.PathLike)) else cache
    return tuple(os.fspath(path) for path in paths)


def _run(
    model: str | os.PathLike[str] | OnnxModel,
    data: str | os.PathLike[str] | Recipe | Dataset,
    options: Options,
    task: str | Mapping[str, Any] | TaskOptions | None,
) -> Results:
    names = model_name(model), data_name(data)
    if options.lacks_cache:
        # The commands of the message would be refused for a quantized model.
        _load(model)
        raise options.cache_missing(*names)
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
    if options.workers is not None:
        subject = replace(subject, dataset=subject.dataset.with_workers(options.workers))
    for calibration in calibrations:
        calibration.check(subject.recipe)
    network = _load(model)
    run = _ValidationRun(network, subject, calibrations, options)
    repeat = options.call if isinstance(data, Dataset) else options.command
    results = run.results(repeat(*names))
    if options.results_path is not None:
        write_results(results, options.results_path)
    return results


def _load(model: str | os.PathLike[str] | OnnxModel) -> OnnxModel:
    from calib.graph import load_model

    network = load_model(model) if isinstance(model, (str, os.PathLike)) else model
    network.refuse_quantized(
        "What would be called FP32 is INT8. Validate the float model that it was made from, with --cache."
    )
    return network


def _calibrated_on(calibrations: Sequence[Calibration]) -> frozenset[str]:
    return frozenset().union(*(calibration.sample_ids for calibration in calibrations))


def _environment(found: Measured) -> Environment:
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

        found = Measurement(
            self._model, self._subject, self._calibrations, self._options, self._builder
        ).run()
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
            simulations=found.peers.simulations,
            main_metric="" if comparison.task is None else comparison.task.main,
            doubts=comparison.doubts(),
        )

    def _batch_notes(self) -> tuple[str, ...]:
        fixed, state = fixed_batch(self._model, self._options), self._subject.dataset.state
        if state:
            return (f"State is carried ({', '.join(state)}): samples were run one at a time, in order.",)
        if fixed is None or fixed == self._options.batch_size == self._options.latency.batch_size:
            return ()
        missing = -len(self._subject.dataset) % fixed
        repeats = counted(missing, "repeat[s]")
        filled = f"; the last batch was filled up with {repeats}, not counted" if missing else ""
        who = "--shapes" if self._model.fixed_batch is None else "The model"
        return (f"{who} insists on batches of {fixed}, which was used throughout{filled}.",)

    def _runs(self, found: Measured) -> tuple[PrecisionRun, ...]:
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

    def _warnings(self, found: Measured, runs: Sequence[PrecisionRun]) -> tuple[str, ...]:
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
