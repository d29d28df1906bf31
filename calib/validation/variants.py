"""The precisions of one model, each as a runner on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calib.errors import UsageError
from calib.runners import OnnxRuntimeRunner
from calib.validation.naming import RunName
from calib.validation.provenance import Calibration

if TYPE_CHECKING:
    from calib.graph import OnnxModel, QuantizedModel

__all__ = ["Variant", "make_variants"]


@dataclass(frozen=True)
class Variant:
    """A model in one precision.

    Attributes:
        name: What the run is called.
        runner: Runs it.
        description: How the precision was made.
        quantized_tensors: Number of Q/DQ pairs; None for FP32 and FP16.
        warnings: What a reader must know of it.
    """

    name: RunName
    runner: OnnxRuntimeRunner
    description: str
    quantized_tensors: int | None = None
    warnings: tuple[str, ...] = ()


def make_variants(
    model: OnnxModel,
    precisions: Sequence[str],
    calibrations: Sequence[Calibration],
    *,
    keep_float: Sequence[str] = (),
    threads: int | None = None,
) -> Iterator[Variant]:
    """Makes the precisions of a model, one after another, and opens their runners.

    Args:
        model: The FP32 model.
        precisions: "fp32", "fp16" or "int8".
        calibrations: The scales for "int8", which is made once with each; "fp16" takes their ranges.
        keep_float: Regular expressions of nodes that stay in float, for "int8".
        threads: Threads within an operator; None for every core.

    Raises:
        UsageError: "int8" without scales.
        ModelError: The model cannot be converted or run.
    """
    for precision in precisions:
        if precision != "int8":
            yield _float(model, precision, calibrations, threads)
            continue
        if not calibrations:
            raise UsageError("INT8 needs a calibration cache.")
        for calibration in calibrations:
            yield _int8(model, calibration, keep_float, threads)


def _float(
    model: OnnxModel, precision: str, calibrations: Sequence[Calibration], threads: int | None
) -> Variant:
    if precision == "fp16":
        return _half(model, calibrations, threads)
    runner = OnnxRuntimeRunner(model, "fp32", threads=threads)
    return Variant(RunName("fp32"), runner, f"The model as it is; {runner.note}.")


def _half(model: OnnxModel, calibrations: Sequence[Calibration], threads: int | None) -> Variant:
    from calib.graph import convert_float16

    ranges = _largest(calibrations)
    half = convert_float16(model, ranges=None if ranges is None else ranges.path)
    runner = OnnxRuntimeRunner(half.model, "fp16", threads=threads)
    source = "without ranges" if ranges is None else f"by the ranges of {ranges.path.name}"
    nodes = f"{half.converted} nodes, {len(half.kept)} kept in float32"
    description = f"Converted from FP32 {source}: {nodes}; {runner.note}."
    return Variant(RunName("fp16"), runner, description)


def _largest(calibrations: Sequence[Calibration]) -> Calibration | None:
    """The calibration that says most of how large values become: min-max ranges hold the largest."""
    exact = (found for found in calibrations if found.cache.algorithm == "MinMaxCalibration")
    return next(exact, next(iter(calibrations), None))


def _int8(
    model: OnnxModel, calibration: Calibration, keep_float: Sequence[str], threads: int | None
) -> Variant:
    from calib.graph import quantize_model

    # The pairs of every target stand at the same places; this one takes any opset.
    quantized = quantize_model(model, calibration.cache, keep_float, target="onnxruntime")
    runner = OnnxRuntimeRunner(quantized.model, "int8", threads=threads)
    left = len(quantized.left_float)
    description = (
        f"Scales of {calibration.path.name} ({calibration.cache.header}) as {len(quantized.pairs)} Q/DQ "
        f"pairs, {len(quantized.activations)} of them on activations; "
        f"{left} quantizable nodes left in float; {runner.note}."
    )
    warnings = _left_in_float(calibration.run.label, quantized)
    return Variant(calibration.run, runner, description, len(quantized.pairs), warnings)


def _left_in_float(label: str, quantized: QuantizedModel) -> tuple[str, ...]:
    if not quantized.left_float:
        return ()
    shown = "; ".join(f"{left.node} ({left.reason})" for left in quantized.left_float[:5])
    more = len(quantized.left_float) - 5
    rest = f"; and {more} more" if more > 0 else ""
    return (f"{label} leaves {len(quantized.left_float)} quantizable nodes in float: {shown}{rest}.",)
