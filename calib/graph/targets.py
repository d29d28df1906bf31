"""What the runtimes that read a Q/DQ model ask of its form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, get_args

from calib.errors import UsageError
from calib.wording import suggestion

__all__ = [
    "DEFAULT_TARGET",
    "TARGETS",
    "FloatType",
    "Target",
    "Treatment",
    "find_target",
    "stays_float",
    "target_of_release",
    "typed_target",
]

DEFAULT_TARGET = "tensorrt-8.6"

FloatType = Literal["fp32", "fp16"]
"""Type of what is not INT8 in a Q/DQ model."""

Treatment = Literal["auto", "int8", "float"]
"""What becomes of nodes that some targets leave in float; "auto" is the target's."""

_HALF_SCALES = 19


@dataclass(frozen=True)
class Target:
    """A runtime, and the form of Q/DQ model that it reads.

    What all of them share is not in here: zero points are int8 zeros, given as the third input; scales
    are positive constants; bias stays float.

    Attributes:
        name: What ``--target`` takes.
        least_opset: The lowest opset that has what is written; a lower one is raised to it.
        most_opset: The highest opset that the runtime reads; None where none is known.
        sure_opset: The highest opset that every release under this name reads; None as above.
        zero_point: Whether the third input of QuantizeLinear and DequantizeLinear may be missing. It is
            written in either case, since all of them read it.
        scale_types: Types that scales can have.
        weights: How weights are stored: "int8" with a DequantizeLinear alone, a quarter of the size; or so
            "but for matmul", where all weights of a model with a MatMul stay in float, with both nodes,
            which the builder folds.
        remark: What is to know about the runtime.
        float_attention: Whether the multiplications of a network with attention are faster in float.
        float_conv_transpose: Whether it builds no engine above level 0 where a transposed convolution has an
            INT8 output.
        whole_shapes: Whether its parser takes every Shape for that of all axes, whatever part is asked for.
        wrong_layers: Whether layers of its INT8 engines may compute something else.
    """

    name: str
    least_opset: int
    most_opset: int | None
    sure_opset: int | None
    zero_point: Literal["required", "optional"]
    scale_types: tuple[FloatType, ...]
    weights: Literal["int8", "but for matmul"]
    remark: str
    float_attention: bool = False
    float_conv_transpose: bool = False
    whole_shapes: bool = False
    wrong_layers: bool = False


# onnx-tensorrt, docs/operators.md and builtin_op_importers.cpp of each release; TensorRT's release notes.
_ALL = (
    Target(
        "tensorrt-8.6",
        13,
        17,
        17,
        "required",
        ("fp32",),
        # With INT8 weights 8.6.0 builds convolutional networks, but fails on a vision transformer:
        # convertMyelinWeightsToFp32, "params.weights.type() != DataType::kINT8".
        "but for matmul",
        "Build with the INT8 flag set and without a calibrator.",
        float_attention=True,
        float_conv_transpose=True,
        whole_shapes=True,
        wrong_layers=True,
    ),
    Target(
        "tensorrt-10",
        13,
        22,
        20,
        "optional",
        ("fp32", "fp16"),
        "int8",
        "Build strongly typed, or with the INT8 flag set.",
    ),
    Target(
        "tensorrt-11",
        13,
        25,
        24,
        "optional",
        ("fp32", "fp16"),
        "int8",
        "Networks are strongly typed; there is no INT8 flag and no calibrator.",
    ),
    Target(
        "onnxruntime",
        13,
        None,
        None,
        "optional",
        ("fp32", "fp16"),
        "int8",
        "Pairs stand where TensorRT wants them, and on no outputs, so that few of them become integer "
        "kernels: good for simulating an engine, not for speed on a CPU.",
    ),
)

TARGETS = MappingProxyType({target.name: target for target in _ALL})
"""Name → target."""


def stays_float(option: str, chosen: str, by_target: bool) -> bool:
    """Whether nodes stay in float.

    Args:
        option: What chooses it, for messages.
        chosen: A ``Treatment``.
        by_target: Whether they do where the target decides.

    Raises:
        UsageError: There is no such treatment.

    >>> stays_float("--attention", "auto", True), stays_float("--attention", "int8", True)
    (True, False)
    """
    choices = get_args(Treatment)
    if chosen not in choices:
        raise UsageError(f"{option} must be one of {', '.join(choices)}, got {chosen!r}.")
    return by_target if chosen == "auto" else chosen == "float"


def find_target(name: str) -> Target:
    """The target of a name.

    Args:
        name: One of ``TARGETS``.

    Raises:
        UsageError: There is none of that name.

    >>> find_target("tensorrt-8.6").most_opset
    17
    """
    if name in TARGETS:
        return TARGETS[name]
    hint = suggestion(name.lower(), TARGETS, cutoff=0.4)
    raise UsageError(f"--target {name!r} is unknown.{hint} Targets: {', '.join(TARGETS)}.")


def target_of_release(flavour: str, version: str) -> Target:
    """The target that a TensorRT reads.

    Args:
        flavour: "tensorrt", or "tensorrt_rtx", whose networks are strongly typed as those of TensorRT 11.
        version: Such as "8.6.1".

    >>> [target_of_release("tensorrt", version).name for version in ("8.6.1", "10.3.0", "11.0.0")]
    ['tensorrt-8.6', 'tensorrt-10', 'tensorrt-11']
    >>> target_of_release("tensorrt_rtx", "1.7.1").name
    'tensorrt-11'
    """
    major = int(version.split(".")[0])
    if flavour != "tensorrt" or major >= 11:
        return find_target("tensorrt-11")
    return find_target("tensorrt-10" if major >= 10 else "tensorrt-8.6")


def typed_target(target: Target, float_type: str) -> Target:
    """What a target asks of a Q/DQ model whose rest has a type: scales in float16 need opset 19.

    Args:
        target: The target.
        float_type: "fp32" or "fp16".

    Raises:
        UsageError: The target reads no scales of that type, or there is no such type.

    >>> typed_target(find_target("tensorrt-11"), "fp16").least_opset
    19
    """
    if float_type not in get_args(FloatType):
        raise UsageError(f"--float-type {float_type!r} is unknown. Types: {', '.join(get_args(FloatType))}.")
    if float_type not in target.scale_types:
        able = ", ".join(other.name for other in _ALL if float_type in other.scale_types)
        raise UsageError(
            f"--float-type {float_type} is nothing for {target.name}: it reads Q/DQ scales in float32 alone. "
            "Leave the option out and build with the FP16 and INT8 flags, "
            f"which make FP16 of what is not INT8; or choose another --target: {able}."
        )
    least = max(target.least_opset, _HALF_SCALES) if float_type == "fp16" else target.least_opset
    return replace(target, least_opset=least)
