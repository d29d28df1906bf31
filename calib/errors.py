"""Every error that calib raises on purpose.

::

    CalibError                 anything below; the command line turns it into one message, exit status 2
    ├── UsageError             an option or argument that cannot be meant       (also a ValueError)
    ├── DatasetError           recipe, files, samples
    │   └── MixedShapesError   samples of several shapes in one batch
    ├── ModelError             the ONNX model: reading, checking, unsupported parts
    ├── CalibrationError       ranges: non-finite activations, caches and tables
    │   ├── NonFiniteError     a tensor with NaN or infinities
    │   └── CacheError         a calibration cache or range table that cannot be read
    ├── EngineError            TensorRT: building, loading, running engines
    ├── ValidationError        comparing runs, results files, baselines
    ├── OutputError            a file that cannot be written
    └── MissingExtraError      an optional dependency that is not installed      (also an ImportError)

A message says what was expected, what came, which file, tensor or option it was, and what to do.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType

__all__ = [
    "CacheError",
    "CalibError",
    "CalibrationError",
    "DatasetError",
    "EngineError",
    "MissingExtraError",
    "MixedShapesError",
    "ModelError",
    "NonFiniteError",
    "OutputError",
    "UsageError",
    "ValidationError",
    "first_names",
    "require",
]


class CalibError(Exception):
    """Base of all errors that calib raises on purpose."""


class UsageError(CalibError, ValueError):
    """An option or argument that cannot be meant."""


class DatasetError(CalibError):
    """A recipe, a data file or a sample that cannot be used."""


class MixedShapesError(DatasetError):
    """Samples of several shapes that should make one batch."""


class ModelError(CalibError):
    """An ONNX model that cannot be read or is not supported."""


class CalibrationError(CalibError):
    """Ranges that cannot be computed or used."""


class NonFiniteError(CalibrationError):
    """A tensor holds NaN or infinities.

    Attributes:
        tensor: The tensor's name.
    """

    def __init__(self, message: str, tensor: str) -> None:
        super().__init__(message)
        self.tensor = tensor

    def __reduce__(self) -> tuple[type[NonFiniteError], tuple[str, str]]:
        return type(self), (str(self), self.tensor)


class CacheError(CalibrationError):
    """A calibration cache or range table that cannot be read or does not fit."""


class EngineError(CalibError):
    """A TensorRT engine that cannot be built, loaded or run."""


class ValidationError(CalibError):
    """Runs that cannot be compared, or a results file that cannot be read."""


class OutputError(CalibError):
    """A file that cannot be written."""


class MissingExtraError(CalibError, ImportError):
    """An optional dependency is not installed; the message names the extra."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Imports an optional dependency.

    Args:
        module: Name of the module, such as ``onnxruntime``.
        extra: The extra of calib that brings it, such as ``onnxruntime``.
        purpose: What it is needed for, as the start of the message: "Running ONNX models".

    Returns:
        The imported module.

    Raises:
        MissingExtraError: The module is not installed, or fails to import.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or "").split(".")[0] == module.split(".")[0]
        reason = "which is not installed" if missing else f"which fails to import: {error}"
        message = f"{purpose} needs {module}, {reason}. Install it with: pip install 'int8-calib[{extra}]'"
        raise MissingExtraError(message, name=error.name) from error


def first_names(names: Sequence[str], most: int = 5) -> str:
    """How a message lists names: the first few, with an ellipsis where there are more.

    >>> first_names(["a", "b"]), first_names(["a", "b", "c"], most=2)
    ('a, b', 'a, b …')
    """
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")
