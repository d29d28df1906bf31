"""Which tensors of a graph depend on its data."""

from __future__ import annotations

import onnx

from calib.graph.subgraphs import names_read_inside

__all__ = ["data_dependent_outputs"]


def data_dependent_outputs(graph: onnx.GraphProto) -> list[str]:
    """Outputs of a graph's nodes that depend on its data inputs, in network order."""
    weights = {tensor.name for tensor in graph.initializer}
    dependent = {info.name for info in graph.input} - weights
    names: list[str] = []
    for node in graph.node:
        if dependent.intersection(node.input) or dependent & names_read_inside(node):
            outputs = [name for name in node.output if name]
            dependent.update(outputs)
            names.extend(outputs)
    return names
