"""Writing a plan's float16 tensors and casts into a graph."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.graph.graph_edit import FreshNames, declare_initializers, drop_unread
from calib.graph.half_constants import half_values, is_bound
from calib.graph.half_graph import HalfGraph
from calib.graph.half_plan import HalfPlan
from calib.graph.half_policy import INDIFFERENT
from calib.graph.weights import as_array

__all__ = ["HalfWriter"]

_FLOAT, _HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


class HalfWriter:
    """Changes a graph as planned, in topological order.

    A tensor that is needed in both types has two names. Its own goes to the float32 one where the outside
    or a subgraph reads it, else to the one that is made first; the other is made by a Cast right before its
    first reader, or by a second DequantizeLinear, since a Cast behind one would keep TensorRT from fusing it.

    Args:
        graph: The graph; its model is changed.
        plan: What becomes float16.
        half_outputs: Model outputs that become float16.
    """

    def __init__(self, graph: HalfGraph, plan: HalfPlan, half_outputs: Collection[str] = ()) -> None:
        self._graph = graph
        self._plan = plan
        self._half_outputs = set(half_outputs)
        self._unique = FreshNames(graph.proto.graph).fresh
        self._names: dict[tuple[str, bool], str] = {}
        self._copies: dict[str, str] = {}
        self._written: list[onnx.NodeProto] = []
        self._float_constants = self._constants_read_as_float()
        self._casts = 0

    def apply(self) -> int:
        """Writes everything.

        Returns:
            The number of casts added.
        """
        graph = self._graph
        for info in graph.proto.graph.input:
            if info.name in self._plan.half:
                info.type.tensor_type.elem_type = _HALF
            self._names[info.name, info.name in self._plan.half] = info.name
        for index, node in enumerate(graph.nodes):
            self._write(index, node)
        self._give_outputs()
        del graph.proto.graph.node[:]
        graph.proto.graph.node.extend(self._written)
        self._retype_infos()
        drop_unread(graph.proto.graph, graph.constants.keys() & graph.readers.keys())
        declare_initializers(graph.proto)
        return self._casts

    def _write(self, index: int, node: onnx.NodeProto) -> None:
        slots = self._plan.slots[index]
        before = list(node.input)
        for place, name in enumerate(before):
            if name and self._graph.is_float(name) and node.op_type not in INDIFFERENT:
                node.input[place] = self._version(name, place in slots.inputs, node, place)
            elif node.op_type in INDIFFERENT and name not in self._graph.constants:
                node.input[place] = self._any_version(name)
        self._written.append(node)
        made = list(node.output)
        for place, name in enumerate(made):
            half = place in slots.outputs
            if name and self._graph.is_float(name) and name not in self._graph.constants:
                node.output[place] = self._own_name(name, half)
                self._names[name, half] = node.output[place]
        if slots.outputs:
            _retype(node)
        for name in made:
            if name in self._graph.captured and (name, True) in self._names:
                self._version(name, False)

    def _own_name(self, name: str, half: bool) -> str:
        """The name of the version that a node makes: the tensor's own, unless the other one needs that."""
        wanted = half
        if name in self._graph.outputs:
            wanted = name in self._half_outputs
        elif name in self._graph.captured:
            wanted = False
        return name if wanted == half else self._fresh(name, half)

    def _version(self, name: str, half: bool, node: onnx.NodeProto | None = None, place: int = 0) -> str:
        """A tensor in a type, cast before the node that is written next where it is not there yet."""
        if name in self._graph.constants and (name, half) not in self._names:
            return self._constant(name, half, node is not None and is_bound(node, place))
        if (name, half) not in self._names:
            source = self._names.get((name, not half), name)
            made = self._fresh(name, half) if source == name else name
            self._convert(name, source, made, half)
            self._names[name, half] = made
        return self._names[name, half]

    def _any_version(self, name: str) -> str:
        return self._names.get((name, False)) or self._names.get((name, True)) or name

    def _convert(self, name: str, source: str, made: str, half: bool) -> None:
        producer = self._graph.producer.get(name)
        maker = None if producer is None else self._graph.nodes[producer]
        if maker is not None and maker.op_type == "DequantizeLinear" and not half:
            copy = onnx.NodeProto()
            copy.CopyFrom(maker)
            copy.name = self._unique(f"{maker.name or made}_float32")
            copy.output[0] = made
            copy.input[1] = self._unrounded(maker.input[1])
            for attribute in copy.attribute:
                if attribute.name == "output_dtype" and attribute.i == _HALF:
                    attribute.i = _FLOAT
            self._written.append(copy)
            return
        kind = _HALF if half else _FLOAT
        cast_name = self._unique(f"{made}_Cast")
        self._written.append(helper.make_node("Cast", [source], [made], name=cast_name, to=kind))
        self._casts += 1

    def _unrounded(self, scale: str) -> str:
        """The float32 form of a float16 scale, of the same value: both dequantizers give the same."""
        if scale not in self._copies:
            tensor = next(t for t in self._graph.proto.graph.initializer if t.name == scale)
            self._copies[scale] = self._unique(f"{scale}_float32")
            values = as_array(tensor).astype(np.float32)
            self._graph.proto.graph.initializer.append(numpy_helper.from_array(values, self._copies[scale]))
        return self._copies[scale]

    def _constants_read_as_float(self) -> set[str]:
        graph = self._graph
        found = set(graph.captured) | graph.outputs
        for index, node in enumerate(graph.nodes):
            half = self._plan.slots[index].inputs
            found.update(
                name
                for place, name in enumerate(node.input)
                if name in graph.constants and (place not in half or _is_scale(node, place))
            )
        return found

    def _constant(self, name: str, half: bool, saturate: bool) -> str:
        """A constant in a type; in place where nothing reads it as float32."""
        if not half:
            return name
        tensor = self._graph.constants[name]
        values = half_values(as_array(tensor), saturate)
        holder = self._graph.producer.get(name)
        passed_on = holder is not None and self._graph.nodes[holder].op_type != "Constant"
        if name in self._float_constants or passed_on:
            made = self._fresh(name, half)
            self._graph.proto.graph.initializer.append(numpy_helper.from_array(values, made))
        else:
            made = name
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        self._names[name, True] = made
        return made

    def _give_outputs(self) -> None:
        for output in self._graph.proto.graph.output:
            half = output.name in self._half_outputs
            if self._graph.is_float(output.name) and output.name not in self._graph.constants:
                self._version(output.name, half)
            if half:
                output.type.tensor_type.elem_type = _HALF

    def _retype_infos(self) -> None:
        half = {made for (_, is_half), made in self._names.items() if is_half}
        initializers = {tensor.name for tensor in self._graph.proto.graph.initializer}
        for info in self._graph.proto.graph.value_info:
            if info.name in half:
                info.type.tensor_type.elem_type = _HALF
        for info in self._graph.proto.graph.input:
            # Up to IR 3 the initializers are listed among the inputs.
            if info.name in initializers and info.name in half:
                info.type.tensor_type.elem_type = _HALF

    def _fresh(self, name: str, half: bool) -> str:
        return self._unique(f"{name}_{'float16' if half else 'float32'}")


def _is_scale(node: onnx.NodeProto, place: int) -> bool:
    """Scales keep their float32 form as well: other nodes may share the constant."""
    return node.op_type in ("QuantizeLinear", "DequantizeLinear") and place == 1


def _retype(node: onnx.NodeProto) -> None:
    """Changes the attributes that say what type a node makes."""
    if node.op_type == "ConstantOfShape" and not node.attribute:
        zero = numpy_helper.from_array(np.zeros(1, np.float16), "value")
        node.attribute.append(helper.make_attribute("value", zero))
    for attribute in node.attribute:
        if attribute.name in ("to", "output_dtype") and attribute.i == _FLOAT:
            attribute.i = _HALF
        elif node.op_type == "ConstantOfShape" and attribute.t.data_type == _FLOAT:
            values = half_values(as_array(attribute.t), False)
            attribute.t.CopyFrom(numpy_helper.from_array(values, attribute.t.name))
