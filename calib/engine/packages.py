"""The packages calib uses, those that are missing or too old, and combinations known to fail."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calib.engine.detect import GpuInfo, TensorRTInfo, package_version

__all__ = ["PACKAGES", "Package", "PackageInfo", "find_conflicts", "inspect_packages"]

_ONNXRUNTIMES = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-openvino",
    "onnxruntime-directml",
)

_CUDA_OF_TENSORRT = re.compile(r"-cu(\d+)(?:-bindings)?$")

_TENSORRTS = ("tensorrt-cu11", "tensorrt-cu12", "tensorrt-cu13")

# Least compute capability since a release of TensorRT, and the release that brought one: release notes
# of 10.0, 10.5 and 10.8.
_DROPPED = (((10, 5), (7, 5)), ((10, 0), (7, 0)))
_BROUGHT = (((10, 0), (10, 8)),)


@dataclass(frozen=True)
class Package:
    """A package that calib can use.

    Attributes:
        name: Its name on the package index.
        minimum: Oldest version that calib works with.
        extra: The extra of calib that brings it; empty for those that are always needed.
        alternatives: Packages that bring the same module.
    """

    name: str
    minimum: str
    extra: str = ""
    alternatives: tuple[str, ...] = ()


PACKAGES = (
    Package("cloudpickle", "2.2"),
    Package("numpy", "1.24"),
    Package("onnx", "1.16"),
    Package("pydantic", "2.7"),
    Package("PyYAML", "6.0"),
    Package("rich", "13.7"),
    Package("scikit-learn", "1.4"),
    Package("scipy", "1.11"),
    Package("typer", "0.12"),
    Package("onnxruntime", "1.18", "onnxruntime", _ONNXRUNTIMES[1:]),
    Package("numba", "0.60", "fast"),
    Package("pillow", "10.1", "images"),
    Package("altair", "5.4", "report"),
    Package("jinja2", "3.1", "report"),
    Package("vl-convert-python", "1.6", "report"),
    Package("onnxscript", "0.5", "torch"),
    Package("torch", "2.6", "torch"),
    Package("torchvision", "0.21", "torch"),
    Package("tokenizers", "0.15", "text"),
    Package("pycocotools", "2.0.10", "coco"),
    Package("tensorrt", "8.6", "tensorrt"),
    Package("nvidia-ml-py", "12.535", "tensorrt"),
    Package("pycuda", "2024.1", "tensorrt"),
    Package("cuda-python", "12.0", "cuda-python", ("cuda-bindings",)),
    Package("tensorrt-rtx-cu13-bindings", "1.7.1.116", "tensorrt-rtx"),
    Package("tensorrt-rtx-cu13-libs", "1.7.1.116", "tensorrt-rtx"),
)


@dataclass(frozen=True)
class PackageInfo:
    """One package on this machine.

    Attributes:
        name: The installed package; the usual one where none is installed.
        version: Its version; None where it is missing.
        minimum: Oldest version that calib works with.
        extra: The extra of calib that brings it; empty for those that are always needed.
        too_old: Whether it is older than that.
        install: The command that brings it or a newer one; None where nothing need be done.
    """

    name: str
    version: str | None
    minimum: str
    extra: str
    too_old: bool
    install: str | None


def inspect_packages(tensorrt: TensorRTInfo | None = None) -> tuple[PackageInfo, ...]:
    """Looks at the metadata of each package; imports none.

    Args:
        tensorrt: What was found of TensorRT, whose package has many names, or none at all.
    """
    return tuple(_inspect(package, tensorrt) for package in PACKAGES)


def _inspect(package: Package, tensorrt: TensorRTInfo | None) -> PackageInfo:
    name, version = package.name, None
    if package.name == "tensorrt" and tensorrt is not None and tensorrt.installed:
        name, version = tensorrt.distribution or package.name, tensorrt.version
    else:
        for candidate in (package.name, *package.alternatives):
            if (version := package_version(candidate)) is not None:
                name = candidate
                break
    too_old = version is not None and _numbers(version) < _numbers(package.minimum)
    install = _install(package) if version is None or too_old else None
    return PackageInfo(name, version, package.minimum, package.extra, too_old, install)


def _install(package: Package) -> str:
    if package.extra:
        return f"pip install 'int8-calib[{package.extra}]'"
    return f"pip install '{package.name}>={package.minimum}'"


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare two.

    >>> _numbers("1.24") < _numbers("1.24.0rc1+cu130") < _numbers("2.0")
    True
    """
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def find_conflicts(
    tensorrt: TensorRTInfo, gpus: tuple[GpuInfo, ...], python: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """Combinations that are known to fail, a line each, with what to do.

    Args:
        tensorrt: What was found of TensorRT.
        gpus: The GPUs, for the CUDA version that their driver serves.
        python: Major and minor version; this interpreter's by default.
    """
    found = (
        _installed_together(_ONNXRUNTIMES, "overwrite each other's files"),
        _torchvision_for_another_torch(),
        _torchvision_built_otherwise(),
        _numpy_too_new(tensorrt),
        _python_too_new(tensorrt, python or sys.version_info[:2]),
        _driver_too_old(tensorrt, gpus),
        _driver_too_old_for_torch(gpus),
        _installed_together(_TENSORRTS, "bring the same module and overwrite each other's files"),
        *(_gpu_not_served(tensorrt, gpu) for gpu in gpus),
    )
    return tuple(line for line in found if line)


def _installed_together(names: Sequence[str], harm: str) -> str | None:
    present = [name for name in names if package_version(name) is not None]
    if len(present) < 2:
        return None
    return (
        f"{' and '.join(present)} are installed together: they {harm}. "
        f"Uninstall all of them, then install one: pip uninstall -y {' '.join(present)}"
    )


def _torchvision_for_another_torch() -> str | None:
    torch, torchvision = package_version("torch"), package_version("torchvision")
    if torch is None or torchvision is None:
        return None
    wanted = _pinned_torch()
    if wanted is None or wanted == torch.partition("+")[0]:
        return None
    return (
        f"torchvision {torchvision} was built for torch {wanted}, but torch {torch} is installed: "
        "its operators will not load. Install the two together: pip install -U torch torchvision"
    )


def _pinned_torch() -> str | None:
    """The torch that the installed torchvision demands."""
    for line in importlib.metadata.requires("torchvision") or ():
        if found := re.match(r"torch\s*\(?==\s*([\d.]+)", line):
            return found.group(1)
    return None


def _torchvision_built_otherwise() -> str | None:
    torch, torchvision = _cuda_build("torch"), _cuda_build("torchvision")
    if torch is None or torchvision is None or torch == torchvision:
        return None
    return (
        f"torch is built for {torch}, but torchvision for {torchvision}: its operators will not "
        "load. Install both from the same index: pip install -U torch torchvision"
    )


def _cuda_build(package: str) -> str | None:
    """What a package of PyTorch is built for: "cpu", "cu130"; None where it does not say.

    The file ``version.py`` is read as text, since importing torch takes seconds, and its metadata
    on PyPI leaves the build out.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^__version__\s*=\s*['\"][\d.]+\+(cpu|cu\d+)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None


def _numpy_too_new(tensorrt: TensorRTInfo) -> str | None:
    numpy = package_version("numpy")
    if numpy is None or not _is_8(tensorrt) or _numbers(numpy) < (2,):
        return None
    return (
        f"TensorRT {tensorrt.version} was built for numpy 1.x, but numpy {numpy} is installed. "
        "Install an older one: pip install 'numpy<2'"
    )


def _python_too_new(tensorrt: TensorRTInfo, python: tuple[int, int]) -> str | None:
    # Where it does import, as 8.6.1 does on 3.11, there is nothing to say.
    if not _is_8(tensorrt) or tensorrt.usable or python <= (3, 10):
        return None
    return (
        f"TensorRT {tensorrt.version} has Python bindings up to Python 3.10, this is Python "
        f"{python[0]}.{python[1]}. Use Python 3.10, or TensorRT 10 or later."
    )


def _is_8(tensorrt: TensorRTInfo) -> bool:
    return tensorrt.version is not None and tensorrt.version.startswith("8.")


def _driver_too_old(tensorrt: TensorRTInfo, gpus: tuple[GpuInfo, ...]) -> str | None:
    built = _CUDA_OF_TENSORRT.search(tensorrt.distribution or "")
    served = next((gpu.cuda for gpu in gpus if gpu.cuda), None)
    if built is None or served is None or _numbers(served)[0] >= int(built.group(1)):
        return None
    fitting = f"tensorrt-cu{_numbers(served)[0]}"
    return (
        f"{tensorrt.distribution} needs a driver that serves CUDA {built.group(1)}, but driver "
        f"{gpus[0].driver} serves {served}. Update the driver, or install {fitting}."
    )


def _driver_too_old_for_torch(gpus: tuple[GpuInfo, ...]) -> str | None:
    build = _cuda_build("torch") or ""
    served = next((gpu.cuda for gpu in gpus if gpu.cuda), None)
    # cu130 is CUDA 13.0, cu121 is 12.1; a driver serves every release of its own major version.
    if served is None or not build.startswith("cu") or _numbers(served)[0] >= int(build[2:-1]):
        return None
    return (
        f"torch is built for CUDA {build[2:-1]}.{build[-1]}, but driver {gpus[0].driver} serves {served}: it "
        "will see no GPU. Update the driver, or install a torch for that CUDA."
    )


def _gpu_not_served(tensorrt: TensorRTInfo, gpu: GpuInfo) -> str | None:
    if tensorrt.version is None or gpu.compute_capability is None:
        return None
    release, capability = _numbers(tensorrt.version)[:2], gpu.compute_capability
    named = f"{gpu.name} has compute capability {capability[0]}.{capability[1]}, which TensorRT"
    least = next((least for since, least in _DROPPED if release >= since), None)
    if least is not None and capability < least:
        return (
            f"{named} {tensorrt.version} no longer serves (it needs {least[0]}.{least[1]}). Use an older "
            f"TensorRT: {'below 10.5' if capability >= (7, 0) else '8.6'}."
        )
    needed = next((since for first, since in _BROUGHT if capability >= first), None)
    if needed is not None and release < needed:
        return f"{named} {tensorrt.version} does not know yet. Use {needed[0]}.{needed[1]} or later."
    return None
