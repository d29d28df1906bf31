"""CUDA's own libraries on this machine, asked for their versions without starting CUDA."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LibraryInfo", "detect_libraries"]

_MARK = "calib-library:"
_ASK = """
import ctypes, json, sys
names, function, by_pointer, mark = json.loads(sys.argv[1])
for name in names:
    try:
        library = ctypes.CDLL(name)
    except OSError:
        continue
    if by_pointer:
        value = ctypes.c_int()
        getattr(library, function)(ctypes.byref(value))
        number = value.value
    else:
        ask = getattr(library, function)
        ask.restype = ctypes.c_size_t
        number = ask()
    print("\\n" + mark + json.dumps([name, number]))
    break
"""


@dataclass(frozen=True)
class LibraryInfo:
    """One of CUDA's libraries.

    Attributes:
        name: "CUDA runtime" or "cuDNN".
        version: Its version; None where it is not there.
        source: The file that the system finds, or the package that brings it; None as above.
        packages: Every installed package that brings one, each with its version.
    """

    name: str
    version: str | None = None
    source: str | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Library:
    name: str
    files: tuple[str, ...]
    function: str
    by_pointer: bool
    package: str
    decode: Callable[[int], str]


def _runtime_version(number: int) -> str:
    """CUDART_VERSION: 1000·major + 10·minor.

    >>> _runtime_version(12020)
    '12.2'
    """
    return f"{number // 1000}.{number % 1000 // 10}"


def _cudnn_version(number: int) -> str:
    """CUDNN_VERSION: 1000·major + 100·minor + patch up to 8, 10000·major + … since 9.

    >>> _cudnn_version(8907), _cudnn_version(92400)
    ('8.9.7', '9.24.0')
    """
    unit = 1000 if number < 10_000 else 10_000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


_LIBRARIES = (
    _Library(
        "CUDA runtime",
        ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"),
        "cudaRuntimeGetVersion",
        True,
        r"nvidia-cuda-runtime(-cu\d+)?",
        _runtime_version,
    ),
    _Library(
        "cuDNN",
        ("libcudnn.so", "libcudnn.so.9", "libcudnn.so.8"),
        "cudnnGetVersion",
        False,
        r"nvidia-cudnn(-cu\d+)?",
        _cudnn_version,
    ),
)


def detect_libraries(timeout_s: float = 30.0) -> tuple[LibraryInfo, ...]:
    """Finds the CUDA runtime and cuDNN: those that the system's loader finds, and those of packages.

    Programs that come as packages (PyTorch, TensorRT since 8.6) bring or depend on their own; those built
    here, such as PyCUDA, load the system's.

    Args:
        timeout_s: Longest time in seconds that loading one may take.
    """
    return tuple(_detect(library, timeout_s) for library in _LIBRARIES)


def _detect(library: _Library, timeout_s: float) -> LibraryInfo:
    packages = _packages(library.package)
    told = tuple(f"{name} {version}" for name, version in packages)
    found = _ask(library, timeout_s)
    if found is not None:
        return LibraryInfo(library.name, library.decode(found[1]), found[0], told)
    if packages:
        return LibraryInfo(library.name, packages[0][1], f"package {packages[0][0]}", told)
    return LibraryInfo(library.name)


def _ask(library: _Library, timeout_s: float) -> tuple[str, int] | None:
    """The file that the loader finds and the number that it gives; a broken one may end its process."""
    request = json.dumps([library.files, library.function, library.by_pointer, _MARK])
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK, request],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (subprocess.TimeoutExpired, OSError):
        return None
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not answers:
        return None
    file, number = json.loads(answers[-1].removeprefix(_MARK))
    return str(file), int(number)


def _packages(pattern: str) -> list[tuple[str, str]]:
    """Installed packages of a name, those for the newest CUDA first."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if re.fullmatch(pattern, name):
            found[name] = distribution.version
    return sorted(found.items(), reverse=True)
