"""Min-max calibration: the largest absolute value, as IInt8MinMaxCalibrator finds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from typing_extensions import override

from calib.calibrators.base import Calibrator, check_finite
from calib.calibrators.ranges import RangeTable
from calib.data import Array
from calib.errors import CalibrationError

__all__ = ["MinMaxCalibrator", "absolute_maximum"]


class MinMaxCalibrator(Calibrator):
    """amax = max|x| over all batches; the same for every order and cut of the batches.

    Right for box coordinates, regression outputs and transformers.

    >>> import numpy as np
    >>> calibrator = MinMaxCalibrator()
    >>> calibrator.collect({"x": np.array([0.5, -2.0], np.float32)})
    >>> calibrator.collect({"x": np.array([1.0], np.float32)})
    >>> calibrator.compute()["x"]
    2.0
    """

    method: ClassVar[str] = "minmax"
    algorithm: ClassVar[str] = "MinMaxCalibration"
    order_dependent: ClassVar[bool] = False

    def __init__(self) -> None:
        self._amax: dict[str, float] = {}

    @override
    def collect(self, tensors: Mapping[str, Array]) -> None:
        amax = {name: absolute_maximum(array) for name, array in tensors.items() if array.size}
        for name, value in amax.items():
            check_finite(name, tensors[name], value)
        for name, value in amax.items():
            self._amax[name] = max(self._amax.get(name, 0.0), value)

    @override
    def compute(self) -> RangeTable:
        if not self._amax:
            raise CalibrationError("No batches were collected: there is nothing to compute ranges from.")
        return RangeTable(self._amax)

    @override
    def reset(self) -> None:
        self._amax.clear()


def absolute_maximum(array: Array) -> float:
    """max|x| without a temporary array; NaN or infinite where the array holds such values.

    >>> import numpy as np
    >>> absolute_maximum(np.array([[1.0, -3.0]], np.float32))
    3.0
    """
    return float(max(np.max(array), -np.min(array))) + 0.0  # so that −0.0 becomes 0.0
