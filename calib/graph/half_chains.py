"""Chains of nodes that spell out a normalization, as exporters write them below opset 17."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from calib.graph.half_graph import HalfGraph
from calib.graph.weights import as_array

__all__ = ["constant_value", "normalization_nodes"]

_SUMS = ("ReduceMean", "ReduceSum", "ReduceL2", "ReduceSumSquare", "GlobalAveragePool")
_GUARDS = ("Add", "Max", "Clip")


def normalization_nodes(graph: HalfGraph) -> set[int]:
    """Nodes of every mean → difference → square → mean → + epsilon → root → quotient.

    The mean and the difference may be missing (RMS norm), as may the square (an L2 norm's ReduceL2). A sum
    of squares leaves float16's range long before the normalized values do, and an epsilon of 1e-12 is 0 in
    float16, which divides by 0 where the variance is 0.

    Args:
        graph: The graph.

    Returns:
        Indices of the nodes.
    """
    found: set[int] = set()
    for index, node in enumerate(graph.nodes):
        if _is_root(node, graph):
            chain = _towards_sum(index, graph)
            if chain:
                found.update(chain, _squares(chain[-1], graph), _quotients(node, graph))
        elif node.op_type == "ReduceL2":
            quotients = set(_quotients(node, graph))
            found.update(quotients, (index,) if quotients else ())
    return found


def constant_value(name: str, graph: HalfGraph) -> float | None:
    """The value of a constant with one element; None for all else."""
    tensor = graph.constants.get(name)
    if tensor is None:
        return None
    values = as_array(tensor)
    return float(values.reshape(-1)[0]) if values.size == 1 else None


def _is_root(node: onnx.NodeProto, graph: HalfGraph) -> bool:
    if node.op_type == "Pow":
        return constant_value(node.input[1], graph) in (0.5, -0.5)
    return node.op_type == "Sqrt"


def _towards_sum(index: int, graph: HalfGraph) -> list[int]:
    """The nodes from a root back to the mean under it; empty where there is none."""
    chain, name = [index], graph.nodes[index].input[0]
    while name in graph.producer:
        before = graph.producer[name]
        node = graph.nodes[before]
        chain.append(before)
        if node.op_type in _SUMS:
            return chain
        data = [item for item in node.input if item and item not in graph.static]
        if node.op_type not in _GUARDS or len(data) != 1:
            return []
        name = data[0]
    return []


def _squares(index: int, graph: HalfGraph) -> Iterator[int]:
    """The square before a mean, the difference that is squared, and the mean that is taken off."""
    square = graph.producer.get(graph.nodes[index].input[0])
    if square is None or not _is_square(graph.nodes[square], graph):
        return
    yield square
    difference = graph.producer.get(graph.nodes[square].input[0])
    if difference is None or graph.nodes[difference].op_type != "Sub":
        return
    yield difference
    for name in graph.nodes[difference].input:
        mean = graph.producer.get(name)
        if mean is not None and graph.nodes[mean].op_type in _SUMS:
            yield mean


def _is_square(node: onnx.NodeProto, graph: HalfGraph) -> bool:
    if node.op_type == "Mul":
        return node.input[0] == node.input[1]
    return node.op_type == "Pow" and constant_value(node.input[1], graph) == 2.0


def _quotients(node: onnx.NodeProto, graph: HalfGraph) -> Iterator[int]:
    """The quotient by a root, or the product with its reciprocal."""
    for reader in graph.readers.get(node.output[0], ()):
        after = graph.nodes[reader]
        if after.op_type == "Div" and node.output[0] == after.input[1]:
            yield reader
            yield from _products(after, graph) if after.input[0] in graph.static else ()
        elif after.op_type == "Reciprocal":
            yield reader
            yield from _products(after, graph)
        elif after.op_type in _GUARDS or (after.op_type == "Expand" and node.op_type == "ReduceL2"):
            yield from (found for found in _quotients(after, graph))
        elif node.op_type == "Pow" and after.op_type == "Mul":
            yield reader


def _products(node: onnx.NodeProto, graph: HalfGraph) -> Iterator[int]:
    readers = graph.readers.get(node.output[0], ())
    return (reader for reader in readers if graph.nodes[reader].op_type == "Mul")
