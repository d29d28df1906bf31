"""Where an INT8 loss comes from: weights or activations, clipping or rounding, and on which output.

Parts of the simulated INT8 arithmetic are switched on one at a time, on the same samples as FP32 and the
whole of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from calib.data import Dataset, Recipe
from calib.errors import UsageError
from calib.progress import track
from calib.runners import OnnxRuntimeRunner, carrying
from calib.validation.columns import column_warnings
from calib.validation.comparison import Comparison, PrecisionFindings
from calib.validation.naming import RunName
from calib.validation.provenance import Calibration, read_calibrations
from calib.validation.results import Metric, OutputError
from calib.validation.subject import Subject, batches, open_subject, size_of_batches

if TYPE_CHECKING:
    from calib.graph import OnnxModel

__all__ = ["Decomposition", "PartLoss", "decompose"]

_WHOLE = "int8"
_WORDS = {
    _WHOLE: "weights and activations in INT8",
    "weights": "weights in INT8, activations in float",
    "activations": "activations in INT8, weights in float",
    "clipping": "activations cut to INT8's range, not rounded",
    "rounding": "activations rounded to INT8's steps, not cut",
}
_MOST = 0.6
_ADVICE = {
    "clipping": "wider ranges lose less: calibrate with minmax, or with a higher percentile",
    "rounding": "narrower ranges may lose less (percentile, mse, entropy), or keep the layers that lose most "
    "in float",
    "weights": "the calibration has no part in it: keep the layers that lose most in float, or train with "
    "quantization",
}


@dataclass(frozen=True)
class PartLoss:
    """What one part of the INT8 arithmetic costs by itself.

    Attributes:
        part: "int8" for the whole, "weights", "activations", "clipping" or "rounding".
        description: What is simulated.
        outputs: Errors of each output against FP32.
        noise_shares: Output → noise power of this part, divided by that of the whole INT8 arithmetic; None
            where either is not known. Parts are not quite independent, so their shares need not add up to 1.
        metrics: Accuracy figures, where the data has labels and the task is classification.
    """

    part: str
    description: str
    outputs: tuple[OutputError, ...]
    noise_shares: dict[str, float | None]
    metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True)
class Decomposition:
    """Where an INT8 loss comes from.

    Attributes:
        model: The model's file.
        cache: The calibration cache.
        dataset: Name of the validation dataset.
        samples: Number of samples.
        parts: The whole INT8 arithmetic first, then its parts.
        findings: For each output a sentence that says which part costs most, and what to do.
        warnings: What to doubt.
    """

    model: str
    cache: str
    dataset: str
    samples: int
    parts: tuple[PartLoss, ...]
    findings: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def part(self, name: str) -> PartLoss:
        """The part of that name."""
        return next(one for one in self.parts if one.part == name)

    def to_json(self) -> str:
        """The record as strict JSON, indented."""
        return _ADAPTER.dump_json(self, indent=1).decode("utf-8") + "\n"


_ADAPTER = TypeAdapter(Decomposition)


def decompose(
    model: str | os.PathLike[str] | OnnxModel,
    cache: str | os.PathLike[str],
    data: str | os.PathLike[str] | Recipe | Dataset,
    *,
    samples: int | None = None,
    batch_size: int = 32,
    seed: int | None = None,
    keep_float: Sequence[str] = (),
    scores: str | None = None,
    allow_overlap: bool = False,
    threads: int | None = None,
) -> Decomposition:
    """Says how much of an INT8 loss comes from weights, from activations, from clipping and from rounding.

    Args:
        model: The FP32 ONNX model, or its path.
        cache: The calibration cache.
        data: A recipe, its path or shipped name, or a dataset.
        samples: Number of validation samples; None for all.
        batch_size: Samples a batch. A model with a fixed batch size takes its own.
        seed: Seed of the choice of ``samples`` from a dataset from Python; recipes have their own.
        keep_float: Regular expressions of nodes (or their outputs) that stay in float.
        scores: The output that holds class scores; None finds it.
        allow_overlap: Use calibration samples too.
        threads: Threads within an operator; None for every core.

    Raises:
        CalibError: Model, data or cache cannot be used, with what and why.
    """
    from calib.graph import load_model

    if batch_size < 1:
        raise UsageError(f"Batch size must be at least 1, got {batch_size}.")
    (calibration,) = read_calibrations([cache])
    subject = open_subject(
        data, samples=samples, seed=seed, exclude=calibration.sample_ids, allow_overlap=allow_overlap
    )
    calibration.check(subject.recipe)
    network = load_model(model) if isinstance(model, (str, os.PathLike)) else model
    with ExitStack() as stack:
        runners = [
            stack.enter_context(runner) for runner in _runners(network, calibration, keep_float, threads)
        ]
        comparison = _compare(network, subject, runners, batch_size, scores)
    parts = _parts(comparison)
    return Decomposition(
        model=str(network.path),
        cache=str(calibration.path),
        dataset=subject.dataset.name,
        samples=len(subject.dataset),
        parts=parts,
        findings=_findings(parts),
        warnings=comparison.warnings(),
    )


def _runners(
    model: OnnxModel, calibration: Calibration, keep_float: Sequence[str], threads: int | None
) -> list[OnnxRuntimeRunner]:
    """FP32, the whole INT8 arithmetic, and each part."""
    from calib.graph import PARTS, quantize_model, quantize_part

    whole = quantize_model(model, calibration.cache, keep_float, target="onnxruntime").model
    parts = [quantize_part(model, calibration.cache, part, keep_float) for part in PARTS]
    return [
        OnnxRuntimeRunner(model, "fp32", threads=threads),
        *(OnnxRuntimeRunner(part, "int8", threads=threads) for part in (whole, *parts)),
    ]


def _compare(
    model: OnnxModel,
    subject: Subject,
    runners: Sequence[OnnxRuntimeRunner],
    batch_size: int,
    scores: str | None,
) -> Comparison:
    from calib.graph import FeedBuilder

    builder, dataset, fixed = FeedBuilder(model.inputs, str(model.path)), subject.dataset, model.fixed_batch
    names = [RunName("fp32"), *(RunName("int8", part, several=True) for part in _WORDS)]
    carried, context = carrying(runners, dataset.state), subject.context(model.metadata)
    comparison = Comparison(carried, dataset, task=subject.task, scores=scores, names=names, context=context)
    size = size_of_batches(dataset, batch_size, fixed)
    total = ceil(len(dataset) / size)
    for batch, fed in track(batches(dataset, size, fixed), total, "Decomposing"):
        comparison.add(batch, builder.feeds(fed), len(fed))
    return comparison


def _parts(comparison: Comparison) -> tuple[PartLoss, ...]:
    candidates = comparison.findings[1:]
    whole = {output.output: _noise(output) for output in candidates[0].output_errors()}
    return tuple(_part_loss(comparison, found, whole) for found in candidates)


def _part_loss(comparison: Comparison, found: PrecisionFindings, whole: dict[str, float | None]) -> PartLoss:
    part = found.name.calibration
    shares = {output.output: _share(_noise(output), whole[output.output]) for output in found.output_errors()}
    outputs = found.judged_outputs()
    return PartLoss(part, _WORDS[part], outputs, shares, comparison.metrics(found))


def _noise(output: OutputError) -> float | None:
    """Noise power over signal power, 10^(−SQNR/10); 0 where there is no error."""
    if output.verdict == "equal":
        return 0.0
    return None if output.sqnr_db is None else math.pow(10.0, -output.sqnr_db / 10)


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _findings(parts: Sequence[PartLoss]) -> tuple[str, ...]:
    by_name = {part.part: part for part in parts}
    found = []
    for output in by_name[_WHOLE].outputs:
        shares = {name: one.noise_shares for name, one in by_name.items()}
        found.append(_finding(output.output, output.sqnr_db, shares))
        found += [
            f"{text[0].upper()}{text[1:]}"
            for text in column_warnings(output.output, output.sqnr_db, output.groups)
        ]
    return tuple(found)


def _finding(output: str, sqnr_db: float | None, shares: dict[str, dict[str, float | None]]) -> str:
    """One output's loss in words."""
    known = {
        name: share
        for name in ("weights", "activations", "clipping", "rounding")
        if (share := shares[name][output]) is not None
    }
    if sqnr_db is None or len(known) < 4:
        return f"{output}: the noise cannot be divided: there is none, or outputs cannot be compared."
    listed = ", ".join(f"{name} {100 * share:.0f}%" for name, share in known.items())
    most = max(("weights", "clipping", "rounding"), key=lambda name: known[name])
    advice = f" Most comes from {most}: {_ADVICE[most]}." if known[most] >= _MOST else " No part dominates."
    return f"{output}: SQNR {sqnr_db:.1f} dB; noise of each part by itself: {listed}.{advice}"
