"""Progress on stderr: a bar with rate and time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable
from typing import TextIO, TypeVar

__all__ = ["track"]

T = TypeVar("T")

_SECONDS_BETWEEN_LINES = 10.0


def track(
    items: Iterable[T],
    total: int | None,
    what: str,
    stream: TextIO | None = None,
    *,
    least: int = 0,
) -> Generator[T, None, None]:
    """Passes items on and shows how far it is.

    Args:
        items: What to go through.
        total: Number of items; None where it is not known.
        what: What is being done, such as "Calibrating".
        stream: Where to show it; standard error by default.
        least: Fewer items than this are soon done: nothing is shown.

    Yields:
        Each item.
    """
    if total is not None and total < least:
        return (item for item in items)
    out = stream or sys.stderr
    return _bar(items, total, what, out) if out.isatty() else _lines(items, total, what, out)


def _bar(items: Iterable[T], total: int | None, what: str, out: TextIO) -> Generator[T, None, None]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "–/s")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=out)) as progress:
        yield from progress.track(items, total=total, description=what)


def _lines(items: Iterable[T], total: int | None, what: str, out: TextIO) -> Generator[T, None, None]:
    start = last = time.monotonic()
    of = "" if total is None else f"/{total}"
    done = 0
    for item in items:
        yield item
        done += 1
        now = time.monotonic()
        if done != total and now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            left = "" if total is None else f", about {(now - start) / done * (total - done):.0f} s left"
            out.write(f"{what}: {done}{of}, {done / (now - start):.1f}/s{left}\n")
            out.flush()
    out.write(f"{what}: {done}{of} done in {time.monotonic() - start:.1f} s\n")
    out.flush()
