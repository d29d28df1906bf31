"""INT8 calibration and accuracy validation for TensorRT.

The stages, in the order data flows: ``calib.data`` → ``calib.calibrators`` → ``calib.graph`` →
``calib.engine`` → ``calib.runners`` → ``calib.validation`` → ``calib.report``. The functions below run
whole stages; everything they import is imported when they are first called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calib.engine.building import build
    from calib.graph.calibration import calibrate
    from calib.graph.quantization import quantize
    from calib.graph.torch_export import export
    from calib.report import write_report
    from calib.validation import check, check_data, validate

__all__ = [
    "__version__",
    "build",
    "calibrate",
    "check",
    "check_data",
    "export",
    "quantize",
    "validate",
    "write_report",
]

__version__ = "0.1.0"

_HOME = {
    "build": "calib.engine.building",
    "calibrate": "calib.graph.calibration",
    "export": "calib.graph.torch_export",
    "check": "calib.validation",
    "check_data": "calib.validation",
    "quantize": "calib.graph.quantization",
    "validate": "calib.validation",
    "write_report": "calib.report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'calib' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
