"""Feeding a calibrator: batches cut to fit the memory, counted while the next part is computed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np
from typing_extensions import Self

from calib.calibrators import Calibrator, absolute_maximum, check_finite
from calib.data import Array, Batch
from calib.errors import NonFiniteError
from calib.graph.feeds import FeedBuilder
from calib.graph.observed import ObservedSession
from calib.graph.state import StateKeeper

__all__ = ["Collector"]

_PART_BYTES = 96 << 20
"""Activations held at a time. Two parts are held: one is counted while the next is computed."""


@dataclass(frozen=True)
class _Part:
    """A part of a batch and its activations."""

    batch: Batch
    tensors: Mapping[str, Array]


class Collector:
    """Runs batches through an observed session into a calibrator.

    A batch whose activations would not fit is run in parts; the calibrator still sees one batch. The
    tensors of a part are counted side by side in threads while the session computes the next part.

    Args:
        session: Gives the activations.
        builder: Makes the feeds.
        calibrator: Takes the statistics.
        whole: Whether batches must not be cut, because the model insists on their size.
        only: The tensors to collect; None for all.

    Attributes:
        batches: Number of batches counted.
    """

    def __init__(
        self,
        session: ObservedSession,
        builder: FeedBuilder,
        calibrator: Calibrator[Any],
        *,
        whole: bool = False,
        only: Collection[str] | None = None,
    ) -> None:
        self._session = session
        self._builder = builder
        self._state = StateKeeper([n for n, source in session.source_of.items() if n == source], "the model")
        self._calibrator = calibrator
        self._part_size: int | None = None
        self._whole = whole
        self._only = only
        self._workers = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._workers)
        self._lock = Lock()
        self._counting: list[Future[dict[str, NonFiniteError]]] = []
        self._ending = False
        self._slot = 0
        self.batches = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Conversions of the feeds that were made, a line each."""
        return self._builder.notes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, batch: Batch) -> None:
        """Counts one batch.

        Raises:
            NonFiniteError: A tensor leaves the finite numbers; tensor and first sample are named. The
                calibrator has then counted a part of the batch and cannot be used.
            CalibError: The batch does not fit the model, or ONNX Runtime fails.
        """
        parts = self._parts(batch)
        for index, part in enumerate(parts):
            computed = self._compute(part)
            self._settle()
            self._open(computed, parts[index + 1 :])
            self._count(computed)
        self._ending = True

    def pass_over(self, batch: Batch) -> None:
        """Runs a batch for the state that it leaves, and counts nothing."""
        self._run(batch)

    def finish(self) -> None:
        """Waits until everything is counted."""
        self._settle()

    def _parts(self, batch: Batch) -> list[Batch]:
        if self._whole or len(batch) == 1:
            return [batch]
        if self._part_size is None:
            self._part_size = self._measured_part_size(batch)
        size = self._part_size
        return [batch.rows(start, start + size) for start in range(0, len(batch), size)]

    def _measured_part_size(self, batch: Batch) -> int:
        """How many samples' activations fit, by those of the first sample."""
        tensors = self._session.run(self._builder.feeds(batch.rows(0, 1)))
        needed = sum(array.nbytes for array in tensors.values())
        return max(1, _PART_BYTES // max(needed, 1))

    def _compute(self, part: Batch) -> _Part:
        # Two sets of buffers: one is being counted while the other is filled.
        self._slot = 1 - self._slot
        return _Part(part, self._wanted(self._run(part, self._slot)))

    def _run(self, part: Batch, slot: int | None = None) -> dict[str, Array]:
        """Every activation; where state is carried, with that of the batch before."""
        feeds = self._builder.feeds(part)
        if not part.state:
            return self._session.run(feeds, slot=slot)
        tensors = self._session.run(self._state.complete(part.state, feeds), slot=slot)
        self._state.keep(part.state, tensors)
        return tensors

    def _wanted(self, tensors: dict[str, Array]) -> dict[str, Array]:
        """The tensors to collect that have any values."""
        return {
            name: array
            for name, array in tensors.items()
            if array.size and (self._only is None or name in self._only)
        }

    def _open(self, part: _Part, following: Sequence[Batch]) -> None:
        """Tells the calibrator the largest |x| of whole batches where it must know them first."""
        unopened = [name for name in part.tensors if self._calibrator.unopened(name)]
        maxima = self._maxima(part, unopened)
        begun = [name for name in unopened if maxima[name] > 0]
        if not begun:
            return
        for later in following:
            tensors = self._session.run(self._builder.feeds(later))
            # Activations that depend on the data may have no values in a part.
            seen = [name for name in begun if tensors[name].size]
            further = dict.fromkeys(begun, 0.0) | self._maxima(_Part(later, tensors), seen)
            maxima = {name: max(maxima[name], further[name]) for name in begun}
        for name in begun:
            self._calibrator.open(name, maxima[name])

    def _maxima(self, part: _Part, names: Sequence[str]) -> dict[str, float]:
        found = self._pool.map(absolute_maximum, [part.tensors[name] for name in names])
        maxima = dict(zip(names, found, strict=True))
        for name, amax in maxima.items():
            with self._naming_sample(name, part):
                check_finite(name, part.tensors[name], amax)
        return maxima

    def _count(self, part: _Part) -> None:
        """Starts to count a part: each worker takes the next tensor until none is left."""
        for name in part.tensors:
            self._calibrator.unopened(name)  # makes the entry here: the workers only fill it
        left = iter(part.tensors)
        self._counting = [self._pool.submit(self._work, left, part) for _ in range(self._workers)]

    def _work(self, left: Iterator[str], part: _Part) -> dict[str, NonFiniteError]:
        refused: dict[str, NonFiniteError] = {}
        while (name := self._next(left)) is not None:
            error = self._count_one(name, part)
            if error is not None:
                refused[name] = error
        return refused

    def _count_one(self, name: str, part: _Part) -> NonFiniteError | None:
        try:
            with self._naming_sample(name, part):
                self._calibrator.add(name, part.tensors[name])
        except NonFiniteError as error:
            return error
        return None

    def _next(self, left: Iterator[str]) -> str | None:
        with self._lock:
            return next(left, None)

    def _settle(self) -> None:
        """Waits for the part that is being counted, and ends its batch if it was the last one.

        Raises:
            NonFiniteError: Of the tensors that left the finite numbers, the first in network order.
        """
        counting, self._counting = self._counting, []
        refused = {name: error for future in counting for name, error in future.result().items()}
        for name in self._session.source_of:
            if name in refused:
                raise refused[name]
        if self._ending:
            self._calibrator.end_batch()
            self.batches += 1
            self._ending = False

    @contextmanager
    def _naming_sample(self, name: str, part: _Part) -> Iterator[None]:
        """Adds to a refusal which sample made the tensor leave the finite numbers."""
        try:
            yield
        except NonFiniteError as error:
            where = _first_sample(part.tensors[name], part.batch)
            after = f"after {self.batches} good batches"
            raise NonFiniteError(f"{error} It happened {where}, {after}.", name) from error


def _first_sample(values: Array, batch: Batch) -> str:
    """The first sample of a batch that made a tensor leave the finite numbers."""
    if not values.ndim or len(values) != len(batch):
        return f"in the batch from sample {batch.origins[0]} to {batch.origins[-1]}"
    with np.errstate(over="ignore", under="ignore"):
        finite = np.isfinite(values.reshape(len(batch), -1).astype(np.float32)).all(axis=1)
    row = int(np.flatnonzero(~finite)[0])
    return f"first at sample {batch.origins[row]} (id {batch.ids[row]!r})"
