"""One calibration as a description that can be sent to other processes, and the work on a range of it."""

from __future__ import annotations

import platform
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from math import ceil
from pathlib import Path
from typing import Any

from calib import __version__
from calib.calibrators import Calibrator, make_calibrator
from calib.calibrators.partial import Partial, read_partial
from calib.calibrators.provenance import Origin
from calib.data import Batch, Dataset, Stream, fingerprint
from calib.errors import CalibrationError, UsageError
from calib.graph.collection import Collector
from calib.graph.feeds import FeedBuilder
from calib.graph.intake import OnnxModel
from calib.graph.observed import ObservedSession
from calib.graph.open_sizes import asking_for_a_size
from calib.progress import track

__all__ = [
    "CalibrationJob",
    "Counted",
    "count_range",
    "count_stream",
    "first_grids",
    "parse_shard",
    "resumable",
]

_PACKAGES = {
    "numpy": ("numpy",),
    "onnx": ("onnx",),
    "onnxruntime": (
        "onnxruntime",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-directml",
    ),
}

SECONDS_BETWEEN_STATES = 20.0
"""A killed run loses no more than this, and one batch."""


@dataclass(frozen=True)
class CalibrationJob:
    """What is calibrated, and how.

    Attributes:
        model: The model.
        dataset: The calibration samples, in order; or a reader, of which nothing is known before.
        method: Name of the calibrator.
        options: Options of the calibrator.
        batch_size: Samples a batch; None for a reader's own batches.
        threads: Threads inside an operator; None for one a core.
        recipe: File name of the recipe; empty where there is none.
        preprocess: How samples are preprocessed.
        seed: Seed of the selection; None where nothing was selected.
        tensorrt: The TensorRT version that shall read the cache.
    """

    model: OnnxModel
    dataset: Dataset | Stream
    method: str = "entropy"
    options: Mapping[str, float] = field(default_factory=dict)
    batch_size: int | None = 32
    threads: int | None = None
    recipe: str = ""
    preprocess: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    tensorrt: str = "8.6.0"

    @property
    def batches(self) -> int:
        """Number of batches; of a reader, those it gave."""
        if isinstance(self.dataset, Stream):
            return len(self.dataset.batch_sizes)
        return ceil(len(self.dataset) / self._size)

    @property
    def _size(self) -> int:
        """Samples a batch; of a reader, those of its first batch."""
        if isinstance(self.dataset, Stream) and self.batch_size is None:
            return self.dataset.batch_sizes[0]
        return self.batch_size or 1

    @property
    def sample_ids(self) -> tuple[str, ...]:
        """Every sample, in order."""
        if isinstance(self.dataset, Stream):
            return tuple(f"{self.dataset.name}#{index}" for index in range(self.dataset.length))
        return self.dataset.ids

    def calibrator(self) -> Calibrator[Any]:
        """A fresh calibrator."""
        return make_calibrator(self.method, **self.options)

    def shard(self, number: int, shards: int) -> tuple[int, int]:
        """First batch of a shard, and the batch after its last one; shards are counted from 1."""
        return self.batches * (number - 1) // shards, self.batches * number // shards

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """The batches of a range; none of one that is empty, as where a killed run had counted all of it."""
        if isinstance(self.dataset, Stream):
            raise UsageError("A reader is read in order and whole: it has no ranges of batches.")
        if start >= stop:
            return iter(())
        samples = range(start * self._size, min(stop * self._size, len(self.dataset)))
        batches = asking_for_a_size(self.dataset.subset(samples).batches(self._size), self.model)
        return self._going_on(batches, self.dataset, samples.start) if self.dataset.state else batches

    @staticmethod
    def _going_on(batches: Iterator[Batch], dataset: Dataset, start: int) -> Iterator[Batch]:
        """Batches of which the first need not begin a sequence, though a subset begins there."""
        for batch in batches:
            yield replace(batch, begins=dataset.begins(start))
            start += len(batch)

    def lead_in(self, start: int) -> Iterator[Batch]:
        """Batches before a range that must be run, uncounted, for the state that they leave."""
        if isinstance(self.dataset, Stream) or not self.dataset.state or start >= len(self.dataset):
            return iter(())
        first = self.dataset.group_start(start)
        return self.read(first, start) if first < start else iter(())

    @cached_property
    def origin(self) -> Origin:
        """Everything that decides which ranges come out; of a reader, known after it was read."""
        graph_hash, weights_hash = self.model.content_hashes()
        known = self.dataset
        digest = known.fingerprint() if isinstance(known, Stream) else fingerprint(known)
        return Origin(
            calib_version=__version__,
            method=self.method,
            options=self.calibrator().options(),
            model=self.model.path.name,
            model_sha256=self.model.sha256,
            graph_sha256=graph_hash,
            weights_sha256=weights_hash,
            dataset=self.dataset.name,
            recipe=self.recipe,
            dataset_fingerprint=digest,
            preprocess=dict(self.preprocess),
            samples=len(self.sample_ids),
            batch_size=self._size,
            seed=self.seed,
            sample_ids=self.sample_ids,
            versions=_versions(),
        )


def _versions() -> dict[str, str]:
    """Versions of what computes activations; one module may come from several packages, or none of them."""
    found = {"python": platform.python_version()}
    for module, packages in _PACKAGES.items():
        for package in packages:
            with suppress(PackageNotFoundError):
                found.setdefault(module, version(package))
    return found


@dataclass(frozen=True)
class Counted:
    """What was counted of a range.

    Attributes:
        partial: The statistics, and what they are of.
        notes: Conversions that were made, a line each.
    """

    partial: Partial
    notes: tuple[str, ...]


def first_grids(job: CalibrationJob) -> dict[str, float]:
    """R₀ of every tensor that is not all zero in the first batch, which every shard must count with.

    Empty, without running anything, for a method on which order has no influence.
    """
    calibrator = job.calibrator()
    if not calibrator.order_dependent:
        return {}
    with _collector(job, ObservedSession(job.model, job.threads), calibrator) as collector:
        for batch in job.read(0, 1):
            collector.add(batch)
        collector.finish()
    return calibrator.grids()


def count_range(
    job: CalibrationJob,
    start: int,
    stop: int,
    *,
    grids: Mapping[str, float] | None = None,
    only: Collection[str] | None = None,
    state: Path | None = None,
    keep: bool = False,
    show: bool = False,
) -> Counted:
    """Counts the batches of a range.

    Args:
        job: The calibration.
        start: Number of the first batch.
        stop: Number of the batch after the last one.
        grids: R₀ of tensors, known beforehand.
        only: The tensors to count; None for all.
        state: File that keeps what was counted so far, every few seconds; read at the start, so that a
            killed run goes on. None keeps nothing.
        keep: Whether to keep the finished state too, for a run that has more ranges to count.
        show: Whether to show progress.

    Raises:
        CalibError: A batch cannot be counted; the sample is named.
    """
    known = None if state is None else resumable(state, job, start, stop)
    session = ObservedSession(job.model, job.threads)
    calibrator = job.calibrator() if known is None else known.calibrator
    for name, first in (grids or {}).items():
        calibrator.open(name, first)
    done = start if known is None else known.done
    partial = Partial(
        origin=job.origin,
        source_of=session.source_of,
        start=start,
        stop=stop,
        done=done,
        batches=job.batches,
        calibrator=calibrator,
        tensorrt=job.tensorrt,
        notes=(*job.dataset.notes, *session.notes),
    )
    with _collector(job, session, calibrator, only) as collector:
        saver = _Saver(partial, state)
        for batch in job.lead_in(done):
            collector.pass_over(batch)
        batches: Iterable[Batch] = job.read(done, stop)
        for batch in track(batches, stop - done, "Calibrating") if show else batches:
            collector.add(batch)
            saver.after(collector)
        collector.finish()
        finished = saver.at(stop)
        if keep and state is not None:
            finished.write(state)
        return Counted(finished, collector.notes)


def count_stream(job: CalibrationJob, stream: Stream) -> Counted:
    """Counts what a reader gives; its batches are taken as they come and never cut.

    Args:
        job: The calibration.
        stream: The job's reader.

    Raises:
        CalibError: A batch cannot be counted; the sample is named.
    """
    session = ObservedSession(job.model, job.threads)
    calibrator = job.calibrator()
    with _collector(job, session, calibrator) as collector:
        for batch in track(stream.batches(job.batch_size), stream.items, "Calibrating"):
            collector.add(batch)
        collector.finish()
        partial = Partial(
            origin=job.origin,
            source_of=session.source_of,
            start=0,
            stop=job.batches,
            done=collector.batches,
            batches=job.batches,
            calibrator=calibrator,
            tensorrt=job.tensorrt,
            notes=(*stream.notes, *session.notes),
        )
        return Counted(partial, collector.notes)


class _Saver:
    """Keeps the state of a run on the disk."""

    def __init__(self, partial: Partial, path: Path | None) -> None:
        self._partial = partial
        self._path = path
        self._counted = partial.done
        self._saved = time.monotonic()

    def at(self, done: int) -> Partial:
        """The state with so many batches counted."""
        return replace(self._partial, done=done)

    def after(self, collector: Collector) -> None:
        """Saves after a batch, if the last time is long enough ago."""
        self._counted += 1
        if self._path is None or time.monotonic() - self._saved < SECONDS_BETWEEN_STATES:
            return
        collector.finish()
        self.at(self._counted).write(self._path)
        self._saved = time.monotonic()


def resumable(path: Path, job: CalibrationJob, start: int, stop: int) -> Partial | None:
    """The state of an earlier run of the same calibration; None where there is none.

    A state of another calibration is left out of account, and replaced at the next saving: the command
    asks for this one.
    """
    if not path.exists():
        return None
    try:
        known = read_partial(path)
    except CalibrationError:
        # Not ours, or of another version: nothing to go on from.
        return None
    same = not known.origin.differences(job.origin)
    return known if same and (known.start, known.stop) == (start, stop) else None


def _collector(
    job: CalibrationJob,
    session: ObservedSession,
    calibrator: Calibrator[Any],
    only: Collection[str] | None = None,
) -> Collector:
    builder = FeedBuilder(job.model.inputs, str(job.model.path))
    # A reader's batches need not have the samples along their first axis.
    whole = isinstance(job.dataset, Stream) or job.model.fixed_batch is not None
    return Collector(session, builder, calibrator, whole=whole, only=only)


def parse_shard(text: str) -> tuple[int, int]:
    """Reads "k/N".

    Raises:
        UsageError: It is no such fraction.

    >>> parse_shard("2/4")
    (2, 4)
    """
    number, _, shards = text.partition("/")
    if not (number.isdecimal() and shards.isdecimal() and 1 <= int(number) <= int(shards)):
        raise UsageError(f"--shard must read like 2/4, from 1/4 to 4/4, got {text!r}.")
    return int(number), int(shards)
