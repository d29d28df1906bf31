"""From single samples to a batch: samples of different lengths are filled up where that is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calib.data.geometry import Geometry
from calib.data.sample import Array, Batch, Padding, Sample
from calib.errors import DatasetError, MixedShapesError
from calib.wording import counted

__all__ = ["stack"]


def stack(samples: Sequence[Sample], padding: Mapping[str, Padding] | None = None) -> Batch:
    """Stacks samples along a new first axis.

    Args:
        samples: At least one.
        padding: How inputs are filled up to one length, by input name.

    Raises:
        DatasetError: The samples differ in their inputs' names, or in their shapes beyond what padding
            allows; a sample is longer than the padding's fixed length; or padding names no input.

    >>> words = [Sample("a", {"ids": np.array([5])}), Sample("b", {"ids": np.array([6, 7])})]
    >>> batch = stack(words, {"ids": Padding(mask="mask")})
    >>> batch.inputs["ids"].tolist(), batch.inputs["mask"].tolist()
    ([[5, 0], [6, 7]], [[1, 0], [1, 1]])
    """
    first = samples[0]
    for sample in samples[1:]:
        _check_same_names(first, sample)
    unknown = next((name for name in padding or {} if name not in first.inputs), None)
    if unknown is not None:
        raise DatasetError(
            f"padding: sample {_where(first)} has no input {unknown!r}; it has "
            f"{', '.join(map(repr, first.inputs))}. Correct the name in padding, or the source's input."
        )
    inputs: dict[str, Array] = {}
    for name in first.inputs:
        how = (padding or {}).get(name)
        inputs.update(_plain(name, samples) if how is None else _padded(name, samples, how))
    return Batch(
        ids=tuple(sample.id for sample in samples),
        inputs=inputs,
        labels=tuple(sample.label for sample in samples),
        origins=tuple(sample.origin or sample.id for sample in samples),
        geometries=_geometries(samples),
    )


def _geometries(samples: Sequence[Sample]) -> tuple[Geometry | None, ...]:
    found = tuple(sample.geometry for sample in samples)
    return found if any(geometry is not None for geometry in found) else ()


def _plain(name: str, samples: Sequence[Sample]) -> dict[str, Array]:
    first = samples[0]
    for sample in samples[1:]:
        if sample.inputs[name].shape != first.inputs[name].shape:
            raise MixedShapesError(
                f"Input {name!r} of sample {_where(sample)} has shape {sample.inputs[name].shape}, but "
                f"{_where(first)} in the same batch has {first.inputs[name].shape}. "
                "Resize all samples alike in the recipe, declare padding for this input, or use batch size 1."
            )
    return {name: np.stack([sample.inputs[name] for sample in samples])}


def _padded(name: str, samples: Sequence[Sample], how: Padding) -> dict[str, Array]:
    arrays = [sample.inputs[name] for sample in samples]
    axes = [_axis(name, axis, samples[0]) for axis in how.axes]
    shape = list(arrays[0].shape)
    for axis in axes:
        shape[axis] = _length(name, axis, samples, how)
    for sample, array in zip(samples, arrays, strict=True):
        if len(array.shape) != len(shape) or any(
            size != shape[axis] for axis, size in enumerate(array.shape) if axis not in axes
        ):
            raise DatasetError(
                f"Input {name!r} of sample {_where(sample)} has shape {array.shape}, but "
                f"{_where(samples[0])} in the same batch has {arrays[0].shape}: they differ in more than "
                f"the padded {'axes' if len(axes) > 1 else 'axis'} {', '.join(map(str, axes))}."
            )
    # As numpy.stack does for inputs of one length: one sample may hold whole numbers and the next fractions.
    dtype = np.result_type(*{array.dtype for array in arrays})
    filled = np.full((len(arrays), *shape), _fill(name, how.value, dtype, samples[0]), dtype)
    mask = np.zeros((len(arrays), *(shape[axis] for axis in axes)), np.int64)
    for row, array in enumerate(arrays):
        filled[row][tuple(map(slice, array.shape))] = array
        mask[row][tuple(slice(array.shape[axis]) for axis in axes)] = 1
    return {name: filled} if how.mask is None else {name: filled, how.mask: mask}


def _axis(name: str, axis: int, sample: Sample) -> int:
    count = sample.inputs[name].ndim
    if not -count <= axis < count:
        raise DatasetError(
            f"padding: input {name!r} of sample {_where(sample)} has {counted(count, 'ax[is|es]')}, "
            f"there is no axis {axis}. "
            "Axes are counted from 0, without the batch axis."
        )
    return axis % count


def _length(name: str, axis: int, samples: Sequence[Sample], how: Padding) -> int:
    longest = max(samples, key=lambda sample: sample.inputs[name].shape[axis])
    length: int = longest.inputs[name].shape[axis]
    if how.to is None:
        return -(-length // how.multiple) * how.multiple
    if length > how.to:
        raise DatasetError(
            f"Input {name!r} of sample {_where(longest)} has {counted(length, 'value[s]')} along axis "
            f"{axis}, more than "
            f"the {how.to} of padding. Cut the samples shorter, or raise it."
        )
    return how.to


def _fill(name: str, value: float, dtype: np.dtype[Any], sample: Sample) -> Array:
    """The padding value in the input's own type."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        fill = np.asarray(value).astype(dtype)
    if dtype.kind in "iub" and fill != value:
        raise DatasetError(
            f"padding: the value {value} of input {name!r} does not fit its type {dtype} "
            f"(sample {_where(sample)})."
        )
    return fill


def _check_same_names(first: Sample, sample: Sample) -> None:
    if first.inputs.keys() != sample.inputs.keys():
        raise DatasetError(
            f"Sample {_where(sample)} has inputs {sorted(sample.inputs)}, "
            f"but {_where(first)} in the same batch has {sorted(first.inputs)}."
        )


def _where(sample: Sample) -> str:
    return sample.origin or sample.id
