"""What TensorRT does with ONNX operators around Q/DQ pairs.

Sources: NVIDIA's developer guide, "Q/DQ Layer-Placement Recommendations" and "Q/DQ Propagation"; the
support matrix of layers and precisions.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType

import onnx

__all__ = [
    "AVERAGES",
    "FUSED",
    "WEIGHTED",
    "adds_two",
    "commutes",
    "float_reason",
    "is_quantized",
    "is_standard",
    "moved_outputs",
    "moves",
]

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators with a weight, which run in INT8 when data and weight are dequantized."""

AVERAGES = ("AveragePool", "GlobalAveragePool", "ReduceMean")
"""Averages that run in INT8 between two pairs, and do not commute with them: a mean if it is spatial."""

_NORMS_AND_STEPS = ("BatchNormalization", "Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Selu")
_GATES = ("Sigmoid", "HardSigmoid", "HardSwish", "Mish", "Swish", "Softplus")
FUSED = frozenset((*_NORMS_AND_STEPS, *_GATES))
"""Operators that TensorRT fuses into a convolution before them; Sigmoid and HardSigmoid with their Mul."""

_INTEGER = ("ConvInteger", "MatMulInteger", "MatMulIntegerToFloat")
# Of ONNX Runtime's own domain, beside QLinearAdd and its like.
_RUNTIME = ("QGemm", "QAttention", "QEmbedLayerNormalization", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")

# Operators that a pair commutes with: their outputs hold values of their inputs and no others.
_VIEWS = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity")
_SHUFFLES = ("DepthToSpace", "SpaceToDepth")
_COMMUTING = frozenset((*_VIEWS, *_SHUFFLES, "MaxPool", "Slice", "Split", "Concat", "Dropout"))
_DOMAINS = ("", "ai.onnx")

_BOTH_SIDES = "INT8 only with a pair on both sides, which splits fusions"
_NORMALIZATION = "normalization is computed in float"
_INDICES = "shapes, indices and comparisons are no INT8 work"
_NO_FORM = "TensorRT has no INT8 form of it"
_MOVES = "moves values; a pair after it commutes with it"
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("TensorRT has no INT8 softmax", ("Softmax", "LogSoftmax", "Hardmax")),
    (_NORMALIZATION, ("LayerNormalization", "InstanceNormalization", "GroupNormalization")),
    (_NORMALIZATION, ("RMSNormalization", "LRN", "LpNormalization", "MeanVarianceNormalization")),
    ("GELU and tanh lose too much in INT8", ("Erf", "Gelu", "Tanh")),
    ("attention is computed in float", ("Attention", "MultiHeadAttention")),
    (_BOTH_SIDES, ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Pad")),
    (_BOTH_SIDES, ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum")),
    ("INT8 only as a spatial mean with a pair on both sides", ("ReduceMean",)),
    (_NO_FORM, ("ReduceSum", "ReduceMax", "ReduceMin", "Sqrt", "Exp", "Log", "Neg", "Abs")),
    (_INDICES, ("Shape", "Size", "Cast", "Constant", "ConstantOfShape", "Range", "ArgMax", "ArgMin")),
    (_INDICES, ("Where", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Not", "And", "Or")),
    (_INDICES, ("NonZero", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "OneHot")),
    (_NO_FORM, ("NonMaxSuppression", "TopK", "RoiAlign", "MaxRoiPool", "MaxUnpool", "GridSample")),
    (_NO_FORM, ("Einsum", "LSTM", "GRU", "RNN", "CumSum")),
    ("control flow: nodes in its subgraphs stay in float", ("If", "Loop", "Scan")),
    (_MOVES, tuple(sorted(_COMMUTING))),
    ("fused into the convolution before it, where there is one", tuple(sorted(FUSED))),
)
_REASONS: Mapping[str, str] = MappingProxyType(
    {operator: reason for reason, operators in _KINDS for operator in operators}
)


def is_standard(node: onnx.NodeProto) -> bool:
    """Whether a node is one of ONNX's own operators.

    >>> is_standard(onnx.helper.make_node("Relu", ["x"], ["y"]))
    True
    >>> is_standard(onnx.helper.make_node("EfficientNMS_TRT", ["x"], ["y"]))
    False
    """
    return node.domain in _DOMAINS and bool(onnx.defs.has(node.op_type))


def is_quantized(node: onnx.NodeProto) -> bool:
    """Whether a node quantizes, dequantizes or computes in integers: ONNX's, ONNX Runtime's, TensorRT's own.

    >>> is_quantized(onnx.helper.make_node("TRT_INT8QuantizeLinear", ["x", "s"], ["y"], domain="trt"))
    True
    >>> is_quantized(onnx.helper.make_node("MatMul", ["x", "w"], ["y"]))
    False
    """
    kind = node.op_type
    if kind.endswith(("QuantizeLinear", "DequantizeLinear")):
        return True
    return kind.startswith("QLinear") or kind in (*_INTEGER, *_RUNTIME)


def adds_two(node: onnx.NodeProto) -> bool:
    """Whether a node adds two tensors; exporters of Caffe2's time write a Sum, which the parser reads alike.

    >>> adds_two(onnx.helper.make_node("Sum", ["a", "b"], ["y"]))
    True
    >>> adds_two(onnx.helper.make_node("Sum", ["a", "b", "c"], ["y"]))
    False
    """
    return node.op_type in ("Add", "Sum") and len(node.input) == 2 and is_standard(node)


def commutes(node: onnx.NodeProto) -> bool:
    """Whether TensorRT moves a Q/DQ pair from one side of a node to the other.

    >>> commutes(onnx.helper.make_node("MaxPool", ["x"], ["y"]))
    True
    >>> commutes(onnx.helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear"))
    False
    """
    if node.domain not in _DOMAINS:
        return False
    if node.op_type in ("Resize", "Upsample"):
        return _text(node, "mode", "nearest") == "nearest"
    if node.op_type == "Dropout":
        return not _trains(node)
    return node.op_type in _COMMUTING


def moves(node: onnx.NodeProto, position: int) -> bool:
    """Whether TensorRT moves a Q/DQ pair from one of a node's inputs to its outputs.

    >>> resize = onnx.helper.make_node("Resize", ["x", "", "scales"], ["y"])
    >>> moves(resize, 0), moves(resize, 2)
    (True, False)
    """
    return commutes(node) and (position == 0 or node.op_type == "Concat")


def moved_outputs(node: onnx.NodeProto) -> list[str]:
    """The outputs of a node that commutes which hold its values: no mask of a Dropout, no indices.

    >>> moved_outputs(onnx.helper.make_node("Dropout", ["x"], ["y", "mask"]))
    ['y']
    """
    return list(node.output if node.op_type == "Split" else node.output[:1])


def _trains(node: onnx.NodeProto) -> bool:
    """Whether a Dropout may be asked to drop values: its third input says so, and exporters leave it out."""
    return len(node.input) > 2 and bool(node.input[2])


def _text(node: onnx.NodeProto, name: str, default: str) -> str:
    return next((a.s.decode() for a in node.attribute if a.name == name), default)


def float_reason(node: onnx.NodeProto, functions: Container[tuple[str, str]] = ()) -> str:
    """Why a node without a weight stays in float.

    Args:
        node: The node.
        functions: Name and domain of the functions that the model defines itself.

    >>> float_reason(onnx.helper.make_node("Softmax", ["x"], ["y"]))
    'TensorRT has no INT8 softmax'
    """
    if (node.op_type, node.domain) in functions:
        return "a function of the model: nodes in it stay in float"
    if not is_standard(node):
        domain = node.domain or "ai.onnx"
        return f"custom operator of domain {domain!r}: pairs would have to be inside of it"
    if node.op_type in ("Resize", "Upsample"):
        return _MOVES if commutes(node) else "needs no pair of its own"
    if node.op_type == "Dropout" and _trains(node):
        return "it drops values in training"
    return _REASONS.get(node.op_type, "no rule places a pair on it")
