"""Stored baselines: a small JSON file that is reviewed and kept in version control.

Keys are sorted, figures rounded to six digits, answers packed in short lines: the same results give the same
file, and a change of a few samples a diff of a few lines.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic import ValidationError as _PydanticError

from calib.errors import ValidationError
from calib.files import read_bounded, write_text
from calib.validation.file_faults import explain_faults, refuse_schema, stated_schema
from calib.validation.metric_records import Draws
from calib.validation.outcomes import hits_of, pack_hits
from calib.validation.resampling import shortened
from calib.validation.results import PrecisionRun, Results, read_results
from calib.validation.speed_records import Latency

__all__ = [
    "BASELINE_SCHEMA",
    "Baseline",
    "BaselineFigure",
    "BaselineRun",
    "ids_digest",
    "is_sqnr",
    "make_baseline",
    "measured_latency",
    "read_baseline",
    "read_reference",
    "sqnr_name",
    "timed_device",
    "timed_on_gpu",
    "write_baseline",
]

BASELINE_SCHEMA = 1


@dataclass(frozen=True)
class BaselineFigure:
    """A figure as it was: a metric of accuracy in its unit, or the SQNR of an output in dB.

    Attributes:
        value: The figure; None where it was not measured.
        low: Lower end of its 95 % interval.
        high: Upper end.
        count: Samples behind it; None for outputs.
        noise: Largest difference between rebuilds of one model; None where it is not known.
        note: Why it is None, or what to know of it.
        unit: "share", or the unit of a metric that is none.
        higher_is_better: Direction.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    count: int | None = None
    noise: float | None = None
    note: str = ""
    unit: str = "share"
    higher_is_better: bool = True


@dataclass(frozen=True)
class BaselineRun:
    """One precision as it was.

    Attributes:
        precision: "fp32", "fp16" or "int8".
        runner: What ran it.
        simulated: Whether its arithmetic was simulated in float.
        calibration: Name of its calibration; empty without one.
        metrics: Metric → figure.
        sqnr_db: Output → SQNR against FP32, in dB.
        outcomes: Metric → whether each sample was right, packed by ``calib.validation.outcomes``.
        draws: Metric → the first of its bootstrap resamples, for metrics that are no share of right samples.
        median_ms: Latency p50 on a GPU; None where it was simulated or not measured.
        batch_size: Samples of a timed batch.
        engine_bytes: Size of the TensorRT engine.
        device: GPU that the latency was measured on; empty without one.
        builds: Builds of one model that the noise of its figures is known from; None without any.
        latency_noise: Slowest p50 divided by fastest of them.
        class_metric: What is known of each class: "AP", "IoU"; empty where answers and labels tell it.
        class_values: Class number → its figure.
        class_errors: Class number → standard error of its drop against FP32 of the same results.
    """

    precision: str
    runner: str
    simulated: bool
    calibration: str = ""
    metrics: dict[str, BaselineFigure] = field(default_factory=dict)
    sqnr_db: dict[str, BaselineFigure] = field(default_factory=dict)
    outcomes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    draws: dict[str, Draws] = field(default_factory=dict)
    median_ms: float | None = None
    batch_size: int | None = None
    engine_bytes: int | None = None
    device: str = ""
    builds: int | None = None
    latency_noise: float | None = None
    class_metric: str = ""
    class_values: dict[str, float] = field(default_factory=dict)
    class_errors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """What results are compared with later.

    Attributes:
        baseline_schema: Version of this layout.
        calib_version: Version of calib that made the results.
        created: When the results were made, UTC.
        model: Name of the model.
        model_sha256: Its hash.
        dataset: Name of the validation dataset.
        fingerprint: Its fingerprint: source, preprocessing, sample ids, labels.
        preprocess: Its preprocessing, to tell what changed.
        samples: Number of samples.
        sample_ids_sha256: Hash of their ids in order.
        calibrations: Calibration → hash of its cache.
        environment: System, processor, GPU and versions.
        runs: Label → run.
    """

    baseline_schema: int
    calib_version: str
    created: str
    model: str
    model_sha256: str
    dataset: str
    fingerprint: str
    preprocess: dict[str, Any]
    samples: int
    sample_ids_sha256: str
    calibrations: dict[str, str]
    environment: dict[str, Any]
    runs: dict[str, BaselineRun]

    def to_json(self) -> str:
        """The baseline as strict JSON with sorted keys; keys that are None are left out where they may be."""
        content = {**asdict(self), "runs": {label: _run_json(run) for label, run in self.runs.items()}}
        return json.dumps(content, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    def find(self, run: PrecisionRun) -> BaselineRun | None:
        """The run that was the same precision of the same calibration; None where there is none.

        By label; else by precision, where the baseline has just one run of it.
        """
        if run.label in self.runs:
            return self.runs[run.label]
        alike = [one for one in self.runs.values() if one.precision == run.precision]
        named = [one for one in alike if one.calibration == run.calibration]
        return named[0] if len(named) == 1 else alike[0] if len(alike) == 1 else None


def _run_json(run: BaselineRun) -> dict[str, Any]:
    """A run with its figures; value null is kept, since it says that nothing was measured."""
    content = {key: value for key, value in asdict(run).items() if value not in (None, "", {})}
    for group in ("metrics", "sqnr_db"):
        if group in content:
            content[group] = {
                name: {
                    key: value for key, value in figure.items() if key == "value" or not _usual(key, value)
                }
                for name, figure in content[group].items()
            }
    return content


def _usual(key: str, value: Any) -> bool:
    """Whether a key of a figure says nothing that its absence would not."""
    return value in (None, "") if key != "unit" and key != "higher_is_better" else value in ("share", True)


def ids_digest(ids: Sequence[str]) -> str:
    """SHA-256 of sample ids in their order, each preceded by its length.

    >>> ids_digest(["ab"]) == ids_digest(["a", "b"])
    False
    """
    digest = hashlib.sha256()
    for name in ids:
        encoded = name.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode("ascii") + encoded)
    return digest.hexdigest()


def make_baseline(
    results: Results,
    noise: Mapping[tuple[str, str], float] | None = None,
    latency_noise: Mapping[str, float] | None = None,
    builds: int = 0,
) -> Baseline:
    """Keeps of results what later ones are compared with.

    Args:
        results: What a validation run found.
        noise: (label of a run, figure) → largest difference between builds of one model.
        latency_noise: Label of a run → slowest p50 divided by fastest of those builds.
        builds: Number of those builds.
    """
    measured = noise or {}
    runs = {run.label: _baseline_run(results, run, measured) for run in results.runs}
    if builds:
        times = latency_noise or {}
        runs = {
            label: replace(run, builds=builds, latency_noise=_rounded(times.get(label)))
            for label, run in runs.items()
        }
    environment = results.environment
    return Baseline(
        baseline_schema=BASELINE_SCHEMA,
        calib_version=results.calib_version,
        created=results.created,
        model=results.model.name,
        model_sha256=results.model.sha256,
        dataset=results.dataset.name,
        fingerprint=results.dataset.fingerprint,
        preprocess=results.dataset.preprocess,
        samples=len(results.sample_ids),
        sample_ids_sha256=ids_digest(results.sample_ids),
        calibrations={one.name: one.sha256 for one in results.calibrations},
        environment={
            "system": environment.system,
            "processor": environment.processor,
            "gpu": environment.gpu,
            "tensorrt": environment.tensorrt,
            "packages": dict(environment.packages),
        },
        runs=runs,
    )


def _baseline_run(results: Results, run: PrecisionRun, noise: Mapping[tuple[str, str], float]) -> BaselineRun:
    latency = measured_latency(run)
    hits = {name: hits_of(results, run, name) for name in ("top1", *run.outcomes)}
    # Recalls come from the packed answers and the labels.
    classes = () if run.class_metric == "recall" else run.classes
    values = {str(one.label): _rounded(one.value) for one in classes}
    errors = {str(one.label): _rounded(one.drop_error) for one in classes}
    return BaselineRun(
        precision=run.precision,
        runner=run.runner,
        simulated=run.simulated,
        calibration=run.calibration,
        metrics={
            one.name: BaselineFigure(
                _rounded(one.value),
                _rounded(one.low),
                _rounded(one.high),
                one.count,
                _rounded(noise.get((run.label, one.name))),
                one.note if one.value is None else "",
                one.unit,
                one.higher_is_better,
            )
            for one in run.metrics
        },
        sqnr_db={
            one.output: BaselineFigure(
                _rounded(one.sqnr_db),
                _rounded(one.sqnr_low),
                _rounded(one.sqnr_high),
                noise=_rounded(noise.get((run.label, sqnr_name(one.output)))),
                note=one.note if one.sqnr_db is None else "",
            )
            for one in run.outputs
        },
        outcomes={name: pack_hits(right) for name, right in hits.items() if right is not None},
        draws={name: shortened(draws) for name, draws in run.draws.items()},
        median_ms=_rounded(latency.median_ms) if latency else None,
        batch_size=latency.batch_size if latency else None,
        engine_bytes=run.engine.engine_bytes if run.engine else None,
        device=timed_device(results, run) if latency else "",
        class_metric=run.class_metric if classes else "",
        class_values={label: value for label, value in values.items() if value is not None},
        class_errors={label: error for label, error in errors.items() if error is not None},
    )


def sqnr_name(output: str) -> str:
    """What the SQNR of an output is called beside metrics."""
    return f"SQNR of {output}"


def is_sqnr(figure: str) -> bool:
    """Whether a figure is the SQNR of an output, by what it is called."""
    return figure.startswith(sqnr_name(""))


def timed_on_gpu(run: PrecisionRun) -> bool:
    """Whether a run was timed on a GPU, by its own record; engines run nowhere else."""
    if run.latency is None or run.latency.on_gpu is None:
        return run.latency is not None and run.runner == "tensorrt"
    return run.latency.on_gpu


def measured_latency(run: PrecisionRun) -> Latency | None:
    """A run's latency where it was measured on a GPU; None where it was simulated, or not measured there."""
    simulated = run.simulated or run.latency is None or run.latency.simulated
    return run.latency if not simulated and timed_on_gpu(run) else None


def timed_device(results: Results, run: PrecisionRun) -> str:
    """The GPU that a run was timed on; empty where there is none, or it is not known."""
    if not timed_on_gpu(run):
        return ""
    assert run.latency is not None
    return run.latency.device or results.environment.gpu or ""


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def write_baseline(baseline: Baseline, path: str | os.PathLike[str]) -> Path:
    """Writes a baseline, whole or not at all."""
    return write_text(path, baseline.to_json())


_ADAPTER = TypeAdapter(Baseline)
_SCHEMA_WORDS = ("baseline", "Make it again with --update-baseline")


def read_baseline(path: str | os.PathLike[str]) -> Baseline:
    """Reads a baseline.

    Raises:
        ValidationError: There is no such file, it is too large, of another schema, or no baseline.
    """
    return _parse(_read(Path(path)), Path(path))


def _read(source: Path) -> bytes:
    advice = f"Make one with: calib check RESULTS.json --baseline {source} --update-baseline"
    return read_bounded(source, "baseline", ValidationError, advice=advice)


def _parse(content: bytes, source: Path) -> Baseline:
    try:
        baseline = _ADAPTER.validate_json(content)
    except _PydanticError as error:
        # Another schema has other fields: that explains what is missing.
        refuse_schema(stated_schema(content, "baseline_schema"), BASELINE_SCHEMA, str(source), *_SCHEMA_WORDS)
        raise ValidationError(
            f"{explain_faults(error, str(source), 'baseline')} "
            "Make it again with: calib check RESULTS.json --baseline FILE --update-baseline"
        ) from error
    refuse_schema(baseline.baseline_schema, BASELINE_SCHEMA, str(source), *_SCHEMA_WORDS)
    return baseline


def read_reference(path: str | os.PathLike[str]) -> Baseline:
    """Reads a baseline, or results that serve as one: those of another TensorRT version, for instance.

    Raises:
        ValidationError: The file is neither.
    """
    source = Path(path)
    try:
        head = json.loads(_read(source))
    except ValueError as error:
        raise ValidationError(f"{source} is not JSON: {error}. Give a baseline or a results file.") from error
    if isinstance(head, dict) and "runs" in head and "baseline_schema" not in head:
        return make_baseline(read_results(source))
    return read_baseline(source)
