"""Why each Q/DQ pair stands where it stands, and why the rest is float."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx

from calib.graph.graph_view import GraphView, label
from calib.graph.operators import WEIGHTED, adds_two, float_reason
from calib.graph.placement import LeftFloat, Plan
from calib.graph.placement_rules import adds_constant
from calib.graph.qdq_writer import Pair
from calib.graph.shared_scales import SharedScale
from calib.graph.subgraphs import nodes_inside
from calib.wording import counted, inflected

__all__ = ["Explanation", "FloatGroup", "Subgraph", "explain_float", "explanation_notes", "left_in_words"]

_NAMED = 5


@dataclass(frozen=True)
class FloatGroup:
    """Nodes of one operator that no pair stands on.

    Attributes:
        op: The operator.
        domain: Its domain; empty for ONNX's own.
        reason: Why they stay in float.
        nodes: Their names, or their first outputs' where they have none.
    """

    op: str
    domain: str
    reason: str
    nodes: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.nodes)


@dataclass(frozen=True)
class Subgraph:
    """What lies inside an If, Loop or Scan, or in a function of the model; all of it stays in float.

    Attributes:
        node: The node.
        op: Its operator.
        count: Nodes inside of it, at any depth.
        weighted: Those of them that would run in INT8 in the main graph.
    """

    node: str
    op: str
    count: int
    weighted: int


@dataclass(frozen=True)
class Explanation:
    """What was placed and what was left, with the reason for each.

    Attributes:
        pairs: Every pair, weights included.
        left_float: Nodes that could run in INT8 and do not.
        float_groups: All other nodes without a pair, by operator.
        subgraphs: Nodes with nodes inside of them.
        shared: Tensors that share one scale.
        warnings: What may cost accuracy or speed.
    """

    pairs: tuple[Pair, ...]
    left_float: tuple[LeftFloat, ...]
    float_groups: tuple[FloatGroup, ...]
    subgraphs: tuple[Subgraph, ...]
    shared: tuple[SharedScale, ...]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        return {
            "pairs": [{**asdict(pair), "amax": pair.amax} for pair in self.pairs],
            "left_float": [asdict(left) for left in self.left_float],
            "float_nodes": [{**asdict(group), "count": group.count} for group in self.float_groups],
            "subgraphs": [asdict(subgraph) for subgraph in self.subgraphs],
            "shared_scales": [asdict(group) for group in self.shared],
            "warnings": list(self.warnings),
        }


def explain_float(graph: GraphView, plan: Plan) -> tuple[tuple[FloatGroup, ...], tuple[Subgraph, ...]]:
    """Groups the nodes of a graph that the plan places nothing on, and counts those in subgraphs.

    Args:
        graph: The float graph.
        plan: What is placed.
    """
    placed = {index for places in plan.activations.values() for index, _ in places}
    named = {left.node for left in plan.left_float}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for index, node in enumerate(graph.nodes):
        if index not in placed and label(node) not in named:
            reason = _float_reason(node, graph)
            groups.setdefault((node.op_type, node.domain, reason), []).append(label(node))
    found = (FloatGroup(*key, tuple(nodes)) for key, nodes in groups.items())
    return tuple(sorted(found, key=lambda group: -group.count)), tuple(_subgraphs(graph))


def _float_reason(node: onnx.NodeProto, graph: GraphView) -> str:
    if adds_two(node) and adds_constant(node, graph):
        return "adds a constant, as a bias does: nothing goes between it and what is before it"
    return float_reason(node, graph.functions)


def _subgraphs(graph: GraphView) -> Iterator[Subgraph]:
    for node in graph.nodes:
        inside = Counter(inner.op_type for inner in _inside(node, graph))
        if inside:
            weighted = sum(inside[operator] for operator in WEIGHTED)
            yield Subgraph(label(node), node.op_type, inside.total(), weighted)


def _inside(node: onnx.NodeProto, graph: GraphView) -> Iterator[onnx.NodeProto]:
    """The nodes in a node's subgraphs, or in the function that it calls, at any depth."""
    yield from nodes_inside(node)
    called = graph.functions.get((node.op_type, node.domain))
    for inner in called.node if called is not None else ():
        yield inner
        yield from _inside(inner, graph)


def left_in_words(left: Sequence[LeftFloat]) -> str:
    """How many nodes that could run in INT8 do not, and of the first few why.

    >>> left_in_words([LeftFloat("head", "Gemm", "no scale for its input 'x'")])
    "1 quantizable node in float: head (no scale for its input 'x')"
    """
    named = "; ".join(f"{found.node} ({found.reason})" for found in left[:_NAMED])
    rest = f"; and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return f"{counted(len(left), 'quantizable node[s]')} in float: {named}{rest}"


def explanation_notes(explanation: Explanation) -> Iterator[str]:
    """What of it every user should be told, in sentences."""
    inside = sum(subgraph.count for subgraph in explanation.subgraphs)
    if inside:
        weighted = sum(subgraph.weighted for subgraph in explanation.subgraphs)
        where = ", ".join(f"{found.op} {found.node}" for found in explanation.subgraphs[:5])
        yield (
            f"{counted(inside, 'node[s]')} inside {where} {inflected(inside, 'stay[s|]')} in float, "
            f"{weighted} of "
            "them with a weight: pairs go into "
            "the main graph alone."
        )
    custom = [group for group in explanation.float_groups if group.reason.startswith("custom operator")]
    for group in custom:
        yield f"{group.op} ({', '.join(group.nodes[:3])}) stays in float: {group.reason}."
    yield from explanation.warnings
