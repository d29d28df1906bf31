"""From opset 18 to 17, for TensorRT 8.6.

PyTorch's exporter writes opset 18 or higher, and the converter that comes with onnx has no way back for
Pad and Split and leaves an attribute of opset 18 in the Reduce operators. What opset 18 changed is little
(onnx, docs/Changelog.md, "Version 18 of the default ONNX operator set"), and what exporters use of it can
be written in opset 17 with the same meaning. What cannot is refused, by node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.errors import ModelError
from calib.graph.subgraphs import all_nodes, inner_graphs

__all__ = ["LOWEST_OPSET", "drop_unused", "lower_to_17"]

LOWEST_OPSET = 17

# Reductions that leave a single value as it is; L1, L2 and the logarithms do not.
_UNCHANGED = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd")

_Constants = Mapping[str, onnx.TensorProto]
_Sizes = Mapping[str, tuple[int | None, ...]]


class _Refused(Exception):
    """Opset 17 has nothing that means the same."""


def lower_to_17(proto: onnx.ModelProto, name: str) -> None:
    """Rewrites a model of opset 18 in place, as opset 17.

    Args:
        proto: The model, with shapes inferred.
        name: What it is called in messages.

    Raises:
        ModelError: A node has no form in opset 17; node and operator are named.
    """
    _lower_graph(proto.graph, {}, _sizes(proto.graph), name)
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = 17


def _lower_graph(graph: onnx.GraphProto, outer: _Constants, sizes: _Sizes, name: str) -> None:
    constants = {**outer, **_constants(graph)}
    lowered: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in inner_graphs(node):
            _lower_graph(inner, constants, {**sizes, **_sizes(inner)}, name)
        try:
            lowered.extend(_lowered(node, constants, sizes))
        except _Refused as error:
            raise ModelError(
                f"{name}: node {node.name or node.output[0]!r} ({node.op_type}) cannot be written in opset "
                f"17, the highest that TensorRT 8.6 reads: {error}. Write that part of the network "
                "otherwise, or choose a newer --target."
            ) from error
    del graph.node[:]
    graph.node.extend(lowered)
    drop_unused(graph)


def _lowered(node: onnx.NodeProto, constants: _Constants, sizes: _Sizes) -> Iterable[onnx.NodeProto]:
    """The nodes that mean in opset 17 what a node means in opset 18."""
    if node.domain not in ("", "ai.onnx"):
        return [node]
    # ReduceSum has had its axes as an input since opset 13.
    if node.op_type.startswith("Reduce") and node.op_type != "ReduceSum":
        return [_reduce(node, constants)]
    if node.op_type in _RULES:
        return _RULES[node.op_type](node, sizes)
    known = onnx.defs.get_schema(node.op_type, 18)
    if known.since_version > 17:
        raise _Refused("the operator is new in opset 18, or was changed there")
    return [node]


def _reduce(node: onnx.NodeProto, constants: _Constants) -> onnx.NodeProto:
    axes = node.input[1] if len(node.input) > 1 else ""
    if axes and axes not in constants:
        raise _Refused("its axes are computed")
    values = numpy_helper.to_array(constants[axes]).tolist() if axes else []
    if not values and _attribute(node, "noop_with_empty_axes", 0):
        if node.op_type not in _UNCHANGED:
            raise _Refused("it reduces no axes")
        return helper.make_node("Identity", node.input[:1], node.output, name=node.name)
    _remove(node, "noop_with_empty_axes")
    del node.input[1:]
    if values:
        node.attribute.append(helper.make_attribute("axes", values))
    return node


def _pad(node: onnx.NodeProto, sizes: _Sizes) -> list[onnx.NodeProto]:
    if len(node.input) > 3 and node.input[3]:
        raise _Refused("it names the axes that it pads")
    del node.input[3:]
    if _attribute(node, "mode", b"constant") == b"wrap":
        raise _Refused("its mode is 'wrap'")
    return [node]


def _split(node: onnx.NodeProto, sizes: _Sizes) -> list[onnx.NodeProto]:
    parts = _attribute(node, "num_outputs", None)
    _remove(node, "num_outputs")
    if parts is None or (len(node.input) > 1 and node.input[1]):
        return [node]
    shape = sizes.get(node.input[0])
    size = shape[_attribute(node, "axis", 0)] if shape else None
    if size is None:
        raise _Refused("it cuts an axis of unknown size")
    step = -(-size // parts)
    lengths = [max(0, min(step, size - step * part)) for part in range(parts)]
    given = f"{node.output[0]}_split"
    value = numpy_helper.from_array(np.array(lengths, np.int64), given)
    node.input[:] = [node.input[0], given]
    return [helper.make_node("Constant", [], [given], name=given, value=value), node]


def _resize(node: onnx.NodeProto, sizes: _Sizes) -> list[onnx.NodeProto]:
    if _attribute(node, "antialias", 0):
        raise _Refused("it is antialiased")
    if _attribute(node, "keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise _Refused("it keeps the aspect ratio")
    if _attribute(node, "axes", None) is not None:
        raise _Refused("it names the axes that it resizes")
    for name in ("antialias", "keep_aspect_ratio_policy"):
        _remove(node, name)
    return [node]


def _scatter(node: onnx.NodeProto, sizes: _Sizes) -> list[onnx.NodeProto]:
    reduction = _attribute(node, "reduction", b"none")
    if reduction in (b"max", b"min"):
        raise _Refused(f"its reduction is {reduction.decode()!r}")
    return [node]


def _mish(node: onnx.NodeProto, sizes: _Sizes) -> list[onnx.NodeProto]:
    """Mish(x) = x·tanh(softplus(x))."""
    soft, bounded = f"{node.output[0]}_softplus", f"{node.output[0]}_tanh"
    return [
        helper.make_node("Softplus", node.input, [soft], name=f"{node.name}_softplus"),
        helper.make_node("Tanh", [soft], [bounded], name=f"{node.name}_tanh"),
        helper.make_node("Mul", [node.input[0], bounded], node.output, name=node.name),
    ]


_RULES: Mapping[str, Callable[[onnx.NodeProto, _Sizes], list[onnx.NodeProto]]] = {
    "Pad": _pad,
    "Split": _split,
    "Resize": _resize,
    "ScatterND": _scatter,
    "ScatterElements": _scatter,
    "Mish": _mish,
}


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = (helper.get_attribute_value(item) for item in node.attribute if item.name == name)
    return next(found, default)


def _remove(node: onnx.NodeProto, name: str) -> None:
    kept = [item for item in node.attribute if item.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                found[node.output[0]] = attribute.t
    return found


def _sizes(graph: onnx.GraphProto) -> dict[str, tuple[int | None, ...]]:
    return {
        info.name: tuple(
            dim.dim_value if dim.HasField("dim_value") else None for dim in info.type.tensor_type.shape.dim
        )
        for info in (*graph.input, *graph.value_info, *graph.output)
    }


def drop_unused(graph: onnx.GraphProto) -> None:
    """Removes initializers that no node reads any more: axes that are attributes now."""
    used = {name for node in all_nodes(graph) for name in node.input} | {out.name for out in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    if len(kept) < len(graph.initializer):
        dropped = [at for at, tensor in enumerate(graph.initializer) if tensor.name not in used]
        for at in reversed(dropped):
            del graph.initializer[at]
