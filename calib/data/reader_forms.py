"""From what a reader yields, in whatever form, to named arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calib.data.dataset import Array, Batch
from calib.data.memory import check_lengths
from calib.errors import DatasetError
from calib.wording import counted, inflected

__all__ = ["UNNAMED", "Form", "Parts", "as_array", "is_array", "parts_of", "to_batch"]

UNNAMED = "input"
"""Name of the one input where the reader gives no name. It fits any model with one input."""

_LABEL_KEYS = ("label", "labels")

_LEAVE_OUT = "To leave out what is no model input, name the inputs: inputs=[…]."


@dataclass(frozen=True)
class Form:
    """What is known of the items of a reader before the first one is seen.

    Attributes:
        inputs: Names of the model's inputs, in order; None where they are not known.
        axes: Number of axes of each of the model's inputs, the batch axis included, where known.
        batched: Whether items are batches, where that is certain; None to tell it from the first item.
        guess: Whether they are batches if the first item does not tell.
    """

    inputs: tuple[str, ...] | None = None
    axes: Mapping[str, int] | None = None
    batched: bool | None = None
    guess: bool = True

    def single(self, parts: Parts) -> bool:
        """Whether an item is one sample without a batch axis.

        In this order: what is certain of the reader, the model's number of axes, the label (one number,
        or one for each sample), an entry that has no axis at all, and else the reader's kind.
        """
        if self.batched is not None:
            return not self.batched
        for name, array in parts.inputs.items():
            axes = self._axes(name)
            if axes is not None:
                return array.ndim == axes - 1
        if parts.label is not None:
            return parts.label.ndim == 0
        return not self.guess or any(array.ndim == 0 for array in parts.inputs.values())

    def _axes(self, name: str) -> int | None:
        axes = self.axes or {}
        only = next(iter(axes.values())) if len(axes) == 1 else None
        return axes.get(name, only)


@dataclass(frozen=True)
class Parts:
    """What an item holds.

    Attributes:
        inputs: Named arrays; copies, so that a reader may fill the same memory again.
        label: Integers, one for the item or one for each of its samples; None where there are none.
        left_out: What else there was and is no input, for a note.
    """

    inputs: Mapping[str, Array]
    label: Array | None = None
    left_out: tuple[str, ...] = ()


def parts_of(item: Any, inputs: Sequence[str] | None, where: str) -> Parts:
    """Takes an item of a reader apart.

    Args:
        item: A mapping name → array, an array, or a tuple or list of arrays, with labels or without.
        inputs: The model's inputs; they name arrays that have no name, and select among those that have.
        where: Names the item, as the start of the message.

    Returns:
        Inputs and labels.

    Raises:
        DatasetError: The item is nothing of that kind, or lacks an input.
    """
    if isinstance(item, Mapping):
        return _named(item, inputs, where)
    if isinstance(item, tuple | list) and not _plain_numbers(item):
        return _positional(item, inputs, where)
    if isinstance(item, list | tuple) or is_array(item):
        return _positional((item,), inputs, where)
    raise DatasetError(
        f"{where} is {_kind(item)}; expected a dict of arrays by input name, an array, or a tuple of arrays."
    )


def is_array(value: Any) -> bool:
    """Whether a value is an array, a tensor or a number; text, lists and mappings are not."""
    if isinstance(value, np.ndarray | np.generic | int | float):
        return True
    if isinstance(value, type | str | bytes | Mapping):
        return False
    return any(hasattr(value, name) for name in ("detach", "__array__", "__array_interface__"))


def _plain_numbers(value: Any) -> bool:
    """Whether nested lists hold nothing but Python's numbers, and so are one array."""
    if isinstance(value, list | tuple):
        return bool(value) and all(_plain_numbers(part) for part in value)
    return isinstance(value, int | float)


def _named(item: Mapping[Any, Any], inputs: Sequence[str] | None, where: str) -> Parts:
    if not item:
        raise DatasetError(f"{where} is a dict without arrays: expected one for each model input.")
    odd = [key for key in item if not isinstance(key, str)]
    if odd:
        raise DatasetError(f"{where} is a dict with the key {odd[0]!r}: expected names of model inputs.")
    names = _chosen(item, inputs, where)
    arrays = {name: as_array(item[name], f"{where}: input {name!r}") for name in names}
    label_key = next((key for key in _LABEL_KEYS if key in item and key not in names), None)
    label = None if label_key is None else _label(item[label_key], arrays)
    rest = [key for key in item if key not in names and not (key == label_key and label is not None)]
    return Parts(arrays, label, tuple(repr(key) for key in rest))


def _chosen(item: Mapping[str, Any], inputs: Sequence[str] | None, where: str) -> list[str]:
    """Which entries are inputs."""
    entries = [key for key in item if key not in _LABEL_KEYS] or list(item)
    if inputs is None:
        return entries
    missing = [name for name in inputs if name not in item]
    if not missing:
        return list(inputs)
    if len(inputs) == 1 and len(entries) == 1:
        return entries
    raise DatasetError(
        f"{where} has no {_listed('input', missing)}: it holds {', '.join(map(repr, item))}; "
        f"wanted {', '.join(map(repr, inputs))}."
    )


def _positional(items: Sequence[Any], inputs: Sequence[str] | None, where: str) -> Parts:
    if not items:
        raise DatasetError(f"{where} is an empty {type(items).__name__}: expected arrays.")
    first = items[0]
    if isinstance(first, Mapping) or (isinstance(first, tuple | list) and not _plain_numbers(first)):
        inner = parts_of(first, inputs, where)
        arrays, rest, left_out = inner.inputs, items[1:], inner.left_out
    else:
        names = (UNNAMED,) if inputs is None else tuple(inputs)
        if len(items) < len(names):
            raise DatasetError(
                f"{where} has {counted(len(items), 'array[s]')} for {counted(len(names), 'input[s]')}: "
                f"{', '.join(map(repr, names))}."
            )
        arrays = {
            name: as_array(value, f"{where}: input {name!r}")
            for name, value in zip(names, items, strict=False)
        }
        rest, left_out = items[len(names) :], ()
    return _with_labels(arrays, rest, left_out, inputs, where)


def _with_labels(
    arrays: Mapping[str, Array],
    rest: Sequence[Any],
    left_out: tuple[str, ...],
    inputs: Sequence[str] | None,
    where: str,
) -> Parts:
    """What follows the inputs: labels, or something that is no input of the model."""
    label = _label(rest[0], arrays) if len(rest) == 1 else None
    if label is not None or not rest:
        return Parts(arrays, label, left_out)
    if inputs is None and UNNAMED in arrays:
        raise DatasetError(
            f"{where} has {len(rest) + 1} parts without names, and they are not an array and one integer "
            "label a sample. Say which model inputs they are, in order: inputs=[…]."
        )
    return Parts(arrays, None, (*left_out, "what follows the inputs"))


def _label(value: Any, arrays: Mapping[str, Array]) -> Array | None:
    """Integers, one alone or one for each sample; None if it is something else."""
    if not (is_array(value) or _plain_numbers(value)):
        return None
    try:
        label = _as_numpy(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    rows = {array.shape[0] for array in arrays.values() if array.ndim}
    fits = label.ndim == 0 or (label.ndim == 1 and rows == {len(label)})
    return label if label.dtype.kind in "iu" and fits else None


def as_array(value: Any, what: str) -> Array:
    """A copy of an array, tensor or nested list of numbers in numpy.

    Raises:
        DatasetError: It is nothing of that kind.
    """
    if not (is_array(value) or isinstance(value, list | tuple)):
        raise DatasetError(f"{what} is {_kind(value)}; expected an array of numbers. {_LEAVE_OUT}")
    try:
        array = _as_numpy(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DatasetError(f"{what} is {_kind(value)} and makes no array: {error}.") from error
    if array.dtype.kind not in "biuf":
        raise DatasetError(f"{what} holds {array.dtype}, expected numbers. {_LEAVE_OUT}")
    return array


def _as_numpy(value: Any) -> Array:
    """A copy of an array or tensor in numpy, row after row in memory."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # numpy has no bfloat16; every value of it is a float32.
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    return np.array(value, order="C", copy=True)


def to_batch(parts: Parts, first: int, number: int, reader: str, *, single: bool) -> Batch:
    """Makes a batch of an item.

    Args:
        parts: The item's arrays.
        first: Number of samples that came before it.
        number: The item's number, from 0.
        reader: The reader's name.
        single: Whether the item is one sample without a batch axis.

    Returns:
        The batch; of one row for a single sample.

    Raises:
        DatasetError: Inputs or labels differ in length, an input is a single number, or there is no row.
    """
    if single:
        return Batch(
            ids=(f"{reader}#{first}",),
            inputs={name: array[np.newaxis] for name, array in parts.inputs.items()},
            labels=(None if parts.label is None else parts.label.tolist(),),
            origins=(f"sample {number} of {reader}",),
        )
    where = f"Batch {number} of {reader}"
    count = check_lengths(where, {name: array.shape for name, array in parts.inputs.items()})
    label = parts.label
    if label is not None and np.atleast_1d(label).shape != (count,):
        raise DatasetError(
            f"{where} has {counted(count, 'sample[s]')}, but {counted(label.size, 'label[s]')}."
        )
    return Batch(
        ids=tuple(f"{reader}#{first + row}" for row in range(count)),
        inputs=parts.inputs,
        labels=(None,) * count if label is None else tuple(np.atleast_1d(label).tolist()),
        origins=tuple(f"batch {number}, row {row} of {reader}" for row in range(count)),
    )


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    return "text" if isinstance(value, str | bytes) else f"of type {type(value).__qualname__}"


def _listed(what: str, names: Iterable[str]) -> str:
    quoted = [repr(name) for name in names]
    return f"{inflected(len(quoted), what + '[s]')} {', '.join(quoted)}"
