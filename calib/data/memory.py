"""Datasets made of arrays that are already in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from calib.data.dataset import Array, Dataset, Sample
from calib.errors import DatasetError

__all__ = ["check_lengths", "from_arrays"]


def from_arrays(
    name: str, inputs: Mapping[str, Array], labels: Sequence[Any] | Array | None = None
) -> Dataset:
    """Makes a dataset of arrays, as they are: nothing is copied, scaled or cast.

    Args:
        name: For reports and messages; sample ``i`` gets the id ``name#i``.
        inputs: One array for each model input, its first axis over the samples.
        labels: One label a sample, or None.

    Returns:
        The dataset. Its samples are views of the arrays.

    Raises:
        DatasetError: No input, no samples, lengths that differ, or arrays of Python objects.

    >>> dataset = from_arrays("ramp", {"x": np.arange(6.0).reshape(3, 2)}, labels=[0, 1, 0])
    >>> dataset.ids, dataset[1].inputs["x"].tolist(), dataset[1].label
    (('ramp#0', 'ramp#1', 'ramp#2'), [2.0, 3.0], 1)
    """
    arrays = {key: np.asarray(array) for key, array in inputs.items()}
    for key, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise DatasetError(f"Dataset {name!r}: input {key!r} holds {array.dtype}, expected numbers.")
    count = check_lengths(f"Dataset {name!r}", {key: a.shape for key, a in arrays.items()})
    ids = tuple(f"{name}#{index}" for index in range(count))
    known = None if labels is None else _plain(labels)

    def load(index: int) -> Sample:
        rows = {key: np.asarray(array[index]) for key, array in arrays.items()}
        label = None if known is None else known[index]
        origin = ", ".join(f"{key}[{index}]" for key in rows)
        return Sample(ids[index], rows, label, f"{name}: {origin}")

    description = {"source": {"kind": "memory"}, "preprocess": {}}
    return Dataset(name, ids, load, known, description=description, content=partial(_digest, arrays))


def _digest(arrays: Mapping[str, Array], index: int) -> str:
    digest = hashlib.sha256()
    for key in sorted(arrays):
        row = np.asarray(arrays[key][index])
        digest.update(f"{key} {row.dtype.str} {row.shape}\n".encode())
        digest.update(row.tobytes())
    return digest.hexdigest()


def _plain(labels: Sequence[Any] | Array) -> tuple[Any, ...]:
    """Numbers of numpy as Python's own; rows of a label array stay arrays."""
    if isinstance(labels, np.ndarray):
        return tuple(labels.tolist()) if labels.ndim == 1 else tuple(labels)
    return tuple(label.item() if isinstance(label, np.generic) else label for label in labels)


def check_lengths(what: str, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The common length of the first axis.

    Args:
        what: Start of the message: the file or dataset.
        shapes: Shape of each array.

    Raises:
        DatasetError: There is no array, one has no axis, lengths differ, or all are empty.
    """
    if not shapes:
        raise DatasetError(f"{what} has no arrays: expected one for each model input.")
    for key, shape in shapes.items():
        if not shape:
            raise DatasetError(f"{what}: array {key!r} is a single number, expected samples first.")
    first, *others = shapes
    for key in others:
        if shapes[key][0] != shapes[first][0]:
            raise DatasetError(
                f"{what}: arrays {first!r} and {key!r} differ in length: {shapes[first][0]} and "
                f"{shapes[key][0]} samples. Each must hold every sample once."
            )
    if shapes[first][0] == 0:
        raise DatasetError(f"No samples: {what}: array {first!r} has shape {shapes[first]}.")
    return shapes[first][0]
