"""The calibrators by the name of their method."""

from __future__ import annotations

import difflib
from types import MappingProxyType

from calib.calibrators.base import Calibrator
from calib.calibrators.entropy import EntropyCalibrator
from calib.calibrators.minmax import MinMaxCalibrator
from calib.errors import UsageError

__all__ = ["CALIBRATORS", "make_calibrator"]

_CLASSES: tuple[type[Calibrator], ...] = (EntropyCalibrator, MinMaxCalibrator)

CALIBRATORS = MappingProxyType({kind.method: kind for kind in _CLASSES})
"""Method → class."""


def make_calibrator(method: str) -> Calibrator:
    """A fresh calibrator.

    Raises:
        UsageError: There is no such method.
    """
    if method not in CALIBRATORS:
        near = difflib.get_close_matches(method, CALIBRATORS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"Method must be one of {', '.join(CALIBRATORS)}, got {method!r}.{hint}")
    return CALIBRATORS[method]()
