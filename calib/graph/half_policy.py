"""Which operators stay in float32, whatever the conversion could do, and when sums need headroom."""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType

import numpy as np
import onnx

from calib.graph.half_chains import constant_value
from calib.graph.half_graph import HalfGraph
from calib.graph.half_ranges import LARGEST, SMALLEST_NORMAL, KnownRanges
from calib.graph.operators import is_standard
from calib.graph.weights import as_array

__all__ = [
    "FOLLOWERS",
    "INDIFFERENT",
    "MOVING",
    "carry_range",
    "operator_reason",
    "range_reason",
    "suspect_outputs",
]

INDIFFERENT = frozenset(("Shape", "Size"))
"""Operators that read no values."""

_VIEWS = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Slice", "Split")
_PICKS = ("Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "MaxPool")
MOVING = frozenset((*_VIEWS, *_PICKS, "AveragePool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Relu"))
"""Operators whose outputs hold no larger values than their first input."""

_TO_ONE = ("Softmax", "Sigmoid", "Tanh", "HardSigmoid", "Erf", "Softsign", "Sin", "Cos", "Sign")

_COMPARISONS = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "ArgMax", "ArgMin", "IsNaN")
_ROUNDINGS = ("QuantizeLinear", "Floor", "Ceil", "Round", "IsInf", "NonZero")
FOLLOWERS = frozenset((*_COMPARISONS, *_ROUNDINGS))
"""Operators that are computed in the type of what they read, since nothing is gained otherwise."""

_COORDINATES = "coordinates and order of scores need float32's bits"
_SINGULAR = "its result grows without end where its input gets near 0"
_POWERS = "sums powers or logarithms"
_MADE = "makes its values itself"
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (_COORDINATES, ("TopK", "NonMaxSuppression", "RoiAlign", "MaxRoiPool", "GridSample", "DeformConv")),
    (_COORDINATES, ("AffineGrid", "CumSum", "Range", "Mod")),
    (_SINGULAR, ("Reciprocal", "Log", "Tan", "Atanh", "Acosh")),
    (_POWERS, ("ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "LpNormalization", "Det")),
    (_POWERS, ("MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")),
    (_POWERS, ("STFT", "DFT", "MelWeightMatrix")),
    (_MADE, ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli")),
    (_MADE, ("Multinomial", "EyeLike", "BlackmanWindow", "HammingWindow", "HannWindow")),
)
_ALWAYS: Mapping[str, str] = MappingProxyType(
    {operator: reason for reason, operators in _KINDS for operator in operators}
)

# Partial sums may exceed the sum: a quarter of the range is left to them.
_HEADROOM = 4.0
_SUMMING = frozenset(
    ("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "Pow", "Exp", "LSTM", "GRU", "RNN")
)
_SUMS = frozenset(("ReduceSum", "ReduceMean", "ReduceL1", "GlobalAveragePool", "AveragePool", "Sum", "Mean"))
_NORMS = ("InstanceNormalization", "GroupNormalization", "RMSNormalization")
_SQUARES = frozenset(("ReduceL2", "ReduceSumSquare", "LRN", "LpPool", "GlobalLpPool", *_NORMS))
_GROWING = frozenset(("Exp", "Pow", "Sinh", "Cosh"))


def operator_reason(node: onnx.NodeProto, graph: HalfGraph) -> str:
    """Why an operator stays in float32 whatever its values are; empty where it need not.

    Args:
        node: The node.
        graph: Its graph.
    """
    if node.op_type in _ALWAYS:
        return _ALWAYS[node.op_type]
    if node.op_type == "Div" and node.input[1] not in graph.static:
        return _SINGULAR
    if node.op_type == "Pow":
        exponent = constant_value(node.input[1], graph)
        if exponent is None:
            return "its exponents are no single constant"
        return _SINGULAR if exponent < 0 else ""
    if node.op_type == "LayerNormalization" and any(
        a.name == "stash_type" and a.i != 1 for a in node.attribute
    ):
        return "its mean and variance are not asked for in float32"
    if node.op_type == "Cast" and not graph.is_float(node.input[0]):
        # From integers there is nothing to gain before the first arithmetic.
        return "its values come from another type"
    return ""


def range_reason(node: onnx.NodeProto, graph: HalfGraph, ranges: KnownRanges, margin: float) -> str:
    """Why a node's values do not fit float16; empty where they do, as far as is known.

    Args:
        node: The node.
        graph: Its graph.
        ranges: What is known of its values.
        margin: How many times as large as known the values may become.
    """
    limit = LARGEST / margin
    summing = node.op_type in _SUMMING
    for name in graph.float_inputs(node):
        reason = _judge(name, ranges, limit, f"its input {name!r}")
        if reason:
            return reason
    for name in graph.float_outputs(node):
        headroom = _HEADROOM if summing else 1.0
        reason = _judge(name, ranges, limit / headroom, f"its output {name!r}")
        if reason:
            return reason
    return _sum_reason(node, graph, ranges, limit) or _growth_reason(node, graph, ranges)


def _judge(name: str, ranges: KnownRanges, limit: float, what: str) -> str:
    if name in ranges.suspects:
        return f"{what} comes from what leaves float16's range, and its own is not known"
    amax, reach = ranges.amax.get(name), ranges.reach(name)
    if amax is None or reach is None:
        return ""
    if reach > limit:
        shown = f"{amax:.6g}" if ranges.slack == 1 else f"{reach:.6g} at most"
        return f"{what} reaches {shown}; the limit here is {limit:.6g}"
    if 0 < amax < SMALLEST_NORMAL:
        return f"{what} stays below {amax:.3g}, where float16 loses bits"
    return ""


def _sum_reason(node: onnx.NodeProto, graph: HalfGraph, ranges: KnownRanges, limit: float) -> str:
    """Sums over known numbers of elements: n·amax for values, n·amax² for squares."""
    if node.op_type not in _SUMS | _SQUARES:
        return ""
    squares = node.op_type in _SQUARES
    count, reach = _terms(node, graph), ranges.reach(node.input[0])
    if count is None or reach is None:
        what = "range" if reach is None else "number of terms"
        return f"the {what} of its sum is not known"
    total = count * (reach**2 if squares else reach)
    if total > limit:
        return f"the sum of {count} {'squares' if squares else 'values'} in it can reach {total:.6g}"
    return ""


def _terms(node: onnx.NodeProto, graph: HalfGraph) -> int | None:
    """Of how many elements one result is the sum."""
    name, op = node.input[0], node.op_type
    rank = len(graph.shapes.get(name, ()))
    if op in ("Sum", "Mean"):
        return len(node.input)
    if op in ("AveragePool", "LpPool"):
        sizes = next((list(a.ints) for a in node.attribute if a.name == "kernel_shape"), [])
        return int(_product(sizes)) if sizes else None
    if op == "LRN":
        return next((int(a.i) for a in node.attribute if a.name == "size"), None)
    if not rank:
        return None
    if op in ("GlobalAveragePool", "GlobalLpPool", "InstanceNormalization"):
        return graph.array_size(name, tuple(range(2, rank)))
    if op in ("GroupNormalization", "RMSNormalization"):
        return graph.array_size(name, tuple(range(1, rank)))
    return graph.array_size(name, _axes(node, graph, rank))


def _axes(node: onnx.NodeProto, graph: HalfGraph, rank: int) -> tuple[int, ...]:
    given = next((tuple(a.ints) for a in node.attribute if a.name == "axes"), ())
    if not given and len(node.input) > 1 and node.input[1] in graph.constants:
        given = tuple(int(axis) for axis in as_array(graph.constants[node.input[1]]).reshape(-1))
    return given or tuple(range(rank))


def _product(sizes: list[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _growth_reason(node: onnx.NodeProto, graph: HalfGraph, ranges: KnownRanges) -> str:
    """Operators that make large values of small ones need to be known."""
    square = node.op_type == "Mul" and node.input[0] == node.input[1]
    if node.op_type not in _GROWING and not square:
        return ""
    unknown = [name for name in graph.float_outputs(node) if name not in ranges.amax]
    return f"no range is known of its output {unknown[0]!r}, which can be large" if unknown else ""


def suspect_outputs(
    node: onnx.NodeProto, graph: HalfGraph, ranges: KnownRanges, beyond: Container[str], margin: float
) -> None:
    """Distrusts what a node makes of large values or may make large itself, where no range is known of it.

    Args:
        node: A node in float32.
        graph: Its graph.
        ranges: What is known, which is added to.
        beyond: Constants beyond float16's range.
        margin: How many times as large as known the values may become.
    """
    if node.op_type in (*_TO_ONE, *_NORMS, "LayerNormalization"):
        return
    reaches = (ranges.reach(name) or 0.0 for name in node.input)
    large = any(name in ranges.suspects or name in beyond for name in node.input)
    square = node.op_type == "Mul" and node.input[0] == node.input[1]
    grows = square or node.op_type in (
        *_GROWING,
        "ReduceSum",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "Sum",
    )
    if large or grows or max(reaches, default=0.0) > LARGEST / margin:
        ranges.suspects.update(name for name in graph.float_outputs(node) if name not in ranges.amax)


def carry_range(node: onnx.NodeProto, graph: HalfGraph, ranges: KnownRanges) -> None:
    """Adds what a node's operator alone says of its outputs, where no range is known of them.

    Args:
        node: The node.
        graph: Its graph.
        ranges: What is known, which is added to.
    """
    if not is_standard(node):
        return
    reach: float | None = None
    if node.op_type in MOVING or node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        # Integers have no range of their own: their quantized tensor's goes on to DequantizeLinear.
        reach = _extent(node.input[0], graph, ranges)
    elif node.op_type == "Concat":
        parts = [_extent(name, graph, ranges) for name in node.input]
        known = [part for part in parts if part is not None]
        reach = max(known, default=None) if len(known) == len(parts) else None
    elif node.op_type in _TO_ONE:
        reach = 1.0
    elif node.op_type == "ConstantOfShape":
        reach = next((_largest(attribute.t) for attribute in node.attribute), 0.0)
    if reach is not None:
        for name in node.output:
            ranges.amax.setdefault(name, reach)


def _extent(name: str, graph: HalfGraph, ranges: KnownRanges) -> float | None:
    """The largest absolute value of a tensor, or of a float constant; None where it is not known."""
    constant = graph.constants.get(name)
    if constant is None or not graph.is_float(name):
        return ranges.amax.get(name)
    return _largest(constant)


def _largest(tensor: onnx.TensorProto) -> float:
    """The largest finite absolute value of a constant: infinities stay infinities in float16."""
    magnitude = np.abs(as_array(tensor))
    return float(magnitude.max(initial=0.0, where=np.isfinite(magnitude)))
