"""Weights and other constants that a graph computes from constants, computed beforehand.

Exporters leave such nodes: PyTorch's transposes the weight of every Linear and splits the packed one of
MultiheadAttention, and folds them up to some size alone; others store weights in float16 behind a Cast.
A rule that looks for a constant weight finds none, and a check of constants does not see them.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.data import Array
from calib.graph.dependence import data_dependent_outputs
from calib.graph.graph_edit import FREE_INITIALIZERS, FreshNames, drop_unread
from calib.graph.intake import OnnxModel
from calib.graph.operators import WEIGHTED, is_quantized, is_standard
from calib.graph.subgraphs import inner_graphs, names_read_inside
from calib.graph.weights import as_array, constant_of, constants

__all__ = [
    "computed_constants",
    "computed_weights",
    "fold_constants",
    "state_constants",
    "with_constant_weights",
]

_RANDOM = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
)

# Folding may not blow a model up: an Expand of one value stays what it is.
_SMALL = 1 << 20
_GROWTH = 2


def computed_weights(graph: onnx.GraphProto) -> list[str]:
    """Weights of Conv, ConvTranspose, Gemm and MatMul that no data changes and that are no constants yet."""
    nodes = [node for node in graph.node if node.op_type in WEIGHTED and is_standard(node)]
    return _still(graph, (node.input[1] for node in nodes if len(node.input) > 1))


def computed_constants(graph: onnx.GraphProto) -> list[str]:
    """All tensors that no data changes, that are no constants yet, and that a node with data reads."""
    dependent = set(data_dependent_outputs(graph))
    nodes = [node for node in graph.node if not dependent.isdisjoint(node.output)]
    return _still(graph, (name for node in nodes for name in node.input))


def _still(graph: onnx.GraphProto, names: Iterable[str]) -> list[str]:
    made = {name for node in graph.node for name in node.output if name}
    other = {*constants(graph), *data_dependent_outputs(graph), *(output.name for output in graph.output)}
    return [name for name in dict.fromkeys(names) if name in made and name not in other]


def with_constant_weights(model: OnnxModel) -> OnnxModel:
    """The model, or a copy of it in which computed weights are constants."""
    names = computed_weights(model.proto.graph)
    if not names:
        return model
    proto = model.edited()
    fold_constants(proto, names)
    return OnnxModel(model.path, proto, model.external_files)


def fold_constants(proto: onnx.ModelProto, names: Collection[str]) -> list[str]:
    """Puts constants in the place of tensors that are computed from constants alone; names stay.

    Nodes that nothing reads any more go. A tensor stays as it is where a random, custom or control-flow node
    is behind it, where it is much larger than what it is made of, or where it cannot be computed here.

    Args:
        proto: The model, which is changed.
        names: Tensors that no data changes.

    Returns:
        The float tensors that were folded.
    """
    if not names:
        return []
    graph = proto.graph
    known = constants(graph)
    producer = {output: index for index, node in enumerate(graph.node) for output in node.output if output}
    origins = {name: origin for name in names if (origin := _origin(name, graph, known, producer))}
    values = {name: _value(proto, name, origin, known) for name, origin in origins.items()}
    folded = {name: value for name, value in values.items() if value is not None}
    behind = {output for name in folded for index in origins[name] for output in graph.node[index].output}
    read = {item for name in folded for index in origins[name] for item in graph.node[index].input}
    behind |= _take_names(graph, folded)
    _drop_dead(graph, behind)
    drop_unread(graph, read & known.keys())
    _add(proto, folded)
    return list(folded)


def state_constants(graph: onnx.GraphProto) -> None:
    """Writes what Constant nodes hold in a plain attribute (``value_float``) as a tensor, which has a type.

    Args:
        graph: The graph, which is changed.
    """
    for node in graph.node:
        value = constant_of(node) if node.op_type == "Constant" else None
        if value is not None and node.attribute[0].name != "value":
            node.attribute[0].CopyFrom(helper.make_attribute("value", value))


def _origin(
    name: str, graph: onnx.GraphProto, known: Container[str], producer: Mapping[str, int]
) -> list[int]:
    """The nodes that make a tensor of constants, in order; none where it cannot be computed beforehand."""
    found: set[int] = set()
    wanted = [name]
    while wanted:
        tensor = wanted.pop()
        if tensor in known:
            continue
        index = producer.get(tensor)
        if index is None or not _can_be_folded(graph.node[index]):
            return []
        if index not in found:
            found.add(index)
            wanted.extend(item for item in graph.node[index].input if item)
    return sorted(found)


def _can_be_folded(node: onnx.NodeProto) -> bool:
    if not is_standard(node) or is_quantized(node) or node.op_type in _RANDOM:
        return False
    return not any(True for _ in inner_graphs(node))


def _value(
    proto: onnx.ModelProto, name: str, origin: Sequence[int], known: Mapping[str, onnx.TensorProto]
) -> Array | None:
    """What a tensor holds; None where it is no float tensor, is too large, or cannot be computed."""
    from onnx.reference import ReferenceEvaluator

    nodes = [proto.graph.node[index] for index in origin]
    given = {item: known[item] for node in nodes for item in node.input if item in known}
    outside = [helper.make_tensor_value_info(item, t.data_type, t.dims) for item, t in given.items()]
    graph = helper.make_graph(nodes, "constants", outside, [onnx.ValueInfoProto(name=name)])
    part = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    arrays = {item: as_array(tensor) for item, tensor in given.items()}
    try:
        with np.errstate(all="ignore"):
            (value,) = ReferenceEvaluator(part).run(None, arrays)
    except Exception:
        # The evaluator raises what numpy and its own operators raise, of any type. The tensor then stays
        # computed, and what reads it is listed with that as the reason.
        return None
    if not isinstance(value, np.ndarray) or value.dtype not in (np.float32, np.float16):
        return None
    most = max(_SMALL, _GROWTH * sum(array.nbytes for array in arrays.values()))
    return value if value.nbytes <= most else None


def _take_names(graph: onnx.GraphProto, names: Collection[str]) -> set[str]:
    """Gives what nodes make of these names other ones; returns those."""
    fresh = FreshNames(graph).fresh
    given = set()
    for node in graph.node:
        for place, name in enumerate(node.output):
            if name in names:
                node.output[place] = fresh(f"{name}_unfolded")
                given.add(node.output[place])
    return given


def _drop_dead(graph: onnx.GraphProto, candidates: Collection[str]) -> None:
    """Takes away nodes that make such tensors alone, and none that is read."""
    while True:
        read = {name for node in graph.node for name in (*node.input, *names_read_inside(node))}
        read |= {output.name for output in graph.output}
        made = (set(filter(None, node.output)) for node in graph.node)
        dead = [
            index
            for index, names in enumerate(made)
            if names and read.isdisjoint(names) and names.issubset(candidates)
        ]
        if not dead:
            return
        for index in reversed(dead):
            del graph.node[index]


def _add(proto: onnx.ModelProto, values: Mapping[str, Array]) -> None:
    tensors = [numpy_helper.from_array(np.asarray(value, order="C"), name) for name, value in values.items()]
    if proto.ir_version >= FREE_INITIALIZERS:
        proto.graph.initializer.extend(tensors)
        return
    nodes = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in tensors]
    for place, node in enumerate(nodes):
        proto.graph.node.insert(place, node)
