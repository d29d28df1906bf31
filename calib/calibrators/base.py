"""What a calibrator is: it collects statistics of named tensors and then computes their ranges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from calib.calibrators.ranges import RangeTable
from calib.data import Array
from calib.errors import NonFiniteError

__all__ = ["Calibrator", "check_finite"]


class Calibrator(ABC):
    """Collects statistics batch by batch; knows nothing of models or of TensorRT.

    Attributes:
        method: "entropy", "minmax", …
        algorithm: Name of the algorithm in the header of TensorRT's calibration cache.
        order_dependent: True where the order or the cut of the batches changes the result.
    """

    method: ClassVar[str]
    algorithm: ClassVar[str]
    order_dependent: ClassVar[bool]

    @abstractmethod
    def collect(self, tensors: Mapping[str, Array]) -> None:
        """Takes in one batch.

        Args:
            tensors: Float arrays by tensor name, of any shape. They are not kept. An array without
                elements is passed over.

        Raises:
            NonFiniteError: A tensor holds NaN or an infinity; nothing of the batch is counted.
        """

    @abstractmethod
    def compute(self) -> RangeTable:
        """Computes the range of every tensor seen so far.

        Returns:
            Tensor name → amax; 0.0 for a tensor that was zero throughout.

        Raises:
            CalibrationError: Nothing was collected.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forgets everything collected."""


def check_finite(name: str, array: Array, amax: float) -> None:
    """Refuses a tensor with NaN or infinities.

    Args:
        name: The tensor's name.
        array: Its values.
        amax: max |x|, which NaN and infinities pass on, so that the usual case costs no second pass.

    Raises:
        NonFiniteError: Some values are not finite.
    """
    if np.isfinite(amax):
        return
    nans = int(np.isnan(array).sum())
    infinities = int(np.isinf(array).sum())
    raise NonFiniteError(
        f"Tensor {name!r} has values that are not finite: {nans} NaN and {infinities} infinite of "
        f"{array.size}. No range can be given to it. Mend the model or its input data.",
        tensor=name,
    )
