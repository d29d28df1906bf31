"""Tensors that several quantized branches read: written once in INT8, not in float beside it.

A pair stands on the input of an operator with a weight. Where a pooling or a Concat lies between, TensorRT
moves the Q up through it, to a tensor that others read as well: each of them brings a Q of its own, and the
tensor itself is written in float for all of them. With one pair on it, it is written in INT8 once; and with
one scale for it and for what a Concat makes of it, it is written where the Concat wants it, without a copy.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import inf

import onnx

from calib.graph.graph_edit import attribute_of
from calib.graph.graph_view import GraphView
from calib.graph.operators import commutes, moved_outputs, moves
from calib.graph.placement_rules import weighted_writers
from calib.graph.shared_scales import SharedScale

__all__ = ["Place", "branch_places", "handed_scales"]

_COARSEST = 2.0
"""A scale may be this much coarser than the one that a tensor has in the cache: 6 dB, one bit, at most."""

_BLOCK = 32
"""Channels of a block of TensorRT's INT8 formats, at most (CHW32)."""

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


def handed_scales(graph: GraphView, branching: Sequence[str], pairs: Container[str]) -> list[SharedScale]:
    """One scale for each branching tensor and what its values come to, so that nothing is rescaled.

    What only moves its values takes its scale. What a Concat makes of it and others has one scale with it
    where these are near enough, the larger one; but not where a convolution of few input channels writes it,
    for which TensorRT 8.6.0 has kernels that get a part of a Concat wrong. On an H200 a U-Net at batch 32
    took 1.67 ms with that and 1.71 ms without, and its SQNR was the same (reports/tensorrt-8.6.md).

    Args:
        graph: The graph, with the cache's scales.
        branching: The tensors of ``branch_places``, in network order.
        pairs: Tensors with a pair.

    Returns:
        The groups of two tensors and more.
    """
    first: dict[str, str] = {}
    joined = []
    for tensor in branching:
        alone, behind = _reached(tensor, graph, pairs)
        # What another branching tensor hands on itself, as in a row of poolings, has that one's scale.
        first.update(dict.fromkeys((tensor, *alone), first.get(tensor, tensor)))
        if not _few_channels(tensor, graph):
            joined += [(tensor, name) for name in behind]
    groups = _Groups(graph.scales, _finest_behind(graph, pairs), first)
    for tensor, name in joined:
        groups.join(tensor, name)
    found = []
    for names, scale in groups.found():
        ordered = tuple(sorted(names, key=lambda name: graph.producer.get(name, -1)))
        found.append(SharedScale(scale, ordered, tuple(graph.scales[name] for name in ordered)))
    return found


def _reached(tensor: str, graph: GraphView, pairs: Container[str]) -> tuple[list[str], list[str]]:
    """The tensors with a pair that hold values of a tensor alone, and those that a Concat puts them into."""
    alone: list[str] = []
    joined: list[str] = []
    behind, seen = [(tensor, False)], {tensor}
    while behind:
        name, together = behind.pop()
        for index, position in graph.places[name]:
            node = graph.nodes[index]
            mixed = together or node.op_type == "Concat"
            for made in moved_outputs(node) if _hands_on(node, position, graph) else ():
                if made in seen:
                    continue
                seen.add(made)
                if made not in pairs:
                    behind.append((made, mixed))
                else:
                    (joined if mixed else alone).append(made)
    return alone, joined


def _finest_behind(graph: GraphView, pairs: Container[str]) -> dict[str, float]:
    """The finest scale of the pairs that a tensor's values come to, its own among them.

    Also behind a Concat of other parts, which keeps its own scale, but gets what this tensor's pair left.
    """
    found: dict[str, float] = {}
    for tensor in reversed(list(_tensors(graph))):
        scales = [graph.scales[tensor]] if tensor in pairs else []
        for index, position in graph.places[tensor]:
            node = graph.nodes[index]
            if moves(node, position):
                scales += [found.get(name, inf) for name in moved_outputs(node)]
        found[tensor] = min(scales, default=inf)
    return found


def _few_channels(tensor: str, graph: GraphView) -> bool:
    """Whether a node that writes a tensor sums less than a block of channels (seen: 1, 3 and 16)."""
    weights = [graph.constants.get(graph.nodes[index].input[1]) for index in weighted_writers(tensor, graph)]
    return any(weight is None or min(weight.dims[:2], default=0) < _BLOCK for weight in weights)


def _hands_on(node: onnx.NodeProto, position: int, graph: GraphView) -> bool:
    """Whether what a node makes of an input may have the input's scale."""
    return moves(node, position) and (node.op_type != "Concat" or _joins_blocks(node, graph))


def _joins_blocks(node: onnx.NodeProto, graph: GraphView) -> bool:
    """Whether a Concat puts whole blocks of channels together.

    With one scale TensorRT writes each part where the Concat wants it, and the part's other readers read it
    there: at once where it begins with a block, and by a copy in another format where it does not.
    """
    sizes = [graph.sizes(name) for name in node.input]
    # Without an axis it is not valid, as a Concat of nothing; what checks a model says so better.
    axis = attribute_of(node, "axis", 0)
    if axis < 0:
        axis += max(map(len, sizes), default=0)
    return axis == 1 and all(len(found) > 1 and found[1] and not found[1] % _BLOCK for found in sizes)


class _Groups:
    """Tensors with one scale: the largest of those that are not merely handed on."""

    def __init__(
        self, scales: Mapping[str, float], finest: Mapping[str, float], first: Mapping[str, str]
    ) -> None:
        self._scales = scales
        self._finest = finest
        self._root = dict(first)
        self._members: dict[str, list[str]] = {}
        for name, origin in first.items():
            self._members.setdefault(origin, []).append(name)
        # The finest scale that what has a group's scale comes to, and that scale.
        self._span = {origin: (finest[origin], scales[origin]) for origin in self._members}

    def join(self, tensor: str, joined: str) -> None:
        """Makes one group of two tensors', where no pair is reached by values that are much coarser."""
        one, two = self._root[tensor], self._root.setdefault(joined, joined)
        members = self._members.setdefault(two, [two])
        alone = self._finest[two], self._scales[two]
        low, high = zip(self._span[one], self._span.setdefault(two, alone), strict=True)
        if one == two or max(high) > _COARSEST * min(low):
            return
        self._root.update(dict.fromkeys(members, one))
        self._members[one] += self._members.pop(two)
        self._span[one] = min(low), max(high)

    def found(self) -> Iterator[tuple[list[str], float]]:
        """The groups of two and more, each with its scale."""
        for root, names in self._members.items():
            if len(names) > 1:
                yield names, self._span[root][1]


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
