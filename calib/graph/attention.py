"""Networks with attention, which TensorRT 8.6 computes faster in FP16 than with Q/DQ pairs."""

from __future__ import annotations

import onnx

from calib.graph.folding import with_constant_weights
from calib.graph.graph_view import GraphView
from calib.graph.intake import OnnxModel

__all__ = ["attention_in_float", "count_attention"]

_THROUGH = ("Dropout", "Cast", "Identity")
_FEW_CHANNELS = 4

_BLOCK = "TensorRT 8.6 runs attention and what surrounds it as one FP16 kernel, which pairs slow down"
_PATCH = "a patch embedding of few channels is slower in INT8, and attention behind it stays in float"
_WAY_OUT = "--attention int8 quantizes it"


def attention_in_float(graph: GraphView) -> dict[int, str]:
    """The nodes of a network with attention that stay in float, and why; none without attention.

    A vision transformer of 6 layers took 1.24 times the latency of FP16 with pairs on them, and its builder
    used INT8 for none of them when left to choose (TensorRT 8.6.0, H200, batch 32; reports/tensorrt-8.6.md).

    Args:
        graph: The network.
    """
    if not any(_attends(node, graph) for node in graph.nodes):
        return {}
    found = {}
    for index, node in enumerate(graph.nodes):
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in graph.constants:
            found[index] = f"{_BLOCK}; {_WAY_OUT}"
        elif _embeds_patches(node, graph):
            found[index] = f"{_PATCH}; {_WAY_OUT}"
    return found


def count_attention(model: OnnxModel) -> int:
    """How many nodes of a float model ``attention_in_float`` leaves in float."""
    return len(attention_in_float(GraphView(with_constant_weights(model).proto, {})))


def _attends(node: onnx.NodeProto, graph: GraphView) -> bool:
    """Whether a node multiplies the result of a Softmax with another activation."""
    if node.op_type != "MatMul" or any(name in graph.constants for name in node.input):
        return False
    return any(_source(name, graph) == "Softmax" for name in node.input)


def _source(name: str, graph: GraphView) -> str:
    """The operator that computes a tensor, behind what hands it on."""
    while (index := graph.producer.get(name)) is not None:
        node = graph.nodes[index]
        if node.op_type not in _THROUGH:
            return node.op_type
        name = node.input[0]
    return ""


def _embeds_patches(node: onnx.NodeProto, graph: GraphView) -> bool:
    """Whether a convolution cuts an image into patches: kernel and stride are the same, channels are few."""
    if node.op_type != "Conv" or node.input[1] not in graph.constants:
        return False
    _, channels, *kernel = graph.constants[node.input[1]].dims
    strides = next((list(a.ints) for a in node.attribute if a.name == "strides"), [1] * len(kernel))
    return channels < _FEW_CHANNELS and kernel == strides and min(kernel, default=1) > 1
