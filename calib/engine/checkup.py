"""What this machine has and what calib can do on it: the facts behind ``calib doctor``."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from calib import __version__
from calib.engine.cuda_libraries import LibraryInfo, detect_libraries
from calib.engine.detect import (
    GpuProbe,
    ModuleProbe,
    TensorRTInfo,
    detect_tensorrt,
    probe_gpus,
    probe_module,
)
from calib.engine.packages import PackageInfo, find_conflicts, inspect_packages
from calib.engine.precisions import PrecisionSupport, precision_support

__all__ = ["Ability", "Checkup", "GpuPrecisions", "examine"]

_REPORT = (("altair", "report"), ("jinja2", "report"), ("vl_convert", "report"))
_ONNXRUNTIME = (("onnxruntime", "onnxruntime"),)
_TORCH = (("torch", "torch"),)
_PILLOW = (("PIL", "images"),)
_TENSORRT = (("tensorrt", "tensorrt"),)
_RTX = (("tensorrt_rtx", "tensorrt-rtx"),)
_PYCUDA = (("pycuda.driver", "tensorrt"),)
# Since cuda-python 12.6 the module is the first of the two.
_CUDA_PYTHON = ("cuda.bindings.driver", "cuda.cuda")


@dataclass(frozen=True)
class _Use:
    """One thing to do with calib, the part of it that does that, and what it needs."""

    what: str
    part: str
    modules: tuple[tuple[str, str], ...] = ()
    gpu: bool = False
    extra: str = ""
    calibrators: bool = False


_USES = (
    _Use("calib demo", "cli/demo", _ONNXRUNTIME + _REPORT, extra="cpu"),
    _Use("calib export", "cli/export", _TORCH),
    _Use("calib data show", "cli/data", _PILLOW),
    _Use("calib calibrate", "cli/calibrate", _ONNXRUNTIME),
    _Use(
        "calib calibrate --native",
        "engine/native_calibration",
        _TENSORRT + _PYCUDA,
        gpu=True,
        calibrators=True,
    ),
    _Use("calib quantize", "cli/quantize"),
    _Use("calib build", "cli/build", _TENSORRT, gpu=True),
    _Use("calib build --rtx", "cli/build", _RTX),
    _Use("calib inspect ENGINE", "cli/inspect", _TENSORRT + _PYCUDA, gpu=True),
    _Use("calib validate --runner onnxruntime", "cli/validate", _ONNXRUNTIME),
    _Use("calib validate --runner tensorrt", "runners/tensorrt", _TENSORRT + _PYCUDA, gpu=True),
    _Use("calib validate --runner pytorch", "runners/pytorch", _TORCH),
    _Use("calib report", "cli/report", _REPORT),
    _Use("calib check", "cli/check"),
    _Use("calib compare", "cli/compare"),
    _Use("calib sensitivity", "cli/sensitivity", _ONNXRUNTIME),
    _Use("calib tune", "cli/tune", _ONNXRUNTIME),
    _Use("calib cache", "cli/cache"),
    _Use("recipes with source: images", "data/sources/images", _PILLOW),
    _Use("recipes with source: text", "data/sources/text", (("tokenizers", "text"),)),
    _Use("recipes with task: detection", "validation/tasks/detection", (("pycocotools", "coco"),)),
)


@dataclass(frozen=True)
class Ability:
    """Whether one thing can be done here.

    Attributes:
        what: The command, or the kind of recipe.
        able: Whether everything it needs is here.
        missing: What is not, a line each: "no module tensorrt".
        install: The command that brings what pip can bring; None where nothing is missing, or pip
            cannot help.
    """

    what: str
    able: bool
    missing: tuple[str, ...] = ()
    install: str | None = None


@dataclass(frozen=True)
class GpuPrecisions:
    """What one GPU gains from each precision."""

    gpu: int
    precisions: tuple[PrecisionSupport, ...]


@dataclass(frozen=True)
class Checkup:
    """Everything that was found out about this machine.

    Attributes:
        calib: Version of calib.
        python: Version of Python.
        executable: The interpreter.
        system: Operating system and architecture.
        logical_cores: Number of CPU cores that the system shows.
        packages: Each package that calib can use.
        onnxruntime: How importing ONNX Runtime went; ``answer`` is the list of its providers.
        gpus: The GPUs, and why there are none.
        precisions: What each GPU gains from each precision, where its compute capability is known.
        cuda_visible_devices: The environment variable, which may hide GPUs; None where it is not set.
        tensorrt: TensorRT.
        tensorrt_rtx: TensorRT-RTX.
        pycuda: How importing PyCUDA's driver module went.
        cuda_python: How importing cuda-python's driver module went.
        libraries: The CUDA runtime and cuDNN.
        abilities: What can be done here.
        conflicts: Combinations that are known to fail, a line each.
    """

    calib: str
    python: str
    executable: str
    system: str
    logical_cores: int
    packages: tuple[PackageInfo, ...]
    onnxruntime: ModuleProbe
    gpus: GpuProbe
    precisions: tuple[GpuPrecisions, ...]
    cuda_visible_devices: str | None
    tensorrt: TensorRTInfo
    tensorrt_rtx: TensorRTInfo
    pycuda: ModuleProbe
    cuda_python: ModuleProbe
    libraries: tuple[LibraryInfo, ...]
    abilities: tuple[Ability, ...]
    conflicts: tuple[str, ...]


def examine() -> Checkup:
    """Looks at Python, packages, GPUs and TensorRT; starts no CUDA and raises for nothing missing."""
    gpus = probe_gpus()
    tensorrt = detect_tensorrt()
    onnxruntime = probe_module("onnxruntime", call="get_available_providers")
    pycuda = probe_module("pycuda.driver")
    cuda_python = _probe_cuda_python()
    rtx = detect_tensorrt("tensorrt_rtx")
    problems = {
        "tensorrt": tensorrt.problem,
        "tensorrt_rtx": rtx.problem,
        "onnxruntime": onnxruntime.problem,
        # Either of the two does.
        "pycuda.driver": None if cuda_python.imports else pycuda.problem,
    }
    return Checkup(
        calib=__version__,
        python=platform.python_version(),
        executable=sys.executable,
        system=platform.platform(),
        logical_cores=os.cpu_count() or 0,
        packages=inspect_packages(tensorrt),
        onnxruntime=onnxruntime,
        gpus=gpus,
        precisions=_precisions(gpus),
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        tensorrt=tensorrt,
        tensorrt_rtx=rtx,
        pycuda=pycuda,
        cuda_python=cuda_python,
        libraries=detect_libraries(),
        abilities=judge(problems, gpus, tensorrt),
        conflicts=find_conflicts(tensorrt, gpus.gpus),
    )


def _probe_cuda_python() -> ModuleProbe:
    probes = [probe_module(name) for name in _CUDA_PYTHON]
    return next((probe for probe in probes if probe.installed), probes[0])


def _precisions(gpus: GpuProbe) -> tuple[GpuPrecisions, ...]:
    return tuple(
        GpuPrecisions(gpu.index, precision_support(gpu.compute_capability))
        for gpu in gpus.gpus
        if gpu.compute_capability
    )


def judge(
    problems: dict[str, str | None], gpus: GpuProbe, tensorrt: TensorRTInfo | None = None
) -> tuple[Ability, ...]:
    """What can be done here, of what this version of calib has.

    Args:
        problems: Why a module cannot be imported, for those whose import was tried; None: it can.
        gpus: The GPUs.
        tensorrt: What was found of TensorRT.
    """
    return tuple(_ability(use, problems, gpus, tensorrt) for use in _USES if _has(use.part))


def _ability(
    use: _Use, problems: dict[str, str | None], gpus: GpuProbe, tensorrt: TensorRTInfo | None
) -> Ability:
    missing, extras = [], []
    for module, extra in use.modules:
        problem = problems[module] if module in problems else _absent(module)
        if problem == "not installed":
            missing.append(f"no module {module.partition('.')[0]}")
            extras.append(use.extra or extra)
        elif problem:
            missing.append(f"{module} fails to import: {problem}")
    if use.calibrators and tensorrt is not None and tensorrt.calibrators is False:
        missing.append(f"TensorRT {tensorrt.version} has no calibrators: they ended with TensorRT 10")
    if use.gpu and not gpus.gpus:
        missing.append(f"no GPU: {gpus.problem}")
    return Ability(use.what, not missing, tuple(missing), _install(extras))


def _install(extras: Collection[str]) -> str | None:
    return f"pip install 'int8-calib[{','.join(sorted(set(extras)))}]'" if extras else None


def _absent(module: str) -> str | None:
    return None if importlib.util.find_spec(module) else "not installed"


def _has(part: str) -> bool:
    """Whether this version of calib has a part; later stages are not imported to find out."""
    package = Path(__file__).parents[1]
    return (package / f"{part}.py").is_file() or (package / part / "__init__.py").is_file()
