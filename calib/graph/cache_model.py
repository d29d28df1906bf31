"""A calibration cache beside a model: whose tensors it names, and whether it was made from that model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import onnx

from calib.calibrators import Sidecar
from calib.calibrators.cache_lint import Finding
from calib.calibrators.cache_names import helper_reason, nearest_names
from calib.errors import first_names
from calib.graph.dependence import data_dependent_outputs
from calib.graph.infinite_masks import infinite_masks
from calib.graph.intake import OnnxModel
from calib.graph.subgraphs import all_graphs, inner_graphs
from calib.wording import sentence

__all__ = [
    "NameComparison",
    "compare_names",
    "lint_against_model",
    "lint_provenance",
    "name_faults",
    "without_large_weights",
]

_FLOATS = frozenset(
    {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.BFLOAT16,
    }
)
# Constants up to this size are kept for shape inference, which reads shapes and axes from them.
_SMALL = 4096


@dataclass(frozen=True)
class NameComparison:
    """Names in a cache against the float activations of a model.

    Attributes:
        matched: Float activations that have an entry, in network order.
        only_cache: Entries that name nothing in the model.
        only_model: Float activations without an entry, in network order; masks with minus infinity need none.
        apart: Entries that name no float activation, for a reason: helper layers, constants, integers.
        unknown: Tensors without an entry whose type is unknown, as behind custom operators.
        nearest: Name of ``only_cache`` → the tensor of ``only_model`` that it may stand for.
    """

    matched: tuple[str, ...]
    only_cache: tuple[str, ...]
    only_model: tuple[str, ...]
    apart: Mapping[str, str]
    unknown: tuple[str, ...]
    nearest: Mapping[str, str]

    @property
    def summary(self) -> str:
        """The counts in words."""
        return (
            f"Names: {len(self.matched)} matched, {len(self.only_cache)} only in the cache, "
            f"{len(self.only_model)} only in the model (float activations), "
            f"{len(self.apart)} of helper layers, constants and integers."
        )


def compare_names(names: Iterable[str], model: OnnxModel) -> NameComparison:
    """Compares a cache's names with a model's, in three ways: in both, only here, only there.

    Args:
        names: The cache's tensor names.
        model: The model.
    """
    entries = dict.fromkeys(names)
    activations = _activations(model)
    floats = [name for name, kind in activations.items() if kind in _FLOATS]
    unknown = [name for name, kind in activations.items() if kind == onnx.TensorProto.UNDEFINED]
    usable = set(floats) | set(unknown)
    reasons = _Reasons(model.proto.graph, activations)
    apart = {name: reason for name in entries if name not in usable and (reason := reasons.of(name))}
    only_cache = tuple(name for name in entries if name not in usable and name not in apart)
    masked = infinite_masks(model.proto.graph)
    only_model = tuple(name for name in floats if name not in entries and name not in masked)
    nearest = nearest_names(only_cache, (*only_model, *(name for name in unknown if name not in entries)))
    return NameComparison(
        tuple(name for name in activations if name in usable and name in entries),
        only_cache,
        only_model,
        MappingProxyType(apart),
        tuple(name for name in unknown if name not in entries),
        MappingProxyType(nearest),
    )


def lint_against_model(names: Iterable[str], model: OnnxModel) -> tuple[NameComparison, list[Finding]]:
    """Findings on names that are missing in a model, or foreign to it.

    Args:
        names: The cache's tensor names.
        model: The model.
    """
    entries = list(names)
    comparison = compare_names(entries, model)
    return comparison, [*_no_match(comparison, model), *_by_tensor(comparison, model)]


def name_faults(comparison: NameComparison, model: OnnxModel) -> list[str]:
    """What of a cache's names does not fit a model, in sentences that name the first few.

    Args:
        comparison: The names beside the model's.
        model: The model.
    """
    faults = [sentence(finding.message) for finding in _no_match(comparison, model)]
    if comparison.only_cache:
        hints = [f"{name} (did you mean {near!r}?)" for name, near in comparison.nearest.items()]
        others = [name for name in comparison.only_cache if name not in comparison.nearest]
        way = " calib cache rename changes names." if hints else ""
        faults.append(f"Entries that name nothing in the model: {first_names([*hints, *others])}.{way}")
    if comparison.only_model:
        faults.append(f"Float activations without an entry: {first_names(comparison.only_model)}.")
    return faults


def _no_match(comparison: NameComparison, model: OnnxModel) -> Iterator[Finding]:
    # Names such as "input" and "output" are the same in many models.
    ends = {info.name for info in (*model.proto.graph.input, *model.proto.graph.output)}
    matched = set(comparison.matched)
    if matched - ends or (matched and len(comparison.only_model) <= len(matched)):
        return
    text = (
        f"no entry names a float activation inside {model.path}: this cache belongs to another model, or to "
        "this one as another exporter named its tensors."
    )
    yield Finding("names-of-another-model", "error", None, text)


def _by_tensor(comparison: NameComparison, model: OnnxModel) -> Iterator[Finding]:
    for name in comparison.only_cache:
        near = comparison.nearest.get(name)
        hint = f" Did you mean {near!r}? calib cache rename changes names." if near else ""
        yield Finding("name-foreign", "warning", name, f"names no tensor of {model.path.name}.{hint}")
    for name in comparison.only_model:
        text = f"is a float activation of {model.path.name} without an entry: what reads it stays in float."
        yield Finding("name-missing", "warning", name, text)
    for name, reason in comparison.apart.items():
        yield Finding("name-apart", "note", name, f"names no float activation of the model: {reason}.")
    for name in comparison.unknown:
        text = "has no entry; whether it is a float activation is unknown: its operator is not ONNX's own."
        yield Finding("type-unknown", "note", name, text)


def lint_provenance(sidecar: Sidecar, model: OnnxModel) -> list[Finding]:
    """Findings on a cache that was made from other weights or another graph than a model has.

    Args:
        sidecar: The cache's sidecar.
        model: The model.
    """
    if sidecar.model_sha256 == model.sha256:
        return []
    graph, weights = model.content_hashes()
    if (
        sidecar.model != model.path.name
        and graph != sidecar.graph_sha256
        and weights != sidecar.weights_sha256
    ):
        text = (
            f"the cache was made from {sidecar.model} ({sidecar.created}), another model than {model.path}: "
            "neither weights nor graph are the same. Calibrate this one."
        )
        return [Finding("another-model", "error", None, text)]
    made = f"since the cache was made from {sidecar.model} ({sidecar.created})"
    findings = []
    if sidecar.weights_sha256 != weights:
        text = f"the weights of {model.path} have changed {made}: its ranges are not this model's. "
        findings.append(Finding("weights-changed", "error", None, text + "Calibrate again."))
    if sidecar.graph_sha256 != graph:
        text = (
            f"the graph of {model.path} has changed {made}. Calibrate again, or see that names still match."
        )
        findings.append(Finding("graph-changed", "warning", None, text))
    return findings


class _Reasons:
    """Why a name that a cache has is no float activation of the main graph."""

    def __init__(self, graph: onnx.GraphProto, activations: Mapping[str, int]) -> None:
        self._constants = {tensor.name for tensor in graph.initializer}
        self._constants |= {name for node in graph.node for name in node.output if name not in activations}
        self._integers = set(activations)
        self._nodes = {node.name for node in graph.node if node.name}
        self._inner = set(_inner_names(graph))

    def of(self, name: str) -> str:
        """The reason; empty for a name that is nowhere in the model."""
        if name in self._constants:
            return "a constant of the model"
        if name in self._integers:
            return "a tensor that is not float"
        if name in self._inner:
            return "a tensor inside an If, Loop or Scan"
        return helper_reason(name) or self._helper(name)

    def _helper(self, name: str) -> str:
        owner, _, rest = name.rpartition("_output")
        if rest or not owner:
            return ""
        if owner in self._constants:
            return "output of the layer that TensorRT makes of a constant"
        return "output of a layer that TensorRT made of a node" if owner in self._nodes else ""


def _inner_names(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        for outer in inner_graphs(node):
            for inner in all_graphs(outer):
                yield from (tensor.name for tensor in inner.initializer)
                yield from (name for found in inner.node for name in found.output if name)


def _activations(model: OnnxModel) -> dict[str, int]:
    """Inputs and tensors that depend on them → element type, in network order; UNDEFINED if unknown."""
    weights = {tensor.name for tensor in model.proto.graph.initializer}
    names = [info.name for info in model.proto.graph.input if info.name not in weights]
    names += data_dependent_outputs(model.proto.graph)
    types = _element_types(model.proto)
    return {name: types.get(name, onnx.TensorProto.UNDEFINED) for name in names}


def _element_types(proto: onnx.ModelProto) -> dict[str, int]:
    light = without_large_weights(proto)
    try:
        light = onnx.shape_inference.infer_shapes(light)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        # An inconsistent graph still says the types of its inputs, outputs and annotated tensors.
        light = without_large_weights(proto)
    graph = light.graph
    infos = (*graph.value_info, *graph.input, *graph.output)
    known = {info.name: info.type.tensor_type.elem_type for info in infos}
    return {name: kind for name, kind in known.items() if kind}


def without_large_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its large weights as typed inputs, which type inference takes as well."""
    light = onnx.ModelProto(ir_version=max(proto.ir_version, 4), opset_import=proto.opset_import)
    light.functions.extend(proto.functions)
    graph = light.graph
    graph.name = proto.graph.name or "graph"
    graph.node.extend(proto.graph.node)
    graph.output.extend(proto.graph.output)
    graph.value_info.extend(proto.graph.value_info)
    large = {tensor.name: tensor for tensor in proto.graph.initializer if tensor.ByteSize() > _SMALL}
    graph.initializer.extend(tensor for tensor in proto.graph.initializer if tensor.name not in large)
    graph.input.extend(info for info in proto.graph.input if info.name not in large)
    graph.input.extend(
        onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
        for name, tensor in large.items()
    )
    return light
