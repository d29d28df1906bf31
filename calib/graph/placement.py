"""Where Q/DQ pairs go, by TensorRT's rules.

Pairs go on the inputs of operators with a weight, and on the skip input of a residual Add, so that
the Add fuses into the convolution before it. Nothing goes between a convolution and what TensorRT
fuses into it. NVIDIA's developer guide, "Q/DQ Layer-Placement Recommendations".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from calib.calibrators import unusable_reason
from calib.calibrators.cache_lint import mask_tensors
from calib.errors import UsageError
from calib.graph.weights import constants

__all__ = ["LeftFloat", "Plan", "WeightSite", "plan_placement"]

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class WeightSite:
    """A weight that is quantized: which node, and which axis of the weight holds the channels."""

    node: int
    weight: str
    axis: int


@dataclass(frozen=True)
class LeftFloat:
    """A node that could run in INT8 but is left in float, and why."""

    node: str
    op: str
    reason: str


@dataclass
class Plan:
    """What is quantized.

    Attributes:
        activations: Tensor → the (node index, input index) places that read it through a Q/DQ pair.
        weights: Weights that are quantized.
        left_float: Nodes that are not.
    """

    activations: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    weights: list[WeightSite] = field(default_factory=list)
    left_float: list[LeftFloat] = field(default_factory=list)

    def place(self, tensor: str, node: int, position: int) -> None:
        """Adds a place that reads a tensor through its pair."""
        self.activations.setdefault(tensor, []).append((node, position))


class _Graph:
    """What the rules ask of a graph."""

    def __init__(self, proto: onnx.ModelProto, scales: Mapping[str, float]) -> None:
        self.scales = scales
        self.masks = mask_tensors(scales)
        self.nodes = list(proto.graph.node)
        self.constants = constants(proto.graph)
        self.producer = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.readers = Counter(name for node in self.nodes for name in node.input if name)
        self.readers.update(output.name for output in proto.graph.output)


def plan_placement(
    proto: onnx.ModelProto, scales: Mapping[str, float], keep_float: Sequence[str] = ()
) -> Plan:
    """Decides what is quantized.

    Args:
        proto: The model.
        scales: Tensor → INT8 scale.
        keep_float: Regular expressions; a node whose name, or the name of one of whose outputs, one of
            them finds is left in float.

    Raises:
        UsageError: A regular expression is none, or finds nothing in the model.
    """
    graph = _Graph(proto, scales)
    kept = _kept(graph, keep_float)
    plan = Plan()
    for index, node in enumerate(graph.nodes):
        if node.op_type in _WEIGHTED and node.domain in ("", "ai.onnx"):
            reason = kept.get(index) or _weighted_obstacle(node, graph)
            if reason:
                plan.left_float.append(LeftFloat(_label(node), node.op_type, reason))
            else:
                plan.place(node.input[0], index, 0)
                plan.weights.append(WeightSite(index, node.input[1], _channel_axis(node, graph)))
    quantized = {site.node for site in plan.weights}
    for index, node in enumerate(graph.nodes):
        if node.op_type == "Add" and index not in kept:
            skip = _skip_input(node, graph, quantized)
            if skip is not None and not _scale_obstacle(node.input[skip], graph):
                plan.place(node.input[skip], index, skip)
    return plan


def _kept(graph: _Graph, patterns: Sequence[str]) -> dict[int, str]:
    kept: dict[int, str] = {}
    for pattern in patterns:
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"--keep-float {pattern!r} is no regular expression: {error}.") from error
        found = [
            index
            for index, node in enumerate(graph.nodes)
            if any(expression.search(name) for name in (node.name, *node.output))
        ]
        if not found:
            raise UsageError(f"--keep-float {pattern!r} finds no node in the model.")
        kept.update({index: f"kept by {pattern!r}" for index in found})
    return kept


def _weighted_obstacle(node: onnx.NodeProto, graph: _Graph) -> str:
    """Why a node with a weight cannot be quantized; empty where it can."""
    data, weight = node.input[0], node.input[1]
    if data in graph.constants:
        return "its data input is a constant"
    if weight not in graph.constants:
        return "its weight is no constant" if node.op_type != "MatMul" else "it multiplies two activations"
    tensor = graph.constants[weight]
    if tensor.data_type != onnx.TensorProto.FLOAT:
        return f"its weight is {onnx.TensorProto.DataType.Name(tensor.data_type).lower()}, not float32"
    if 0 in tensor.dims:
        return "its weight has no elements"
    if len(tensor.dims) < 2:
        return "its weight is a vector"
    return _scale_obstacle(data, graph)


def _scale_obstacle(tensor: str, graph: _Graph) -> str:
    """Why an activation's scale cannot be used; empty where it can."""
    if tensor not in graph.scales:
        return f"no scale for its input {tensor!r}"
    reason = unusable_reason(graph.scales[tensor])
    if reason:
        return f"the scale of its input {tensor!r} is {reason}"
    if tensor in graph.masks:
        return f"its input {tensor!r} holds a mask's constant: {graph.masks[tensor]}"
    return ""


def _channel_axis(node: onnx.NodeProto, graph: _Graph) -> int:
    """The axis of the weight along which the output's channels run."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm":
        transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
        return 0 if transposed else 1
    return len(graph.constants[node.input[1]].dims) - 1


def _skip_input(node: onnx.NodeProto, graph: _Graph, quantized: set[int]) -> int | None:
    """Which input of a residual Add is the skip connection; None where the Add is not residual.

    The other input comes straight from a quantized convolution and goes nowhere else.
    """
    left, right = node.input
    if left == right or left in graph.constants or right in graph.constants:
        return None
    for main, skip in ((left, 1), (right, 0)):
        producer = graph.producer.get(main)
        if producer is None or producer not in quantized or graph.readers[main] != 1:
            continue
        if graph.nodes[producer].op_type in ("Conv", "ConvTranspose"):
            return skip
    return None


def _label(node: onnx.NodeProto) -> str:
    return node.name or next((name for name in node.output if name), node.op_type)
