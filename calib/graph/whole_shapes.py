"""Shape nodes that give a part of a shape, for parsers that give the whole."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.graph.graph_edit import FreshNames, declare_initializers
from calib.graph.subgraphs import all_graphs

__all__ = ["has_shape_ranges", "split_shape_ranges"]

_RANGE = ("start", "end")


def has_shape_ranges(graph: onnx.GraphProto) -> bool:
    """Whether a Shape node, at any depth, gives a part of a shape."""
    return any(_ranged(node) for inner in all_graphs(graph) for node in inner.node)


def split_shape_ranges(proto: onnx.ModelProto) -> int:
    """Writes every Shape with ``start`` or ``end`` (opset 15) as a Shape of all axes and a Slice.

    TensorRT's parser reads neither attribute up to release 8.6 and gives all axes without a word: a network
    then fails where the sizes are used ("error while computing output extent"), or computes something else.
    PyTorch's exporter writes them for a dynamic batch. Outputs keep their names.

    Args:
        proto: The model, which is changed.

    Returns:
        The number of nodes that were split.
    """
    fresh = FreshNames(proto.graph)
    count = sum(_split(graph, fresh) for graph in all_graphs(proto.graph))
    declare_initializers(proto)
    return count


def _split(graph: onnx.GraphProto, fresh: FreshNames) -> int:
    nodes: list[onnx.NodeProto] = []
    count = 0
    for node in graph.node:
        if _ranged(node):
            nodes.extend(_parts(node, graph, fresh))
            count += 1
        else:
            nodes.append(node)
    if count:
        del graph.node[:]
        graph.node.extend(nodes)
    return count


def _parts(
    node: onnx.NodeProto, graph: onnx.GraphProto, fresh: FreshNames
) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    given = {attribute.name: attribute.i for attribute in node.attribute}
    # Both count from the end where they are negative, and stop at the ends, in Shape as in Slice.
    bounds = {"starts": given.get("start", 0), "ends": given.get("end", np.iinfo(np.int64).max), "axes": 0}
    names = [fresh.fresh(f"{node.output[0]}_{name}") for name in bounds]
    for name, value in zip(names, bounds.values(), strict=True):
        graph.initializer.append(numpy_helper.from_array(np.array([value], np.int64), name))
    whole = fresh.fresh(f"{node.output[0]}_whole")
    shape = helper.make_node("Shape", list(node.input), [whole], name=node.name)
    name = fresh.fresh(f"{node.name}_part") if node.name else ""
    return shape, helper.make_node("Slice", [whole, *names], list(node.output), name=name)


def _ranged(node: onnx.NodeProto) -> bool:
    """Whether it is a Shape of a part; a start of 0 alone is the whole."""
    return node.op_type == "Shape" and any(
        attribute.name in _RANGE and (attribute.name, attribute.i) != ("start", 0)
        for attribute in node.attribute
    )
