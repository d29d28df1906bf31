"""What a float16 model computes, in float32 on a CPU: every result rounded to float16.

ONNX Runtime casts around operators that it has no float16 kernel for, and then takes away the casts between
two of them, so that what is between is never rounded and never overflows. Casts that stand in the model
itself it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.graph.graph_edit import FreshNames
from calib.graph.half_graph import HalfGraph
from calib.graph.intake import OnnxModel
from calib.graph.subgraphs import inner_graphs
from calib.graph.weights import as_array

__all__ = ["simulate_float16"]

_FLOAT, _HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
# Their results are among their inputs, which are rounded already.
_VIEWS = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Split", "Concat")
_PICKS = ("Gather", "GatherElements", "GatherND", "Expand", "Tile", "MaxPool", "Relu", "Max", "Min", "Where")
_EXACT = frozenset((*_VIEWS, *_PICKS))


def simulate_float16(model: OnnxModel) -> OnnxModel:
    """A float32 model that rounds each result to float16 where a model computes in float16.

    Sums inside of an operator are taken in float32, as TensorRT's kernels for tensor cores do.

    Args:
        model: A model with float16 tensors. What is inside an If, Loop or Scan stays as it is.

    Returns:
        A model with the same inputs and outputs, types included.
    """
    graph = HalfGraph(model.edited())
    half = {name for name, kind in graph.types.items() if kind == _HALF}
    if half:
        _Simulation(graph, half).apply()
    return OnnxModel(model.path, graph.proto, model.external_files)


class _Simulation:
    """Gives each float16 tensor a float32 one; the outside and subgraphs find the float16 one as before."""

    def __init__(self, graph: HalfGraph, half: set[str]) -> None:
        self._graph = graph
        self._half = half
        self._fresh = FreshNames(graph.proto.graph).fresh
        self._names: dict[str, str] = {}
        control = (node for node in graph.nodes if any(True for _ in inner_graphs(node)))
        self._shown = graph.outputs | graph.captured | {name for node in control for name in node.input}

    def apply(self) -> None:
        graph = self._graph.proto.graph
        for tensor in graph.initializer:
            if tensor.name in self._half and tensor.name not in self._shown:
                tensor.CopyFrom(_as_float(tensor))
        for info in graph.input:
            # Up to IR 3 the initializers are listed among the inputs.
            if info.name in self._half & self._graph.constants.keys() - self._shown:
                info.type.tensor_type.elem_type = _FLOAT
        named = [item.name for group in (graph.input, graph.initializer) for item in group]
        halves = (name for name in named if name in self._half)
        given = [n for n in halves if n not in self._graph.constants or n in self._shown]
        written = [self._restored(name) for name in given]
        for node in self._graph.nodes:
            written.extend(self._node(node))
        del graph.node[:]
        graph.node.extend(written)
        # What they said of types is no longer so.
        del graph.value_info[:]

    def _node(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        halves = [name for name in node.output if name in self._half]
        if any(True for _ in inner_graphs(node)):
            yield node
            yield from map(self._restored, halves)
            return
        if halves or any(name in self._half for name in node.input):
            node.input[:] = [self._names.get(name, name) for name in node.input]
            _retype(node)
        after = [cast for place, name in enumerate(node.output) for cast in self._output(node, place, name)]
        yield node
        yield from after

    def _output(self, node: onnx.NodeProto, place: int, name: str) -> list[onnx.NodeProto]:
        """The casts that round an output; the node is made to write the exact one."""
        if name not in self._half:
            return []
        target = self._fresh(f"{name}_float32") if name in self._shown else name
        self._names[name] = target
        exact = node.op_type in _EXACT or node.op_type == "Constant"
        if exact and target == name:
            return []
        between = name if name in self._shown else self._fresh(f"{name}_rounded")
        node.output[place] = self._fresh(f"{name}_exact")
        return [
            self._cast(node.output[place], between, _HALF),
            self._cast(between, target, _FLOAT),
        ]

    def _restored(self, name: str) -> onnx.NodeProto:
        self._names[name] = self._fresh(f"{name}_float32")
        return self._cast(name, self._names[name], _FLOAT)

    def _cast(self, source: str, target: str, kind: int) -> onnx.NodeProto:
        return helper.make_node("Cast", [source], [target], name=self._fresh(f"{target}_Cast"), to=kind)


def _as_float(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return numpy_helper.from_array(as_array(tensor).astype(np.float32), tensor.name)


def _retype(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "output_dtype") and attribute.i == _HALF:
            attribute.i = _FLOAT
        elif attribute.t.data_type == _HALF:
            attribute.t.CopyFrom(_as_float(attribute.t))
