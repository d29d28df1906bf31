"""What type a layer of an engine computes in, from the evidence that the inspector gives.

The evidence, the best first:

1. the name of the layer's kernel, which tells the types that it reads and writes
   (``…_i8f32_i8i32_f32_…`` reads INT8 and writes FP32; ``…pooling_IMMA…`` is integer arithmetic);
2. the type of its weights;
3. the types of the tensors that it reads, or writes where it reads several types;
4. where TensorRT says "N/A due to dynamic shapes", the types that its neighbours write and read, by 1 and 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["FLOATS", "datatype_of", "kernel_types", "tensor_type", "type_of_tensors"]

FLOATS = ("FP32", "TF32", "FP16", "BF16")
"""The types that a layer falls back to which does not run in INT8."""

_DATATYPES = (
    ("INT8", r"k?int8"),
    ("FP16", r"fp16|half|k?float16"),
    ("BF16", r"bf16|k?bfloat16"),
    ("FP8", r"k?fp8"),
    ("INT4", r"k?int4"),
    ("FP4", r"k?fp4"),
    ("UINT8", r"k?uint8"),
    ("INT64", r"k?int64"),
    ("INT32", r"k?int32"),
    ("BOOL", r"k?bool"),
    ("FP32", r"fp32|k?float|float32"),
)
# Type of the data read and type written, side by side: xmma's …_i8f32_i8i32_f32_…, …_int8int8_….
_PAIR = re.compile(
    r"(?:^|_)(i8|int8|bf16|f16|fp16|tf32|f32|fp32|e4m3|e5m2)(i8|int8|bf16|f16|fp16|f32|fp32|e4m3|e5m2)(?=_|$)"
)
_SHORT = {
    "i8": "INT8",
    "int8": "INT8",
    "bf16": "BF16",
    "f16": "FP16",
    "fp16": "FP16",
    "tf32": "TF32",
    "f32": "FP32",
    "fp32": "FP32",
    "e4m3": "FP8",
    "e5m2": "FP8",
}
# Kernels that tell one type: cuDNN's …_int8x4_icudnn_…, …_h16816cudnn_…, …_scudnn_…; IMMA and HMMA are the
# instructions of the tensor cores.
_SINGLE = (
    ("INT8", r"int8|imma|_i8"),
    ("BF16", r"bf16|bfloat16"),
    ("FP16", r"fp16|half|hmma|h884|h1688|h16816|hcudnn"),
    ("TF32", r"tf32"),
    ("FP32", r"fp32|float|sgemm|scudnn|ffma"),
)


def datatype_of(text: str) -> str:
    """The type that a format names; empty where it names none.

    >>> datatype_of("Thirty-two wide channel vectorized row major Int8 format"), datatype_of("Half")
    ('INT8', 'FP16')
    >>> datatype_of("N/A due to dynamic shapes")
    ''
    """
    lowered = text.lower()
    for name, pattern in _DATATYPES:
        if re.search(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", lowered):
            return name
    return ""


def kernel_types(tactic: str) -> tuple[str, str]:
    """What a kernel reads and writes by its name; empty where that does not tell.

    >>> kernel_types("sm80_xmma_fprop_implicit_gemm_interleaved_i8f32_i8i32_f32_nchw_vect_c_32")
    ('INT8', 'FP32')
    >>> kernel_types("sm72_xmma_pooling_IMMA_NCxHW32_generic_kMAX")
    ('INT8', 'INT8')
    >>> kernel_types("sm50_xmma_pooling_coalescedC_NHWC_kMAX_2_False")
    ('', '')
    """
    lowered = tactic.lower()
    pair = _PAIR.search(lowered)
    if pair:
        return _SHORT[pair[1]], _SHORT[pair[2]]
    single = next((name for name, pattern in _SINGLE if re.search(pattern, lowered)), "")
    return single, single


def tensor_type(kernel: str) -> str:
    """The type of the tensors of a kernel: TF32 is how FP32 tensors are multiplied.

    >>> tensor_type("TF32"), tensor_type("INT8")
    ('FP32', 'INT8')
    """
    return "FP32" if kernel == "TF32" else kernel


def type_of_tensors(read: Sequence[str], written: Sequence[str]) -> str:
    """The type a layer computes in by its tensors; empty where they do not tell.

    Indices and masks beside values do not count. A layer that reads several types computes in the one
    that it writes.

    >>> type_of_tensors(["INT8", "INT8"], ["FP16"]), type_of_tensors(["INT8", "FP16"], ["FP16"])
    ('INT8', 'FP16')
    >>> type_of_tensors(["FP32", "INT32"], ["FP32"]), type_of_tensors(["INT32"], ["INT32"])
    ('FP32', 'INT32')
    """
    for side in (_values(read), _values(written)):
        if len(side) == 1:
            return side.pop()
    return ""


def _values(types: Sequence[str]) -> set[str]:
    known = {name for name in types if name}
    return {name for name in known if name in (*FLOATS, "INT8", "FP8", "INT4", "FP4")} or known
