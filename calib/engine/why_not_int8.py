"""Why a layer of an INT8 engine computes in float: in words, from what is known of it.

Sources: "Layers and Precision" in NVIDIA's operator reference and the parser's operator table, as
``calib.graph.capability_table`` holds them; "Q/DQ Layer-Placement Recommendations" in the developer guide;
for regions that Myelin compiles, TensorRT issue 3230.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calib.calibrators import unusable_reason
from calib.engine.fusion import node_label
from calib.engine.inspector import UNKNOWN, EngineLayer
from calib.graph.capability_table import APART, ELEMENTWISE, FLOAT_ONLY, LISTED_INT8
from calib.graph.dependence import data_dependent_outputs
from calib.graph.operators import FUSED, WEIGHTED, is_standard

if TYPE_CHECKING:
    import onnx

    from calib.graph import OnnxModel

__all__ = ["FloatLayer", "explain_float_layers", "uses_pairs"]

_NOT_FLOAT = ("INT32", "INT64", "BOOL", "UINT8")
_PAIRS = ("QuantizeLinear", "DequantizeLinear")
# Resize and Upsample run in INT8 from 8.4 on although the table does not mark them: TensorRT issue 2976.
_ABLE = frozenset((*LISTED_INT8, *ELEMENTWISE, *WEIGHTED, *FUSED, *APART, *_PAIRS, "Resize", "Upsample"))
_ALL_INPUTS = frozenset((*ELEMENTWISE, "Concat", "MatMul"))
# Kinds of layers, for engines whose model is not at hand.
_FLOAT_TYPES = (
    ("SoftMax", "SoftMax has float types"),
    ("Reduce", "the Reduce layer has float types"),
    ("Normalization", "normalization is computed in float"),
    ("Unary", "the Unary layer has float types"),
    ("TopK", "detection layers have float types"),
)
_MOVING_TYPES = ("Shuffle", "Slice", "Padding", "Gather", "Concatenation", "Move")
_MOST = 3

_Reason = tuple[str, str] | None


@dataclass(frozen=True)
class FloatLayer:
    """A layer that is not INT8.

    Attributes:
        layer: Its name.
        precision: What it computes in.
        kind: The reason without names, by which layers are counted.
        detail: What the reason is about: a tensor, operators, channels; may be empty.
    """

    layer: str
    precision: str
    kind: str
    detail: str = ""

    @property
    def reason(self) -> str:
        """The reason in words.

        >>> FloatLayer("/conv", "FP16", "no usable scale for a tensor", "'x'").reason
        "no usable scale for a tensor: 'x'"
        """
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


def explain_float_layers(
    layers: Sequence[EngineLayer],
    model: OnnxModel | None = None,
    scales: Mapping[str, float] | None = None,
) -> tuple[FloatLayer, ...]:
    """Explains every layer that computes, and not in INT8.

    Args:
        layers: The layers of an engine that was built for INT8.
        model: The model it was built from, with its Q/DQ nodes or without.
        scales: Tensor → scale, where the engine was built from a calibration cache. Of an engine that was
            built by Q/DQ nodes, they are not looked at: the nodes decide there.

    Returns:
        One entry for each such layer, in network order.
    """
    facts = _Facts(model, scales, uses_pairs(layers, model))
    return tuple(
        FloatLayer(layer.name, layer.precision, *_explain(layer, facts))
        for layer in layers
        if not layer.copies and layer.precision != "INT8"
    )


def uses_pairs(layers: Sequence[EngineLayer], model: OnnxModel | None = None) -> bool:
    """Whether an engine was built by Q/DQ nodes: the model has them, or the layers name them."""
    if model is not None and model.quantized_nodes:
        return True
    return any(
        layer.origin == "QDQ" or any(op in name for name in layer.onnx_nodes for op in _PAIRS)
        for layer in layers
    )


class _Facts:
    """What is known beside the engine."""

    def __init__(self, model: OnnxModel | None, scales: Mapping[str, float] | None, pairs: bool) -> None:
        self.scales = None if pairs else scales
        self.pairs = pairs
        self.has_model = model is not None
        nodes = () if model is None else tuple(model.proto.graph.node)
        self._nodes = {node_label(node): node for node in nodes}
        held = [] if model is None else [tensor.name for tensor in model.proto.graph.initializer]
        moving = set() if model is None else set(data_dependent_outputs(model.proto.graph))
        # What exporters compute from constants, such as a transposed weight, is one in the engine.
        self.constants = {*held, *(name for node in nodes for name in node.output if name not in moving)}
        self.sources = {name: node.op_type for node in nodes for name in node.output}
        self.readers = {name: node.op_type for node in nodes for name in node.input}
        self.with_pairs = model is not None and bool(model.quantized_nodes)

    def nodes_of(self, layer: EngineLayer) -> list[onnx.NodeProto]:
        found = (self._nodes[name] for name in layer.onnx_nodes if name in self._nodes)
        return [node for node in found if node.op_type not in (*_PAIRS, "Constant")]

    def data_inputs(self, node: onnx.NodeProto) -> Iterator[str]:
        """The tensors that INT8 needs ranges of: no weights, shapes, indices or biases."""
        for name in node.input if node.op_type in _ALL_INPUTS else node.input[:1]:
            if name and name not in self.constants:
                yield name


def _explain(layer: EngineLayer, facts: _Facts) -> tuple[str, str]:
    nodes = facts.nodes_of(layer)
    return (
        _by_layer(layer, facts)
        or _by_operator(nodes, facts)
        or _by_scales(nodes, facts)
        or _by_pairs(layer, nodes, facts)
        or _by_kernel(layer, facts)
    )


def _by_layer(layer: EngineLayer, facts: _Facts) -> _Reason:
    if not layer.detailed:
        return "the engine tells names alone: it was built without detailed profiling verbosity", ""
    if layer.precision in _NOT_FLOAT:
        return "integers, shapes or comparisons, which are no INT8 work", ""
    if layer.type.startswith("Plugin"):
        return "a plug-in, which computes in its own type", ""
    if "ForeignNode" in layer.name:
        rule = "" if facts.pairs else ", which TensorRT leaves in float where scales come from a cache"
        return f"a region that Myelin compiled as a whole{rule}", ""
    if layer.precision == UNKNOWN:
        return "its precision is not told: give the inspector a context with input shapes", ""
    if layer.type.startswith(_MOVING_TYPES):
        return "it moves values, in the type in which they come", ""
    if not facts.has_model:
        told = next((why for kind, why in _FLOAT_TYPES if kind.lower() in layer.type.lower()), "")
        return (f"no INT8 kernel: {told}", "") if told else None
    return None


def _by_operator(nodes: Sequence[onnx.NodeProto], facts: _Facts) -> _Reason:
    foreign = sorted({node.op_type for node in nodes if not is_standard(node)})
    if foreign:
        return "an operator that is not ONNX's own", ", ".join(foreign)
    for op in sorted({node.op_type for node in nodes} & FLOAT_ONLY.keys()):
        return f"no INT8 kernel for {op}: {FLOAT_ONLY[op]}", ""
    unknown = sorted({node.op_type for node in nodes} - _ABLE)
    if unknown:
        return f"NVIDIA documents no INT8 for {unknown[0]}", ""
    products = [node for node in nodes if node.op_type == "MatMul" and len([*facts.data_inputs(node)]) > 1]
    if products and not facts.pairs:
        return "MatMul of two activations, which runs in INT8 by Q/DQ pairs alone", ""
    return None


def _by_scales(nodes: Sequence[onnx.NodeProto], facts: _Facts) -> _Reason:
    """Without a usable scale neither what makes a tensor nor what reads it can be INT8."""
    if facts.scales is None or not nodes:
        return None
    inside = {name for node in nodes for name in node.output}
    needed = [name for node in nodes for name in facts.data_inputs(node) if name not in inside]
    needed.append(nodes[-1].output[0])
    missing = [
        f"{name!r}{f' ({fault})' if fault else ''}"
        for name in dict.fromkeys(needed)
        if (fault := _fault(name, facts.scales)) is not None
    ]
    return ("no usable scale for a tensor", _list(missing)) if missing else None


def _fault(name: str, scales: Mapping[str, float]) -> str | None:
    """Why a scale cannot be used, empty if there is none; None where it can."""
    if name not in scales:
        return ""
    return unusable_reason(scales[name]) or None


def _by_pairs(layer: EngineLayer, nodes: Sequence[onnx.NodeProto], facts: _Facts) -> _Reason:
    if not facts.pairs or not nodes:
        return None
    weighted = [node for node in nodes if node.op_type in WEIGHTED]
    bare = [name for node in weighted or nodes for name in facts.data_inputs(node)]
    if facts.with_pairs:
        bare = [name for name in bare if facts.sources.get(name) != "DequantizeLinear"]
    inside = {name for node in nodes for name in node.output}
    bare = [repr(name) for name in dict.fromkeys(bare) if name not in inside]
    if weighted:
        return ("no Q/DQ pair before it", _list(bare)) if bare else None
    return "no weights, and so INT8 only between Q/DQ pairs on both sides", _list(bare)


def _by_kernel(layer: EngineLayer, facts: _Facts) -> tuple[str, str]:
    read = next((tensor.shape[1] for tensor in layer.inputs if len(tensor.shape) > 1), 0)
    sizes = [size for size in (read, layer.channels) if size > 0]
    faster = f"TensorRT found {layer.precision} faster"
    if layer.channels and sizes:
        detail = f"{' → '.join(map(str, sizes))} channels"
        if layer.groups > 1 and layer.groups < max(sizes) and any(n // layer.groups % 4 for n in sizes):
            detail += f" in {layer.groups} groups"
            return "no INT8 kernel for groups whose channels are no multiple of 4", detail
        if layer.groups <= 1 and any(size % 32 for size in sizes):
            return f"{faster}; INT8 would pad its channels to a multiple of 32", detail
    if not facts.has_model:
        return "not told by the engine alone: give the model, and the cache it was built with", ""
    if facts.scales is None and not facts.pairs:
        return f"{faster}, has no INT8 kernel for its form, or had no scale", ""
    return f"{faster}, or has no INT8 kernel for its form", ""


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
