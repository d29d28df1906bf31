"""What kind of reader an object is, and how a pass over it begins."""

from __future__ import annotations

import importlib
import inspect
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from calib.errors import CalibError, DatasetError

__all__ = ["Passes", "ReaderKind", "called", "failed", "kind_of"]

_EXPECTED = (
    "expected a CalibrationDataReader, a DataLoader, an iterable of arrays or of dicts of arrays, "
    "a function without arguments that makes one of these, or a calib dataset"
)


_NOT_THEIRS = (str(Path(__file__).parent), importlib.__file__, "<frozen ")
"""Start of the file names of frames that are not where foreign code failed."""

_END = object()


@dataclass(frozen=True)
class ReaderKind:
    """How a reader is read.

    Attributes:
        begin: Starts a pass.
        once: Whether there is one pass only.
        batched: Whether items are batches, where that is certain.
        guess: Whether they are batches if nothing else tells.
        count: Number of items, where the reader says it.
        notes: What is worth knowing of it.
    """

    begin: Callable[[], Iterator[Any]]
    once: bool = False
    batched: bool | None = None
    guess: bool = True
    count: int | None = None
    notes: tuple[str, ...] = field(default=())


def kind_of(source: Any, name: str) -> ReaderKind:
    """Finds out how an object is read; nothing is read yet.

    Args:
        source: The reader; no function.
        name: Its name, for messages.

    Raises:
        DatasetError: It is no reader, or a generator that is used up.
    """
    if isinstance(source, str | bytes | os.PathLike):
        shown = repr(os.fspath(source))
        raise DatasetError(
            f"A reader is an object, not text: got {shown}. For 'module:object' use load_object({shown}); "
            "for a file, load its arrays or write a recipe."
        )
    if callable(getattr(source, "get_next", None)):
        rewind = getattr(source, "rewind", None)
        return ReaderKind(lambda: _next_feeds(source, name), once=not callable(rewind), batched=True)
    if all(hasattr(source, part) for part in ("batch_sampler", "collate_fn", "dataset")):
        batched = None if source.batch_sampler is None else True
        return ReaderKind(
            lambda: iter(source), batched=batched, count=_length(source), notes=_loader_notes(source)
        )
    if isinstance(source, Iterator):
        if inspect.isgenerator(source) and inspect.getgeneratorstate(source) == inspect.GEN_CLOSED:
            raise DatasetError(_used_up(name))
        return ReaderKind(lambda: source, once=True)
    if isinstance(source, Iterable):
        # Rows of a table of Hugging Face's datasets are samples.
        table = hasattr(source, "column_names") and hasattr(source, "features")
        return ReaderKind(lambda: iter(source), guess=not table, count=_length(source))
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        count = len(source)
        return ReaderKind(lambda: (source[index] for index in range(count)), guess=False, count=count)
    what = "None" if source is None else f"an object of type {type(source).__qualname__}"
    raise DatasetError(f"{name} is no reader: {_EXPECTED}; got {what}.")


def called(function: Callable[[], Any], name: str) -> Any:
    """What a function without arguments returns.

    Raises:
        DatasetError: It wants arguments, fails, or returns None or text.
    """
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise DatasetError(
            f"{name} is called without arguments, but: {error}. Wrap it in a function that gives them."
        ) from error
    except ValueError:
        pass  # Some functions written in C tell no signature.
    with failed(f"Calling {name}"):
        made = function()
    if made is None:
        raise DatasetError(f"{name} returned None: {_EXPECTED}. Does it lack a return or a yield?")
    return made


@contextmanager
def failed(what: str) -> Iterator[None]:
    """Turns an exception of foreign code into an error that names what failed and where.

    Raises:
        DatasetError: Something was raised that is not one of calib's own errors.
    """
    try:
        yield
    except CalibError:
        raise
    except (Exception, SystemExit) as error:
        raise DatasetError(f"{what} failed: {_shown(error)}.") from error


def _shown(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".rstrip(".: ")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_NOT_THEIRS)
    ]
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else text


def _next_feeds(reader: Any, name: str) -> Iterator[Any]:
    """What an ONNX Runtime reader gives until None, from the start where it can be had."""
    if callable(getattr(reader, "rewind", None)):
        reader.rewind()
    while True:
        try:
            feeds = reader.get_next()
        except StopIteration as error:
            raise DatasetError(
                f"{name}: get_next() raised StopIteration; at the end it must return None, "
                "as next(iterator, None) does."
            ) from error
        if feeds is None:
            return
        yield feeds


def _loader_notes(loader: Any) -> tuple[str, ...]:
    notes = []
    if type(getattr(loader, "sampler", None)).__name__ == "RandomSampler":
        notes.append(
            "the DataLoader shuffles: its order, and with it entropy ranges, may change from run to run"
        )
    if getattr(loader, "drop_last", False):
        notes.append("the DataLoader has drop_last=True: samples that do not fill a batch are not read")
    return tuple(notes)


def _length(source: Any) -> int | None:
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return None


def _used_up(name: str) -> str:
    return f"No samples: {name} is used up; pass a function that makes it."


class Passes:
    """Passes over a reader, as many as it allows.

    Unless the reader tells its length, its first item is taken at once, so that an empty one is found
    before any work; the first pass gives it out.

    Args:
        kind: How the reader is read.
        name: Its name, for messages.

    Raises:
        DatasetError: The reader is empty, or fails.
    """

    def __init__(self, kind: ReaderKind, name: str) -> None:
        self.kind = kind
        self._name = name
        self._spent = False
        self._waiting: Iterator[Any] | None = None
        if not kind.count:
            self._waiting = self._begun()

    def start(self) -> Iterator[Any]:
        """Starts a pass.

        Raises:
            DatasetError: It was read before and cannot be read again, is empty, or fails.
        """
        waiting, self._waiting = self._waiting, None
        return self._begun() if waiting is None else waiting

    def _begun(self) -> Iterator[Any]:
        if self._spent and self.kind.once:
            raise DatasetError(_used_up(self._name))
        self._spent = True
        with failed(f"Starting {self._name}"):
            items = self.kind.begin()
        with failed(f"Reading batch 0 of {self._name}"):
            first = next(items, _END)
        if first is _END:
            hint = ", or is used up; pass a function that makes it" if self.kind.once else ""
            raise DatasetError(f"No samples: {self._name} is empty{hint}.")
        return chain([first], items)
