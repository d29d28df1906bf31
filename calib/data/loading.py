"""Reading samples in worker processes, in order and in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from calib.data.sample import Sample
from calib.errors import CalibError, DatasetError

__all__ = ["load_in_workers", "load_one"]

Load = Callable[[int], Sample]

_IDLE_SECONDS = 300
"""A worker whose parent was killed ends by itself after this long."""

_worker_load: Load | None = None


def load_one(load: Load, index: int, sample_id: str) -> Sample:
    """Reads one sample.

    Raises:
        CalibError: It cannot be read; whatever else its source raised becomes a `DatasetError` that
            names the sample.
    """
    try:
        return load(index)
    except CalibError:
        raise
    except Exception as error:  # of a decoder or of foreign code: the sample must be named
        reason = f"{type(error).__name__}: {error}".rstrip(".: ")
        raise DatasetError(f"Sample {sample_id} cannot be read: {reason}.") from error


def load_in_workers(
    load: Load, ids: Sequence[str], indices: Sequence[int], workers: int, ahead: int
) -> Iterator[Sample]:
    """Reads samples in processes of their own.

    The order is that of the indices, and each sample is what ``load`` gives in this process. When the
    caller stops, by the end, an exception or Ctrl-C, the processes are ended.

    Args:
        load: Reads the sample at an index; sent to each process once.
        ids: Every sample's id.
        indices: What to read, in this order.
        workers: Number of processes, at least 1.
        ahead: Samples that are read before they are asked for, which bounds the memory.

    Yields:
        One sample after another.

    Raises:
        CalibError: A sample cannot be read, or a process died; the sample is named.
    """
    # joblib's: unlike those of the standard library they need no `if __name__ == "__main__"` in the
    # user's script, and take closures.
    from joblib.externals.loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(
        max_workers=workers, timeout=_IDLE_SECONDS, initializer=_keep, initargs=(load,)
    )
    try:
        yield from _in_order(pool, ids, indices, max(ahead, workers))
    finally:
        pool.shutdown(wait=True, kill_workers=True)


def _in_order(pool: Any, ids: Sequence[str], indices: Sequence[int], ahead: int) -> Iterator[Sample]:
    from joblib.externals.loky.process_executor import BrokenProcessPool

    waiting: deque[tuple[str, Any]] = deque()
    following = iter(indices)
    current = ""
    try:
        while True:
            while len(waiting) <= ahead and (index := next(following, None)) is not None:
                waiting.append((ids[index], pool.submit(_load, index, ids[index])))
            if not waiting:
                return
            current, future = waiting.popleft()
            yield _result(future)
    except BrokenProcessPool as error:
        raise DatasetError(
            f"A process that reads samples died, at sample {current} or soon after it: it may have run "
            "out of memory, or its decoder crashed. Set workers: 0 to see which sample it is."
        ) from error
    finally:
        for _, future in waiting:
            future.cancel()


def _result(future: Any) -> Sample:
    try:
        sample: Sample = future.result()
    except CalibError as error:
        # The worker's own trace is of no use to anyone who reads the message.
        with suppress(AttributeError):
            error.__cause__ = None
        raise
    return sample


def _keep(load: Load) -> None:
    global _worker_load
    _worker_load = load


def _load(index: int, sample_id: str) -> Sample:
    assert _worker_load is not None
    return load_one(_worker_load, index, sample_id)
