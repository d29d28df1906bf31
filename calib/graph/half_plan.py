"""Which nodes and tensors of a graph become float16, and why the others do not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import onnx

from calib.graph.graph_view import label
from calib.graph.half_chains import normalization_nodes
from calib.graph.half_constants import ConstantRules
from calib.graph.half_graph import HalfGraph, Slots
from calib.graph.half_policy import (
    FOLLOWERS,
    INDIFFERENT,
    carry_range,
    operator_reason,
    range_reason,
    suspect_outputs,
)
from calib.graph.half_ranges import KnownRanges
from calib.graph.operators import WEIGHTED
from calib.graph.placement import LeftFloat, nodes_kept
from calib.graph.subgraphs import inner_graphs

__all__ = ["HalfPlan", "plan_half"]

_NORMALIZATION = "mean and variance of a normalization need float32"
_ISLAND = "stands between nodes in float32"


@dataclass
class HalfPlan:
    """What becomes float16.

    Attributes:
        slots: Of each node, the places that become float16; of a node in float32 there are none.
        half: Tensors that are float16 where they are made.
        reasons: Index of each node in float32 that reads or makes float32 tensors → why.
        beyond: Constants beyond float16's range, which keep nodes in float32 → how far they reach.
        lossy: Weight → share of its values that become 0.
        without_range: Activations of which no range is known, though ranges are given.
    """

    slots: list[Slots] = field(default_factory=list)
    half: set[str] = field(default_factory=set)
    reasons: dict[int, str] = field(default_factory=dict)
    beyond: dict[str, float] = field(default_factory=dict)
    lossy: dict[str, float] = field(default_factory=dict)
    without_range: tuple[str, ...] = ()

    def kept(self, graph: HalfGraph) -> tuple[LeftFloat, ...]:
        """The nodes in float32, with the reasons."""
        nodes = graph.nodes
        return tuple(
            LeftFloat(label(nodes[i]), nodes[i].op_type, self.reasons[i]) for i in sorted(self.reasons)
        )


def plan_half(
    graph: HalfGraph,
    ranges: KnownRanges,
    *,
    keep_float: Sequence[str] = (),
    half_inputs: Collection[str] = (),
    margin: float = 2.0,
) -> HalfPlan:
    """Decides what becomes float16.

    Args:
        graph: The graph.
        ranges: What is known of its values; what operators alone say is added.
        keep_float: Regular expressions of nodes (or their outputs) that stay in float32.
        half_inputs: Model inputs that become float16 themselves.
        margin: How many times as large as known the values may become.

    Raises:
        UsageError: A regular expression is none, or finds nothing in the model.
    """
    planner = _Planner(graph, ranges, nodes_kept(graph.nodes, keep_float), margin)
    return planner.plan(half_inputs)


class _Planner:
    """Walks the nodes in order: whether a tensor is float16 is known before its readers are judged."""

    def __init__(self, graph: HalfGraph, ranges: KnownRanges, kept: dict[int, str], margin: float) -> None:
        self._graph = graph
        self._ranges = ranges
        self._kept = kept
        self._margin = margin
        self._given = bool(ranges.amax)
        self._normalizations = normalization_nodes(graph)
        self._constants = ConstantRules(graph)
        self._plan = HalfPlan(beyond=self._constants.beyond, lossy=self._constants.lossy)

    def plan(self, half_inputs: Collection[str]) -> HalfPlan:
        plan = self._plan
        plan.half.update(half_inputs)
        missing: dict[str, None] = {}
        for index, node in enumerate(self._graph.nodes):
            carry_range(node, self._graph, self._ranges)
            if self._given:
                outputs = self._graph.float_outputs(node)
                missing.update(
                    dict.fromkeys(n for n in outputs if n not in self._ranges.amax and self._counts(index, n))
                )
            self._decide(index, node)
        plan.without_range = tuple(missing)
        self._join_dequantizers()
        self._drop_islands()
        return plan

    def _counts(self, index: int, name: str) -> bool:
        """Whether a range of a tensor would have been expected."""
        return name not in self._graph.static and self._graph.nodes[index].op_type != "DequantizeLinear"

    def _decide(self, index: int, node: onnx.NodeProto) -> None:
        slots = self._graph.slots(node)
        touches = bool(self._touched(node))
        reason = self._reason(index, node, slots) if touches else ""
        if reason or not touches:
            self._keep(index, reason)
        else:
            self._plan.slots.append(slots)
            self._plan.half.update(node.output[i] for i in slots.outputs)

    def _keep(self, index: int, reason: str) -> None:
        self._plan.slots.append(Slots((), ()))
        if reason:
            self._plan.reasons[index] = reason

    def _touched(self, node: onnx.NodeProto) -> list[str]:
        """Float32 activations that a node reads or makes."""
        if node.output and self._graph.static.issuperset(name for name in node.output if name):
            # Sizes and constants: few values, which float32 costs nothing.
            return []
        names = [*self._graph.float_inputs(node), *self._graph.float_outputs(node)]
        inside = any(True for _ in inner_graphs(node))
        return names or ([node.op_type] if inside else [])

    def _reason(self, index: int, node: onnx.NodeProto, slots: Slots) -> str:
        graph = self._graph
        if any(True for _ in inner_graphs(node)):
            return "control flow: nodes in its subgraphs stay in float32"
        if node.op_type in INDIFFERENT:
            return ""
        if slots.unknown:
            return f"the type of {slots.unknown[0]!r} is not known"
        if not slots.inputs and not slots.outputs:
            return self._formless(node)
        return (
            self._kept.get(index, "")
            or (_NORMALIZATION if index in self._normalizations else "")
            or operator_reason(node, graph)
            or self._follows(node)
            or self._value_reason(node, slots)
            or self._scales(node)
        )

    def _formless(self, node: onnx.NodeProto) -> str:
        """Why ONNX has no float16 form of a node."""
        if self._graph.schema(node) is None:
            return f"no operator of ONNX's own ({node.domain or 'ai.onnx'})"
        return self._constants.reason(node, ()) or "has no float16 form"

    def _value_reason(self, node: onnx.NodeProto, slots: Slots) -> str:
        reason = range_reason(node, self._graph, self._ranges, self._margin)
        if not reason:
            reason = self._constants.reason(node, slots.inputs)
        if reason:
            suspect_outputs(node, self._graph, self._ranges, self._constants.beyond, self._margin)
        return reason

    def _follows(self, node: onnx.NodeProto) -> str:
        """Operators that gain nothing themselves are computed in the type that they find."""
        if node.op_type not in FOLLOWERS and not self._is_cast_away(node):
            return ""
        found = list(self._graph.float_inputs(node))
        return "" if found and self._plan.half.issuperset(found) else "reads what is in float32"

    def _is_cast_away(self, node: onnx.NodeProto) -> bool:
        return node.op_type == "Cast" and not any(True for _ in self._graph.float_outputs(node))

    def _scales(self, node: onnx.NodeProto) -> str:
        """A node whose weight or data cannot be dequantized to float16 reads all of them in float32."""
        for name in node.input:
            producer = self._graph.producer.get(name)
            if producer is None or self._graph.nodes[producer].op_type != "DequantizeLinear":
                continue
            if name not in self._plan.half and node.op_type in WEIGHTED:
                return f"{name!r} stays in float32: {self._plan.reasons.get(producer, '')}"
        return ""

    def _join_dequantizers(self) -> None:
        """A DequantizeLinear is float16 only where a reader of it is."""
        for index, node in enumerate(self._graph.nodes):
            half = node.op_type == "DequantizeLinear" and node.output[0] in self._plan.half
            if half and not self._read_as_half(node.output[0]):
                self._to_float(index, "what reads it is in float32")

    def _drop_islands(self) -> None:
        """Nodes of little work between nodes in float32 stay there: two casts would cost more."""
        for index, node in enumerate(self._graph.nodes):
            slots, half = self._plan.slots[index], self._plan.half
            if not slots.outputs or node.op_type in (*WEIGHTED, "DequantizeLinear"):
                continue
            reads_half = any(name in half for name in self._graph.float_inputs(node))
            sources = [name for name in self._graph.float_inputs(node) if name not in self._graph.static]
            alone = bool(sources) and not reads_half
            if alone and not any(self._read_as_half(node.output[i]) for i in slots.outputs):
                self._to_float(index, _ISLAND)

    def _to_float(self, index: int, reason: str) -> None:
        outputs = [self._graph.nodes[index].output[i] for i in self._plan.slots[index].outputs]
        self._plan.half.difference_update(outputs)
        self._plan.slots[index] = Slots((), ())
        self._plan.reasons[index] = reason

    def _read_as_half(self, name: str) -> bool:
        for reader in self._graph.readers.get(name, ()):
            inputs = self._graph.nodes[reader].input
            if any(inputs[i] == name for i in self._plan.slots[reader].inputs):
                return True
        return False
