"""Which precisions a GPU computes faster than FP32, by its compute capability."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PrecisionSupport", "precision_support"]

_HALF_WITHOUT_TENSOR_CORES = frozenset({(5, 3), (6, 0), (6, 2)})
_DP4A_WITHOUT_TENSOR_CORES = frozenset({(6, 1), (7, 0)})


@dataclass(frozen=True)
class PrecisionSupport:
    """One precision on one GPU.

    Attributes:
        precision: "tf32", "fp16", "bf16", "int8" or "fp8".
        fast: Whether the GPU has instructions that make it faster than FP32.
        how: By what: "tensor cores", "DP4A", "paired half arithmetic", or "not faster than FP32".
    """

    precision: str
    fast: bool
    how: str


def precision_support(capability: tuple[int, int]) -> tuple[PrecisionSupport, ...]:
    """The precisions that TensorRT can use beside FP32, and whether this GPU gains from them.

    The table is "Hardware and Precision" in TensorRT's support matrix (8.0 to 10.x).

    Args:
        capability: CUDA compute capability, such as (7, 5).

    Returns:
        One entry each for TF32, FP16, BF16, INT8 and FP8.

    >>> [row.precision for row in precision_support((6, 1)) if row.fast]
    ['int8']
    >>> [row.precision for row in precision_support((7, 5)) if row.fast]
    ['fp16', 'int8']
    """
    return (
        _tensor_cores("tf32", capability >= (8, 0)),
        _half(capability),
        _tensor_cores("bf16", capability >= (8, 0)),
        _int8(capability),
        _tensor_cores("fp8", capability >= (8, 9)),
    )


def _tensor_cores(precision: str, fast: bool) -> PrecisionSupport:
    return PrecisionSupport(precision, fast, "tensor cores" if fast else "not faster than FP32")


def _half(capability: tuple[int, int]) -> PrecisionSupport:
    if capability in _HALF_WITHOUT_TENSOR_CORES:
        return PrecisionSupport("fp16", True, "paired half arithmetic")
    return _tensor_cores("fp16", capability >= (7, 0))


def _int8(capability: tuple[int, int]) -> PrecisionSupport:
    if capability in _DP4A_WITHOUT_TENSOR_CORES:
        return PrecisionSupport("int8", True, "DP4A")
    return _tensor_cores("int8", capability >= (7, 2))
