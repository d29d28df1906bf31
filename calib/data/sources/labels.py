"""Labels: class numbers from names, from arrays and from list files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from calib.data.dataset import Array
from calib.data.sources.base import Opening, RelativePath, listed, printable
from calib.data.sources.stored import open_npy
from calib.errors import DatasetError
from calib.files import read_bounded_text
from calib.wording import counted

__all__ = [
    "ClassNames",
    "check_labels",
    "label_values",
    "labels_beside",
    "labels_of_texts",
    "number_classes",
    "read_class_names",
    "read_label_file",
]

ClassNames = Annotated[tuple[str, ...], Field(min_length=1)] | RelativePath
"""Names of the classes in the order of their numbers, or the path of a text file with one a line."""


def number_classes(names: Iterable[str], what: str) -> dict[str, int]:
    """Gives each class its number.

    Names that are all whole numbers are the class numbers. Other names are sorted as text and
    numbered from 0, as torchvision's ImageFolder does, since most models were trained with it.

    Args:
        names: Names of the classes; repeats count once.
        what: Start of the message.

    Raises:
        DatasetError: Two names are the same number, such as ``1`` and ``01``.

    >>> number_classes(["10", "2", "0"], "folders"), number_classes(["b", "a10", "a9"], "folders")
    ({'0': 0, '2': 2, '10': 10}, {'a10': 0, 'a9': 1, 'b': 2})
    """
    distinct = sorted(set(names))
    if not all(name.isascii() and name.isdigit() for name in distinct):
        return {name: number for number, name in enumerate(distinct)}
    numbers: dict[int, str] = {}
    for name in distinct:
        other = numbers.setdefault(int(name), name)
        if other != name:
            raise DatasetError(f"{what}: classes {other!r} and {name!r} are the same number.")
    return {numbers[number]: number for number in sorted(numbers)}


def label_values(array: Array) -> tuple[Any, ...]:
    """Labels as Python values; where an array has more axes, each label is an array."""
    return tuple(array.tolist()) if array.ndim == 1 else tuple(array)


def check_labels(
    labels: Sequence[Any], task: str | None, origin: str
) -> tuple[tuple[Any, ...], tuple[str, ...] | None]:
    """Makes labels what the task expects: class numbers for a classification, floats for a regression.

    Args:
        labels: One a sample.
        task: The recipe's task; for any other the labels stay as they are.
        origin: Start of the message.

    Returns:
        The labels, and the class names where the labels were names.

    Raises:
        DatasetError: For a classification: neither whole numbers from 0 nor names. For a regression:
            text that is no finite number.
    """
    if task == "regression":
        measured = (
            _measured(label, f"{origin}, label {i}") if isinstance(label, str) else label
            for i, label in enumerate(labels)
        )
        return tuple(measured), None
    if task != "classification":
        return tuple(labels), None
    if all(isinstance(label, str) for label in labels):
        texts = _class_texts({f"label {i}": label for i, label in enumerate(labels)}, origin).values()
        numbers = number_classes(texts, origin)
        names = None if all(name.isdigit() for name in numbers) else tuple(numbers)
        return tuple(numbers[text] for text in texts), names
    return tuple(_class_number(label, i, origin) for i, label in enumerate(labels)), None


def _class_number(label: Any, index: int, origin: str) -> int:
    if isinstance(label, (int, float)) and label >= 0 and float(label).is_integer():
        return int(label)
    raise DatasetError(
        f"{origin}: label {index} is {label!r}: a classification needs one class number a sample, "
        "a whole number from 0. Correct the labels, or leave out the recipe's task."
    )


def read_label_file(path: Path, samples: Sequence[str], task: str | None = None) -> tuple[Any, ...]:
    """Reads the labels of a folder of samples from an npy or CSV file.

    A CSV file has one label a line, in the samples' order, or the sample's file name and its label.
    Blank lines, lines that begin with ``#`` and a heading ``file,label`` or ``label`` are passed over;
    blanks around a value do not count. Labels that are all whole numbers become numbers, but for a text
    recognition.

    Args:
        path: The file.
        samples: The samples' file names, in their order.
        task: The recipe's task.

    Returns:
        One label a sample, in the samples' order.

    Raises:
        DatasetError: The file cannot be read, or does not have a label for each sample.
    """
    if path.suffix.lower() == ".npy":
        stored = open_npy(path)
        if not stored.shape or stored.shape[0] != len(samples):
            raise DatasetError(
                f"{path} has shape {stored.shape}, expected a label for each of {len(samples)} samples."
            )
        return label_values(stored.whole())
    rows = _csv_rows(path)
    if all(len(row) == 1 for row in rows.values()):
        texts = _in_order(path, rows, len(samples))
    else:
        texts = _by_name(path, rows, samples)
    whole = task != "text" and all(text.isascii() and text.removeprefix("-").isdigit() for text in texts)
    return tuple(int(text) for text in texts) if whole else tuple(texts)


def labels_beside(
    given: str | None, samples: Sequence[str], opening: Opening
) -> tuple[tuple[Any, ...] | None, tuple[str, ...] | None]:
    """The labels of samples in a file beside them, as the task expects them.

    Args:
        given: The file's path from the data root, which the source gives as ``labels``; None for no labels.
        samples: The samples' file names, in their order.
        opening: The recipe's options.

    Returns:
        The labels in order, and the names of the classes where the labels were names.

    Raises:
        DatasetError: The file cannot be read, or labels do not fit samples or task.
    """
    if given is None:
        return None, None
    file = opening.inside(given, "labels")
    return check_labels(read_label_file(file, samples, opening.task), opening.task, str(file))


def _csv_rows(path: Path) -> dict[int, list[str]]:
    """The lines that say something, by line number from 1."""
    text = read_bounded_text(path, "list of labels", DatasetError)
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    rows: dict[int, list[str]] = {}
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells) and not cells[0].startswith("#"):
                rows[reader.line_num] = cells
    except csv.Error as error:
        raise DatasetError(f"{path}, line {reader.line_num}: not CSV: {error}.") from error
    first = next(iter(rows), 0)
    if first and [cell.lower() for cell in rows[first]] in (["label"], ["file", "label"]):
        del rows[first]
    return rows


def _in_order(path: Path, rows: Mapping[int, list[str]], count: int) -> list[str]:
    if len(rows) != count:
        raise DatasetError(
            f"{path} has {counted(len(rows), 'label[s]')} for {counted(count, 'sample[s]')}. Give one "
            "a line, or file,label."
        )
    return [row[0] for row in rows.values()]


def _by_name(path: Path, rows: Mapping[int, list[str]], samples: Sequence[str]) -> list[str]:
    known, labels = set(samples), dict[str, str]()
    for line, row in rows.items():
        if len(row) != 2 or not all(row):
            raise DatasetError(f"{path}, line {line}: expected file,label, got {','.join(row)!r}.")
        if row[0] not in known:
            raise DatasetError(f"{path}, line {line}: there is no sample {printable(row[0])}.")
        if labels.setdefault(row[0], row[1]) != row[1]:
            raise DatasetError(f"{path}, line {line}: a second label for {printable(row[0])}.")
    missing = [name for name in samples if name not in labels]
    if missing:
        raise DatasetError(f"{path} has no label for {listed(missing, 3)}.")
    return [labels[name] for name in samples]


def read_class_names(given: tuple[str, ...] | str, opening: Opening) -> tuple[str, ...]:
    """The names of the classes, from the recipe or from a text file.

    Empty lines at the end of a file and blanks around names do not count.

    Raises:
        DatasetError: The file cannot be read, a name is empty, or one stands there twice.
    """
    if isinstance(given, tuple):
        return given
    path = opening.inside(given, "class_names")
    text = read_bounded_text(path, "list of class names", DatasetError, limit=1 << 20)
    names = [line.strip() for line in text.rstrip().split("\n")]
    seen: dict[str, int] = {}
    for line, name in enumerate(names, start=1):
        if not name:
            raise DatasetError(f"{path}, line {line}: empty, expected the name of class {line - 1}.")
        first = seen.setdefault(name, line)
        if first != line:
            raise DatasetError(f"{path}, line {line}: class {name!r} stands on line {first} already.")
    return tuple(names)


def labels_of_texts(
    texts: Mapping[str, str],
    task: str | None,
    *,
    offset: int = 0,
    class_names: Sequence[str] | None = None,
    what: str,
) -> tuple[tuple[Any, ...], tuple[str, ...] | None]:
    """Labels that a list gives as text.

    For a text recognition they stay text, for a regression they become floats. Otherwise whole numbers
    are class numbers, and names are numbered: by ``class_names``, or sorted as text. Other numbers are
    taken as measured values; a classification takes ``3.0`` as 3, and none with a fraction.

    Args:
        texts: Place of each label, for messages → the label.
        task: The recipe's task.
        offset: Added to class numbers.
        class_names: The classes in the order of their numbers.
        what: The list, for messages.

    Returns:
        The labels in order, and the names of the classes where they are known.

    Raises:
        DatasetError: A label is none for the task, or no class.

    >>> labels_of_texts({"1": "3", "2": "1"}, None, offset=-1, what="val.txt")
    ((2, 0), None)
    """
    if task == "text":
        return tuple(texts.values()), None
    if task == "regression":
        return tuple(_measured(text, f"{what}, {place}") for place, text in texts.items()), None
    empty = next((place for place, text in texts.items() if not text), None)
    if empty is not None:
        raise DatasetError(f"{what}, {empty}: the label is empty.")
    names = None if class_names is None else tuple(class_names)
    if names is None and task == "classification":
        texts = _class_texts(texts, what)
    if all(text.isascii() and text.removeprefix("-").isdigit() for text in texts.values()):
        labels = tuple(int(text) + offset for text in texts.values())
        for place, label in zip(texts, labels, strict=True):
            _check_number(label, names, f"{what}, {place}", offset)
        return labels, names
    if names is None and task != "classification" and all(map(_is_number, texts.values())):
        return tuple(map(float, texts.values())), None
    if offset:
        raise DatasetError(f"{what}: label_offset is for class numbers, but labels are names.")
    return _of_names(texts, names, what)


def _of_names(
    texts: Mapping[str, str], names: tuple[str, ...] | None, what: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    numbers = number_classes(texts.values(), what) if names is None else {n: i for i, n in enumerate(names)}
    for place, text in texts.items():
        if text not in numbers:
            raise DatasetError(f"{what}, {place}: {text!r} is none of the {len(numbers)} class_names.")
    return tuple(numbers[text] for text in texts.values()), names or tuple(numbers)


def _class_texts(texts: Mapping[str, str], what: str) -> Mapping[str, str]:
    """Class numbers that were written as decimal numbers as whole ones; names as they are.

    pandas writes 3.0 where some label of a column is missing. As names they would be sorted as text.
    """
    every = texts.values()
    if not all(map(_is_number, every)) or all(text.isascii() and text.isdigit() for text in every):
        return texts
    for place, text in texts.items():
        if not float(text).is_integer():
            raise DatasetError(
                f"{what}, {place}: label {text!r}: a classification needs a class number, a whole number "
                "from 0, or a class name. Correct the labels or their column, or the recipe's task."
            )
    return {place: str(int(float(text))) for place, text in texts.items()}


def _check_number(label: int, names: tuple[str, ...] | None, place: str, offset: int) -> None:
    added = f" (with label_offset {offset})" if offset else ""
    if label < 0:
        raise DatasetError(f"{place}: class number {label}{added}: class numbers begin at 0.")
    if names is not None and label >= len(names):
        raise DatasetError(f"{place}: class number {label}{added}, but there are {len(names)} class_names.")


def _measured(text: str, place: str) -> float:
    if not _is_number(text):
        raise DatasetError(f"{place}: label {text!r}: a regression needs a finite number.")
    return float(text)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
