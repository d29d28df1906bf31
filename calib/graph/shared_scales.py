"""One scale for tensors that hold the same values, or that a Concat puts together.

TensorRT moves a Q/DQ pair through operators that only move values, up to the node that computes them.
Where two pairs arrive at one node with different scales, it computes in float and quantizes twice, or
rescales each branch; with equal scales it writes INT8 once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx

from calib.calibrators.amax import amax_of
from calib.graph.graph_view import GraphView, label
from calib.graph.operators import commutes, moved_outputs, moves

__all__ = ["MOST_RATIO", "SharedScale", "concat_warnings", "share_scales"]

MOST_RATIO = 16.0
"""Ranges further apart than this do not share a scale: fewer than 8 of 127 steps would be left."""


@dataclass(frozen=True)
class SharedScale:
    """Quantized tensors with one scale.

    Attributes:
        scale: The scale, the largest of theirs.
        tensors: The tensors, in network order.
        own: The scale that each has in the cache, in the same order.
    """

    scale: float
    tensors: tuple[str, ...]
    own: tuple[float, ...]


def share_scales(graph: GraphView, tensors: Iterable[str]) -> tuple[list[SharedScale], list[str]]:
    """Finds quantized tensors that operators which only move values join.

    Args:
        graph: The graph, with the cache's scales.
        tensors: The tensors that get a pair.

    Returns:
        The groups of two or more, and a warning for each group whose ranges are too far apart to share.
    """
    groups: dict[str, list[str]] = {}
    joined = _Joined(graph)
    for tensor in tensors:
        groups.setdefault(joined.root(tensor), []).append(tensor)
    shared, warnings = [], []
    for members in groups.values():
        own = tuple(graph.scales[tensor] for tensor in members)
        if len(members) == 1:
            continue
        if max(own) > MOST_RATIO * min(own):
            warnings.append(
                f"Tensors that could share a scale keep their own, {max(own) / min(own):.3g} times apart: "
                f"{', '.join(members[:5])}. TensorRT rescales between them."
            )
            continue
        shared.append(SharedScale(max(own), tuple(members), own))
    return shared, warnings


class _Joined:
    """Sets of tensors, joined by operators that a pair commutes with."""

    def __init__(self, graph: GraphView) -> None:
        self._parent: dict[str, str] = {}
        for node in graph.nodes:
            if commutes(node):
                first, *others = _moved(node, graph) or [""]
                for name in others:
                    self._parent[self.root(name)] = self.root(first)

    def root(self, name: str) -> str:
        """The name that stands for a tensor's set."""
        while (parent := self._parent.get(name, name)) != name:
            self._parent[name] = self._parent.get(parent, parent)
            name = parent
        return name


def _moved(node: onnx.NodeProto, graph: GraphView) -> list[str]:
    """The tensors on both sides of a node that only moves values."""
    inputs = node.input if node.op_type == "Concat" else node.input[:1]
    return [name for name in (*inputs, *moved_outputs(node)) if name and name not in graph.constants]


def concat_warnings(graph: GraphView, tensors: Iterable[str]) -> Iterator[str]:
    """Warns of each Concat that puts ranges together which no one scale serves, as boxes and scores.

    Args:
        graph: The graph, with the cache's scales.
        tensors: The tensors that get a pair.
    """
    quantized = set(tensors)
    for node in graph.nodes:
        if node.op_type != "Concat":
            continue
        ranges = {name: graph.scales[name] for name in node.input if not graph.obstacle(name)}
        if not ranges or max(ranges.values()) <= MOST_RATIO * min(ranges.values()):
            continue
        small, large = min(ranges, key=ranges.__getitem__), max(ranges, key=ranges.__getitem__)
        apart = f"{small} (±{amax_of(ranges[small]):.3g}) and {large} (±{amax_of(ranges[large]):.3g})"
        steps = round(127 * ranges[small] / ranges[large])
        what = f"Concat {label(node)} puts {apart} under one scale, which leaves {steps} steps to the former"
        if quantized & _downstream(node.output[0], graph):
            yield f"{what}. Keep what reads it in float (--keep-float), or quantize before it."
        else:
            yield f"{what} in an engine that takes the cache alone. It stays in float here."


def _downstream(tensor: str, graph: GraphView) -> set[str]:
    """A tensor and what operators that only move values make of it."""
    reached = {tensor}
    for node in graph.nodes:
        if any(name in reached and moves(node, position) for position, name in enumerate(node.input)):
            reached.update(moved_outputs(node))
    return reached
