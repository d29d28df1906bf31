"""Feeding a calibrator: batches cut to fit the memory, counted while the next part is computed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from typing_extensions import Self

from calib.calibrators import Calibrator, absolute_maximum, check_finite
from calib.data import Array, Batch
from calib.errors import NonFiniteError
from calib.graph.feeds import FeedBuilder
from calib.graph.observed import ObservedSession

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
    ) -> None:
        self._session = session
        self._builder = builder
        self._calibrator = calibrator
        self._part_size: int | None = None
        self._whole = whole
        self._pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
        self._counting: list[Future[None]] = []
        self._slot = 0
        self.batches = 0

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
            self._wait()
            self._open(computed, parts[index + 1 :])
            self._count(computed)
        self._wait()
        self._calibrator.end_batch()
        self.batches += 1

    def _parts(self, batch: Batch) -> list[Batch]:
        if self._whole or len(batch) == 1:
            return [batch]
        if self._part_size is None:
            self._part_size = self._measured_part_size(batch)
        size = self._part_size
        return [_rows(batch, start, start + size) for start in range(0, len(batch), size)]

    def _measured_part_size(self, batch: Batch) -> int:
        """How many samples' activations fit, by those of the first sample."""
        tensors = self._session.run(self._builder.feeds(_rows(batch, 0, 1)))
        needed = sum(array.nbytes for array in tensors.values())
        return max(1, _PART_BYTES // max(needed, 1))

    def _compute(self, part: Batch) -> _Part:
        # Two sets of buffers: one is being counted while the other is filled.
        self._slot = 1 - self._slot
        return _Part(part, self._session.run(self._builder.feeds(part), slot=self._slot))

    def _open(self, part: _Part, following: Sequence[Batch]) -> None:
        """Tells the calibrator the largest |x| of whole batches where it must know them first."""
        unopened = [
            name for name, array in part.tensors.items() if array.size and self._calibrator.unopened(name)
        ]
        maxima = self._maxima(part, unopened)
        begun = [name for name in unopened if maxima[name] > 0]
        if not begun:
            return
        for later in following:
            tensors = self._session.run(self._builder.feeds(later))
            further = self._maxima(_Part(later, tensors), begun)
            maxima = {name: max(maxima[name], further[name]) for name in begun}
        for name in begun:
            self._calibrator.open(name, maxima[name])

    def _maxima(self, part: _Part, names: Sequence[str]) -> dict[str, float]:
        maxima = dict(
            zip(names, self._pool.map(absolute_maximum, (part.tensors[n] for n in names)), strict=True)
        )
        for name, amax in maxima.items():
            self._check(name, part, amax)
        return maxima

    def _count(self, part: _Part) -> None:
        for name, array in part.tensors.items():
            if array.size:
                self._calibrator.unopened(name)  # makes the entry here: the threads only fill it
                self._counting.append(self._pool.submit(self._count_one, name, part))

    def _count_one(self, name: str, part: _Part) -> None:
        amax = absolute_maximum(part.tensors[name])
        self._check(name, part, amax)
        self._calibrator.add(name, part.tensors[name], amax)

    def _wait(self) -> None:
        """Waits for the counting of the part before; the first failure in network order is raised."""
        counting, self._counting = self._counting, []
        for future in counting:
            future.result()

    def _check(self, name: str, part: _Part, amax: float) -> None:
        try:
            check_finite(name, part.tensors[name], amax)
        except NonFiniteError as error:
            where = _first_sample(part.tensors[name], part.batch)
            raise NonFiniteError(
                f"{error} It happened {where}, after {self.batches} good batches.", name
            ) from error


def _first_sample(values: Array, batch: Batch) -> str:
    """The first sample of a batch that made a tensor leave the finite numbers."""
    if not values.ndim or len(values) != len(batch):
        return f"in the batch from sample {batch.origins[0]} to {batch.origins[-1]}"
    with np.errstate(over="ignore"):
        finite = np.isfinite(values.reshape(len(batch), -1).astype(np.float32)).all(axis=1)
    row = int(np.flatnonzero(~finite)[0])
    return f"first at sample {batch.origins[row]} (id {batch.ids[row]!r})"


def _rows(batch: Batch, start: int, stop: int) -> Batch:
    return Batch(
        ids=batch.ids[start:stop],
        inputs={name: array[start:stop] for name, array in batch.inputs.items()},
        labels=batch.labels[start:stop],
        origins=batch.origins[start:stop],
    )
