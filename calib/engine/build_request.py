"""What to build, as one frozen description; making it looks at nothing but itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from calib.engine.api import FLAVOURS
from calib.errors import UsageError
from calib.graph.targets import Treatment

__all__ = ["PRECISIONS", "ROUTES", "BuildRequest"]

PRECISIONS = ("fp32", "fp16", "int8", "best")
"""fp16: FP16 where TensorRT finds it faster; int8: INT8, the rest in FP32; best: INT8, the rest in FP16."""

ROUTES = ("auto", "implicit", "explicit")
"""How INT8 gets its scales. implicit: the builder takes a calibration cache (TensorRT up to 10). explicit:
they are Q/DQ nodes of the model. auto: implicit where the builder can."""

_LEVELS = range(6)


@dataclass(frozen=True)
class BuildRequest:
    """How an engine is to be built.

    Attributes:
        precision: One of ``PRECISIONS``.
        route: One of ``ROUTES``.
        level: Builder optimization level, 0 (fastest build) to 5; None for the builder's default.
        workspace_mib: Largest scratch memory of a layer in MiB; None for all of the GPU's.
        tf32: Whether FP32 layers may be computed in TF32, whose mantissa is FP16's. Off unless asked for,
            since an FP32 engine is what others are compared with.
        version_compatible: Whether later releases of the same major version can load the engine.
        hardware_compatible: Whether other GPUs from Ampere on can.
        keep_float: Regular expressions of nodes, or of their outputs, that do not become INT8; or, with
            "fp16", that stay in FP32.
        conv_transpose: What becomes of transposed convolutions in INT8 engines: "int8", "float", or "auto":
            float before TensorRT 10, which builds none above level 0 where their output is INT8.
        float_nodes: Nodes that do not become INT8 either, since TensorRT gets them wrong there; as its parser
            calls them.
        flavour: "tensorrt" or "tensorrt_rtx".
        device: Number of the GPU.
        compute_capability: The GPU that TensorRT-RTX builds for, such as (8, 6); None for the one that is
            here, or 8.6 where there is none.

    Raises:
        UsageError: A value that cannot be meant.
    """

    precision: str = "fp32"
    route: str = "auto"
    level: int | None = None
    workspace_mib: int | None = None
    tf32: bool = False
    version_compatible: bool = False
    hardware_compatible: bool = False
    keep_float: tuple[str, ...] = ()
    conv_transpose: str = "auto"
    float_nodes: tuple[str, ...] = ()
    flavour: str = "tensorrt"
    device: int = 0
    compute_capability: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        _check_choice("--precision", self.precision, PRECISIONS)
        _check_choice("--route", self.route, ROUTES)
        _check_choice("--conv-transpose", self.conv_transpose, get_args(Treatment))
        _check_choice("--flavour", self.flavour, tuple(FLAVOURS))
        if self.level is not None and self.level not in _LEVELS:
            raise UsageError(f"--level must be {_LEVELS[0]} to {_LEVELS[-1]}, got {self.level}.")
        if self.workspace_mib is not None and self.workspace_mib < 1:
            raise UsageError(f"--workspace must be at least 1 MiB, got {self.workspace_mib}.")
        if self.device < 0:
            raise UsageError(f"--device must be 0 or higher, got {self.device}.")
        if self.route != "auto" and not self.quantized:
            raise UsageError(f"--route {self.route} is for --precision int8 or best, not {self.precision}.")
        if self.keep_float and self.precision == "fp32":
            raise UsageError("--keep-float is for --precision fp16, int8 or best: with fp32 all is float.")
        if self.conv_transpose != "auto" and not self.quantized:
            raise UsageError(f"--conv-transpose is for --precision int8 or best, not {self.precision}.")
        if self.compute_capability is not None and self.flavour != "tensorrt_rtx":
            raise UsageError(
                "--compute-capability is for TensorRT-RTX; TensorRT builds for the GPU that it runs on. "
                "Leave it out, or add --rtx."
            )

    @property
    def quantized(self) -> bool:
        """Whether INT8 is wanted."""
        return self.precision in ("int8", "best")

    @property
    def half(self) -> bool:
        """Whether FP16 is wanted."""
        return self.precision in ("fp16", "best")


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{option} must be one of {', '.join(choices)}, got {value!r}.")
