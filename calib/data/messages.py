"""Messages between a process and the workers that it started itself."""

from __future__ import annotations

import pickle
from typing import IO, Any

__all__ = ["receive", "send"]

_HEAD = 8


def send(stream: IO[bytes], message: Any) -> None:
    """Writes a message.

    Raises:
        OSError: The other side is gone.
    """
    content = pickle.dumps(message, protocol=5)
    stream.write(len(content).to_bytes(_HEAD, "little"))
    stream.write(content)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Reads a message, which must come from a process of our own: pickles can run code.

    Raises:
        EOFError: The other side is gone.
    """
    head = stream.read(_HEAD)
    size = int.from_bytes(head, "little")
    content = stream.read(size) if len(head) == _HEAD else b""
    if not content or len(content) < size:
        raise EOFError
    return pickle.loads(content)
