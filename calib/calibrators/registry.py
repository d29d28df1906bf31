"""The calibrators by the name of their method."""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import Any

from calib.calibrators.base import Calibrator
from calib.calibrators.entropy import EntropyCalibrator
from calib.calibrators.minmax import MinMaxCalibrator
from calib.calibrators.mse import MSECalibrator
from calib.calibrators.percentile import PercentileCalibrator
from calib.errors import UsageError
from calib.wording import suggestion

__all__ = ["CALIBRATORS", "make_calibrator"]

_CLASSES: tuple[type[Calibrator[Any]], ...] = (
    EntropyCalibrator,
    MinMaxCalibrator,
    PercentileCalibrator,
    MSECalibrator,
)

CALIBRATORS = MappingProxyType({kind.method: kind for kind in _CLASSES})
"""Method → class."""


def make_calibrator(method: str, **options: float | None) -> Calibrator[Any]:
    """A fresh calibrator.

    Args:
        method: A name in `CALIBRATORS`.
        **options: What the method's class takes: ``percentile`` for "percentile". None is as not given.

    Raises:
        UsageError: There is no such method, it has no such option, or the option's value cannot be meant.
    """
    if method not in CALIBRATORS:
        hint = suggestion(method, CALIBRATORS)
        raise UsageError(f"Method must be one of {', '.join(CALIBRATORS)}, got {method!r}.{hint}")
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in inspect.signature(CALIBRATORS[method]).parameters:
            raise UsageError(_foreign_option(method, option))
    return CALIBRATORS[method](**given)


def _foreign_option(method: str, option: str) -> str:
    takers = [name for name, kind in CALIBRATORS.items() if option in inspect.signature(kind).parameters]
    use = f"it is for method {' or '.join(takers)}" if takers else "no method does"
    return f"Method {method} takes no option {option!r}: {use}. Leave it out."
