"""Samples and batches: what sources give, and what models are fed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.data.geometry import Geometry

__all__ = ["Array", "Batch", "Carried", "Padding", "Sample"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """One sample, as the model will see it, without a batch axis.

    Attributes:
        id: Names the sample within its dataset: a path relative to the data root, or ``file#index``.
        inputs: One array for each named input.
        label: The class number, or any other ground truth; None where there is none.
        origin: Where it came from, for error messages: a file, and the index in it.
        geometry: How preprocessing moved its pixels; None where it is no image.
    """

    id: str
    inputs: Mapping[str, Array]
    label: Any = None
    origin: str = ""
    geometry: Geometry | None = None


@dataclass(frozen=True)
class Padding:
    """How one input of samples of different lengths is filled up, at the end of each axis.

    Attributes:
        axes: The axes that are filled up, counted without the batch axis.
        value: What is put there.
        to: Length that the axes get in every batch; None for that of the longest sample of a batch.
        multiple: The length is raised to the next multiple of it.
        mask: Name of an input that is made: 1 where there is data, 0 where it was filled up, along the
            axes alone, int64; None for none.
    """

    axes: tuple[int, ...] = (0,)
    value: float = 0
    to: int | None = None
    multiple: int = 1
    mask: str | None = None


@dataclass(frozen=True)
class Carried:
    """An input that is an output of the model for the sample before: recurrent state.

    Attributes:
        output: The output.
        shape: Shape of the zeros that a sequence begins with, with all of the model's axes; None for
            the shape that the model declares, 1 where it leaves a size open.
    """

    output: str
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Batch:
    """Samples stacked along a new first axis.

    Attributes:
        ids: The samples' ids, in the order of the rows.
        inputs: One array for each named input, its first axis as long as ``ids``.
        labels: The samples' labels, in the same order.
        origins: Where each sample came from.
        geometries: How preprocessing moved each sample's pixels; empty where none is an image.
        constants: Inputs that are the same for every batch, without a batch axis of the samples.
        state: Inputs that the model's own outputs feed, by name.
        begins: Whether state is zero before this batch; otherwise it is that after the batch before.
    """

    ids: tuple[str, ...]
    inputs: Mapping[str, Array]
    labels: tuple[Any, ...]
    origins: tuple[str, ...]
    geometries: tuple[Geometry | None, ...] = ()
    constants: Mapping[str, Array] = field(default_factory=dict)
    state: Mapping[str, Carried] = field(default_factory=dict)
    begins: bool = True

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, start: int, stop: int) -> Batch:
        """The samples from one row to before another."""
        return replace(
            self,
            ids=self.ids[start:stop],
            inputs={name: array[start:stop] for name, array in self.inputs.items()},
            labels=self.labels[start:stop],
            origins=self.origins[start:stop],
            geometries=self.geometries[start:stop],
        )

    def filled(self, size: int) -> Batch:
        """The batch with its last sample repeated until it has a size that a model insists on."""
        missing = size - len(self)
        if missing <= 0:
            return self
        return replace(
            self,
            ids=self.ids + self.ids[-1:] * missing,
            inputs={
                name: np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
                for name, array in self.inputs.items()
            },
            labels=self.labels + self.labels[-1:] * missing,
            origins=self.origins + self.origins[-1:] * missing,
            geometries=self.geometries + self.geometries[-1:] * missing,
        )
