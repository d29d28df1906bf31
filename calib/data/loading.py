"""Reading samples in worker processes, in order and in bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from calib.data.messages import receive, send
from calib.data.sample import Sample
from calib.errors import CalibError, DatasetError

__all__ = ["load_in_workers", "load_one"]

Load = Callable[[int], Sample]

# Each reads one sample at a time: threads of its own would only take time from the others. glibc gives the
# memory of a decoded photo back to the system and has it zeroed again for the next one, a quarter of the
# time that reading takes, unless it may keep some (mallopt(3)).
_WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
}

# Ctrl-C goes to every process of the terminal, and the parent decides what it means, while modules are still
# read too. The parent's path before any of calib's: it may be found only through it.
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.path[:] = {path!r}; from calib.data.worker import main; main()"
)


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
    caller stops, by the end, an exception or Ctrl-C, the processes are ended; should this process be
    killed, they end by themselves.

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
    import cloudpickle

    content = cloudpickle.dumps(load)
    team: list[_Worker] = []
    try:
        team += [_Worker(content) for _ in range(workers)]
        yield from _in_order(team, ids, indices, max(ahead, workers))
    finally:
        for worker in team:
            worker.end()


def _in_order(
    team: Sequence[_Worker], ids: Sequence[str], indices: Sequence[int], ahead: int
) -> Iterator[Sample]:
    waiting: deque[tuple[_Worker, str]] = deque()
    following = enumerate(indices)
    while True:
        while len(waiting) <= ahead and (item := next(following, None)) is not None:
            place, index = item
            worker = team[place % len(team)]
            worker.ask(index, ids[index])
            waiting.append((worker, ids[index]))
        if not waiting:
            return
        worker, sample_id = waiting.popleft()
        yield worker.answer(sample_id)


class _Worker:
    """One process that reads samples.

    Not one of multiprocessing's: those run the user's script again, unless it is guarded against that.
    """

    def __init__(self, load: bytes) -> None:
        environment = {**_WORKER_ENVIRONMENT, **os.environ}
        command = [sys.executable, "-c", _START.format(path=sys.path)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._say(load)

    def ask(self, index: int, sample_id: str) -> None:
        """Has a sample read; at once, or after what was asked before."""
        self._say((index, sample_id))

    def answer(self, sample_id: str) -> Sample:
        """The sample that was asked for first and not given yet."""
        assert self._process.stdout is not None
        try:
            answer = receive(self._process.stdout)
        except EOFError as error:
            raise self._death(sample_id) from error
        if isinstance(answer, CalibError):
            raise answer
        assert isinstance(answer, Sample)
        return answer

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                # What was not sent yet has no reader any more.
                with suppress(OSError):
                    stream.close()
        self._process.wait()

    def _say(self, message: Any) -> None:
        assert self._process.stdin is not None
        # A process that died says so when its next answer is wanted, which is the sample it died at.
        with suppress(OSError):
            send(self._process.stdin, message)

    def _death(self, sample_id: str) -> DatasetError:
        status = self._process.wait()
        how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return DatasetError(
            f"A process that reads samples died ({how}), at sample {sample_id} or soon after it: it may have "
            "run out of memory, or its decoder crashed. Set workers: 0 to see which sample it is."
        )
