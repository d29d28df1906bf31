"""Names that are free in a graph, and constants that nothing reads any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnx
from onnx import helper

from calib.graph.subgraphs import inner_graphs, names_read_inside

__all__ = [
    "FREE_INITIALIZERS",
    "FreshNames",
    "attribute_of",
    "declare_initializers",
    "drop_unread",
    "remove_attribute",
]

_HOLDERS = ("Constant", "Identity")

FREE_INITIALIZERS = 4
"""The first IR version whose initializers need not be inputs of the graph as well."""


class FreshNames:
    """Gives names that a graph does not have yet, for tensors and nodes alike.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._taken = _names(graph)

    def fresh(self, name: str) -> str:
        """The name itself where it is free, else the name with the first number that is."""
        candidate, number = name, 1
        while candidate in self._taken:
            candidate, number = f"{name}_{number}", number + 1
        self._taken.add(candidate)
        return candidate


def attribute_of(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of a node's attribute.

    Args:
        node: The node.
        name: The attribute's name.
        default: What it is where the node does not state it.
    """
    found = (helper.get_attribute_value(item) for item in node.attribute if item.name == name)
    return next(found, default)


def remove_attribute(node: onnx.NodeProto, name: str) -> None:
    """Removes an attribute from a node, where it has it.

    Args:
        node: The node, which is changed.
        name: The attribute's name.
    """
    kept = [item for item in node.attribute if item.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)


def drop_unread(graph: onnx.GraphProto, names: Iterable[str]) -> None:
    """Takes away constants, and the nodes that hand them on, that nothing reads any more.

    Args:
        graph: The graph, which is changed.
        names: Constants to look at; others stay, read or not.
    """
    dead = set(names)
    while dead:
        read = {name for node in graph.node for name in node.input}
        read |= {output.name for output in graph.output}
        read |= {name for node in graph.node for name in names_read_inside(node)}
        dead = dead - read
        named: tuple[Any, ...] = (graph.initializer, graph.input)
        for group in named:
            _delete(group, [i for i, item in enumerate(group) if item.name in dead])
        holders = [i for i, n in enumerate(graph.node) if n.op_type in _HOLDERS and n.output[0] in dead]
        dead = {name for i in holders for name in graph.node[i].input}
        _delete(graph.node, holders)


def declare_initializers(proto: onnx.ModelProto) -> None:
    """Lists initializers that were added among the graph's inputs, where the model's IR version wants that.

    Args:
        proto: The model, which is changed.
    """
    if proto.ir_version >= FREE_INITIALIZERS:
        return
    listed = {info.name for info in proto.graph.input}
    proto.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in proto.graph.initializer
        if tensor.name not in listed
    )


def _delete(group: Any, indices: Sequence[int]) -> None:
    """Deletes by place: a protocol buffer's own ``remove`` would compare large weights with each other."""
    for index in reversed(indices):
        del group[index]


def _names(graph: onnx.GraphProto) -> set[str]:
    """Every tensor and node name of a graph and its subgraphs."""
    names = {tensor.name for tensor in graph.initializer}
    names |= {info.name for info in (*graph.input, *graph.output, *graph.value_info)}
    for node in graph.node:
        names.update((node.name, *node.input, *node.output))
        for inner in inner_graphs(node):
            names |= _names(inner)
    return names
