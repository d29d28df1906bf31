"""INT8 calibration and accuracy validation for TensorRT.

The stages, in the order data flows: ``calib.data`` → ``calib.calibrators`` → ``calib.graph`` →
``calib.engine`` → ``calib.runners`` → ``calib.validation`` → ``calib.report``. The functions below run
whole stages; everything they import is imported when they are first called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calib.lazy import lazy_names

if TYPE_CHECKING:
    from calib.engine.building import build
    from calib.graph.calibration import calibrate
    from calib.graph.quantization import quantize
    from calib.graph.torch_export import export
    from calib.report import write_report
    from calib.validation import check, check_data, compare, validate

__all__ = [
    "__version__",
    "build",
    "calibrate",
    "check",
    "check_data",
    "compare",
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
    "compare": "calib.validation",
    "check_data": "calib.validation",
    "quantize": "calib.graph.quantization",
    "validate": "calib.validation",
    "write_report": "calib.report",
}


__getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
