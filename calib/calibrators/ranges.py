"""The range table: the one source of calibration cache, Q/DQ model and every other table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from calib.errors import CalibrationError, UsageError

__all__ = ["RangeTable", "refuse_ranges", "scale_of"]


def scale_of(amax: float) -> float:
    """The INT8 scale of a range: float32(amax) / 127 in float32 arithmetic, as TensorRT computes it.

    The range is rounded to float32 before the division: rounding only the quotient gives another last
    bit for about one entropy range in nine.

    Args:
        amax: Largest absolute value that is represented, in the tensor's unit.

    Returns:
        The scale, a value that float32 holds exactly; infinite where the range is beyond float32.

    >>> scale_of(1.0) == float(np.float32(1.0) / np.float32(127))
    True
    >>> hex(np.float32(scale_of(1.0)).view(np.uint32))
    '0x3c010204'
    """
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(amax) / np.float32(127))


class RangeTable(Mapping[str, float]):
    """Tensor name → amax, in the order in which the tensors were seen.

    Args:
        amax: Largest absolute value of each tensor, finite and not negative.

    Raises:
        CalibrationError: A range is negative, NaN or infinite.
    """

    def __init__(self, amax: Mapping[str, float]) -> None:
        self._amax = {name: float(value) for name, value in amax.items()}
        for name, value in self._amax.items():
            if not math.isfinite(value) or value < 0:
                raise CalibrationError(f"Range of tensor {name!r} must be finite and ≥ 0, got {value}.")

    def __getitem__(self, name: str) -> float:
        return self._amax[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amax)

    def __len__(self) -> int:
        return len(self._amax)

    def __repr__(self) -> str:
        return f"RangeTable({self._amax!r})"

    @property
    def scales(self) -> dict[str, float]:
        """Tensor name → INT8 scale."""
        return {name: scale_of(amax) for name, amax in self._amax.items()}

    @property
    def zero(self) -> tuple[str, ...]:
        """Tensors that were zero throughout, which INT8 cannot represent with any scale of their own."""
        return tuple(name for name, amax in self._amax.items() if scale_of(amax) == 0.0)

    def arranged(self, source_of: Mapping[str, str]) -> RangeTable:
        """A table in another order, in which some tensors take another's range.

        Args:
            source_of: Every tensor of the new table in its order → the tensor whose range it takes,
                which is itself but for copies such as pooling outputs.

        Returns:
            The new table; a tensor whose source has no range is left out.
        """
        return RangeTable(
            {name: self._amax[source] for name, source in source_of.items() if source in self._amax}
        )


def refuse_ranges(scales: Mapping[str, float]) -> None:
    """Refuses a range table where scales are wanted, which are a mapping to numbers as well.

    Raises:
        UsageError: It is one.
    """
    if isinstance(scales, RangeTable):
        raise UsageError("A RangeTable holds ranges, which are 127 times the scales. Give its .scales.")
