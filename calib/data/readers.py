"""Readers that people already have: batches that come in order, in unknown number."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from calib.data.dataset import Batch, Dataset
from calib.data.memory import from_arrays
from calib.data.reader_forms import UNNAMED, Form, Parts, is_array, parts_of, to_batch
from calib.data.reader_sources import Passes, ReaderKind, called, failed, kind_of
from calib.errors import DatasetError, UsageError

__all__ = ["STACK_SIZE", "Stream", "open_reader"]

STACK_SIZE = 32
"""Batch size of single samples where none is asked for."""

_END = object()


class Stream:
    """Samples that can be read in order only, once or again, of unknown number.

    Numbers of batches, rows and samples count from 0. What is read is hashed on the way, sample by
    sample, so that the fingerprint does not depend on how batches are cut.

    Args:
        passes: Starts passes over the reader.
        form: What is known of its items.
        name: For reports and messages; sample ``i`` gets the id ``name#i``.
        description: Of the source, for provenance.

    Attributes:
        name: For reports and messages.
        description: Of the source, for provenance.
    """

    def __init__(self, passes: Passes, form: Form, name: str, description: Mapping[str, Any]) -> None:
        self.name = name
        self.description = dict(description)
        self._passes = passes
        self._form = form
        self._limit: int | None = None
        self._notes = dict.fromkeys(passes.kind.notes)
        self._tally = _Tally()
        self._known: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing of the reader, or was left out, a line each; grows with a pass."""
        return tuple(self._notes)

    @property
    def once(self) -> bool:
        """Whether there is one pass only."""
        return self._passes.kind.once

    @property
    def items(self) -> int | None:
        """Number of items, batches or single samples, that the reader says it has; None if it does not."""
        return self._passes.kind.count

    @property
    def length(self) -> int:
        """Number of samples of the latest pass, so far."""
        return self._tally.samples

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Number of samples in each batch of the latest pass, so far."""
        return tuple(self._tally.sizes)

    def fingerprint(self) -> str:
        """The SHA-256 of all samples of the latest pass: names, types, shapes, values and labels.

        Returns:
            64 hexadecimal digits, the same for every cut into batches.

        Raises:
            UsageError: The latest pass is not at its end.
        """
        if not self._tally.complete:
            raise UsageError(f"{self.name} has a fingerprint only after it was read to its end.")
        return self._tally.digest.hexdigest()

    def first(self, samples: int) -> Stream:
        """The same reader, read up to a number of samples only.

        Args:
            samples: How many, at least 1. A pass that ends before is refused at its end.

        Raises:
            UsageError: The number is below 1.
        """
        if samples < 1:
            raise UsageError(f"No samples: expected at least 1, got {samples}.")
        limited = copy.copy(self)
        limited._limit = samples if self._limit is None else min(samples, self._limit)
        limited._notes = dict(self._notes)
        limited._tally, limited._known = _Tally(), None
        return limited

    def batches(self, batch_size: int | None = None) -> Iterator[Batch]:
        """Reads the samples from the start.

        Without a batch size the reader's own batches are kept as they are, since TensorRT's entropy
        algorithm depends on their cut. Single samples without a batch axis are stacked, ``STACK_SIZE``
        of them. With a batch size all samples are cut anew. A batch never holds samples of different
        shapes: where the shape changes a new batch begins.

        Args:
            batch_size: Samples a batch, at least 1; None to keep the reader's own batches.

        Yields:
            One batch after another; none is kept, and none shares memory with the reader.

        Raises:
            UsageError: The batch size is below 1, or ``first`` asked for more samples than there are.
            DatasetError: A batch cannot be used or its reading fails, the reader is empty, or it is used
                up. The batch is named.
        """
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"Batch size must be at least 1, got {batch_size}.")
        self._tally = tally = _Tally()
        for batch in self._cut(batch_size):
            tally.add(batch)
            yield batch
        tally.complete = True
        digest = tally.digest.hexdigest()
        if self._known not in (None, digest):
            self._note(f"{self.name} gave other samples, or another order, than in the pass before")
        self._known = digest

    def _cut(self, batch_size: int | None) -> Iterator[Batch]:
        parts = self._parts()
        number, first = next(parts)
        single = self._form.single(first)
        read = self._limited(self._made(chain([(number, first)], parts), single=single))
        size = STACK_SIZE if batch_size is None and single else batch_size
        return read if size is None else self._regrouped(read, size)

    def _parts(self) -> Iterator[tuple[int, Parts]]:
        items = self._passes.start()
        number = 0
        while True:
            with failed(f"Reading batch {number} of {self.name}"):
                item = next(items, _END)
            if item is _END:
                return
            parts = parts_of(item, self._form.inputs, f"Batch {number} of {self.name}")
            if parts.left_out:
                self._note(f"left out of {self.name}, as no input of the model: {', '.join(parts.left_out)}")
            yield number, parts
            number += 1

    def _made(self, items: Iterator[tuple[int, Parts]], *, single: bool) -> Iterator[Batch]:
        read = 0
        for number, parts in items:
            batch = to_batch(parts, read, number, self.name, single=single)
            read += len(batch)
            yield batch

    def _limited(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        if self._limit is None:
            yield from batches
            return
        left = self._limit
        for batch in batches:
            yield batch.rows(0, left)
            left -= len(batch)
            if left <= 0:
                return
        raise UsageError(f"Asked for {self._limit} samples, {self.name} has {self._limit - left}.")

    def _regrouped(self, batches: Iterator[Batch], size: int) -> Iterator[Batch]:
        held: list[Batch] = []
        for batch in batches:
            if held and _layout(held[0]) != _layout(batch):
                self._note(f"samples of {self.name} differ in shape or type: each batch holds those alike")
                yield _joined(held)
                held = []
            held.append(batch)
            while sum(map(len, held)) >= size:
                whole = _joined(held)
                yield whole.rows(0, size)
                held = [whole.rows(size, len(whole))] if len(whole) > size else []
        if held:
            yield _joined(held)

    def _note(self, text: str) -> None:
        self._notes[text] = None


class _Tally:
    """Counts and hashes the samples of one pass."""

    def __init__(self) -> None:
        self.samples = 0
        self.sizes: list[int] = []
        self.complete = False
        self.digest = hashlib.sha256(b"calib stream 1\n")

    def add(self, batch: Batch) -> None:
        arrays = [(name, np.ascontiguousarray(batch.inputs[name])) for name in sorted(batch.inputs)]
        heads = [f"{name!r} {array.dtype.str} {array.shape[1:]}\n".encode() for name, array in arrays]
        for row, label in enumerate(batch.labels):
            self.digest.update(f"label {label!r}\n".encode())
            for head, (_, array) in zip(heads, arrays, strict=True):
                self.digest.update(head)
                self.digest.update(array[row : row + 1].tobytes())
        self.samples += len(batch)
        self.sizes.append(len(batch))


def _layout(batch: Batch) -> dict[str, tuple[Any, ...]]:
    return {name: (array.dtype, array.shape[1:]) for name, array in batch.inputs.items()}


def _joined(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    return Batch(
        ids=tuple(chain.from_iterable(batch.ids for batch in batches)),
        inputs={
            name: np.concatenate([batch.inputs[name] for batch in batches]) for name in batches[0].inputs
        },
        labels=tuple(chain.from_iterable(batch.labels for batch in batches)),
        origins=tuple(chain.from_iterable(batch.origins for batch in batches)),
    )


def open_reader(
    source: Any,
    name: str | None = None,
    *,
    inputs: Sequence[str] | None = None,
    axes: Mapping[str, int] | None = None,
    batched: bool | None = None,
) -> Stream | Dataset:
    """Opens a reader that was written for another tool.

    Taken are ONNX Runtime's ``CalibrationDataReader`` (anything with ``get_next``), Polygraphy's
    ``load_data`` functions and other iterables of dicts, torch's ``DataLoader`` and map-style datasets,
    iterables of arrays or of tuples, rows of Hugging Face's ``datasets``, and a function or class that
    makes one of these when called without arguments. Tensors of torch are converted. A mapping of whole
    arrays, or one array, is a dataset in memory (`from_arrays`); a `Dataset` or a `Stream` is passed
    through.

    Items of a CalibrationDataReader and of a DataLoader are batches. Other items are told apart by
    ``axes``, by their label (one number or one a sample) and by entries without any axis; failing that,
    rows of map-style datasets and of ``datasets`` are single samples, and everything else is batches.

    A second part of two is the label if it is an integer, or integers, one a sample; so is an entry
    ``label`` or ``labels`` of a dict that is no input.

    Args:
        source: The reader, or what makes it.
        name: For reports, messages and ids; that of the function or class by default.
        inputs: Names of the model's inputs. They name arrays that come without names, in order, and
            select among arrays that have names: what else there is is left out, with a note. Without it
            every named array is an input. A single array of another name serves a single input.
        axes: Number of axes of each model input, the batch axis included.
        batched: Whether items are batches, if calib should not find out.

    Returns:
        A stream; a dataset where all samples are at hand.

    Raises:
        UsageError: ``inputs`` is empty or names an input twice.
        DatasetError: It is no reader, it is empty or used up, or it fails.
    """
    names = _input_names(inputs)
    known_as = name or _name_of(source)
    if _makes_readers(source):
        made, again = called(source, known_as), source
    else:
        made, again = source, None
    if isinstance(made, Dataset | Stream):
        return made
    if isinstance(made, Mapping) or (is_array(made) and not isinstance(made, int | float)):
        return _in_memory(made, known_as, names)
    kind = kind_of(made, known_as)
    if kind.count == 0:
        raise DatasetError(f"No samples: {known_as} is empty.")
    if again is not None:
        kind = _made_again(kind, again, known_as)
    certain = kind.batched if batched is None else batched
    form = Form(names, axes, certain, kind.guess)
    description = {"source": {"kind": "reader", "type": _type_name(made)}, "preprocess": {}}
    return Stream(Passes(kind, known_as), form, known_as, description)


def _input_names(inputs: Sequence[str] | None) -> tuple[str, ...] | None:
    if inputs is None:
        return None
    names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    if not names or len(set(names)) != len(names):
        raise UsageError(f"Input names must be given, each once; got {list(names)}.")
    return names


def _makes_readers(source: Any) -> bool:
    """Whether it is to be called; an object that is a reader already is not, even if it could be."""
    if isinstance(source, type):
        return True
    ready = any(hasattr(source, part) for part in ("get_next", "__iter__", "__getitem__"))
    return callable(source) and not ready


def _made_again(kind: ReaderKind, function: Callable[[], Any], name: str) -> ReaderKind:
    """A reader that a function makes: the first pass takes the one that is there, others a new one."""
    there = [kind]

    def begin() -> Iterator[Any]:
        now = there.pop() if there else kind_of(called(function, name), name)
        return now.begin()

    return ReaderKind(begin, False, kind.batched, kind.guess, kind.count, kind.notes)


def _in_memory(made: Any, name: str, inputs: tuple[str, ...] | None) -> Dataset:
    names = inputs if inputs is not None or isinstance(made, Mapping) else (UNNAMED,)
    parts = parts_of(made, names, name)
    labels = parts.label if parts.label is not None and parts.label.ndim else None
    dataset = from_arrays(name, parts.inputs, labels)
    if parts.left_out:
        return dataset.with_notes(
            f"left out of {name}, as no input of the model: {', '.join(parts.left_out)}"
        )
    return dataset


def _name_of(source: Any) -> str:
    if hasattr(source, "__qualname__") and hasattr(source, "__module__"):
        return f"{source.__module__}:{source.__qualname__}"
    return type(source).__qualname__


def _type_name(source: Any) -> str:
    kind = type(source)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
