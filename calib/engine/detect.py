"""What GPUs and TensorRT this machine has, found without starting CUDA.

GPUs are asked of ``nvidia-smi``; libraries are imported in a separate process, since a broken
native library may end the process that loads it. Nothing here raises because something is missing:
what could not be found out is None, with the reason beside it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "GpuInfo",
    "GpuProbe",
    "ModuleProbe",
    "TensorRTInfo",
    "detect_gpus",
    "detect_tensorrt",
    "package_version",
    "probe_gpus",
    "probe_module",
]

_FIELDS: tuple[str, ...] = ("index", "name", "driver_version", "memory.total", "compute_cap")

_TENSORRT_DISTRIBUTIONS = {
    "tensorrt": (
        *("tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu11", "tensorrt"),
        *("tensorrt-cu13-bindings", "tensorrt-cu12-bindings"),
    ),
    "tensorrt_rtx": (
        *("tensorrt-rtx-cu13", "tensorrt-rtx-cu12", "tensorrt-rtx"),
        *("tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu12-bindings"),
    ),
}

# The module of the packages that hold the bindings alone.
_BINDINGS = "_bindings"

_INT8_API = ("IInt8EntropyCalibrator2", "BuilderFlag.INT8")

_MARK = "calib-probe:"

_IMPORT = """
import importlib, json, sys
name, attributes, call, path, mark = json.loads(sys.argv[1])
sys.path[:] = path
module = importlib.import_module(name)
found = []
for attribute in attributes:
    value = module
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if value is not None:
        found.append(attribute)
version = str(getattr(module, "__version__", "") or "")
answer = getattr(module, call)() if call else None
print("\\n" + mark + json.dumps({"version": version, "found": found, "answer": answer}))
"""


@dataclass(frozen=True)
class GpuInfo:
    """One NVIDIA GPU.

    Attributes:
        index: Its number in the order of ``nvidia-smi``.
        name: Product name, such as "NVIDIA H200".
        driver: Driver version, such as "535.104.05".
        cuda: Highest CUDA version that the driver serves, such as "12.2".
        compute_capability: Such as (9, 0); None where an old driver does not tell.
        memory_mib: Memory of the GPU in MiB.
    """

    index: int
    name: str
    driver: str | None = None
    cuda: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_mib: int | None = None


@dataclass(frozen=True)
class GpuProbe:
    """The GPUs found, and why there are none or some facts are missing.

    Attributes:
        gpus: Every GPU that the driver reports, whether or not CUDA_VISIBLE_DEVICES hides it.
        problem: What went wrong, one line; None where nothing did.
    """

    gpus: tuple[GpuInfo, ...]
    problem: str | None = None


@dataclass(frozen=True)
class ModuleProbe:
    """How importing a module in a process of its own went.

    Attributes:
        name: The module's name.
        installed: Whether Python finds it.
        imports: Whether it could be imported.
        version: Its ``__version__``; None where it has none or does not import.
        location: File or folder it comes from.
        found: Those of the attributes asked for that it has.
        answer: What the function that was to be called gave.
        problem: Why it does not import, one line.
    """

    name: str
    installed: bool
    imports: bool = False
    version: str | None = None
    location: str | None = None
    found: tuple[str, ...] = ()
    answer: Any = None
    problem: str | None = None


@dataclass(frozen=True)
class TensorRTInfo:
    """One TensorRT, or the absence of it.

    Attributes:
        module: "tensorrt", or "tensorrt_rtx" for TensorRT-RTX.
        installed: Whether Python finds the module.
        usable: Whether it can be imported.
        version: The library's version, or the package's where the library does not import.
        detected_by: "import" where the library itself told its version, "package metadata" where
            only the installed package did; None where nothing was found.
        distribution: The package that brought it; None for one that pip did not install.
        location: Where the module lies.
        calibrators: Whether it has the INT8 calibrators, gone since 11.0; None where unknown.
        int8_flag: Whether the builder has the INT8 flag, gone since 11.0; None where unknown.
        problem: Why it cannot be used, one line.
    """

    module: str
    installed: bool
    usable: bool = False
    version: str | None = None
    detected_by: str | None = None
    distribution: str | None = None
    location: str | None = None
    calibrators: bool | None = None
    int8_flag: bool | None = None
    problem: str | None = None


def detect_gpus(timeout_s: float = 10.0) -> tuple[GpuInfo, ...]:
    """The machine's NVIDIA GPUs; empty where there are none or they cannot be asked.

    Args:
        timeout_s: Longest time in seconds to wait for each answer of ``nvidia-smi``.
    """
    return probe_gpus(timeout_s).gpus


def probe_gpus(timeout_s: float = 10.0) -> GpuProbe:
    """Asks ``nvidia-smi`` for the GPUs, and keeps the reason where it does not tell.

    Args:
        timeout_s: Longest time in seconds to wait for each answer.
    """
    fields = _FIELDS
    text, problem = _nvidia_smi(_query(fields), timeout_s)
    if problem and "compute_cap" in problem:
        # Drivers before 510 do not know the field, and then answer nothing at all.
        fields = _FIELDS[:-1]
        text, problem = _nvidia_smi(_query(fields), timeout_s)
    if problem:
        return GpuProbe((), problem)
    cuda = _driver_cuda(timeout_s)
    rows = [line for line in text.splitlines() if line.strip()]
    gpus = tuple(gpu for row in rows if (gpu := _parse_gpu(row, fields, cuda)))
    if len(gpus) < len(rows):
        return GpuProbe(gpus, f"nvidia-smi answered something unexpected: {_last_line(text)}")
    return GpuProbe(gpus, None if gpus else "nvidia-smi reports no GPU")


def _query(fields: Sequence[str]) -> tuple[str, str]:
    return f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"


def _nvidia_smi(arguments: Sequence[str], timeout_s: float) -> tuple[str, str | None]:
    """Its output, and what went wrong."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return "", "nvidia-smi was not found: no NVIDIA driver, or it is not on PATH"
    except subprocess.TimeoutExpired:
        return "", f"nvidia-smi did not answer within {timeout_s:g} s"
    except OSError as error:
        return "", f"nvidia-smi cannot be started: {error.strerror or error}"
    if done.returncode != 0:
        said = _last_line(done.stdout) or _last_line(done.stderr) or "it said nothing"
        return "", f"nvidia-smi failed with exit status {done.returncode}: {said}"
    return done.stdout, None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _driver_cuda(timeout_s: float) -> str | None:
    """The CUDA version in the heading of ``nvidia-smi``; no query field has it."""
    text, _ = _nvidia_smi((), timeout_s)
    found = re.search(r"CUDA(?: UMD)? Version\s*:\s*(\d+\.\d+)", text)
    return found.group(1) if found else None


def _parse_gpu(row: str, fields: Sequence[str], cuda: str | None) -> GpuInfo | None:
    """One line of the answer; None where it is not such a line."""
    values = [value.strip() for value in row.split(",")]
    if len(values) != len(fields) or not values[0].isdigit():
        return None
    facts = dict(zip(fields, values, strict=True))
    capability = re.fullmatch(r"(\d+)\.(\d+)", facts.get("compute_cap", ""))
    memory = facts["memory.total"]
    return GpuInfo(
        index=int(values[0]),
        name=facts["name"],
        driver=facts["driver_version"] if re.match(r"\d", facts["driver_version"]) else None,
        cuda=cuda,
        compute_capability=(int(capability[1]), int(capability[2])) if capability else None,
        memory_mib=int(memory) if memory.isdigit() else None,
    )


def probe_module(
    name: str,
    attributes: Sequence[str] = (),
    call: str | None = None,
    timeout_s: float = 60.0,
) -> ModuleProbe:
    """Imports a module in a process of its own, with this process's module path.

    Args:
        name: The module's full name.
        attributes: Dotted names to look for in it.
        call: A function of it to call without arguments, whose result goes through JSON.
        timeout_s: Longest time in seconds that the import may take.
    """
    location = _location(name)
    if location is None:
        return ModuleProbe(name, installed=False, problem="not installed")
    answer, problem = _import_apart([name, list(attributes), call, sys.path, _MARK], timeout_s)
    return ModuleProbe(
        name,
        installed=True,
        imports=answer is not None,
        version=answer["version"] or None if answer else None,
        location=location,
        found=tuple(answer["found"]) if answer else (),
        answer=answer["answer"] if answer else None,
        problem=problem,
    )


def _import_apart(request: list[Any], timeout_s: float) -> tuple[dict[str, Any] | None, str | None]:
    """What the other process found, or what went wrong there."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _IMPORT, json.dumps(request)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None, f"importing it did not end within {timeout_s:g} s"
    except OSError as error:
        return None, f"Python cannot be started to import it: {error.strerror or error}"
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode != 0 or not answers:
        return None, _import_problem(done.returncode, done.stderr)
    return json.loads(answers[-1].removeprefix(_MARK)), None


def _import_problem(status: int, stderr: str) -> str:
    if status < 0:
        return f"importing it ended the process with signal {-status}"
    return _last_line(stderr) or f"importing it ended the process with exit status {status}"


def _location(name: str) -> str | None:
    """Where a module's top-level package lies, without importing it; None where there is none."""
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.origin:
        return spec.origin
    # A folder without __init__.py is a namespace package: it is a library only if the module is in it,
    # as with cuda.bindings, and else a left-over of an uninstall.
    parts = name.split(".")[1:]
    for folder in spec.submodule_search_locations or ():
        inner = Path(folder, *parts[:-1])
        if parts and (any(inner.glob(f"{parts[-1]}.*")) or (inner / parts[-1]).is_dir()):
            return str(inner)
    return None


def detect_tensorrt(module: str = "tensorrt", timeout_s: float = 60.0) -> TensorRTInfo:
    """Finds TensorRT without creating a CUDA context.

    Args:
        module: "tensorrt", or "tensorrt_rtx" for TensorRT-RTX.
        timeout_s: Longest time in seconds that importing it may take.
    """
    distribution, packaged = _distribution(_TENSORRT_DISTRIBUTIONS.get(module, (module,)))
    probe = probe_module(module, _INT8_API, timeout_s=timeout_s)
    if not probe.installed:
        bindings = probe_module(module + _BINDINGS, _INT8_API, timeout_s=timeout_s)
        probe = bindings if bindings.installed else probe
    version = probe.version or packaged
    return TensorRTInfo(
        module=module,
        installed=probe.installed,
        usable=probe.imports,
        version=version,
        detected_by=_detected_by(probe.version, packaged),
        distribution=distribution,
        location=None if probe.location is None else str(Path(probe.location).parent),
        calibrators="IInt8EntropyCalibrator2" in probe.found if probe.imports else None,
        int8_flag="BuilderFlag.INT8" in probe.found if probe.imports else None,
        problem=probe.problem,
    )


def _detected_by(told: str | None, packaged: str | None) -> str | None:
    if told:
        return "import"
    return "package metadata" if packaged else None


def _distribution(names: Sequence[str]) -> tuple[str | None, str | None]:
    """The first of some packages that is installed, and its version."""
    for name in names:
        if (version := package_version(name)) is not None:
            return name, version
    return None, None


def package_version(name: str) -> str | None:
    """The installed version of a package; None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
