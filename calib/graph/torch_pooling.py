"""Global average pooling under its own name again.

PyTorch takes ``AdaptiveAvgPool2d(1)`` apart into a mean over height and width, which the exporter writes as
ReduceMean. The values are the same, but a pooling runs in INT8 between two Q/DQ pairs, and a ReduceMean does
not.
"""

from __future__ import annotations

import onnx
from onnx import helper, numpy_helper

from calib.graph.lower_opset import drop_unused

__all__ = ["restore_global_pooling"]


def restore_global_pooling(proto: onnx.ModelProto) -> None:
    """Turns each ReduceMean over the last two axes of four that keeps them into GlobalAveragePool, in place.

    Args:
        proto: A model of opset 18 or higher, with shapes inferred.
    """
    graph = proto.graph
    ranks = {
        info.name: len(info.type.tensor_type.shape.dim)
        for info in (*graph.input, *graph.value_info)
        if info.type.tensor_type.HasField("shape")
    }
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "ReduceMean" and _is_pooling(node, ranks, constants):
            node.op_type = "GlobalAveragePool"
            del node.input[1:]
            del node.attribute[:]
    drop_unused(graph)


def _is_pooling(node: onnx.NodeProto, ranks: dict[str, int], constants: dict[str, onnx.TensorProto]) -> bool:
    settings = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    if len(node.input) < 2 or node.input[1] not in constants or not settings.get("keepdims", 1):
        return False
    if ranks.get(node.input[0]) != 4:
        return False
    axes = numpy_helper.to_array(constants[node.input[1]]).tolist()
    return sorted(axis % 4 for axis in axes) == [2, 3]
