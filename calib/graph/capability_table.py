"""What TensorRT's ONNX parser imports, and what TensorRT computes in INT8, as NVIDIA documents it.

Sources: the operator tables of the parser (onnx-tensorrt, ``docs/operators.md``) of releases 8.5 and 10.15,
with what ``docs/Changelog.md`` says of 8.6 and the releases' notes of 11.0 and 11.2; for layers that the
parser's table has without INT8, "ElementWise" in the operator reference of 8.5.3, and "Q/DQ Layer-Placement
Recommendations" in the developer guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = [
    "APART",
    "ELEMENTWISE",
    "FIRST_RELEASE",
    "FLOAT_ONLY",
    "LISTED_INT8",
    "PARSED",
    "RELEASES",
    "RESTRICTIONS",
]

RELEASES = ("8.6", "10", "11")
"""The TensorRT releases that are told apart; 10 as of 10.15."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# operators.md of 8.5; 8.6 added the last line (Changelog.md).
_PARSED_8_6 = _words("""
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Celu
    Clip Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div
    Dropout Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gemm
    GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GRU HardSwish HardSigmoid
    Identity If ImageScaler InstanceNormalization IsNaN LeakyRelu Less LessOrEqual Log LogSoftmax Loop LRN
    LSTM LpNormalization LpPool MatMul Max MaxPool Mean MeanVarianceNormalization Min Mod Mul Neg
    NonMaxSuppression NonZero Not OneHot Or Pad ParametricSoftplus Pow PRelu QuantizeLinear RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize
    ReverseSequence RNN RoiAlign Round ScaledTanh Scan Scatter ScatterElements ScatterND Selu Shape Shrink
    Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan
    Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor
    GroupNormalization LayerNormalization IsInf
""")
# operators.md of 10.15, beyond those of 8.6.
_PARSED_10 = _PARSED_8_6 | _words("""
    Attention BlackmanWindow CastLike DeformConv Gelu HammingWindow HannWindow Hardmax Mish RMSNormalization
    RotaryEmbedding STFT TensorScatter
""")
# Notes of 11.0 and 11.2.
_PARSED_11 = _PARSED_10 | _words("Swish DFT")

PARSED: Mapping[str, frozenset[str]] = MappingProxyType(
    dict(zip(RELEASES, (_PARSED_8_6, _PARSED_10, _PARSED_11), strict=True))
)
"""Release → operators of ONNX that its parser imports."""

FIRST_RELEASE: Mapping[str, str] = MappingProxyType(
    {
        "Hardmax": "9.2",
        "DeformConv": "10.1",
        "BlackmanWindow": "10.4",
        "HammingWindow": "10.4",
        "HannWindow": "10.4",
        "STFT": "10.5",
        "Attention": "10.14",
        "Swish": "11.0",
        "DFT": "11.2",
    }
)
"""Operator → the release that imports it first, where the notes of that say so."""

# operators.md of 8.5, types. From 10 on the table marks Attention and Gelu alone: INT8 is there what lies
# between QuantizeLinear and DequantizeLinear.
LISTED_INT8 = _words("""
    AveragePool Clip Concat Conv ConvTranspose Elu Gather GatherElements GatherND Gemm
    GlobalAveragePool GlobalLpPool GlobalMaxPool HardSwish HardSigmoid Identity LeakyRelu LpPool MaxPool Pad
    ParametricSoftplus PRelu Relu Reshape Round ScaledTanh Scatter ScatterElements ScatterND Selu Sigmoid
    Sign Slice Softplus Softsign Squeeze Tanh ThresholdedRelu Transpose Trilu Unsqueeze
""")
"""Operators that 8.6's parser table marks with INT8; those without arithmetic are ``APART``."""

APART = _words("Constant ConstantOfShape Cast CastLike Shape Size Range EyeLike")
"""Operators that make constants, sizes and types: there is nothing in them to compute in INT8."""

ELEMENTWISE = _words("Add Sub Mul Div Max Min Pow Sum Mean")
"""Operators that become an ElementWise layer, which has INT8 although the parser's table does not say so."""

_NORMS = "normalization is computed in float"
_UNARY = "the Unary layer has float types"
_SUMS = "the Reduce layer has float types"
_COMPARED = "comparisons and logic have no INT8"
_FLOW = "what is inside is judged by itself"
_KINDS: tuple[tuple[str, str], ...] = (
    ("SoftMax has float types", "Softmax LogSoftmax Hardmax"),
    (_NORMS, "LayerNormalization InstanceNormalization GroupNormalization RMSNormalization LRN"),
    (_NORMS, "LpNormalization MeanVarianceNormalization"),
    (_UNARY, "Exp Log Sqrt Reciprocal Abs Neg Erf Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh"),
    (_UNARY, "Ceil Floor IsInf IsNaN"),
    (_SUMS, "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd"),
    (_SUMS, "ReduceSum ReduceSumSquare CumSum"),
    (_COMPARED, "Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor Not"),
    ("indices are integers", "NonZero ArgMax ArgMin OneHot"),
    ("detection layers have float types", "NonMaxSuppression TopK RoiAlign GridSample DeformConv"),
    ("recurrent layers have float types", "LSTM GRU RNN"),
    ("signals are computed in float", "STFT DFT BlackmanWindow HammingWindow HannWindow"),
    ("made values are float", "RandomNormal RandomNormalLike RandomUniform RandomUniformLike"),
    (_FLOW, "If Loop Scan"),
)
FLOAT_ONLY: Mapping[str, str] = MappingProxyType(
    {operator: reason for reason, operators in _KINDS for operator in operators.split()}
)
"""Operator → why TensorRT has no INT8 of it."""

_SAME_GATES = "both directions with the same activation functions"
_FLAT = "2-D and 3-D, without dilation"
RESTRICTIONS: Mapping[str, str] = MappingProxyType(
    {
        "AveragePool": _FLAT,
        "MaxPool": f"{_FLAT} and without the output of indices",
        "LpPool": "without dilation",
        "Attention": "4-D inputs, without past and present keys and softcap",
        "CumSum": "a constant axis",
        "DeformConv": "1-D and 2-D, equal pads at both ends",
        "DequantizeLinear": "zero points of 0",
        "Dropout": "inference",
        "GRU": _SAME_GATES,
        "GridSample": "4-D inputs; 5-D from 11.2",
        "Hardmax": "a fixed size along its axis",
        "If": "outputs of both branches of one rank, with different names",
        "InstanceNormalization": "in 8.6, constant scale and bias",
        "LSTM": f"{_SAME_GATES}, no input_forget, layout 0",
        "LayerNormalization": "the first output",
        "Loop": "scan outputs of fixed length, carried values of fixed shape",
        "OneHot": "a constant depth",
        "QuantizeLinear": "zero points of 0",
        "RNN": _SAME_GATES,
        **dict.fromkeys(sorted(name for name in _PARSED_8_6 if name.startswith("Reduce")), "constant axes"),
        "Resize": "nearest and linear, no antialiasing",
        "RotaryEmbedding": "INT64 position ids",
        "STFT": "real input, constant frame step and window",
        "ScatterND": "no reduction",
        "TensorScatter": "4-D, axis -2",
        "TopK": "sorted, K below 3840",
    }
)
"""Operator → the forms of it that the parser takes."""
