"""Walking the subgraphs of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

__all__ = ["all_graphs", "all_nodes", "inner_graphs", "names_read_inside", "nodes_inside"]


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The subgraphs of an If, Loop or Scan, without those inside of them."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and the subgraphs of its nodes, at any depth."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from all_graphs(inner)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph, each before those in its subgraphs, at any depth."""
    for node in graph.node:
        yield node
        yield from nodes_inside(node)


def nodes_inside(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The nodes in the subgraphs of a node, at any depth."""
    for graph in inner_graphs(node):
        yield from all_nodes(graph)


def names_read_inside(node: onnx.NodeProto) -> set[str]:
    """Every tensor name that the subgraphs of a node read, at any depth, their outputs among them."""
    names: set[str] = set()
    for graph in inner_graphs(node):
        names.update(output.name for output in graph.output)
        for inner in all_nodes(graph):
            names.update(name for name in inner.input if name)
            for deeper in inner_graphs(inner):
                names.update(output.name for output in deeper.output)
    return names
