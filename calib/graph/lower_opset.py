"""From a higher opset to 17, for TensorRT 8.6.

PyTorch's exporter writes opset 18 or higher, and the converter that comes with onnx has no way back for
Pad and Split and leaves an attribute of opset 18 in the Reduce operators. Most of what later opsets changed
are types, and attributes whose default is the old meaning (onnx, docs/Changelog.md); what else exporters use
of them can be written in opset 17 with the same meaning. What cannot is refused, by node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.errors import ModelError, first_names
from calib.graph.graph_edit import FreshNames, attribute_of, remove_attribute
from calib.graph.operators import is_standard
from calib.graph.subgraphs import all_nodes, inner_graphs
from calib.graph.weights import constants

__all__ = ["LOWEST_OPSET", "drop_unused", "lower_to_17", "refuse_functions"]

LOWEST_OPSET = 17

# Reductions that leave a single value as it is; L1, L2 and the logarithms do not.
_UNCHANGED = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd")

# Operators that compute something else since then though they look the same: its axis is another by default.
_CHANGED = ("DFT",)

_Constants = Mapping[str, onnx.TensorProto]
_Sizes = Mapping[str, tuple[int | None, ...]]


class _Refused(Exception):
    """Opset 17 has nothing that means the same."""


@dataclass(frozen=True)
class _Known:
    """What the rules may ask: sizes and types of tensors, and names that are free."""

    sizes: _Sizes
    types: Mapping[str, int]
    fresh: Callable[[str], str]


def lower_to_17(
    proto: onnx.ModelProto, name: str, shapes: _Sizes | None = None, types: Mapping[str, int] | None = None
) -> None:
    """Rewrites a model of a higher opset in place, as opset 17.

    Args:
        proto: The model.
        name: What it is called in messages.
        shapes: Tensor → sizes, beside those that the model states.
        types: Tensor → element type; float32 where none is known.

    Raises:
        ModelError: A node has no form in opset 17; node and operator are named. The model defines functions.
    """
    refuse_functions(proto, name, LOWEST_OPSET)
    entries = [entry for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    opset = max((entry.version for entry in entries), default=LOWEST_OPSET)
    sizes = {**(shapes or {}), **_sizes(proto.graph)}
    known = _Known(sizes, types or {}, FreshNames(proto.graph).fresh)
    _Lowering(opset, name).graph(proto.graph, {}, known)
    for entry in entries:
        entry.version = LOWEST_OPSET


def refuse_functions(proto: onnx.ModelProto, name: str, opset: int) -> None:
    """Refuses a model that defines functions, where it is to be written in another opset.

    Args:
        proto: The model.
        name: What it is called in the message.
        opset: The other opset.

    Raises:
        ModelError: It defines some; they are named.
    """
    if proto.functions:
        names = first_names([item.name for item in proto.functions])
        raise ModelError(
            f"{name} defines functions ({names}), which cannot be written in opset {opset}. Put them into "
            "the graph first: import onnx.inliner; onnx.inliner.inline_local_functions(onnx.load(PATH))."
        )


class _Lowering:
    """Rewrites graphs of one opset."""

    def __init__(self, opset: int, name: str) -> None:
        self._opset = opset
        self._name = name

    def graph(self, graph: onnx.GraphProto, outer: _Constants, known: _Known) -> None:
        """Rewrites a graph and the subgraphs of its nodes."""
        held = {**outer, **constants(graph)}
        sizes = {**known.sizes, **{name: tuple(tensor.dims) for name, tensor in held.items()}}
        known = replace(known, sizes=sizes)
        lowered: list[onnx.NodeProto] = []
        for node in graph.node:
            for inner in inner_graphs(node):
                self.graph(inner, held, replace(known, sizes={**sizes, **_sizes(inner)}))
            try:
                lowered.extend(self._lowered(node, held, known))
            except _Refused as error:
                raise ModelError(
                    f"{self._name}: node {node.name or node.output[0]!r} ({node.op_type}) cannot be written "
                    f"in opset 17, the highest that TensorRT 8.6 reads: {error}. Write that part of the "
                    "network otherwise, or choose a newer --target."
                ) from error
        del graph.node[:]
        graph.node.extend(lowered)
        drop_unused(graph)

    def _lowered(self, node: onnx.NodeProto, held: _Constants, known: _Known) -> Iterable[onnx.NodeProto]:
        """The nodes that mean in opset 17 what a node means in the model's."""
        if not is_standard(node):
            return [node]
        # ReduceSum has had its axes as an input since opset 13.
        if node.op_type.startswith("Reduce") and node.op_type != "ReduceSum":
            return [_reduce(node, held)]
        if node.op_type in _RULES:
            return _RULES[node.op_type](node, known)
        _check_form(node, self._opset)
        return [node]


def _check_form(node: onnx.NodeProto, opset: int) -> None:
    """Refuses what opset 17 has no form of; takes away attributes that say what it does anyway."""
    try:
        old = onnx.defs.get_schema(node.op_type, LOWEST_OPSET)
    except onnx.defs.SchemaError as error:
        raise _Refused("the operator is newer than opset 17") from error
    new = onnx.defs.get_schema(node.op_type, opset)
    if new.since_version == old.since_version:
        return
    if node.op_type in _CHANGED or not old.min_input <= len(node.input) <= old.max_input:
        raise _Refused("the operator was changed after opset 17")
    for attribute in list(node.attribute):
        if attribute.name in old.attributes:
            continue
        if not _says_nothing(attribute, new):
            raise _Refused(f"its attribute {attribute.name!r} is newer than opset 17")
        remove_attribute(node, attribute.name)


def _says_nothing(attribute: onnx.AttributeProto, schema: onnx.defs.OpSchema) -> bool:
    """Whether an attribute has the value that stands for its absence."""
    value = helper.get_attribute_value(attribute)
    if attribute.name == "dilations":
        return all(step == 1 for step in value)
    default = schema.attributes[attribute.name].default_value
    return bool(default.type) and helper.get_attribute_value(default) == value


def _reduce(node: onnx.NodeProto, known: _Constants) -> onnx.NodeProto:
    axes = node.input[1] if len(node.input) > 1 else ""
    if axes and axes not in known:
        raise _Refused("its axes are computed")
    values = numpy_helper.to_array(known[axes]).reshape(-1).tolist() if axes else []
    if not values and attribute_of(node, "noop_with_empty_axes", 0):
        if node.op_type not in _UNCHANGED:
            raise _Refused("it reduces no axes")
        return helper.make_node("Identity", node.input[:1], node.output, name=node.name)
    remove_attribute(node, "noop_with_empty_axes")
    del node.input[1:]
    if values:
        node.attribute.append(helper.make_attribute("axes", values))
    return node


def _pad(node: onnx.NodeProto, known: _Known) -> list[onnx.NodeProto]:
    if len(node.input) > 3 and node.input[3]:
        raise _Refused("it names the axes that it pads")
    del node.input[3:]
    if attribute_of(node, "mode", b"constant") == b"wrap":
        raise _Refused("its mode is 'wrap'")
    return [node]


def _split(node: onnx.NodeProto, known: _Known) -> list[onnx.NodeProto]:
    parts = attribute_of(node, "num_outputs", None)
    remove_attribute(node, "num_outputs")
    if parts is None or (len(node.input) > 1 and node.input[1]):
        return [node]
    shape = known.sizes.get(node.input[0])
    size = shape[attribute_of(node, "axis", 0)] if shape else None
    if size is None:
        raise _Refused("it cuts an axis of unknown size")
    step = -(-size // parts)
    lengths = [max(0, min(step, size - step * part)) for part in range(parts)]
    given = known.fresh(f"{node.output[0]}_split")
    value = numpy_helper.from_array(np.array(lengths, np.int64), given)
    node.input[:] = [node.input[0], given]
    return [helper.make_node("Constant", [], [given], name=given, value=value), node]


def _resize(node: onnx.NodeProto, known: _Known) -> list[onnx.NodeProto]:
    if attribute_of(node, "antialias", 0):
        raise _Refused("it is antialiased")
    if attribute_of(node, "keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise _Refused("it keeps the aspect ratio")
    if attribute_of(node, "axes", None) is not None:
        raise _Refused("it names the axes that it resizes")
    if attribute_of(node, "coordinate_transformation_mode", b"half_pixel") == b"half_pixel_symmetric":
        raise _Refused("its coordinates are 'half_pixel_symmetric'")
    for name in ("antialias", "keep_aspect_ratio_policy"):
        remove_attribute(node, name)
    return [node]


def _grid_sample(node: onnx.NodeProto, known: _Known) -> list[onnx.NodeProto]:
    shape = known.sizes.get(node.input[0])
    if shape is not None and len(shape) != 4:
        raise _Refused("it samples a volume")
    mode = {b"linear": "bilinear", b"cubic": "bicubic"}.get(attribute_of(node, "mode", b"linear"))
    if mode:
        remove_attribute(node, "mode")
        node.attribute.append(helper.make_attribute("mode", mode))
    return [node]


def _scatter(node: onnx.NodeProto, known: _Known) -> list[onnx.NodeProto]:
    reduction = attribute_of(node, "reduction", b"none")
    if reduction in (b"max", b"min"):
        raise _Refused(f"its reduction is {reduction.decode()!r}")
    return [node]


def _mish(node: onnx.NodeProto, known: _Known) -> list[onnx.NodeProto]:
    """Mish(x) = x·tanh(softplus(x))."""
    x, steps = node.input[0], _Steps(node, known)
    steps.last("Mul", x, steps.add("Tanh", steps.add("Softplus", x)))
    return steps.nodes


def _gelu(node: onnx.NodeProto, known: _Known) -> list[onnx.NodeProto]:
    """Gelu(x) = x·(1 + erf(x/√2))/2, or its approximation x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2."""
    x, steps = node.input[0], _Steps(node, known)
    if attribute_of(node, "approximate", b"none") == b"none":
        bent = steps.add("Erf", steps.add("Div", x, math.sqrt(2)))
    else:
        cube = steps.add("Mul", steps.add("Pow", x, 3.0), 0.044715)
        bent = steps.add("Tanh", steps.add("Mul", steps.add("Add", x, cube), math.sqrt(2 / math.pi)))
    steps.last("Mul", steps.add("Mul", x, steps.add("Add", bent, 1.0)), 0.5)
    return steps.nodes


class _Steps:
    """Nodes in the place of one: their names and tensors are numbered, the last one has the node's own.

    Args:
        node: The node.
        known: What is known of its graph.
    """

    def __init__(self, node: onnx.NodeProto, known: _Known) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._node = node
        self._fresh = known.fresh
        kind = known.types.get(node.input[0], onnx.TensorProto.FLOAT)
        self._type = helper.tensor_dtype_to_np_dtype(kind)

    def add(self, kind: str, *inputs: str | float) -> str:
        """Adds a node, with constants where inputs are numbers, and returns its output."""
        step = f"{kind.lower()}_{len(self.nodes)}"
        output, name = self._fresh(f"{self._node.output[0]}_{step}"), self._fresh(f"{self._node.name}_{step}")
        return self._add(kind, inputs, output, name)

    def last(self, kind: str, *inputs: str | float) -> None:
        """Adds the node that makes what the whole makes."""
        self._add(kind, inputs, self._node.output[0], self._node.name)

    def _add(self, kind: str, inputs: Iterable[str | float], output: str, name: str) -> str:
        names = [item if isinstance(item, str) else self._constant(item) for item in inputs]
        self.nodes.append(helper.make_node(kind, names, [output], name=name))
        return output

    def _constant(self, value: float) -> str:
        name = self._fresh(f"{self._node.output[0]}_constant_{len(self.nodes)}")
        tensor = numpy_helper.from_array(np.array(value, self._type), name)
        self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        return name


_RULES: Mapping[str, Callable[[onnx.NodeProto, _Known], list[onnx.NodeProto]]] = {
    "Pad": _pad,
    "Split": _split,
    "Resize": _resize,
    "ScatterND": _scatter,
    "ScatterElements": _scatter,
    "Mish": _mish,
    "Gelu": _gelu,
    "GridSample": _grid_sample,
}


def _sizes(graph: onnx.GraphProto) -> dict[str, tuple[int | None, ...]]:
    return {
        info.name: tuple(
            dim.dim_value if dim.HasField("dim_value") else None for dim in info.type.tensor_type.shape.dim
        )
        for info in (*graph.input, *graph.value_info, *graph.output)
        if info.type.tensor_type.HasField("shape")
    }


def drop_unused(graph: onnx.GraphProto) -> None:
    """Removes initializers that no node reads any more: axes that are attributes now."""
    used = {name for node in all_nodes(graph) for name in node.input} | {out.name for out in graph.output}
    dropped = {tensor.name for tensor in graph.initializer} - used
    # Listed among the inputs alone, one would have to be fed.
    groups: tuple[Any, ...] = (graph.initializer, graph.input)
    for group in groups:
        for at in reversed([at for at, item in enumerate(group) if item.name in dropped]):
            del group[at]
