"""The rules that say where a Q/DQ pair stands, one function each."""

from __future__ import annotations

import onnx

from calib.graph.graph_view import GraphView

__all__ = ["channel_axis", "fused_convolution", "skip_input", "weighted_obstacle"]

_CONVOLUTIONS = ("Conv", "ConvTranspose")


def weighted_obstacle(node: onnx.NodeProto, graph: GraphView) -> str:
    """Why a node with a weight cannot be quantized; empty where it can.

    Args:
        node: A Conv, ConvTranspose, Gemm or MatMul.
        graph: Its graph.
    """
    data, weight = node.input[0], node.input[1]
    if data in graph.constants:
        return f"its data input {data!r} is a constant"
    if weight not in graph.constants:
        return _no_constant(node, graph)
    tensor = graph.constants[weight]
    if tensor.data_type != onnx.TensorProto.FLOAT:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
        return f"its weight {weight!r} is {kind}, not float32"
    if 0 in tensor.dims:
        return f"its weight {weight!r} has no elements"
    if len(tensor.dims) < 2:
        return f"its weight {weight!r} is a vector"
    return graph.obstacle(data)


def _no_constant(node: onnx.NodeProto, graph: GraphView) -> str:
    """The reason of a weight that is computed, or given from outside."""
    weight = node.input[1]
    if node.op_type == "MatMul":
        return "it multiplies two activations"
    index = graph.producer.get(weight)
    origin = "it is an input of the model" if index is None else f"{graph.nodes[index].op_type} computes it"
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


def fused_convolution(tensor: str, graph: GraphView, quantized: set[int]) -> int | None:
    """The quantized convolution that an Add on this tensor fuses into.

    It makes the tensor itself or through a BatchNormalization, and nothing else reads what is between.

    Args:
        tensor: An input of an Add.
        graph: The graph.
        quantized: Indices of the nodes that run in INT8.
    """
    index = _only_producer(tensor, graph)
    if index is not None and graph.nodes[index].op_type == "BatchNormalization":
        index = _only_producer(graph.nodes[index].input[0], graph)
    if index is None or index not in quantized or graph.nodes[index].op_type not in _CONVOLUTIONS:
        return None
    return index


def _only_producer(tensor: str, graph: GraphView) -> int | None:
    return graph.producer.get(tensor) if graph.readers[tensor] == 1 else None


def skip_input(node: onnx.NodeProto, graph: GraphView, quantized: set[int]) -> int | None:
    """Which input of a residual Add is the skip connection; None where the Add is not residual.

    The other input comes from a convolution that the Add fuses into. Where both do, the Add fuses into
    the one that is computed last: the deeper in the network, for a projection is shallow.

    Args:
        node: An Add.
        graph: Its graph.
        quantized: Indices of the nodes that run in INT8.
    """
    left, right = node.input
    if left == right or left in graph.constants or right in graph.constants:
        return None
    found = [(fused_convolution(main, graph, quantized), skip) for main, skip in ((left, 1), (right, 0))]
    candidates = [(graph.depth[index], index, skip) for index, skip in found if index is not None]
    return max(candidates)[2] if candidates else None
