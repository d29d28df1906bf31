"""What TensorRT says while it works, kept."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

__all__ = ["LogStore", "make_logger"]

# A build says some hundred lines from INFO up; a day's builds need no more than the last of them.
_MOST_LINES = 20_000

_KEPT = frozenset({"INTERNAL_ERROR", "ERROR", "WARNING", "INFO"})


class LogStore:
    """The last lines that were said.

    Attributes:
        count: How many lines there were in all.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lines: deque[tuple[str, str]] = deque(maxlen=_MOST_LINES)

    def add(self, severity: str, text: str) -> None:
        """Keeps a line."""
        self._lines.append((severity, text))
        self.count += 1

    def since(self, start: int) -> list[tuple[str, str]]:
        """The lines from a count on, as far as they are kept.

        >>> store = LogStore()
        >>> store.add("INFO", "early"); start = store.count; store.add("ERROR", "late")
        >>> store.since(start)
        [('ERROR', 'late')]
        """
        dropped = self.count - len(self._lines)
        return list(self._lines)[max(0, start - dropped) :]


def make_logger(trt: Any) -> Any:
    """A ``trt.ILogger`` that keeps what is said.

    Its ``lines`` are (name of the severity, text), the oldest first, from "INFO" up, of the time since the
    thread that asks called ``mark`` last.

    Args:
        trt: The TensorRT module.
    """
    store, marks = LogStore(), threading.local()

    class CapturingLogger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()

        def log(self, severity: Any, msg: str) -> None:
            name = str(severity).rpartition(".")[2]
            if name in _KEPT:
                store.add(name, msg.strip())

        def mark(self) -> None:
            marks.start = store.count

        @property
        def lines(self) -> list[tuple[str, str]]:
            return store.since(getattr(marks, "start", 0))

    return CapturingLogger()
