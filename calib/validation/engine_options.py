"""How the engines of a validation on TensorRT are built and timed."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, get_args

from calib.engine.build_request import ROUTES
from calib.errors import UsageError
from calib.graph.targets import Treatment

__all__ = ["EngineOptions"]

_ROUTES = (*ROUTES, "both")
_RESTS = ("fp16", "fp32")
_MOST_BUILDS = 20


@dataclass(frozen=True)
class EngineOptions:
    """Options of the runner "tensorrt".

    Attributes:
        shapes: Range of each input, "input:1x3x224x224" or with three shapes; none for the data's batches.
        level: Builder optimization level, 0 to 5; None for TensorRT's default.
        route: How INT8 is built: "implicit" from the calibration cache, "explicit" from a Q/DQ model, "auto"
            as the TensorRT here can, or "both".
        conv_transpose: What becomes of transposed convolutions in INT8: "int8", "float", or "auto": float
            before TensorRT 10, which builds none above level 0 where their output is INT8.
        rest: What layers that are not INT8 may be computed in, in the INT8 engine: "fp16" or "fp32".
        workspace_mib: Largest scratch memory of a layer in MiB.
        timing_cache: Folder or file for timings of kernels.
        engine_cache: Folder where engines are kept.
        cuda_graph: Whether the timed batches are launched as CUDA graphs.
        transfers: Whether the latency includes the transfers.
        profile: Whether each layer is timed.
        simulation: Whether INT8 engines are compared with the simulation of their arithmetic on the CPU.
        rebuilds: How often each engine is built, to see what differs between builds alone.
    """

    shapes: tuple[str, ...] = ()
    level: int | None = None
    route: str = "auto"
    conv_transpose: str = "auto"
    rest: str = "fp16"
    workspace_mib: int | None = None
    timing_cache: str | os.PathLike[str] | None = None
    engine_cache: str | os.PathLike[str] | None = None
    cuda_graph: bool = False
    transfers: bool = False
    profile: bool = True
    simulation: bool = True
    rebuilds: int = 1

    def __post_init__(self) -> None:
        for option, value, known in (
            ("--route", self.route, _ROUTES),
            ("--rest", self.rest, _RESTS),
            ("--conv-transpose", self.conv_transpose, get_args(Treatment)),
        ):
            if value not in known:
                raise UsageError(f"{option} must be one of {', '.join(known)}, got {value!r}.")
        if not 1 <= self.rebuilds <= _MOST_BUILDS:
            raise UsageError(
                f"--rebuilds is the number of builds of each engine, 1 to {_MOST_BUILDS}; got "
                f"{self.rebuilds}. Three to five show how far they differ."
            )

    def changed(self) -> dict[str, Any]:
        """Options that are not as they are by default, by name.

        >>> EngineOptions(level=2, cuda_graph=True).changed()
        {'level': 2, 'cuda_graph': True}
        """
        usual = EngineOptions()
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != getattr(usual, field.name)
        }

    def words(self) -> list[str]:
        """The options of ``calib validate`` that mean the same.

        >>> EngineOptions(shapes=("x:1x3", "y:1x2"), profile=False).words()
        ['--shapes', 'x:1x3', '--shapes', 'y:1x2', '--no-profile']
        """
        words: list[str] = []
        for name, value in self.changed().items():
            flag = "--" + {"workspace_mib": "workspace"}.get(name, name).replace("_", "-")
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{name}")
            else:
                for item in value if isinstance(value, tuple) else (value,):
                    words += [flag, str(item)]
        return words

    def call(self) -> str:
        """The call that makes them.

        >>> EngineOptions(level=2, cuda_graph=True).call()
        'EngineOptions(level=2, cuda_graph=True)'
        """
        return f"EngineOptions({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    def routes(self) -> tuple[str, ...]:
        """The routes by which INT8 is built.

        >>> EngineOptions(route="both").routes()
        ('implicit', 'explicit')
        """
        return ("implicit", "explicit") if self.route == "both" else (self.route,)
