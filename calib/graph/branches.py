"""Tensors that several quantized branches read: written once in INT8, not in float beside it.

A pair stands on the input of an operator with a weight. Where a pooling or a Concat lies between, TensorRT
moves the Q up through it, to a tensor that others read as well: each of them brings a Q of its own, and the
tensor itself is written in float for all of them. With one pair on it, it is written in INT8 once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from calib.graph.graph_view import GraphView
from calib.graph.operators import commutes, moved_outputs, moves

__all__ = ["Place", "branch_places", "moved_pairs"]

_COARSEST = 2.0
"""A pair may be this much coarser than those that it stands before: they lose 6 dB, one bit, at most."""

Place = tuple[int, int]
"""Index of a node, and of its input."""


def branch_places(graph: GraphView, placed: Iterable[Place], kept: Iterable[int]) -> dict[str, list[Place]]:
    """Places that read a tensor through its pair, since all other readers of it come to pairs as well.

    On an H200 the first skip connection of a U-Net at batch 32, written in float for a MaxPool and a Concat,
    took 0.42 ms of 2.03 ms, where the implicit engine writes it in INT8 and needs 0.23 ms (TensorRT 8.6.0;
    reports/tensorrt-8.6.md).

    Args:
        graph: The graph.
        placed: The places that read through a pair already.
        kept: Nodes that stay in float.

    Returns:
        Tensor → places of nodes that only move values, each a place to read it through its pair.
    """
    branches = _Branches(graph, set(placed), frozenset(kept))
    found = {}
    # Behind first: what a pair there allows is seen when its own input is looked at.
    for tensor in reversed(list(_tensors(graph))):
        if places := branches.open_places(tensor):
            found[tensor] = places
            branches.pairs.update(places)
        branches.settle(tensor)
    return found


def moved_pairs(tensor: str, graph: GraphView, pairs: Mapping[str, object]) -> list[str]:
    """The tensors with a pair that hold values of a tensor alone, behind nodes of one input.

    Args:
        tensor: The tensor.
        graph: The graph.
        pairs: Tensors with a pair.
    """
    found, behind = [], [tensor]
    while behind:
        moved = [name for place in graph.places[behind.pop()] for name in _moved_alone(place, graph)]
        found += [name for name in moved if name in pairs]
        behind += [name for name in moved if name not in pairs]
    return found


def _moved_alone(place: Place, graph: GraphView) -> list[str]:
    node = graph.nodes[place[0]]
    return moved_outputs(node) if moves(node, place[1]) and node.op_type != "Concat" else []


def _tensors(graph: GraphView) -> Iterator[str]:
    made = {name for node in graph.nodes for name in node.output if name}
    yield from sorted({name for node in graph.nodes for name in node.input if name in graph.moving - made})
    yield from (name for node in graph.nodes for name in node.output if name)


class _Branches:
    """What of a graph comes to pairs; looked at from behind, so that what a tensor comes to is settled."""

    def __init__(self, graph: GraphView, pairs: set[Place], floats: frozenset[int]) -> None:
        self._graph = graph
        self.pairs = pairs
        self._floats = floats
        self._finest: dict[str, float] = {}

    def open_places(self, tensor: str) -> list[Place]:
        """The places that may read a tensor through its pair and do not; none where it has no branches."""
        places = self._graph.places[tensor]
        found = [place for place in places if place not in self.pairs]
        # A model's output and a subgraph read too, in float.
        if (
            len({index for index, _ in places}) < 2
            or self._graph.readers[tensor] != len(places)
            or self._graph.obstacle(tensor)
        ):
            return []
        coarsest = _COARSEST * min(map(self._moved, found), default=0.0)
        return found if self._graph.scales[tensor] <= coarsest else []

    def settle(self, tensor: str) -> None:
        """Keeps the finest scale of the pairs that a tensor comes to; 0 where something reads it in float."""
        self._finest[tensor] = min(self._scales(tensor), default=0.0)

    def _moved(self, place: Place) -> float:
        """The finest scale that what a place reads comes to; 0 where it, or a node behind it, is float."""
        node = self._graph.nodes[place[0]]
        if not moves(node, place[1]) or place[0] in self._floats:
            return 0.0
        return min(self._finest.get(name, 0.0) for name in moved_outputs(node))

    def _scales(self, tensor: str) -> Iterator[float]:
        """The scale of a tensor's own pair, and the finest of each way that goes on behind it."""
        places = self._graph.places[tensor]
        if self._graph.readers[tensor] != len(places):
            yield 0.0
        for place in places:
            paired = place in self.pairs
            if paired:
                yield self._graph.scales[tensor]
            if not paired or commutes(self._graph.nodes[place[0]]):
                yield self._moved(place)
