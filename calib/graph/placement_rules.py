"""The rules that say where a Q/DQ pair stands, one function each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

import numpy as np
import onnx

from calib.graph.graph_view import COARSE, GraphView
from calib.graph.operators import (
    AVERAGES,
    FUSED,
    WEIGHTED,
    adds_two,
    commutes,
    is_standard,
    moved_outputs,
    moves,
)
from calib.graph.weights import as_array, fits_half

__all__ = [
    "adds_constant",
    "channel_axis",
    "fused_convolution",
    "is_average",
    "pooled_input",
    "skip_input",
    "weighted_obstacle",
    "weighted_writers",
]

_CONVOLUTIONS = ("Conv", "ConvTranspose")

_LONG_SUM = 2048

# TensorRT's documentation of IConvolutionLayer and IDeconvolutionLayer, num_groups.
_GROUP_MULTIPLE = 4

_FOLDED = ("BatchNormalization", "Identity", "Dropout")

_RANK_KEPT = FUSED | {"Add", "Sum", "Mul", "Concat", "MaxPool", "AveragePool", "Identity", "Dropout"}


def weighted_obstacle(node: onnx.NodeProto, graph: GraphView) -> str:
    """Why a node with a weight cannot be quantized; empty where it can.

    Args:
        node: A Conv, ConvTranspose, Gemm or MatMul.
        graph: Its graph.
    """
    data, weight = node.input[0], node.input[1]
    if data in graph.constants:
        return f"its first input {data!r} is a constant; pairs go on a weight that is the second"
    if weight not in graph.constants:
        return _no_constant(node, graph)
    tensor = graph.constants[weight]
    half = graph.half and tensor.data_type == onnx.TensorProto.FLOAT16
    if tensor.data_type != onnx.TensorProto.FLOAT and not half:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
        return f"its weight {weight!r} is {kind}, not float32"
    if 0 in tensor.dims:
        return f"its weight {weight!r} has no elements"
    if len(tensor.dims) < 2:
        return f"its weight {weight!r} is a vector"
    largest = float(np.abs(as_array(tensor)).max())
    if not np.isfinite(largest):
        return f"its weight {weight!r} holds infinities or NaN"
    if half and largest > 0 and not fits_half(largest / 127):
        return f"its float16 weight {weight!r} is at most {largest:.3g}, {COARSE}"
    return _group_obstacle(node, tensor.dims) or graph.obstacle(data)


def _group_obstacle(node: onnx.NodeProto, dims: Sequence[int]) -> str:
    """Why the groups of a convolution forbid INT8: they need 4 channels or a multiple, or be depthwise."""
    groups = _groups(node) if node.op_type in _CONVOLUTIONS else 1
    if groups == 1:
        return ""
    transposed = node.op_type == "ConvTranspose"
    inputs, outputs = (dims[0] // groups, dims[1]) if transposed else (dims[1], dims[0] // groups)
    if inputs == outputs == 1 or not (inputs % _GROUP_MULTIPLE or outputs % _GROUP_MULTIPLE):
        return ""
    return f"each of its groups has {inputs} input and {outputs} output channels: INT8 needs multiples of 4"


def _no_constant(node: onnx.NodeProto, graph: GraphView) -> str:
    """The reason of a weight that is computed, or given from outside."""
    weight = node.input[1]
    if node.op_type == "MatMul" and weight in graph.moving:
        return "it multiplies two activations"
    index = graph.producer.get(weight)
    if index is not None:
        origin = f"{graph.nodes[index].op_type} computes it"
    else:
        origin = (
            "it is an input of the model" if weight in graph.moving else "it is stored as a sparse tensor"
        )
    return f"its weight {weight!r} is no constant: {origin}"


def channel_axis(node: onnx.NodeProto, graph: GraphView) -> int:
    """The axis of the weight along which the output's channels run.

    Conv (out, in/group, …): 0, whatever the groups, depthwise included. ConvTranspose
    (in, out/group, …): 1; with groups, the channels of equal place in their group share a scale, since
    the weight has no axis that holds all output channels. Gemm: 0 with transB, else 1. MatMul: the last.
    """
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm":
        transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
        return 0 if transposed else 1
    return len(graph.constants[node.input[1]].dims) - 1


def adds_constant(node: onnx.NodeProto, graph: GraphView) -> bool:
    """Whether an Add adds what no data changes: a bias, such as PaddlePaddle writes as a reshaped constant.

    Args:
        node: An Add.
        graph: Its graph.
    """
    return any(name not in graph.moving or _is_bias(name, graph) for name in node.input)


def fused_convolution(tensor: str, graph: GraphView, quantized: set[int]) -> int | None:
    """The quantized convolution that an Add on this tensor fuses into.

    It makes the tensor itself or through what is folded into it: a BatchNormalization, a bias,
    or nothing at all in inference. Nothing else reads what is between.

    Args:
        tensor: An input of an Add.
        graph: The graph.
        quantized: Indices of the nodes that run in INT8.
    """
    index = _only_producer(tensor, graph)
    while index is not None and (folded := _folded_input(graph.nodes[index], graph)):
        index = _only_producer(folded, graph)
    if index is None or index not in quantized or graph.nodes[index].op_type not in _CONVOLUTIONS:
        return None
    return index


def weighted_writers(tensor: str, graph: GraphView) -> frozenset[int]:
    """The nodes with a weight that write a tensor: by what is fused into them, or what only moves values.

    Args:
        tensor: The tensor.
        graph: Its graph.
    """
    found, behind, seen = set(), [tensor], {tensor}
    while behind:
        index = graph.producer.get(behind.pop())
        if index is None:
            continue
        node = graph.nodes[index]
        if not is_standard(node):
            continue
        if node.op_type in WEIGHTED:
            found.add(index)
            continue
        fused = node.op_type in FUSED or node.op_type == "Mul" or adds_two(node)
        names = {name for place, name in enumerate(node.input) if fused or moves(node, place)} - seen
        behind += names
        seen |= names
    return frozenset(found)


def _folded_input(node: onnx.NodeProto, graph: GraphView) -> str:
    """The data of a node that is folded into a convolution before it; empty where it is no such node."""
    if not is_standard(node):
        return ""
    if adds_two(node):
        data = [name for name in node.input if not _is_bias(name, graph)]
        return data[0] if len(data) == 1 else ""
    folded = node.op_type in _FOLDED and (node.op_type != "Dropout" or commutes(node))
    return str(node.input[0]) if folded else ""


def _is_bias(tensor: str, graph: GraphView) -> bool:
    """Whether a tensor is a constant vector in any shape: a value for each channel, or one for all."""
    while tensor not in graph.constants:
        index = graph.producer.get(tensor)
        if index is None or graph.nodes[index].op_type not in ("Reshape", "Unsqueeze"):
            return False
        tensor = graph.nodes[index].input[0]
    return sum(size > 1 for size in graph.constants[tensor].dims) <= 1


def _only_producer(tensor: str, graph: GraphView) -> int | None:
    return graph.producer.get(tensor) if graph.readers[tensor] == 1 else None


def skip_input(node: onnx.NodeProto, graph: GraphView, quantized: set[int]) -> int | None:
    """Which input of a residual Add is the skip connection; None where the Add is not residual.

    The other input comes from a convolution that the Add fuses into. Where both do, as in a block with a
    projection, the Add fuses into the one that is computed last: the deeper in the network, for a
    projection is shallow. But not where that one sums more than 2048 products for each output and the
    projection fewer: fused with an Add, TensorRT cannot split such a sum. It fuses into the projection
    itself in implicit INT8, and on an H200 the other choice made ResNet-18 6 % slower.

    Args:
        node: An Add, or a Sum of two.
        graph: Its graph.
        quantized: Indices of the nodes that run in INT8.
    """
    left, right = node.input
    if left == right or adds_constant(node, graph):
        return None
    found = [(fused_convolution(main, graph, quantized), skip) for main, skip in ((left, 1), (right, 0))]
    candidates = sorted((graph.depth[index], index, skip) for index, skip in found if index is not None)
    if not candidates:
        return None
    sums = [_products_per_output(graph.nodes[index], graph) for _, index, _ in candidates]
    return candidates[0 if sums[-1] > _LONG_SUM and sums[0] < sums[-1] else -1][2]


def _products_per_output(node: onnx.NodeProto, graph: GraphView) -> int:
    """Products that a convolution sums for one output: input channels of a group times kernel size."""
    dims = graph.constants[node.input[1]].dims
    inputs = dims[0] // _groups(node) if node.op_type == "ConvTranspose" else dims[1]
    return int(inputs) * prod(dims[2:])


def _groups(node: onnx.NodeProto) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "group"), 1)


def is_average(node: onnx.NodeProto, graph: GraphView) -> bool:
    """Whether a node is an average pooling.

    PyTorch's current exporter writes a global one as a mean over all spatial axes, and TensorRT's parser
    makes that same reduction of a GlobalAveragePool.

    Args:
        node: A node.
        graph: Its graph.
    """
    if node.op_type not in AVERAGES or not is_standard(node):
        return False
    if node.op_type != "ReduceMean":
        return True
    rank = _rank(node.input[0], graph)
    axes = {axis + rank if axis < 0 else axis for axis in _reduced_axes(node, graph)}
    return rank > 2 and axes == set(range(2, rank))


def _reduced_axes(node: onnx.NodeProto, graph: GraphView) -> list[int]:
    """The axes of a reduction: an attribute, or from opset 18 on a constant input."""
    given = [int(axis) for attribute in node.attribute if attribute.name == "axes" for axis in attribute.ints]
    if len(node.input) > 1 and node.input[1] in graph.constants:
        return [int(axis) for axis in as_array(graph.constants[node.input[1]]).reshape(-1)]
    return given


def _rank(tensor: str, graph: GraphView) -> int:
    """Number of axes of a tensor behind a convolution; 0 where no convolution tells."""
    while (index := graph.producer.get(tensor)) is not None:
        node = graph.nodes[index]
        if node.op_type in _CONVOLUTIONS:
            weight = graph.constants.get(node.input[1])
            return 0 if weight is None else len(weight.dims)
        if node.op_type not in _RANK_KEPT:
            return 0
        tensor = next((name for name in node.input if name in graph.moving), "")
    return 0


def pooled_input(node: onnx.NodeProto, graph: GraphView, placed: Collection[tuple[int, int]]) -> bool:
    """Whether an average pooling runs in INT8 if its input gets a pair: everything around it has pairs.

    Averages do not commute with a pair, so both sides need one. What it makes has to reach pairs alone,
    through operators that only move values, and nothing may read its input in float beside it.

    Args:
        node: An average pooling.
        graph: Its graph.
        placed: The (node index, input index) places that read through a pair.
    """
    beside = (place for place in graph.places[node.input[0]] if graph.nodes[place[0]] is not node)
    alone = graph.readers[node.input[0]] == len(graph.places[node.input[0]])
    return (
        alone and all(place in placed for place in beside) and _reaches_pairs(node.output[0], graph, placed)
    )


def _reaches_pairs(tensor: str, graph: GraphView, placed: Collection[tuple[int, int]]) -> bool:
    places = graph.places[tensor]
    if not places or graph.readers[tensor] != len(places):
        return False
    return all(place in placed or _moves_to_pairs(place, graph, placed) for place in places)


def _moves_to_pairs(place: tuple[int, int], graph: GraphView, placed: Collection[tuple[int, int]]) -> bool:
    node = graph.nodes[place[0]]
    if not moves(node, place[1]) or node.op_type in ("Concat", "MaxPool"):
        return False
    return all(_reaches_pairs(name, graph, placed) for name in moved_outputs(node))
