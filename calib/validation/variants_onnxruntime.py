"""The precisions of one model on ONNX Runtime's CPU provider: FP32, and FP16 and INT8 simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calib.errors import UsageError
from calib.runners import OnnxRuntimeRunner
from calib.validation.naming import RunName
from calib.validation.options import Options
from calib.validation.provenance import Calibration
from calib.validation.variants import Variant
from calib.wording import counted

if TYPE_CHECKING:
    from calib.graph import HalfModel, OnnxModel, QuantizedModel
    from calib.graph.targets import Treatment

__all__ = ["make", "make_reference", "make_simulation"]


def make(model: OnnxModel, options: Options, calibrations: Sequence[Calibration]) -> Iterator[Variant]:
    """Makes the precisions of a model, one after another, and opens their runners.

    Args:
        model: The FP32 model.
        options: Precisions, nodes that stay in float, threads.
        calibrations: The scales for "int8", which is made once with each; "fp16" takes their ranges.

    Raises:
        UsageError: "int8" without scales.
        ModelError: The model cannot be converted or run.
    """
    for precision in options.precisions:
        if precision != "int8":
            yield _float(model, precision, calibrations, options.threads)
            continue
        if not calibrations:
            raise UsageError("INT8 needs a calibration cache.")
        # True of every calibration, and said of the first.
        warnings = _in_float_for_tensorrt_8(model)
        for calibration in calibrations:
            for variant in _int8(model, calibration, options):
                yield replace(variant, warnings=(*variant.warnings, *warnings))
                warnings = ()


def make_reference(model: OnnxModel, options: Options) -> Variant:
    """The FP32 run that the other runners are compared with too.

    Args:
        model: The FP32 model.
        options: Threads.

    Raises:
        ModelError: ONNX Runtime refuses the model.
    """
    return _float(model, "fp32", (), options.threads)


def make_simulation(
    model: OnnxModel, calibration: Calibration, options: Options, conv_transpose: Treatment = "int8"
) -> Variant:
    """The simulation of INT8 that an engine of the same scales is compared with.

    Args:
        model: The FP32 model.
        calibration: The scales.
        options: Nodes that stay in float, threads.
        conv_transpose: What transposed convolutions are in the engine.
    """
    from calib.graph import quantize_model

    quantized = quantize_model(
        model,
        calibration.cache,
        options.keep_float,
        target="onnxruntime",
        conv_transpose=conv_transpose,
    )
    found = _simulated(quantized, calibration, options.threads)
    return replace(found, name=replace(calibration.run, form="simulation"))


def _float(
    model: OnnxModel, precision: str, calibrations: Sequence[Calibration], threads: int | None
) -> Variant:
    if precision == "fp16":
        return _half(model, calibrations, threads)
    runner = OnnxRuntimeRunner(model, "fp32", threads=threads)
    return _variant(RunName("fp32"), runner, f"The model as it is; {runner.note}.")


def _half(model: OnnxModel, calibrations: Sequence[Calibration], threads: int | None) -> Variant:
    from calib.graph import convert_float16

    ranges = _largest(calibrations)
    half = convert_float16(model, ranges=None if ranges is None else ranges.path)
    runner = OnnxRuntimeRunner(half.model, "fp16", threads=threads)
    source = "without ranges" if ranges is None else f"by the ranges of {ranges.path.name}"
    nodes = f"{counted(half.converted, 'node[s]')}, {len(half.kept)} kept in float32"
    description = f"Converted from FP32 {source}: {nodes}; {runner.note}."
    return _variant(RunName("fp16"), runner, description, warnings=_mostly_float32(half, source))


def _mostly_float32(half: HalfModel, source: str) -> tuple[str, ...]:
    """That FP16 is FP32 for the most part, and so nearer to it than an FP16 engine would be."""
    if len(half.kept) <= half.converted:
        return ()
    first = half.kept[0]
    return (
        f"FP16 {source} keeps {len(half.kept)} of {counted(len(half.kept) + half.converted, 'node[s]')} in "
        f"float32, for one {first.op} {first.node}: {first.reason}. If its ranges are far too large, the "
        "calibration's data are scaled otherwise than the model wants them (calib data check).",
    )


def _largest(calibrations: Sequence[Calibration]) -> Calibration | None:
    """The calibration that says most of how large values become: min-max ranges hold the largest."""
    exact = (found for found in calibrations if found.cache.algorithm == "MinMaxCalibration")
    return next(exact, next(iter(calibrations), None))


def _variant(
    name: RunName,
    runner: OnnxRuntimeRunner,
    description: str,
    pairs: int | None = None,
    warnings: tuple[str, ...] = (),
) -> Variant:
    # Whatever a CPU takes, TensorRT takes something else.
    return Variant(name, runner, description, pairs, simulated_latency=True, warnings=warnings)


def _int8(model: OnnxModel, calibration: Calibration, options: Options) -> Iterator[Variant]:
    from calib.graph import quantize_model

    # Takes any opset; its pairs stand where those of TensorRT 10 and 11 do.
    quantized = quantize_model(model, calibration.cache, options.keep_float, target="onnxruntime")
    yield _simulated(quantized, calibration, options.threads)
    if options.integer_kernels:
        yield _integer(quantized, calibration, options.threads)


def _integer(quantized: QuantizedModel, calibration: Calibration, threads: int | None) -> Variant:
    """The same Q/DQ model as ONNX Runtime would run it by itself: fused into integer kernels."""
    runner = OnnxRuntimeRunner(quantized.model, "int8", threads=threads, integer_kernels=True)
    name = replace(calibration.run, form="integer kernels")
    variant = _variant(name, runner, f"The Q/DQ model of {calibration.run.label}; {runner.note}.")
    pairs = len(quantized.pairs)
    return replace(
        variant, quantized_tensors=pairs, scales=calibration.cache, simulation=calibration.run.label
    )


def _simulated(quantized: QuantizedModel, calibration: Calibration, threads: int | None) -> Variant:
    runner = OnnxRuntimeRunner(quantized.model, "int8", threads=threads)
    left = len(quantized.left_float)
    description = (
        f"Scales of {calibration.path.name} ({calibration.cache.header}) as {len(quantized.pairs)} Q/DQ "
        f"pairs, {len(quantized.activations)} of them on activations; "
        f"{counted(left, 'quantizable node[s]')} left in float; {runner.note}."
    )
    label = calibration.run.label
    warnings = (
        *_left_in_float(label, quantized),
        *(f"{label}: {text}" for text in quantized.explanation.warnings),
    )
    return _variant(calibration.run, runner, description, len(quantized.pairs), warnings)


def _in_float_for_tensorrt_8(model: OnnxModel) -> tuple[str, ...]:
    """That TensorRT 8.6 gets another model, where the network has attention or transposed convolutions."""
    from calib.graph import count_attention, count_transposed

    attention, transposed = count_attention(model), count_transposed(model)
    found = []
    if attention:
        nodes = counted(attention, "node[s]")
        found.append(f"{nodes} of attention, or around it, in float, which it runs faster in FP16")
    if transposed:
        count = counted(transposed, "transposed convolution[s]")
        found.append(f"{count} in float, whose INT8 outputs it builds at level 0 alone")
    if not found:
        return ()
    return (
        "INT8 is simulated as TensorRT 10 and 11 compute it. For TensorRT 8.6 calib quantize leaves "
        f"{'; and '.join(found)}.",
    )


def _left_in_float(label: str, quantized: QuantizedModel) -> tuple[str, ...]:
    from calib.graph.explanation import left_in_words

    return (f"{label} leaves {left_in_words(quantized.left_float)}.",) if quantized.left_float else ()
