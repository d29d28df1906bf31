"""The machine and software of a run, found without importing what is not needed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from calib.validation.results import Environment

__all__ = ["describe_environment", "find_gpu", "package_versions", "processor_name"]

_PACKAGES = (
    "int8-calib",
    "numpy",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "pillow",
    "scikit-learn",
    "scipy",
    "torch",
    "torchvision",
)
_TENSORRT = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu11")

_NVIDIA_SMI_SECONDS = 5.0


def describe_environment(session_options: Mapping[str, str] | None = None) -> Environment:
    """Describes this machine; what cannot be found out is None, and nothing here fails.

    Args:
        session_options: Settings of the runner that can change a figure.
    """
    gpu, driver, cuda = find_gpu()
    tensorrt = package_versions(_TENSORRT)
    return Environment(
        machine=platform.machine(),
        system=_system(),
        processor=processor_name(),
        logical_cores=_cores(),
        memory_gib=round(_memory_bytes() / (1 << 30), 1),
        python=platform.python_version(),
        packages=package_versions(_PACKAGES),
        gpu=gpu,
        driver=driver,
        cuda=cuda,
        tensorrt=next(iter(tensorrt.values()), None),
        session_options=dict(session_options or {}),
    )


def package_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Versions of those distributions that are installed, read without importing them.

    >>> list(package_versions(("numpy", "no-such-distribution")))
    ['numpy']
    """
    found = ((name, _version(name)) for name in names)
    return {name: version for name, version in found if version is not None}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def processor_name(cpuinfo: str = "/proc/cpuinfo") -> str:
    """The processor's model name.

    Args:
        cpuinfo: Linux's description of the processors.
    """
    try:
        text = Path(cpuinfo).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else platform.processor() or platform.machine()


def find_gpu() -> tuple[str | None, str | None, str | None]:
    """Name of the GPUs, driver version and the CUDA version that the driver supports, by nvidia-smi.

    Returns:
        None for each that is not known, as on a machine without a GPU. Several GPUs are counted:
        "2 x NVIDIA H200".
    """
    listed = _nvidia_smi("--query-gpu=name,driver_version", "--format=csv,noheader")
    rows = [[field.strip() for field in line.split(",")] for line in listed.splitlines()]
    rows = [row for row in rows if len(row) == 2]
    if not rows:
        return None, None, None
    names = [row[0] for row in rows]
    kinds = {name: names.count(name) for name in names}
    gpu = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in kinds.items())
    match = re.search(r"CUDA Version\s*:\s*([\d.]+)", _nvidia_smi())
    return gpu, rows[0][1], match.group(1) if match else None


def _nvidia_smi(*options: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *options],
            capture_output=True,
            text=True,
            timeout=_NVIDIA_SMI_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        # A broken driver must not cost the results: the machine is described without its GPU.
        return ""
    return done.stdout


def _system() -> str:
    kernel = f"{platform.system()} {platform.release()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']} ({kernel})"
    except (OSError, KeyError):
        return kernel


def _cores() -> int:
    """Cores this process may use: containers and taskset give fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return 0
