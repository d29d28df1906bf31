"""A process that reads samples for another one; started by `calib.data.loading`."""

from __future__ import annotations

import os
import pickle
import sys
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from calib.data.loading import Load, load_one
from calib.data.messages import receive, send
from calib.errors import CalibError, DatasetError

__all__ = ["main"]


def main() -> None:
    """Reads the samples that are asked for on standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    # What foreign code prints must not end up among the answers.
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    waiting: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_send_all, args=(waiting, answers), daemon=True).start()
    try:
        load: Load = pickle.loads(receive(requests))
        while True:
            waiting.put(_answer(load, *receive(requests)))
    except EOFError:
        # The parent has all it wants, or is gone.
        os._exit(0)


def _answer(load: Load, index: int, sample_id: str) -> Any:
    try:
        return load_one(load, index, sample_id)
    except CalibError as error:
        return error


def _send_all(waiting: SimpleQueue[Any], answers: IO[bytes]) -> None:
    """Sends answers while the next sample is read: the parent takes them when it needs them."""
    while True:
        answer = waiting.get()
        try:
            send(answers, answer)
        except OSError:
            os._exit(0)
        except Exception as error:  # of a label or array that cannot be sent
            send(
                answers, DatasetError(f"A sample cannot be sent between processes: {error}. Set workers: 0.")
            )
