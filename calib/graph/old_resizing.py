"""What Upsample and the Resize of opset 10 mean, said in the Resize of later opsets.

The converter that comes with onnx leaves later opsets' defaults on these nodes: half-pixel coordinates and
rounding to the nearest pixel. Before opset 11 coordinates are asymmetric, x_old = x_new / scale, and ONNX
Runtime takes the pixel below where an axis grows and the pixel above where it shrinks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from calib.graph.graph_edit import FreshNames, drop_unread, remove_attribute
from calib.graph.graph_view import label
from calib.graph.operators import is_standard
from calib.graph.subgraphs import inner_graphs
from calib.graph.weights import as_array, constants

__all__ = ["NEW_RESIZE", "mend_resizing"]

NEW_RESIZE = 11
"""The first opset whose Resize says how coordinates and pixels are found."""

_REGION, _SCALES = 1, 2


def mend_resizing(proto: onnx.ModelProto) -> list[str]:
    """Gives every Resize of a converted model the meaning that it had before opset 11.

    Args:
        proto: A model that was converted from an opset below 11 to 11 or higher, so that each Resize in it
            comes from an old node. It is changed.

    Returns:
        A note on nodes whose scales are computed, so that it is not known whether they shrink.
    """
    unknown: list[str] = []
    _mend_graph(proto.graph, {}, FreshNames(proto.graph), unknown)
    if not unknown:
        return []
    return [f"scales are computed, and taken to be 1 or more: {', '.join(unknown[:5])}"]


def _mend_graph(
    graph: onnx.GraphProto, outer: Mapping[str, onnx.TensorProto], names: FreshNames, unknown: list[str]
) -> None:
    known = {**outer, **constants(graph)}
    mended: list[onnx.NodeProto] = []
    # The converter makes an empty constant of what no mode here looks at.
    regions: list[str] = []
    for node in graph.node:
        for inner in inner_graphs(node):
            _mend_graph(inner, known, names, unknown)
        old = node.op_type == "Resize" and is_standard(node)
        if old:
            regions.append(node.input[_REGION])
            node.input[_REGION] = ""
        mended.extend(_mended(node, known, graph, names, unknown) if old else [node])
    del graph.node[:]
    graph.node.extend(mended)
    drop_unread(graph, regions)


def _mended(
    node: onnx.NodeProto,
    known: Mapping[str, onnx.TensorProto],
    graph: onnx.GraphProto,
    names: FreshNames,
    unknown: list[str],
) -> list[onnx.NodeProto]:
    """The node with its old meaning; two nodes where it takes the nearest pixel, and axes shrink and grow."""
    _set(node, "coordinate_transformation_mode", "asymmetric")
    if any(item.name == "mode" and item.s != b"nearest" for item in node.attribute):
        return [node]
    if node.input[_SCALES] not in known:
        unknown.append(label(node))
        _set(node, "nearest_mode", "floor")
        return [node]
    scales = as_array(known[node.input[_SCALES]])
    if (scales >= 1).all() or (scales <= 1).all():
        _set(node, "nearest_mode", "floor" if (scales >= 1).all() else "ceil")
        return [node]
    return _in_two_steps(node, scales, graph, names)


def _in_two_steps(
    node: onnx.NodeProto, scales: npt.NDArray[np.float32], graph: onnx.GraphProto, names: FreshNames
) -> list[onnx.NodeProto]:
    """Shrinks some axes, then enlarges the others: one node has one way to round for all of them."""
    second = onnx.NodeProto()
    second.CopyFrom(node)
    between = names.fresh(f"{node.output[0]}_shrunk")
    node.name = names.fresh(f"{label(node)}_shrink")
    node.output[:] = [between]
    second.input[0] = between
    steps = ((node, "ceil", np.minimum(scales, 1)), (second, "floor", np.maximum(scales, 1)))
    for step, mode, factors in steps:
        _set(step, "nearest_mode", mode)
        given = names.fresh(f"{step.output[0]}_scales")
        graph.initializer.append(numpy_helper.from_array(factors.astype(np.float32), given))
        step.input[_SCALES] = given
    return [step for step, _, _ in steps]


def _set(node: onnx.NodeProto, name: str, value: str) -> None:
    remove_attribute(node, name)
    node.attribute.append(helper.make_attribute(name, value))
