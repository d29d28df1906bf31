"""The GPU that an engine is built for, and its CUDA context during the build."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from calib.engine.api import Api
from calib.engine.build_request import BuildRequest
from calib.engine.detect import detect_gpus
from calib.engine.memory import Device, open_device
from calib.errors import EngineError, MissingExtraError, UsageError

__all__ = ["TargetDevice", "open_target"]

# What TensorRT-RTX is given where there is no GPU to ask: Ampere's consumer GPUs.
_DEFAULT_CAPABILITY = (8, 6)


@dataclass(frozen=True)
class TargetDevice:
    """What is known of the GPU.

    Attributes:
        name: Product name; a description where no GPU is here.
        compute_capability: Such as (9, 0); None where it could not be found out.
        note: What a user should know of it; may be empty.
    """

    name: str
    compute_capability: tuple[int, int] | None
    note: str = ""

    @property
    def key(self) -> str:
        """A name for files: "nvidia-h200-sm90".

        >>> TargetDevice("NVIDIA H200", (9, 0)).key
        'nvidia-h200-sm90'
        """
        words = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        major, minor = self.compute_capability or (0, 0)
        return f"{words}-sm{major}{minor}"


@contextmanager
def open_target(api: Api, request: BuildRequest) -> Iterator[TargetDevice]:
    """The GPU to build for; TensorRT builds on it, TensorRT-RTX without any.

    Args:
        api: TensorRT.
        request: What to build.

    Raises:
        EngineError: There is no GPU, or no such.
        MissingExtraError: A GPU other than the first needs PyCUDA or cuda-python.
        UsageError: TensorRT-RTX does not build for that compute capability.
    """
    if api.flavour == "tensorrt_rtx":
        yield _rtx_target(api, request)
        return
    try:
        device = _open_device(request.device)
    except MissingExtraError:
        # TensorRT itself starts CUDA on the first GPU; only choosing another one needs more.
        if request.device:
            raise
        yield _first_gpu()
        return
    with device:
        yield TargetDevice(device.name, device.compute_capability)


def _open_device(index: int) -> Device:
    return open_device(index)


def _first_gpu() -> TargetDevice:
    gpus = detect_gpus()
    if not gpus:
        raise EngineError(
            "Building an engine needs an NVIDIA GPU, and nvidia-smi shows none. Build on the machine that "
            "runs the engine; TensorRT-RTX (--rtx) builds without a GPU."
        )
    return TargetDevice(gpus[0].name, gpus[0].compute_capability)


def _rtx_target(api: Api, request: BuildRequest) -> TargetDevice:
    supported = _capabilities(api)
    wanted = request.compute_capability
    if wanted is not None and wanted not in supported:
        listed = ", ".join(f"{major}.{minor}" for major, minor in sorted(supported))
        raise UsageError(
            f"{api.title} does not build for compute capability {wanted[0]}.{wanted[1]}. It has {listed}."
        )
    if wanted is not None:
        return TargetDevice(_describe(wanted), wanted)
    here = [gpu for gpu in detect_gpus() if gpu.compute_capability in supported]
    if here:
        return TargetDevice(here[0].name, here[0].compute_capability)
    note = "built for compute capability {}.{}; --compute-capability chooses another".format(
        *_DEFAULT_CAPABILITY
    )
    return TargetDevice(_describe(_DEFAULT_CAPABILITY), _DEFAULT_CAPABILITY, note)


def _describe(capability: tuple[int, int]) -> str:
    return f"any GPU of compute capability {capability[0]}.{capability[1]}"


def _capabilities(api: Api) -> set[tuple[int, int]]:
    """The compute capabilities that TensorRT-RTX names: SM86, SM120."""
    matches = (re.fullmatch(r"SM(\d+)(\d)", name) for name in api.trt.ComputeCapability.__members__)
    return {(int(match[1]), int(match[2])) for match in matches if match}
