"""Batches for TensorRT's own calibrators: read, checked, and put into device memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from calib.calibrators import CalibrationCache
from calib.data import Array, Batch, Dataset, Stream
from calib.engine.memory import Buffer, Device
from calib.errors import CalibrationError, EngineError
from calib.graph import FeedBuilder
from calib.wording import counted

__all__ = ["BatchSource", "CacheSource", "DataSource", "named_batches"]


class BatchSource:
    """What a calibrator of TensorRT asks for; nothing here ever raises, since TensorRT would swallow it.

    Attributes:
        asked: How often TensorRT asked for a batch, the last time in vain.
        used: How many batches it got.
        samples: How many samples these were.
        dropped: How many samples it did not get, since they filled no batch.
        failure: What went wrong; None where nothing did.
        written: The cache that TensorRT made; None until then.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.used = 0
        self.samples = 0
        self.dropped = 0
        self.failure: BaseException | None = None
        self.written: CalibrationCache | None = None

    @property
    def batch_size(self) -> int:
        """Samples a batch, as TensorRT asks; of no use to it with explicit batches."""
        return 1

    def give(self, names: Sequence[str]) -> list[int] | None:
        """Addresses of the next batch, one for each name; None where there is none."""
        raise NotImplementedError

    def read_cache(self) -> bytes | None:
        """A cache to be used in place of data; None where there is none."""
        return None

    def write_cache(self, content: bytes) -> None:
        """Takes the cache that TensorRT made; one made of a part of the data is of no use."""
        if self.failure is not None:
            return
        try:
            self.written = CalibrationCache.parse(content, "the cache that TensorRT made")
        except Exception as error:
            self.failure = error

    def free(self) -> None:
        """Gives device memory back."""

    def raise_failure(self) -> None:
        """Raises what went wrong, if anything did.

        Raises:
            CalibError: Data or a cache could not be used.
        """
        if self.failure is not None:
            raise self.failure


class CacheSource(BatchSource):
    """A cache and no data: if TensorRT asks for data it has refused the cache."""

    def __init__(self, cache: CalibrationCache, version: str, why: str) -> None:
        """Keeps the cache's text.

        Args:
            cache: The cache.
            version: TensorRT's name and version, for messages.
            why: What may be the reason if TensorRT refuses the cache.
        """
        super().__init__()
        self._text = cache.to_text().encode("utf-8")
        self._refusal = (
            f"{version} did not take the calibration cache ({cache.header}, "
            f"{counted(len(cache), 'tensor[s]')}) and asked "
            f"for data instead. {why}"
        )

    def give(self, names: Sequence[str]) -> list[int] | None:
        """None; it counts, and keeps the error."""
        self.asked += 1
        self.failure = self.failure or EngineError(self._refusal)
        return None

    def read_cache(self) -> bytes:
        """The cache's text."""
        return self._text


class DataSource(BatchSource):
    """Batches of a dataset, each put into the same device memory."""

    def __init__(
        self,
        batches: Iterable[Batch],
        feeds: FeedBuilder,
        device: Device,
        *,
        batch_size: int | None = None,
        int64: bool = False,
        cache_in: CalibrationCache | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            batches: The batches, in order.
            feeds: Makes the model's inputs of them.
            device: An open device.
            batch_size: Samples a batch; that of the first batch by default.
            int64: Whether TensorRT has 64-bit integers; else they go in as 32-bit ones.
            cache_in: A cache to use in place of the data, should TensorRT take it.
        """
        super().__init__()
        self._batches = iter(batches)
        self._feeds = feeds
        self._device = device
        self._int64 = int64
        self._cache_in = cache_in
        self._wanted = batch_size
        self._first: dict[str, Array] | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._buffers: dict[str, Buffer] = {}
        self._here = 0

    @property
    def batch_size(self) -> int:
        """Samples a batch; 1 before the first one was read, if no size was asked for."""
        return self._wanted or 1

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each input in every batch; reads the first one.

        Raises:
            CalibError: It cannot be read, or there is none; the sample is named.
        """
        if not self._shapes:
            self._first = self._load()
        if not self._shapes:
            raise CalibrationError(
                f"No batch to calibrate on: {counted(self.dropped, 'sample[s] [does|do]')} not fill "
                f"one of {self._wanted}. Use "
                "more samples, or a smaller batch size."
            )
        return self._shapes

    def give(self, names: Sequence[str]) -> list[int] | None:
        """Puts the next batch into device memory."""
        self.asked += 1
        if self.failure is not None:
            return None
        try:
            return self._put(names)
        except BaseException as error:
            # TensorRT takes an exception for the end of the data, or dies of it.
            self.failure = error
            return None

    def _put(self, names: Sequence[str]) -> list[int] | None:
        arrays, self._first = self._first or self._load(), None
        if arrays is None:
            return None
        unknown = [name for name in names if name not in arrays]
        if unknown:
            raise CalibrationError(
                f"TensorRT asks for data of {', '.join(unknown)}, but the model's inputs are "
                f"{', '.join(arrays)}. Calibrate with the model that is built."
            )
        for name in names:
            if name not in self._buffers:
                self._buffers[name] = self._device.allocate(max(arrays[name].nbytes, 1))
            self._buffers[name].write(arrays[name])
        self.used += 1
        self.samples += self._here
        return [self._buffers[name].address for name in names]

    def _load(self) -> dict[str, Array] | None:
        """The inputs of the next batch that is full; None at the end."""
        for batch in self._batches:
            self._wanted = self._wanted or len(batch)
            if len(batch) < self._wanted:
                self.dropped += len(batch)
                continue
            feeds = self._feeds.feeds(batch)
            self._here = len(batch)
            arrays = {name: _as_tensorrt(name, array, self._int64) for name, array in feeds.items()}
            self._check_shapes(arrays, batch)
            return arrays
        return None

    def _check_shapes(self, arrays: Mapping[str, Array], batch: Batch) -> None:
        shapes = {name: array.shape for name, array in arrays.items()}
        self._shapes = self._shapes or shapes
        for name, shape in shapes.items():
            if shape != self._shapes[name]:
                raise CalibrationError(
                    f"Input {name!r} has shape {shape} in the batch from sample {batch.origins[0]}, but "
                    f"{self._shapes[name]} in the first one. TensorRT calibrates with one shape: resize all "
                    "samples alike, or calibrate without --native."
                )

    def read_cache(self) -> bytes | None:
        """The cache that was given in place of data."""
        return None if self._cache_in is None else self._cache_in.to_text().encode("utf-8")

    def drain(self) -> int:
        """Reads what TensorRT left unread, so that a reader knows all of its samples.

        Returns:
            The number of batches.
        """
        return sum(1 for batch in self._batches if len(batch) == self._wanted)

    def free(self) -> None:
        """Gives device memory back."""
        while self._buffers:
            self._buffers.popitem()[1].free()


def named_batches(data: Dataset | Stream | Iterable[Batch], batch_size: int | None = None) -> Iterator[Batch]:
    """The batches of a dataset; whatever loading raises names the sample.

    Args:
        data: A dataset, a reader, or batches.
        batch_size: Samples a batch; None for a reader's own, and 32 for a dataset.

    Raises:
        CalibrationError: A sample cannot be loaded.
    """
    if isinstance(data, Stream):
        return data.batches(batch_size)
    return _cut(data, batch_size or 32) if isinstance(data, Dataset) else iter(data)


def _cut(data: Dataset, batch_size: int) -> Iterator[Batch]:
    for start in range(0, len(data), batch_size):
        stop = min(start + batch_size, len(data))
        yield data.stacked([_load(data, index) for index in range(start, stop)], begins=data.begins(start))


def _load(data: Dataset, index: int) -> Any:
    sample = data.ids[index]
    try:
        return data.load(index)
    except Exception as error:
        told = str(error) or type(error).__name__
        raise CalibrationError(
            f"Sample {sample!r} of dataset {data.name!r} could not be loaded: {told.rstrip('.')}. "
            "TensorRT would have calibrated on the samples before it; mend or remove it."
        ) from error


def _as_tensorrt(name: str, array: Array, int64: bool) -> Array:
    """An input in a type that calibration takes: float32, or integers as they are."""
    if array.dtype == np.int64 and not int64:
        narrow = array.astype(np.int32)
        if not np.array_equal(narrow, array):
            raise CalibrationError(
                f"Input {name!r} holds integers beyond 32 bits, which this TensorRT does not have."
            )
        return narrow
    return array if array.dtype.kind in "iub" else np.asarray(array, np.float32, order="C")
