"""The one dataset type: it serves calibration, validation and latency alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calib.data.loading import load_in_workers, load_one
from calib.data.sample import Array, Batch, Carried, Padding, Sample
from calib.data.stacking import stack
from calib.errors import DatasetError, UsageError
from calib.wording import counted

__all__ = ["Array", "Batch", "Carried", "Dataset", "Padding", "Sample", "stack"]

_LEAST_FOR_WORKERS = 8
"""Fewer samples than this are read faster than a process starts."""

_MOST_WORKERS = 256


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
        padding: How inputs of different lengths are filled up within a batch, by input name.
        constants: Inputs that are the same for every batch, by name.
        state: Inputs that the model's own outputs feed, by name. Such samples are fed one at a time, in
            order; state is zero at the start of each group.
        groups: Name of what each sample belongs to, where samples are chosen together and stay in
            order: the windows of a recording, the two sentences of a pair. None where each stands alone.
        workers: Processes that read samples for ``batches``; 0 reads in this one.
    """

    name: str
    ids: tuple[str, ...]
    load: Callable[[int], Sample]
    labels: tuple[Any, ...] | None = None
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    description: Mapping[str, Any] = field(default_factory=dict)
    content: Callable[[int], str] | None = None
    padding: Mapping[str, Padding] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    state: Mapping[str, Carried] = field(default_factory=dict)
    groups: tuple[Hashable, ...] | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        if not self.ids:
            raise DatasetError(f"No samples: dataset {self.name!r} is empty.")
        if len(set(self.ids)) != len(self.ids):
            raise DatasetError(f"Dataset {self.name!r} names a sample twice: {_first_repeat(self.ids)!r}.")
        for what, given in (("label[s]", self.labels), ("group[s]", self.groups)):
            if given is not None and len(given) != len(self.ids):
                raise DatasetError(
                    f"Dataset {self.name!r} has {counted(len(given), what)} for "
                    f"{counted(len(self.ids), 'sample[s]')}."
                )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Sample:
        number = range(len(self.ids))[index]
        return load_one(self.load, number, self.ids[number])

    def __iter__(self) -> Iterator[Sample]:
        return (self[index] for index in range(len(self.ids)))

    def with_workers(self, count: int) -> Dataset:
        """The same samples, read by so many processes; 0 reads in this one.

        Raises:
            UsageError: It is no number from 0 to 256.
        """
        if not 0 <= count <= _MOST_WORKERS:
            raise UsageError(f"--workers must be from 0 to {_MOST_WORKERS}, got {count}.")
        return replace(self, workers=count)

    def subset(self, indices: Sequence[int]) -> Dataset:
        """The samples at some indices, in that order."""
        chosen, load, content = tuple(indices), self.load, self.content
        return replace(
            self,
            ids=tuple(self.ids[i] for i in chosen),
            load=lambda index: load(chosen[index]),
            labels=None if self.labels is None else tuple(self.labels[i] for i in chosen),
            groups=None if self.groups is None else tuple(self.groups[i] for i in chosen),
            content=None if content is None else lambda index: content(chosen[index]),
        )

    def with_notes(self, *notes: str) -> Dataset:
        """The same samples, with more notes."""
        return replace(self, notes=self.notes + notes)

    def begins(self, index: int) -> bool:
        """Whether a sample is the first of its group, where state begins with zeros."""
        return self.groups is None or index == 0 or self.groups[index] != self.groups[index - 1]

    def group_start(self, index: int) -> int:
        """Index of the first sample of the group that a sample is in."""
        while not self.begins(index):
            index -= 1
        return index

    def batch(self, indices: Sequence[int]) -> Batch:
        """The samples at some indices as one batch."""
        return self.stacked([self[index] for index in indices], begins=self.begins(indices[0]))

    def stacked(self, samples: Sequence[Sample], *, begins: bool = True) -> Batch:
        """Samples of this dataset as one batch, with its padding, constants and state.

        Args:
            samples: At least one.
            begins: Whether state is zero before it.

        Raises:
            DatasetError: The samples differ in what padding does not allow to differ.
        """
        batch = stack(samples, self.padding)
        return replace(batch, constants=self.constants, state=self.state, begins=begins)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Reads the samples in order, stacked; the last batch may be smaller.

        Args:
            batch_size: Samples a batch, at least 1.

        Yields:
            One batch after another; none is kept.

        Raises:
            UsageError: The batch size is below 1, or above 1 where state is carried.
            DatasetError: Samples of one batch differ in their inputs' names or shapes, or one cannot be
                read.
        """
        if batch_size < 1:
            raise UsageError(f"Batch size must be at least 1, got {batch_size}.")
        if batch_size > 1 and self.state:
            raise UsageError(
                f"Dataset {self.name!r} carries state ({', '.join(self.state)}): each sample needs what the "
                f"one before left, so the batch size must be 1, got {batch_size}."
            )
        samples = self._read(batch_size)
        for start in range(0, len(self), batch_size):
            count = min(batch_size, len(self) - start)
            yield self.stacked([next(samples) for _ in range(count)], begins=self.begins(start))
        # Runs the reader to its end, where it ends its processes.
        next(samples, None)

    def _read(self, batch_size: int) -> Iterator[Sample]:
        if self.workers < 1 or len(self) < _LEAST_FOR_WORKERS:
            return iter(self)
        # One batch is made ready while the one before is computed on.
        ahead = batch_size + 2 * self.workers
        return load_in_workers(self.load, self.ids, range(len(self)), self.workers, ahead)


def _first_repeat(ids: Sequence[str]) -> str:
    seen: set[str] = set()
    for sample_id in ids:
        if sample_id in seen:
            return sample_id
        seen.add(sample_id)
    raise AssertionError("no repeat")
