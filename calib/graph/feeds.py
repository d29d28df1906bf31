"""From a batch of the dataset to the arrays that a model is fed with, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calib.data import Array, Batch
from calib.errors import DatasetError, ModelError
from calib.graph.intake import TensorSpec
from calib.graph.open_sizes import SizesSeen

__all__ = ["FeedBuilder"]


class FeedBuilder:
    """Checks batches against a model's inputs: names, shapes, types, finite values.

    A dataset with one input fits a model with one input whatever the names; otherwise inputs are
    matched by name.

    Args:
        inputs: The model's inputs.
        model: The model's name, for messages.

    Raises:
        ModelError: The model has no data inputs.
    """

    def __init__(self, inputs: Sequence[TensorSpec], model: str = "the model") -> None:
        if not inputs:
            raise ModelError(f"{model} has no data inputs: there is nothing to calibrate or validate on it.")
        self._inputs = tuple(inputs)
        self._model = model
        self._notes: dict[str, None] = {}
        self._sizes = SizesSeen(inputs)

    @property
    def notes(self) -> tuple[str, ...]:
        """Conversions that were made, and sizes that the model leaves open, a line each."""
        return (*self._notes, *self._sizes.notes)

    def feeds(self, batch: Batch) -> dict[str, Array]:
        """The arrays to feed.

        Args:
            batch: Samples of the dataset.

        Returns:
            Model input name → array of the declared type, batch axis first. Of inputs that carry state:
            zeros where it begins; otherwise nothing, since it is the model's own output that goes in.

        Raises:
            DatasetError: An input is missing or surplus, has a wrong shape, loses values in the
                declared type, or holds NaN or infinities; the sample is named.
        """
        arrays = self._by_name(batch)
        found = {}
        for spec in self._inputs:
            if spec.name in batch.state:
                if batch.begins:
                    found[spec.name] = self._beginning(spec, batch)
            elif spec.name in batch.constants:
                found[spec.name] = self._constant(spec, batch)
            else:
                found[spec.name] = self._fitted(spec, arrays[spec.name], batch)
        return found

    def _by_name(self, batch: Batch) -> dict[str, Array]:
        given = {*batch.constants, *batch.state}
        data = [spec for spec in self._inputs if spec.name not in given]
        wanted = {spec.name for spec in data}
        unknown = given - {spec.name for spec in self._inputs}
        if len(data) == 1 and len(batch.inputs) == 1 and not unknown:
            return {data[0].name: next(iter(batch.inputs.values()))}
        missing = sorted(wanted - batch.inputs.keys())
        surplus = sorted((batch.inputs.keys() - wanted) | unknown)
        if missing or surplus:
            advice = "name them in the recipe's 'inputs'."
            if unknown and not missing:
                advice = "leave out the others, of the source's inputs or of constants and state."
            elif surplus and not missing:
                advice = (
                    f"leave {', '.join(surplus)} out of the source's inputs, or, where it holds labels, "
                    f"say so: source.labels: {surplus[0]}."
                )
            raise DatasetError(
                f"The dataset's inputs do not fit {self._model}: missing {missing}, surplus {surplus}. "
                f"The model takes {', '.join(f'{spec.name!r} ({spec})' for spec in self._inputs)}; {advice}"
            )
        return dict(batch.inputs)

    def _constant(self, spec: TensorSpec, batch: Batch) -> Array:
        """A constant as it is declared, or repeated for each sample where it lacks the batch axis."""
        array = batch.constants[spec.name]
        if array.ndim == len(spec.shape) - 1:
            rows = spec.shape[0] if isinstance(spec.shape[0], int) else len(batch)
            array = np.repeat(array[None], rows, axis=0)
        if not _shape_fits(spec, array.shape):
            raise DatasetError(
                f"The constant for input {spec.name!r} of {self._model} is {_described(array)}, "
                f"expected {spec}. Correct 'constants' in the recipe."
            )
        return self._cast(spec, array, f"The constant for input {spec.name!r}")

    def _beginning(self, spec: TensorSpec, batch: Batch) -> Array:
        """The state that a sequence begins with: zeros."""
        shape = batch.state[spec.name].shape
        if shape is None:
            counts = {other.shape[0] for other in self._inputs if other.name in batch.inputs and other.shape}
            several = {size for size in counts if isinstance(size, str)}
            shape = tuple(
                size if isinstance(size, int) else len(batch) if size in several else 1 for size in spec.shape
            )
        if not _shape_fits(spec, shape):
            raise DatasetError(
                f"State {spec.name!r} of {self._model} begins with shape {list(shape)}, expected {spec}. "
                "Correct 'state' in the recipe."
            )
        return np.zeros(shape, spec.dtype)

    def _fitted(self, spec: TensorSpec, array: Array, batch: Batch) -> Array:
        array = _with_model_axes(spec, array)
        if not _shape_fits(spec, array.shape):
            raise DatasetError(
                f"Sample {batch.origins[0]} does not fit input {spec.name!r} of {self._model}: "
                f"expected {spec}, got {_described(array)}. {_remedy(spec, array)}"
            )
        self._check_finite(spec, array, batch)
        self._sizes.add(spec.name, array.shape)
        return self._cast(spec, array, f"Sample {batch.origins[0]}")

    def _check_finite(self, spec: TensorSpec, array: Array, batch: Batch) -> None:
        if array.dtype.kind != "f" or np.isfinite(array).all():
            return
        row, bad = 0, array
        if array.ndim and len(array) == len(batch):
            row = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))[0])
            bad = array[row]
        raise DatasetError(
            f"Sample {batch.origins[row]} (id {batch.ids[row]!r}) holds {int(np.isnan(bad).sum())} NaN and "
            f"{int(np.isinf(bad).sum())} infinite values in input {spec.name!r}. Mend or remove the sample."
        )

    def _cast(self, spec: TensorSpec, array: Array, what: str) -> Array:
        if array.dtype == spec.dtype:
            return np.asarray(array, order="C")
        numeric = array.dtype.kind in "biuf"
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            cast = np.asarray(array.astype(spec.dtype), order="C") if numeric else array
        if not numeric or _loses(array, cast):
            raise DatasetError(
                f"{what} does not fit input {spec.name!r} of {self._model}: "
                f"expected {spec}, got {_described(array)}, whose values that type cannot hold. "
                "Set 'dtype' or 'scale' in the recipe."
            )
        self._notes[f"input {spec.name!r}: {array.dtype} converted to {spec.dtype}"] = None
        return cast


def _with_model_axes(spec: TensorSpec, array: Array) -> Array:
    """Takes away the batch axis of a single sample that has all of the model's axes itself."""
    return array[0] if len(array) == 1 and array.ndim == len(spec.shape) + 1 else array


def _remedy(spec: TensorSpec, array: Array) -> str:
    """What to do about a shape that does not fit."""
    if len(array) > 1 and _shape_fits(spec, array.shape[1:]):
        return (
            "The input has no axis for several samples: use batch size 1, or give what is the same for all "
            "samples under 'constants' in the recipe."
        )
    return "Mind the axis order (channels first or last) and the size in the recipe."


def _shape_fits(spec: TensorSpec, shape: tuple[int, ...]) -> bool:
    if len(spec.shape) != len(shape):
        return False
    return all(not isinstance(want, int) or want == got for want, got in zip(spec.shape, shape, strict=True))


def _loses(before: Array, after: np.ndarray[Any, Any]) -> bool:
    """Whether a cast changed more than the rounding from one float type to another."""
    if after.dtype.kind == "f":
        return not bool(np.isfinite(after).all())
    return not bool(np.array_equal(before, after.astype(before.dtype)))


def _described(array: Array) -> str:
    extent = (
        f", values {array.min():.6g} … {array.max():.6g}" if array.size and array.dtype.kind in "iufb" else ""
    )
    return f"{array.dtype} {list(array.shape)}{extent}"
