"""The one dataset type: it serves calibration, validation and latency alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.data.geometry import Geometry
from calib.errors import DatasetError, UsageError

__all__ = ["Array", "Batch", "Dataset", "Sample"]

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
class Batch:
    """Samples stacked along a new first axis.

    Attributes:
        ids: The samples' ids, in the order of the rows.
        inputs: One array for each named input, its first axis as long as ``ids``.
        labels: The samples' labels, in the same order.
        origins: Where each sample came from.
        geometries: How preprocessing moved each sample's pixels; empty where none is an image.
    """

    ids: tuple[str, ...]
    inputs: Mapping[str, Array]
    labels: tuple[Any, ...]
    origins: tuple[str, ...]
    geometries: tuple[Geometry | None, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, start: int, stop: int) -> Batch:
        """The samples from one row to before another."""
        return Batch(
            ids=self.ids[start:stop],
            inputs={name: array[start:stop] for name, array in self.inputs.items()},
            labels=self.labels[start:stop],
            origins=self.origins[start:stop],
            geometries=self.geometries[start:stop],
        )


@dataclass(frozen=True)
class Dataset:
    """Samples that are read when they are asked for.

    Attributes:
        name: For reports and messages.
        ids: Every sample's id, without a repeat.
        load: Reads the sample at an index of ``ids``.
        labels: Every sample's label, known without loading its inputs; None where there are none.
        class_names: Name of each class number, where known.
        notes: What was skipped or repaired while the samples were listed, a line each.
        description: What preprocessing and source made the samples; goes into provenance.
        content: Identifies what is stored for the sample at an index, for ``fingerprint``; None where
            the description already says it all.
    """

    name: str
    ids: tuple[str, ...]
    load: Callable[[int], Sample]
    labels: tuple[Any, ...] | None = None
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    description: Mapping[str, Any] = field(default_factory=dict)
    content: Callable[[int], str] | None = None

    def __post_init__(self) -> None:
        if not self.ids:
            raise DatasetError(f"No samples: dataset {self.name!r} is empty.")
        if len(set(self.ids)) != len(self.ids):
            raise DatasetError(f"Dataset {self.name!r} names a sample twice: {_first_repeat(self.ids)!r}.")
        if self.labels is not None and len(self.labels) != len(self.ids):
            raise DatasetError(
                f"Dataset {self.name!r} has {len(self.labels)} labels for {len(self.ids)} samples."
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Sample:
        return self.load(range(len(self.ids))[index])

    def __iter__(self) -> Iterator[Sample]:
        return (self.load(index) for index in range(len(self.ids)))

    def subset(self, indices: Sequence[int]) -> Dataset:
        """The samples at some indices, in that order."""
        chosen = tuple(indices)
        labels = None if self.labels is None else tuple(self.labels[i] for i in chosen)
        content = self.content
        return Dataset(
            name=self.name,
            ids=tuple(self.ids[i] for i in chosen),
            load=lambda index: self.load(chosen[index]),
            labels=labels,
            class_names=self.class_names,
            notes=self.notes,
            description=self.description,
            content=None if content is None else lambda index: content(chosen[index]),
        )

    def with_notes(self, *notes: str) -> Dataset:
        """The same samples, with more notes."""
        return replace(self, notes=self.notes + notes)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Reads the samples in order, stacked; the last batch may be smaller.

        Args:
            batch_size: Samples a batch, at least 1.

        Yields:
            One batch after another; none is kept.

        Raises:
            UsageError: The batch size is below 1.
            DatasetError: Samples of one batch differ in their inputs' names or shapes.
        """
        if batch_size < 1:
            raise UsageError(f"Batch size must be at least 1, got {batch_size}.")
        for start in range(0, len(self), batch_size):
            stop = min(start + batch_size, len(self))
            yield stack([self.load(index) for index in range(start, stop)])


def stack(samples: Sequence[Sample]) -> Batch:
    """Stacks samples along a new first axis.

    Raises:
        DatasetError: The samples differ in their inputs' names or shapes.
    """
    first = samples[0]
    for sample in samples[1:]:
        _check_same_form(first, sample)
    return Batch(
        ids=tuple(sample.id for sample in samples),
        inputs={name: np.stack([sample.inputs[name] for sample in samples]) for name in first.inputs},
        labels=tuple(sample.label for sample in samples),
        origins=tuple(sample.origin or sample.id for sample in samples),
        geometries=_geometries(samples),
    )


def _geometries(samples: Sequence[Sample]) -> tuple[Geometry | None, ...]:
    found = tuple(sample.geometry for sample in samples)
    return found if any(geometry is not None for geometry in found) else ()


def _check_same_form(first: Sample, sample: Sample) -> None:
    if first.inputs.keys() != sample.inputs.keys():
        raise DatasetError(
            f"Sample {sample.origin or sample.id} has inputs {sorted(sample.inputs)}, "
            f"but {first.origin or first.id} in the same batch has {sorted(first.inputs)}."
        )
    for name, array in sample.inputs.items():
        if array.shape != first.inputs[name].shape:
            raise DatasetError(
                f"Input {name!r} of sample {sample.origin or sample.id} has shape {array.shape}, but "
                f"{first.origin or first.id} in the same batch has {first.inputs[name].shape}. "
                "Resize all samples alike in the recipe, or use batch size 1."
            )


def _first_repeat(ids: Sequence[str]) -> str:
    seen: set[str] = set()
    for sample_id in ids:
        if sample_id in seen:
            return sample_id
        seen.add(sample_id)
    raise AssertionError("no repeat")
