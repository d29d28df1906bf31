"""What a validation run found, as plain frozen records that go to JSON and back.

Reports, gates and baselines read these records only, never live objects. A number that could not be
measured is None with a note beside it: JSON has no NaN.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic import ValidationError as _PydanticError

from calib.errors import ValidationError
from calib.files import read_bounded, write_text
from calib.validation.columns import ColumnGroup
from calib.validation.file_faults import explain_faults, refuse_schema, stated_schema
from calib.validation.metric_records import ClassFigure, Draws, Metric
from calib.validation.peer_records import KernelDifference, RebuildRecord, SimulationDifference
from calib.validation.speed_records import EngineRecord, Latency, LatencyPart, LatencyRatio, Telemetry

__all__ = [
    "SCHEMA_VERSION",
    "CalibrationRecord",
    "ClassFigure",
    "DatasetRecord",
    "Draws",
    "EngineRecord",
    "Environment",
    "KernelDifference",
    "Latency",
    "LatencyPart",
    "LatencyRatio",
    "Metric",
    "ModelRecord",
    "OutputError",
    "PrecisionRun",
    "RebuildRecord",
    "Results",
    "Telemetry",
    "WorstSample",
    "read_results",
    "write_results",
]

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ModelRecord:
    """The model under test. Shapes hold numbers, or a name where a size is dynamic."""

    name: str
    path: str
    sha256: str
    opset: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    nodes: int
    parameters: int


@dataclass(frozen=True)
class DatasetRecord:
    """The validation dataset. ``fingerprint`` covers source, preprocessing, sample ids and labels."""

    name: str
    recipe: str
    fingerprint: str
    samples: int
    preprocess: dict[str, Any]
    overlap_with_calibration: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CalibrationRecord:
    """A calibration cache that INT8 ranges came from.

    Attributes:
        name: Short name, unique in the results: "entropy", "minmax", or the file's.
        cache: The file.
        sha256: Its hash.
        header: Its first line.
        algorithm: The algorithm that the header states.
        tensors: Number of tensors with a scale.
        samples: Number of calibration samples; this and the following are None without a sidecar,
            since the cache alone does not tell.
        batch_size: Samples a batch of the calibration.
        seed: Seed of the choice of samples.
        dataset: Name of the calibration dataset.
        overlap: Number of validation samples that were calibrated on.
        scales_sha256: Hash of the scales alone, whatever the header states; empty where it is not known.
    """

    name: str
    cache: str
    sha256: str
    header: str
    algorithm: str
    tensors: int
    samples: int | None = None
    batch_size: int | None = None
    seed: int | None = None
    dataset: str | None = None
    overlap: int | None = None
    scales_sha256: str = ""


@dataclass(frozen=True)
class OutputError:
    """How far one output of a candidate is from the FP32 reference, over all samples.

    Attributes:
        output: The output's name.
        elements: Number of values compared.
        max_abs: Largest absolute error, in the output's unit.
        mean_abs: Mean absolute error, in the output's unit.
        cosine: Cosine similarity of the two outputs as flat vectors.
        sqnr_db: 10·log10(Σ reference² / Σ error²), in dB; None where there is no error, or no signal.
        reference_amax: Largest absolute value of the reference.
        non_finite: Number of values that are NaN or infinite in the candidate.
        reference_non_finite: The same, in the reference.
        note: Why a figure is None, or what to know about it.
        verdict: "differs", "equal", "candidate not finite", "both not finite", "baseline not finite"
            or "rows differ" (the number of rows, such as detections, is not the same).
        both_non_finite: Number of values that are NaN or infinite in both, at the same place.
        sqnr_low: Lower end of the SQNR's 95 % interval over samples; None where there is none.
        sqnr_high: Upper end.
        sqnr_method: How it was made.
        groups: Its columns apart, where their ranges are far from each other; else empty.
        powers: Σ reference² and Σ error² of each sample, packed by ``calib.validation.outcomes``; empty where
            the output has no row a sample.
    """

    output: str
    elements: int
    max_abs: float | None
    mean_abs: float | None
    cosine: float | None
    sqnr_db: float | None
    reference_amax: float | None
    non_finite: int = 0
    reference_non_finite: int = 0
    note: str = ""
    verdict: str = "differs"
    both_non_finite: int = 0
    sqnr_low: float | None = None
    sqnr_high: float | None = None
    sqnr_method: str | None = None
    powers: tuple[str, ...] = ()
    groups: tuple[ColumnGroup, ...] = ()


@dataclass(frozen=True)
class PrecisionRun:
    """One precision of the model on one runner.

    Attributes:
        label: What to call the run, unique in the results: "FP32", "INT8", or "INT8 entropy" where
            several calibrations are compared.
        precision: "fp32", "fp16" or "int8".
        runner: "onnxruntime", "tensorrt" or "pytorch".
        role: "baseline" for the FP32 reference, else "candidate".
        simulated: True where arithmetic of the precision is simulated in float.
        description: How the precision was made: "Q/DQ simulated in float …".
        outputs: Errors against the baseline, an entry an output; empty for the baseline.
        metrics: Accuracy figures.
        predictions: Top-1 class of every sample, in the order of ``Results.sample_ids``, −1 where
            its scores hold a NaN; None where the model is not a classifier.
        latency: None where latency was not measured.
        model_bytes: Size of the model file or engine that ran.
        quantized_tensors: Number of Q/DQ pairs; None where there are none to count.
        seconds: Time that inference of all samples took.
        calibration: Name of the calibration whose ranges it has; empty for FP32 and FP16.
        engine: The TensorRT engine that ran; None on other runners.
        outcomes: Metric → whether each sample is right, packed by ``calib.validation.outcomes``.
        draws: Metric → its bootstrap resamples, for metrics that are no share of right samples.
        class_metric: What ``classes`` holds: "recall", "AP", "IoU"; empty where there is nothing.
        classes: The figure of every class.
        confusions: Class, answer and how often, the most frequent first; right answers left out.
    """

    label: str
    precision: str
    runner: str
    role: Literal["baseline", "candidate"]
    simulated: bool
    description: str
    outputs: tuple[OutputError, ...]
    metrics: tuple[Metric, ...]
    predictions: tuple[int, ...] | None
    latency: Latency | None
    model_bytes: int
    quantized_tensors: int | None
    seconds: float
    calibration: str = ""
    engine: EngineRecord | None = None
    outcomes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    draws: dict[str, Draws] = field(default_factory=dict)
    class_metric: str = ""
    classes: tuple[ClassFigure, ...] = ()
    confusions: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class WorstSample:
    """A sample whose outputs moved most, or whose answer changed, in one precision.

    Attributes:
        precision: The candidate.
        sample_id: The sample's id.
        origin: File or index it came from.
        label: Its label as text, where there is one.
        baseline_class: Class that the baseline answers; None for non-classifiers.
        candidate_class: Class that the candidate answers.
        sqnr_db: SQNR of all this sample's float outputs against the baseline.
        max_abs: Largest absolute error.
        calibration: Name of the calibration of that candidate; empty for FP16.
        change: What changed in the answer, in words; empty for classes, and where nothing did.
        run: Label of the candidate; empty in results of before it was kept.
    """

    precision: str
    sample_id: str
    origin: str
    label: str | None
    baseline_class: int | None
    candidate_class: int | None
    sqnr_db: float | None
    max_abs: float | None
    calibration: str = ""
    change: str = ""
    run: str = ""

    def is_of(self, run: PrecisionRun) -> bool:
        """Whether a run moved it so; told by precision and calibration where no label was kept."""
        if self.run:
            return self.run == run.label
        return (self.precision, self.calibration) == (run.precision, run.calibration)


@dataclass(frozen=True)
class Environment:
    """The machine and software of a run."""

    machine: str
    system: str
    processor: str
    logical_cores: int
    memory_gib: float
    python: str
    packages: dict[str, str]
    gpu: str | None = None
    driver: str | None = None
    cuda: str | None = None
    tensorrt: str | None = None
    session_options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """Everything one ``calib validate`` run found.

    Attributes:
        schema: Version of this layout.
        calib_version: Version of calib that wrote it.
        created: UTC time, ISO 8601.
        command: How to repeat the run.
        task: What was judged: "classification", "detection" …; None where there were only outputs.
        model: The model under test.
        dataset: The validation dataset.
        runs: One for each precision, the baseline first; one for each calibration in INT8.
        sample_ids: Every sample, in the order of predictions.
        labels: Class number of every sample; None where unknown.
        worst: Samples that moved most.
        environment: The machine.
        calibrations: Where INT8 ranges came from, one for each calibration cache.
        warnings: What a reader must know before believing a figure.
        ratios: Latency of the runs against each other, measured on a GPU.
        telemetry: The GPU's clocks, power and temperature during the latency measurement.
        rebuilds: What differs between builds of one engine, where several were made.
        kernels: Integer kernels beside the simulation, where they were run.
        simulations: INT8 engines beside the simulation of their arithmetic.
        main_metric: The figure that speaks for the task; empty for results of classification and older ones.
        doubts: Those warnings that make FP32's own answers doubtful, and with them every verdict on INT8.
    """

    schema: int
    calib_version: str
    created: str
    command: str
    task: str | None
    model: ModelRecord
    dataset: DatasetRecord
    runs: tuple[PrecisionRun, ...]
    sample_ids: tuple[str, ...]
    labels: tuple[int, ...] | None
    worst: tuple[WorstSample, ...]
    environment: Environment
    calibrations: tuple[CalibrationRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    ratios: tuple[LatencyRatio, ...] = ()
    telemetry: Telemetry | None = None
    rebuilds: tuple[RebuildRecord, ...] = ()
    kernels: tuple[KernelDifference, ...] = ()
    simulations: tuple[SimulationDifference, ...] = ()
    main_metric: str = ""
    doubts: tuple[str, ...] = ()

    @property
    def baseline(self) -> PrecisionRun | None:
        """The FP32 run; None where there is none."""
        return next((run for run in self.runs if run.role == "baseline"), None)

    @property
    def judged_by(self) -> str:
        """The figure that speaks for the task: "top1" where nothing else is said."""
        return self.main_metric or "top1"

    def to_json(self) -> str:
        """The record as strict JSON, indented."""
        return _ADAPTER.dump_json(self, indent=1).decode("utf-8") + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "results") -> Results:
        """Reads what ``to_json`` wrote.

        Args:
            text: The JSON.
            source: The file's name, for messages.

        Raises:
            ValidationError: It is not JSON, of another schema version, or lacks fields.
        """
        try:
            results = _ADAPTER.validate_json(text)
        except _PydanticError as error:
            # Another schema has other fields: that explains what is missing.
            refuse_schema(stated_schema(text, "schema"), SCHEMA_VERSION, source, *_SCHEMA_WORDS)
            if stated_schema(text, "baseline_schema") is not None:
                raise ValidationError(
                    f"{source} is a baseline, not results. Give the results.json of calib validate; "
                    "calib check takes this file as --baseline."
                ) from error
            raise ValidationError(explain_faults(error, source, "results file")) from error
        refuse_schema(results.schema, SCHEMA_VERSION, source, *_SCHEMA_WORDS)
        return results


_ADAPTER = TypeAdapter(Results)
_SCHEMA_WORDS = ("results", "Run the validation again")


def write_results(results: Results, path: str | os.PathLike[str]) -> Path:
    """Writes results as JSON, whole or not at all."""
    return write_text(path, results.to_json())


def read_results(path: str | os.PathLike[str]) -> Results:
    """Reads a results file.

    Raises:
        ValidationError: There is no such file, it is too large, or not a results file.
    """
    return Results.from_json(read_bounded(path, "results file", ValidationError), os.fspath(path))
