"""What a calibrator is: it collects statistics of named tensors and then computes their ranges."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from calib.calibrators.kernels import flat_float32, float_of_bits, load_kernels
from calib.calibrators.ranges import RangeTable
from calib.data import Array
from calib.errors import CalibrationError, NonFiniteError

__all__ = ["Arrays", "Calibrator", "Statistic", "absolute_maximum", "check_finite", "checked", "refuse_state"]

Arrays = Mapping[str, npt.NDArray[Any]]
"""Plain arrays by name, as ``numpy.savez`` keeps them without pickle."""


class Statistic(Protocol):
    """What is known of one tensor."""

    @property
    def unopened(self) -> bool:
        """Whether ``open`` must come before the first values other than zero are added."""
        ...

    @property
    def grid(self) -> float:
        """What was told to ``open``; 0.0 where nothing was, or nothing hangs on it."""
        ...

    def open(self, amax: float) -> None:
        """Fixes what hangs on the largest |x| of a whole batch.

        Args:
            amax: max|x| of the first batch that is not all zero.
        """
        ...

    def add(self, values: Array) -> bool:
        """Takes in values of the current batch, all of them or a part.

        Args:
            values: Floats of any shape; not kept.

        Returns:
            Whether all are finite in float32; if not, nothing is taken in.
        """
        ...

    def end_batch(self) -> None:
        """Says that the values that follow belong to another batch."""
        ...

    def merge(self, later: Self) -> None:
        """Takes in what was collected from the batches that follow."""
        ...

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """All of it as plain arrays."""
        ...

    @classmethod
    def from_state(cls, state: Arrays) -> Self:
        """What ``state`` gave.

        Raises:
            CalibrationError: The arrays are no such state.
        """
        ...


S = TypeVar("S", bound=Statistic)


class Calibrator(ABC, Generic[S]):
    """Collects statistics batch by batch; knows nothing of models or of TensorRT.

    ``collect`` takes whole batches. A batch that does not fit into memory is given in parts instead:
    ``add`` for each tensor of each part, then ``end_batch``; where ``unopened`` names a tensor, its
    largest |x| over the whole batch must be told by ``open`` before.

    Attributes:
        method: "entropy", "minmax", …
        algorithm: Name of the algorithm in the header of TensorRT's calibration cache.
        order_dependent: True where the order or the cut of the batches changes the result.
        statistics: Tensor name → what is known of it.
    """

    method: ClassVar[str]
    algorithm: ClassVar[str]
    order_dependent: ClassVar[bool]

    def __init__(self) -> None:
        self.statistics: dict[str, S] = {}

    @abstractmethod
    def _fresh(self) -> S:
        """The statistic of a tensor that was not seen yet."""

    @abstractmethod
    def _restored(self, state: Arrays) -> S:
        """The statistic that was saved."""

    @abstractmethod
    def _range_of(self, statistic: S) -> float:
        """The amax of a tensor, in its unit."""

    def options(self) -> dict[str, float]:
        """Options of the method, which calibrators must share to be merged."""
        return {}

    def collect(self, tensors: Mapping[str, Array]) -> None:
        """Takes in one batch.

        Args:
            tensors: Float arrays by tensor name, of any shape. They are not kept. An array without
                elements is passed over.

        Raises:
            NonFiniteError: A tensor holds NaN or an infinity; nothing of the batch is counted.
            CalibrationError: A tensor holds complex numbers; nothing of the batch is counted.
        """
        for name, array in tensors.items():
            if np.iscomplexobj(array):
                raise CalibrationError(f"Tensor {name!r} holds complex numbers, of which INT8 has none.")
        amax = {name: absolute_maximum(array) for name, array in tensors.items() if array.size}
        for name, value in amax.items():
            check_finite(name, tensors[name], value)
        for name, value in amax.items():
            if self.unopened(name) and value:
                self.open(name, value)
            self.add(name, tensors[name])
        self.end_batch()

    def unopened(self, name: str) -> bool:
        """Whether the largest |x| of a whole batch must be told before values other than zero."""
        return self._of(name).unopened

    def grids(self) -> dict[str, float]:
        """What was told to ``open``, by tensor: the grids that every shard must count on."""
        return {name: first for name, known in self.statistics.items() if (first := known.grid)}

    def open(self, name: str, amax: float) -> None:
        """Tells the largest |x| of a tensor in the first batch in which it is not all zero."""
        self._of(name).open(amax)

    def add(self, name: str, values: Array) -> None:
        """Takes in a tensor's values of the current batch, all of them or a part.

        Safe to call for different tensors at the same time, once ``unopened`` was asked for each.

        Args:
            name: The tensor.
            values: Floats of any shape; not kept.

        Raises:
            NonFiniteError: Some values are not finite; nothing of the tensor is taken in.
        """
        if not self._of(name).add(values):
            check_finite(name, values, float("nan"))

    def end_batch(self) -> None:
        """Says that what follows belongs to another batch."""
        for statistic in self.statistics.values():
            statistic.end_batch()

    def compute(self) -> RangeTable:
        """Computes the range of every tensor seen so far.

        Returns:
            Tensor name → amax; 0.0 for a tensor that was zero throughout.

        Raises:
            CalibrationError: Nothing was collected.
        """
        if not self.statistics:
            raise CalibrationError("No batches were collected: there is nothing to compute ranges from.")
        # The searches are compiled loops that do not hold the global lock.
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            amax = pool.map(self._range_of, self.statistics.values())
            return RangeTable(dict(zip(self.statistics, amax, strict=True)))

    def reset(self) -> None:
        """Forgets everything collected."""
        self.statistics.clear()

    def merge(self, later: Calibrator[Any]) -> None:
        """Takes in what another calibrator collected from the batches that follow.

        The result has the same bits as if this one had collected them, provided that the other one
        opened the same tensors with the same largest |x|; where order does not matter, always.

        Raises:
            CalibrationError: It has another method, other options or other grids; nothing changes.
        """
        if type(later) is not type(self) or later.options() != self.options():
            raise CalibrationError(
                f"Cannot merge {later.label()} into {self.label()}: another method or option."
            )
        # Before the first of them is merged, since there is no way back.
        grids = self.grids()
        for name, first in later.grids().items():
            if grids.get(name, first) != first:
                raise CalibrationError(
                    f"The grids differ: that of tensor {name!r} begins at {grids[name]!r} and {first!r}."
                )
        for name, known in later.statistics.items():
            self.statistics.setdefault(name, self._fresh()).merge(known)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything collected, as plain arrays.

        Returns:
            "method"; each option; "names", the tensors' names; and for the tensor at place i of it the
            arrays of its statistic as "key/i".
        """
        state: dict[str, npt.NDArray[Any]] = {
            "method": np.array(self.method),
            "names": np.array(list(self.statistics), np.str_),
        }
        state |= {f"option/{key}": np.array(value) for key, value in self.options().items()}
        for place, known in enumerate(self.statistics.values()):
            state |= {f"{key}/{place}": array for key, array in known.state().items()}
        return state

    def load_state(self, state: Arrays) -> None:
        """Puts what ``state`` gave in place of everything collected.

        Raises:
            CalibrationError: It is the state of another method, of other options, or damaged; nothing
                changes.
        """
        options = {key: float(state[f"option/{key}"]) for key in self.options() if f"option/{key}" in state}
        if str(state.get("method")) != self.method or options != self.options():
            raise CalibrationError(f"The saved state is not one of {self.label()}. Calibrate again.")
        if "names" not in state or len(set(state["names"])) < len(state["names"]):
            refuse_state("tensor names are missing or repeated")
        parts = _parts(state)
        names = [str(name) for name in state["names"]]
        self.statistics = {name: self._restored(parts[str(place)]) for place, name in enumerate(names)}

    def label(self) -> str:
        """Method and options in words."""
        return " ".join([self.method, *(f"{value:.10g}" for value in self.options().values())])

    def _of(self, name: str) -> S:
        known = self.statistics.get(name)
        if known is None:
            known = self.statistics.setdefault(name, self._fresh())
        return known


def _parts(state: Arrays) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """The arrays of each tensor by its place, in one pass: networks have thousands of tensors."""
    parts: dict[str, dict[str, npt.NDArray[Any]]] = defaultdict(dict)
    for name, array in state.items():
        key, _, place = name.rpartition("/")
        parts[place][key] = array
    return parts


def absolute_maximum(array: Array) -> float:
    """max|x| in float32, without a temporary array of that size.

    Args:
        array: Floats of any shape; float64 is rounded to float32 first.

    Returns:
        The maximum; not finite where the array holds NaN or infinities; 0.0 for no elements.

    >>> absolute_maximum(np.array([[1.0, -3.0]], np.float32))
    3.0
    """
    return float_of_bits(load_kernels().largest(flat_float32(array)))


def check_finite(name: str, array: Array, amax: float) -> None:
    """Refuses a tensor with NaN or infinities.

    Args:
        name: The tensor's name.
        array: Its values.
        amax: max|x|, which NaN and infinities pass on, so that the usual case costs no second pass.

    Raises:
        NonFiniteError: Some values are not finite.
    """
    if np.isfinite(amax):
        return
    nans = int(np.isnan(array).sum())
    infinities = int(np.isinf(array).sum())
    beyond = "" if nans or infinities else " Some are beyond float32's range."
    raise NonFiniteError(
        f"Tensor {name!r} has values that are not finite: {nans} NaN and {infinities} infinite of "
        f"{array.size}.{beyond} No range can be given to it. Mend the model or its input data.",
        tensor=name,
    )


def refuse_state(what: str) -> NoReturn:
    """Raises the error for a saved statistic that cannot be one.

    Raises:
        CalibrationError: Always.
    """
    raise CalibrationError(f"The saved state is damaged: {what}. Calibrate again.")


def checked(state: Arrays, key: str, shape: tuple[int, ...], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """An array of a saved statistic, of the shape and type it must have.

    Raises:
        CalibrationError: It is not there, or of another shape or type.
    """
    array = state.get(key)
    if array is None or array.shape != shape or array.dtype != dtype:
        refuse_state(f"{key!r} is not {np.dtype(dtype)} of shape {shape}")
    return array
