"""Where Q/DQ pairs go, by TensorRT's rules.

Pairs go on the inputs of operators with a weight, and on the skip input of a residual Add, so that
the Add fuses into the convolution before it. An average pooling between pairs gets one too, which
spares the engine a dequantized copy, and so do a tensor that several quantized branches read and what
quantized layers hand to a transposed convolution in float.
Nothing goes between a convolution and what TensorRT fuses into it. Pairs that TensorRT moves to one
tensor get one scale. NVIDIA's developer guide, "Q/DQ Layer-Placement Recommendations".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from calib.calibrators.ranges import refuse_ranges
from calib.errors import UsageError
from calib.graph.attention import attention_in_float
from calib.graph.branches import Place, branch_places, handed_scales
from calib.graph.graph_view import GraphView, label
from calib.graph.operators import WEIGHTED, adds_two, is_standard
from calib.graph.placement_rules import (
    channel_axis,
    is_average,
    pooled_input,
    skip_input,
    weighted_obstacle,
)
from calib.graph.shared_scales import SharedScale, concat_warnings, share_scales
from calib.graph.transposed import roundable_inputs, transposed_in_float
from calib.wording import as_several

__all__ = ["LeftFloat", "Plan", "WeightSite", "nodes_kept", "plan_placement"]


@dataclass(frozen=True)
class WeightSite:
    """A weight that is quantized: which node, and which axis of the weight holds the channels."""

    node: int
    weight: str
    axis: int


@dataclass(frozen=True)
class LeftFloat:
    """A node that could run in INT8 but is left in float, and why."""

    node: str
    op: str
    reason: str


@dataclass
class Plan:
    """What is quantized.

    Attributes:
        activations: Tensor → the (node index, input index) places that read it through a Q/DQ pair.
        scales: Scale of each of these tensors.
        weights: Weights that are quantized.
        left_float: Nodes with a weight, and residual Adds, that are not.
        shared: Tensors with one scale.
        warnings: What may cost accuracy or speed.
        half: Activations in float16, whose scales are float16 too.
    """

    activations: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    scales: dict[str, float] = field(default_factory=dict)
    weights: list[WeightSite] = field(default_factory=list)
    left_float: list[LeftFloat] = field(default_factory=list)
    shared: list[SharedScale] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    half: frozenset[str] = frozenset()

    def place(self, tensor: str, node: int, position: int) -> None:
        """Adds a place that reads a tensor through its pair."""
        self.activations.setdefault(tensor, []).append((node, position))


def plan_placement(
    proto: onnx.ModelProto,
    scales: Mapping[str, float],
    keep_float: Sequence[str] = (),
    *,
    share: bool = False,
    float_attention: bool = False,
    float_conv_transpose: bool = False,
    half: bool = False,
) -> Plan:
    """Decides what is quantized.

    Args:
        proto: The model.
        scales: Tensor → INT8 scale.
        keep_float: Regular expressions; a node whose name, or the name of one of whose outputs, one of
            them finds is left in float.
        share: Give one scale to tensors whose pairs TensorRT moves to one place.
        float_attention: Leave the multiplications of a network with attention in float.
        float_conv_transpose: Leave transposed convolutions in float.
        half: Quantize what is float16 too.

    Raises:
        UsageError: A regular expression is none, or finds nothing in the model; or ranges were given.
    """
    refuse_ranges(scales)
    graph = GraphView(proto, scales, half)
    kept = attention_in_float(graph) if float_attention else {}
    transposed = transposed_in_float(graph) if float_conv_transpose else {}
    kept_by_user = nodes_kept(graph.nodes, keep_float)
    kept.update(transposed | kept_by_user)
    plan = Plan()
    _place_weighted(plan, graph, kept)
    _place_skips(plan, graph, kept)
    _place_pools(plan, graph, kept)
    roundable = _roundable(plan, graph, transposed.keys() - kept_by_user)
    branching = _place_branches(plan, graph, kept, roundable)
    _place_rounded(plan, graph, roundable)
    plan.half = frozenset(filter(graph.is_half, plan.activations))
    plan.scales = {tensor: scales[tensor] for tensor in plan.activations}
    if share:
        plan.shared, plan.warnings = share_scales(graph, plan.activations)
    # What is too far apart to share one scale is handed some all the same.
    taken = {tensor for group in plan.shared for tensor in group.tensors}
    handed = handed_scales(graph, branching, plan.activations)
    plan.shared += [group for group in handed if taken.isdisjoint(group.tensors)]
    plan.scales.update({tensor: group.scale for group in plan.shared for tensor in group.tensors})
    plan.warnings += concat_warnings(graph, plan.activations)
    return plan


def _place_weighted(plan: Plan, graph: GraphView, kept: Mapping[int, str]) -> None:
    for index, node in enumerate(graph.nodes):
        if node.op_type not in WEIGHTED or not is_standard(node):
            continue
        reason = kept.get(index) or weighted_obstacle(node, graph)
        if reason:
            plan.left_float.append(LeftFloat(label(node), node.op_type, reason))
        else:
            plan.place(node.input[0], index, 0)
            plan.weights.append(WeightSite(index, node.input[1], channel_axis(node, graph)))


def _place_skips(plan: Plan, graph: GraphView, kept: Mapping[int, str]) -> None:
    quantized = {site.node for site in plan.weights}
    for index, node in enumerate(graph.nodes):
        skip = skip_input(node, graph, quantized) if adds_two(node) else None
        if skip is None:
            continue
        reason = kept.get(index) or graph.obstacle(node.input[skip])
        if reason:
            plan.left_float.append(LeftFloat(label(node), node.op_type, reason))
        else:
            plan.place(node.input[skip], index, skip)


def _place_pools(plan: Plan, graph: GraphView, kept: Mapping[int, str]) -> None:
    placed = _placed(plan)
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        if index in kept or not is_average(node, graph) or graph.obstacle(node.input[0]):
            continue
        if pooled_input(node, graph, placed):
            plan.place(node.input[0], index, 0)
            placed.add((index, 0))


def _roundable(plan: Plan, graph: GraphView, transposed: Iterable[int]) -> list[Place]:
    return roundable_inputs(graph, sorted(transposed), {site.node for site in plan.weights})


def _place_branches(
    plan: Plan, graph: GraphView, kept: Mapping[int, str], roundable: Iterable[Place]
) -> list[str]:
    """Gives tensors that several quantized branches read one pair; which they are, in network order."""
    # A tensor gets it only if all that reads it does, and with it the places that can have one.
    found = branch_places(graph, _placed(plan).union(roundable), kept)
    for tensor, places in found.items():
        for index, position in places:
            plan.place(tensor, index, position)
    return list(reversed(found))


def _place_rounded(plan: Plan, graph: GraphView, roundable: Sequence[Place]) -> None:
    """Gives what INT8 layers hand to float transposed convolutions a pair, where nothing else is float."""
    through_pairs = _placed(plan).union(roundable)
    for index, position in roundable:
        tensor = graph.nodes[index].input[position]
        places = graph.places[tensor]
        if graph.readers[tensor] == len(places) and through_pairs.issuperset(places):
            plan.place(tensor, index, position)


def _placed(plan: Plan) -> set[Place]:
    return {place for places in plan.activations.values() for place in places}


def nodes_kept(nodes: Sequence[onnx.NodeProto], patterns: Sequence[str]) -> dict[int, str]:
    """The nodes that a user wants in float.

    Args:
        nodes: The nodes of a graph.
        patterns: Regular expressions; each finds nodes by their names or their outputs'.

    Returns:
        Index of a node → by which of them it is kept.

    Raises:
        UsageError: A regular expression is none, or finds nothing.
    """
    kept: dict[int, str] = {}
    for pattern in as_several(patterns):
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"--keep-float {pattern!r} is no regular expression: {error}.") from error
        found = [
            index
            for index, node in enumerate(nodes)
            if any(expression.search(name) for name in (node.name, *node.output))
        ]
        if not found:
            raise UsageError(f"--keep-float {pattern!r} finds no node in the model.")
        kept.update({index: f"kept by {pattern!r}" for index in found})
    return kept
