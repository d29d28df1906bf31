"""From a float model and a calibration cache to a model with explicit Q/DQ nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from calib.calibrators import CalibrationCache, read_sidecar
from calib.calibrators.amax import amax_of
from calib.calibrators.provenance import cache_files
from calib.errors import CacheError, ModelError, first_names
from calib.files import check_apart, check_writable
from calib.graph.cache_model import compare_names, lint_provenance, name_faults
from calib.graph.explanation import Explanation, explain_float, explanation_notes
from calib.graph.external import check_model_path, write_model
from calib.graph.graph_view import GraphView
from calib.graph.half import convert_float16
from calib.graph.intake import OnnxModel, load_model
from calib.graph.operators import WEIGHTED
from calib.graph.placement import LeftFloat, Plan, plan_placement
from calib.graph.qdq_writer import Pair, QdqWriter
from calib.graph.quantizable import quantizable
from calib.graph.subgraphs import nodes_inside
from calib.graph.targets import DEFAULT_TARGET, FloatType, Treatment, find_target, stays_float, typed_target
from calib.graph.validity import check_valid
from calib.wording import sentence

__all__ = ["Pair", "QuantizedModel", "quantize", "quantize_model"]


_UNUSABLE = ("the scale of its input", "the scale of its float16 input")
"""How reasons begin of a node whose input has a scale that cannot be used."""

_NO_DAMAGE = ("zero", "subnormal")
"""What scales of tensors are that the calibration data leave at zero, or all but."""

_HALF_WEIGHT = "is float16, not float32"
"""How reasons end of a weight that the target has no scales for; tensors may have float16 in their names."""

_OVERRULED = ("--attention int8", "--conv-transpose int8")
"""What reasons say of a node that the target alone leaves in float."""


@dataclass(frozen=True)
class QuantizedModel:
    """A model with Q/DQ nodes, and what was done.

    Attributes:
        model: The model.
        pairs: Every pair placed, in network order, weights included.
        left_float: Nodes that could be quantized and were not, with the reason.
        notes: What else happened, such as a raised opset, and warnings.
        explanation: Why each pair stands where it stands, and each other node is float.
        target: The runtime that it is made for.
        kept_float32: Where the rest is float16: nodes that stay in float32, with the reason.
    """

    model: OnnxModel
    pairs: tuple[Pair, ...]
    left_float: tuple[LeftFloat, ...]
    notes: tuple[str, ...]
    explanation: Explanation
    target: str = DEFAULT_TARGET
    kept_float32: tuple[LeftFloat, ...] = ()

    @property
    def activations(self) -> tuple[Pair, ...]:
        """The pairs on activations."""
        return tuple(pair for pair in self.pairs if not pair.weight)


def quantize(
    model: str | os.PathLike[str] | OnnxModel,
    cache: str | os.PathLike[str] | CalibrationCache,
    *,
    out: str | os.PathLike[str] | None = None,
    keep_float: Sequence[str] = (),
    strict: bool = False,
    target: str = DEFAULT_TARGET,
    share_scales: bool = False,
    float_type: FloatType = "fp32",
    attention: Treatment = "auto",
    conv_transpose: Treatment = "auto",
) -> QuantizedModel:
    """Writes the scales of a calibration cache into a model as Q/DQ nodes.

    Args:
        model: The float model, or its path.
        cache: The cache, or its path.
        out: Where to write the model; None writes nothing.
        keep_float: Regular expressions of nodes (or their outputs) that stay in float.
        strict: Refuse a cache that does not fit the model whole: entries that name nothing in it, float
            activations without an entry, scales that no calibration should give or that leave a node in
            float, other weights or another graph than it was made from.
        target: The runtime that shall read it, one of ``calib.graph.targets.TARGETS``.
        share_scales: Give one scale to all tensors that a Concat or an operator that only moves values joins
            and whose ranges are at most 16 times apart, so that TensorRT need not rescale between them.
            Otherwise tensors that several quantized branches read share theirs with what these come to, where
            none becomes more than twice as coarse, and all others keep the cache's.
        float_type: "fp16" converts what is not INT8 to float16, scales included, where the cache's ranges
            allow it: the strongly typed form of TensorRT's "best" precision.
        attention: What becomes of MatMul and Gemm in a network with attention: "int8", "float", or "auto":
            float for TensorRT 8.6, where pairs on them are slower than FP16.
        conv_transpose: What becomes of transposed convolutions: "int8", "float", or "auto": float for
            TensorRT 8.6, which builds no engine above level 0 where their output is INT8.

    Returns:
        The model and what was placed; its notes say how well the cache fits.

    Raises:
        CalibError: Model or cache cannot be used, with what and why; nothing is written then.
    """
    find_target(target)
    if out is not None:
        check_writable(out)
        check_apart(out, cache_files(cache))
    network = model if isinstance(model, OnnxModel) else load_model(model)
    scales = cache if isinstance(cache, CalibrationCache) else CalibrationCache.read(cache)
    if out is not None:
        check_model_path(out, network)
    fit = _fit(network, scales, None if isinstance(cache, CalibrationCache) else cache)
    if strict:
        _refuse_misfit(network, fit, fit.faults)
    result = quantize_model(
        network,
        scales,
        keep_float,
        target=target,
        share_scales=share_scales,
        float_type=float_type,
        attention=attention,
        conv_transpose=conv_transpose,
    )
    if strict:
        _refuse_misfit(
            network, fit, [left.reason for left in result.left_float if left.reason.startswith(_UNUSABLE)]
        )
    if out is not None:
        write_model(result.model, out)
    return replace(result, notes=(*result.notes, *fit.faults, fit.summary))


def _refuse_misfit(model: OnnxModel, fit: _Fit, faults: Sequence[str]) -> None:
    if faults:
        raise CacheError(
            f"The cache does not fit {model.path}. {' '.join((*map(sentence, faults), fit.summary))}"
        )


@dataclass(frozen=True)
class _Fit:
    """How well a cache fits a model, in words."""

    summary: str
    faults: tuple[str, ...]


def _fit(model: OnnxModel, cache: CalibrationCache, path: str | os.PathLike[str] | None) -> _Fit:
    names = compare_names(cache, model)
    sidecar = None if path is None else read_sidecar(path)
    # That it is another model's is what explains the rest.
    faults = [sentence(found.message) for found in (lint_provenance(sidecar, model) if sidecar else ())]
    faults += name_faults(names, model)
    spoiled = [f"{name} ({why})" for name, why in cache.unusable.items() if why not in _NO_DAMAGE]
    if spoiled:
        faults.append(f"Scales that no calibration should give: {first_names(spoiled)}.")
    return _Fit(names.summary, tuple(faults))


def quantize_model(
    model: OnnxModel,
    cache: Mapping[str, float],
    keep_float: Sequence[str] = (),
    *,
    target: str = DEFAULT_TARGET,
    share_scales: bool = False,
    float_type: FloatType = "fp32",
    attention: Treatment = "auto",
    conv_transpose: Treatment = "auto",
) -> QuantizedModel:
    """Adds Q/DQ nodes to a model: symmetric INT8, zero points 0, weights per channel, bias in float.

    Names, types and shapes of the model's inputs and outputs stay as they are.

    Args:
        model: The float model.
        cache: Tensor → scale.
        keep_float: Regular expressions of nodes (or their outputs) that stay in float.
        target: The runtime that shall read it, one of ``calib.graph.targets.TARGETS``.
        share_scales: Give one scale to all tensors that a Concat or an operator that only moves values joins
            and whose ranges are at most 16 times apart, so that TensorRT need not rescale between them.
            Otherwise tensors that several quantized branches read share theirs with what these come to, where
            none becomes more than twice as coarse, and all others keep the cache's.
        float_type: As in ``quantize``; ``cache`` bounds the values as a calibration cache does, and as
            exact ranges if it is another mapping.
        attention: As in ``quantize``.
        conv_transpose: As in ``quantize``.

    Raises:
        ModelError: The model is quantized already, its opset is none for the target, or nothing in it
            can be quantized.
        UsageError: A regular expression finds nothing, the target is unknown or has no float16 scales, or
            ranges were given in place of scales.
    """
    form = typed_target(find_target(target), float_type)
    half = float_type == "fp16"
    model.refuse_quantized("Give the float model that it was made from.")
    source = quantizable(model, form)
    proto = source.proto
    plan = plan_placement(
        proto,
        cache,
        keep_float,
        share=share_scales,
        float_attention=stays_float("--attention", attention, form.float_attention),
        float_conv_transpose=stays_float("--conv-transpose", conv_transpose, form.float_conv_transpose),
        half=source.half,
    )
    if not plan.weights:
        raise ModelError(
            f"Nothing in {model.path} can be quantized with this cache. {_why_nothing(plan, proto, cache)}"
        )
    groups, subgraphs = explain_float(GraphView(proto, cache), plan)
    multiplies = any(node.op_type == "MatMul" for node in proto.graph.node)
    float_weights = multiplies and form.weights == "but for matmul"
    writer = QdqWriter(proto, cache, float_weights=float_weights, half_scales=half)
    pairs = tuple(writer.apply(plan))
    result = OnnxModel(model.path.with_suffix(".int8.onnx"), proto, model.external_files)
    check_valid(result, "quantized", model)
    left = tuple(plan.left_float)
    explanation = Explanation(pairs, left, groups, subgraphs, tuple(plan.shared), tuple(plan.warnings))
    notes = (*source.notes, *explanation_notes(explanation))
    quantized = QuantizedModel(result, pairs, left, notes, explanation, form.name)
    return _with_half_rest(quantized, cache) if half else quantized


def _with_half_rest(quantized: QuantizedModel, cache: Mapping[str, float]) -> QuantizedModel:
    ranges = cache if isinstance(cache, CalibrationCache) else {n: amax_of(s) for n, s in cache.items()}
    half = convert_float16(quantized.model, ranges=ranges)
    model = OnnxModel(quantized.model.path, half.model.proto, quantized.model.external_files)
    notes = (*quantized.notes, *half.notes)
    return replace(quantized, model=model, notes=notes, kept_float32=half.kept)


def _why_nothing(plan: Plan, proto: onnx.ModelProto, cache: Mapping[str, float]) -> str:
    if not plan.left_float:
        return _nothing_with_a_weight(proto)
    first = plan.left_float[0]
    if any(option in left.reason for left in plan.left_float for option in _OVERRULED):
        return (
            f"{first.op} {first.node!r}: {first.reason}. Build it in FP16 (calib build --precision fp16), or "
            "quantize it for another --target."
        )
    if all(left.reason.endswith(_HALF_WEIGHT) for left in plan.left_float):
        return (
            f"{first.op} {first.node!r}: {first.reason}. Give the float32 model, of which the "
            "builder's flag makes FP16, or choose --target tensorrt-10 or later, which read float16 scales."
        )
    ask = f" {_whose(cache, proto)}" if first.reason.startswith("no scale") else ""
    return f"For one, {first.op} {first.node!r}: {first.reason}.{ask}"


def _whose(cache: Mapping[str, float], proto: onnx.ModelProto) -> str:
    """That the cache may be another model's, or names tensors as another exporter does."""
    names = compare_names(cache, OnnxModel(Path(), proto))
    hints = [f"{name} for {near}" for name, near in names.nearest.items()]
    if not hints:
        return "Does the cache belong to this model?"
    return f"Does it name tensors otherwise: {first_names(hints)}? calib cache rename changes names."


def _nothing_with_a_weight(proto: onnx.ModelProto) -> str:
    """Where nodes with a weight are if not in the main graph, into which alone pairs go."""
    inside = [node for outer in proto.graph.node for node in nodes_inside(outer)]
    functions = [node for function in proto.functions for node in function.node]
    none = "It has no Conv, ConvTranspose, Gemm or MatMul"
    if any(node.op_type in WEIGHTED for node in functions):
        return (
            f"{none} but in its functions ({first_names([f.name for f in proto.functions])}). Put them into "
            "the graph, calibrate and quantize that: "
            "import onnx.inliner; onnx.inliner.inline_local_functions(onnx.load(PATH))."
        )
    return (
        f"{none} but inside If, Loop or Scan." if any(n.op_type in WEIGHTED for n in inside) else f"{none}."
    )
