"""Min-max calibration: the largest absolute value, as IInt8MinMaxCalibrator finds it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Self, override

from calib.calibrators.base import Arrays, Calibrator, absolute_maximum, checked, refuse_state
from calib.data import Array

__all__ = ["Maximum", "MinMaxCalibrator"]


class Maximum:
    """max|x| of all values.

    Attributes:
        amax: The maximum, in the tensor's unit; 0.0 for no values.
    """

    unopened = False
    grid = 0.0

    def __init__(self) -> None:
        self.amax = 0.0

    def open(self, amax: float) -> None:
        """Nothing hangs on the first batch."""

    def add(self, values: Array) -> bool:
        """Takes in values; False if some are not finite."""
        amax = absolute_maximum(values)
        if not np.isfinite(amax):
            return False
        self.amax = max(self.amax, amax)
        return True

    def end_batch(self) -> None:
        """Nothing hangs on the cut of the batches."""

    def merge(self, later: Maximum) -> None:
        """Takes in the maximum of other values."""
        self.amax = max(self.amax, later.amax)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The maximum as an array."""
        return {"amax": np.array(self.amax, np.float32)}

    @classmethod
    def from_state(cls, state: Arrays) -> Self:
        """The maximum that was saved.

        Raises:
            CalibrationError: It is none.
        """
        made = cls()
        made.amax = float(checked(state, "amax", (), np.float32))
        if not np.isfinite(made.amax) or made.amax < 0:
            refuse_state(f"a maximum is {made.amax}")
        return made


class MinMaxCalibrator(Calibrator[Maximum]):
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

    @override
    def _fresh(self) -> Maximum:
        return Maximum()

    @override
    def _restored(self, state: Arrays) -> Maximum:
        return Maximum.from_state(state)

    @override
    def _range_of(self, statistic: Maximum) -> float:
        return statistic.amax
