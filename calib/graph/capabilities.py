"""What TensorRT and ``calib quantize`` do with each operator of a model: the layer table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import onnx

from calib.errors import UsageError
from calib.graph.attention import count_attention
from calib.graph.capability_table import (
    APART,
    ELEMENTWISE,
    FIRST_RELEASE,
    FLOAT_ONLY,
    LISTED_INT8,
    PARSED,
    RELEASES,
    RESTRICTIONS,
)
from calib.graph.dependence import data_dependent_outputs
from calib.graph.explanation import explain_float
from calib.graph.folding import with_constant_weights
from calib.graph.graph_view import GraphView
from calib.graph.intake import OnnxModel
from calib.graph.lower_opset import LOWEST_OPSET
from calib.graph.operators import FUSED, WEIGHTED, commutes, is_standard
from calib.graph.placement import Plan, plan_placement
from calib.graph.quantizable import has_half_weights
from calib.graph.subgraphs import nodes_inside
from calib.graph.targets import find_target
from calib.graph.transposed import count_transposed
from calib.wording import counted, inflected

__all__ = ["Doing", "LayerRow", "LayerTable", "Support", "layer_table"]

Support = Literal["int8", "pairs", "float", "apart", "none", "plug-in", "unknown"]
"""How far a TensorRT release computes an operator in INT8.

int8: by a calibration cache, or with Q/DQ on its inputs; pairs: with Q/DQ on its inputs and outputs alone;
float: it is parsed and has no INT8; apart: it makes sizes, constants or types, and computes nothing;
none: it is not parsed; plug-in: if one of that name is registered; unknown: it is parsed, and NVIDIA does
not say.
"""

Doing = Literal["pairs", "moves", "fuses", "float", "refuses"]
"""What calib quantize does: pairs on its inputs; a pair moves through it, or it fuses into a convolution,
without one of its own; it stays in float; the model is quantized already, so it refuses.
"""


@dataclass(frozen=True)
class LayerRow:
    """One operator of a model.

    Attributes:
        op: The operator.
        domain: Its domain; empty for ONNX's own.
        count: Nodes of the main graph.
        inside: Nodes inside an If, Loop or Scan, and in functions of the model.
        tensorrt: Release → what it does with it.
        why: Why not INT8, or what is to know about it.
        restriction: The forms of it that the parser takes; empty where it takes all, or none is known.
        quantized: Nodes that calib quantize gives pairs to, where the cache has all scales.
        doing: What calib quantize does with it.
        left: Why nodes without pairs have none.
    """

    op: str
    domain: str
    count: int
    inside: int
    tensorrt: Mapping[str, Support]
    why: str
    restriction: str
    quantized: int
    doing: Doing
    left: tuple[str, ...]

    def tensorrt_is(self, answer: Support) -> bool:
        """Whether every release gives one answer."""
        return set(self.tensorrt.values()) == {answer}


@dataclass(frozen=True)
class LayerTable:
    """Every operator of a model.

    Attributes:
        model: The model's path.
        opset: Its opset.
        releases: The TensorRT releases in question.
        rows: An operator each, the most frequent first.
        notes: What is to know about the model as a whole.
    """

    model: str
    opset: int
    releases: tuple[str, ...]
    rows: tuple[LayerRow, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        rows = [{**vars(row), "tensorrt": dict(row.tensorrt)} for row in self.rows]
        return {**vars(self), "rows": rows}


def layer_table(model: OnnxModel, target: str | None = None) -> LayerTable:
    """Looks up each operator of a model.

    Args:
        model: The model.
        target: One of ``calib.graph.targets.TARGETS``, whose release alone is looked at; None for all.

    Raises:
        UsageError: The target is unknown, or none of TensorRT's.
    """
    releases = RELEASES if target is None else (_release(target),)
    graph = GraphView(model.proto, dict.fromkeys(_activations(model), 1.0))
    inside = _inside(model.proto)
    doings = _Doings(model, graph.scales, half=any(map(_reads_half_scales, releases)))
    keys = dict.fromkeys([*((n.op_type, n.domain) for n in graph.nodes), *inside])
    rows = [_row(key, graph, inside.get(key, 0), releases, doings) for key in keys]
    rows.sort(key=lambda row: (-row.count - row.inside, row.op))
    notes = tuple(_notes(model, releases))
    return LayerTable(str(model.path), model.opset, releases, tuple(rows), notes)


def _release(target: str) -> str:
    release = find_target(target).name.removeprefix("tensorrt-")
    if release not in RELEASES:
        raise UsageError(f"The layer table is about TensorRT: --target {target!r} is none of its releases.")
    return release


def _reads_half_scales(release: str) -> bool:
    return "fp16" in find_target(f"tensorrt-{release}").scale_types


def _row(
    key: tuple[str, str], graph: GraphView, inside: int, releases: Sequence[str], doings: _Doings
) -> LayerRow:
    op, domain = key
    nodes = [node for node in graph.nodes if (node.op_type, node.domain) == key]
    function = key in graph.functions
    example = nodes[0] if nodes else onnx.helper.make_node(op, [], [], domain=domain)
    moves = bool(nodes) and all(map(commutes, nodes))
    answers = {release: _support(example, release, function, moves) for release in releases}
    return LayerRow(
        op=op,
        domain=domain,
        count=len(nodes),
        inside=inside,
        tensorrt=MappingProxyType(answers),
        why=_why(example, answers, function),
        restriction=RESTRICTIONS.get(op, "") if is_standard(example) else "",
        quantized=doings.quantized(key),
        doing=doings.doing(example, key, moves),
        left=doings.reasons(key),
    )


def _support(node: onnx.NodeProto, release: str, function: bool, moves: bool) -> Support:
    if function:
        return "unknown"
    if not is_standard(node):
        return "plug-in"
    op = node.op_type
    if op not in PARSED[release]:
        return "none"
    if op in WEIGHTED or moves or op in ("QuantizeLinear", "DequantizeLinear"):
        return "int8"
    if op in APART:
        return "apart"
    if op in FLOAT_ONLY:
        return "float"
    if release == "8.6":
        return "int8" if op in LISTED_INT8 | ELEMENTWISE else "unknown"
    return "pairs" if op in LISTED_INT8 | ELEMENTWISE | FUSED | {"Attention", "Gelu"} else "unknown"


def _why(node: onnx.NodeProto, answers: Mapping[str, Support], function: bool) -> str:
    op = node.op_type
    if function:
        return "a function of the model: the parser imports what is in it"
    if not is_standard(node):
        return "no operator of ONNX: a plug-in of its name must be registered"
    absent = [release for release, answer in answers.items() if answer == "none"]
    if absent:
        since = FIRST_RELEASE.get(op)
        return f"not parsed by {' and '.join(absent)}" + (f"; from {since} on" if since else "")
    if op in FLOAT_ONLY:
        return FLOAT_ONLY[op]
    return "INT8 with a constant weight and by Q/DQ" if op == "MatMul" else ""


class _Doings:
    """What calib quantize would do if every activation had a scale.

    Args:
        model: The model.
        scales: A scale for every activation.
        half: Whether a release in question reads scales in float16.
    """

    def __init__(self, model: OnnxModel, scales: Mapping[str, float], *, half: bool) -> None:
        self._quantized = model.quantized_nodes > 0
        proto = model.proto if self._quantized else with_constant_weights(model).proto
        self._graph = GraphView(proto, scales)
        self._plan = Plan() if self._quantized else plan_placement(proto, scales, half=half)
        self._groups, _ = explain_float(self._graph, self._plan)

    def quantized(self, key: tuple[str, str]) -> int:
        """How many nodes of an operator get pairs."""
        placed = {index for places in self._plan.activations.values() for index, _ in places}
        nodes = (self._graph.nodes[index] for index in placed)
        return sum((node.op_type, node.domain) == key for node in nodes)

    def doing(self, node: onnx.NodeProto, key: tuple[str, str], moves: bool) -> Doing:
        """What becomes of an operator, in a word."""
        if self._quantized:
            return "refuses"
        if self.quantized(key):
            return "pairs"
        if moves:
            return "moves"
        return "fuses" if node.op_type in FUSED and is_standard(node) else "float"

    def reasons(self, key: tuple[str, str]) -> tuple[str, ...]:
        """What becomes of nodes of an operator without pairs, or why none gets any."""
        op, domain = key
        if self._quantized:
            return ()
        left = [_general(item.reason) for item in self._plan.left_float if item.op == op and not domain]
        groups = [group.reason for group in self._groups if (group.op, group.domain) == key]
        return tuple(dict.fromkeys((*left, *groups)))


def _general(reason: str) -> str:
    """A reason without the names of one node's tensors."""
    parts = reason.split("'")
    return reason if len(parts) < 3 else " ".join(part.strip() for part in parts[::2] if part.strip())


def _activations(model: OnnxModel) -> list[str]:
    return [*(spec.name for spec in model.inputs), *data_dependent_outputs(model.proto.graph)]


def _inside(proto: onnx.ModelProto) -> dict[tuple[str, str], int]:
    """Operators of nodes in subgraphs and functions → how many there are."""
    found: dict[tuple[str, str], int] = {}
    deeper = [inner for node in proto.graph.node for inner in nodes_inside(node)]
    for function in proto.functions:
        deeper += [inner for node in function.node for inner in (node, *nodes_inside(node))]
    for node in deeper:
        key = (node.op_type, node.domain)
        found[key] = found.get(key, 0) + 1
    return found


def _notes(model: OnnxModel, releases: Sequence[str]) -> Iterator[str]:
    if model.quantized_nodes:
        yield f"the model has {model.quantized_nodes} Q/DQ or integer nodes: calib quantize refuses it"
    attention, transposed = count_attention(model), count_transposed(model)
    for release in releases:
        target = find_target(f"tensorrt-{release}")
        if attention and target.float_attention:
            yield (
                f"{counted(attention, 'node[s]')} of attention, or around it, "
                f"{inflected(attention, 'stay[s|]')} in float for TensorRT {release}, which "
                "runs them faster in FP16; calib quantize --attention int8 quantizes them"
            )
        if transposed and target.float_conv_transpose:
            yield (
                f"{counted(transposed, 'transposed convolution[s] stay[s|]')} in float for TensorRT "
                f"{release}, which builds no engine above level 0 where the output is INT8; calib quantize "
                "--conv-transpose int8 quantizes them"
            )
        if not _reads_half_scales(release) and has_half_weights(model):
            yield f"weights in float16 stay as they are for TensorRT {release}: its scales are float32 alone"
        most = target.most_opset
        if most is not None and model.opset > most:
            able = most == LOWEST_OPSET and not model.quantized_nodes
            lowers = f"; calib quantize writes it as {most}" if able else ""
            yield f"opset {model.opset}: TensorRT {release} reads up to {most}{lowers}"
