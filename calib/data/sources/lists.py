"""Lists of samples: ImageNet's val.txt, MLPerf's calibration lists, CSV and TSV manifests."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict

from calib.data.sources.base import printable
from calib.errors import DatasetError
from calib.files import read_bounded_text
from calib.wording import counted, suggestion

__all__ = ["Columns", "ListRow", "inside_folder", "read_list", "read_table"]

Column = str | int
"""Name of a column in the heading, or its number from 0."""

_NAMES = ("path", "file", "filename", "file_name", "image", "image_path", "name")
_LABELS = ("label", "labels", "class", "class_id", "category", "target", "text")


class Columns(BaseModel):
    """Which columns of a list are used.

    Attributes:
        path: Column of the file names; by default the first, or the one that the heading calls path,
            file, filename, file_name, image, image_path or name.
        label: Column of the labels; by default the second, if there are two, or the one that the heading
            calls label, labels, class, class_id, category, target or text. None where there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Column | None = None
    label: Column | None = None


@dataclass(frozen=True)
class ListRow:
    """One entry of a list.

    Attributes:
        line: Its line, from 1.
        name: The file's name as it stands there, without blanks around it.
        label: Its label; None where the list has none.
    """

    line: int
    name: str
    label: str | None


def read_list(path: Path, columns: Columns, endings: Sequence[str], noun: str = "list") -> list[ListRow]:
    r"""Reads a list of files, with or without labels.

    Lines end in LF or CR LF. Blanks around names and labels, empty lines and lines that begin with ``#``
    do not count. Lines with a tab or comma are TSV or CSV; others hold a name alone, if the line ends
    like a file, or else a name and, after the last blank, a label.

    Args:
        path: The list.
        columns: Which columns are used.
        endings: How names of files end, in small letters.
        noun: What it is, for messages.

    Returns:
        The entries, at least one.

    Raises:
        DatasetError: The file cannot be read, lines differ in form, or a column is not there.
    """
    text = read_bounded_text(path, noun, DatasetError)
    lines = {
        number: line.strip()
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    if not lines:
        raise DatasetError(f"No samples: {path} is empty: expected one file name a line.")
    first = next(iter(lines.values()))
    mark = next((mark for mark in ("\t", ",") if mark in first), None)
    if mark is not None:
        return _table_rows(path, text, mark, columns, endings)
    words = first.split()
    heading = {name.lower() for name in words} <= {*_NAMES, *_LABELS}
    if heading:
        del lines[next(iter(lines))]
    if not lines:
        raise DatasetError(f"No samples: {path} has a heading, but no entries.")
    rows = _plain_rows(path, lines, endings)
    _check_plain(path, columns, rows[0].label is not None, words if heading else [])
    return rows


def _check_plain(path: Path, columns: Columns, labelled: bool, heading: Sequence[str]) -> None:
    """Refuses columns that lines without commas and tabs do not have."""
    for place, column in enumerate((columns.path, columns.label)):
        known = [place, *heading[place : place + 1]] if labelled or not place else []
        if column is not None and column not in known:
            form = "a file name and, after the last blank, a label" if labelled else "a file name alone"
            raise DatasetError(
                f"{path} has no column {column!r}: its lines are {form}. Leave out columns, or write the "
                "list with commas or tabs."
            )


def _plain_rows(path: Path, lines: dict[int, str], endings: Sequence[str]) -> list[ListRow]:
    rows = []
    for number, line in lines.items():
        name, blank, label = line.rpartition(" ")
        if line.lower().endswith(tuple(endings)) or not blank:
            rows.append(ListRow(number, line, None))
        else:
            rows.append(ListRow(number, name.rstrip(), label))
    labelled = [row for row in rows if row.label is not None]
    if labelled and len(labelled) < len(rows):
        odd = next(row for row in rows if row.label is None)
        raise DatasetError(
            f"{path}, line {odd.line}: {printable(odd.name)!r} has no label, but {len(labelled)} of "
            f"{counted(len(rows), 'line[s] [has|have] one')}. Label every line, or none."
        )
    return rows


def _table_rows(path: Path, text: str, mark: str, columns: Columns, endings: Sequence[str]) -> list[ListRow]:
    table = list(read_table(path, text, mark))
    number, first = table[0]
    heading = not any(cell.lower().endswith(tuple(endings)) for cell in first)
    name_at, label_at = _places(path, first if heading else None, len(first), columns)
    rows = []
    for number, cells in table[1:] if heading else table:
        if len(cells) != len(first):
            raise DatasetError(
                f"{path}, line {number}: {counted(len(cells), 'column[s]')}, but line {table[0][0]} "
                f"has {len(first)}."
            )
        if not cells[name_at]:
            raise DatasetError(f"{path}, line {number}: the file name is empty.")
        rows.append(ListRow(number, cells[name_at], None if label_at is None else cells[label_at]))
    if not rows:
        raise DatasetError(f"No samples: {path} has a heading, but no entries.")
    return rows


def read_table(path: Path, text: str, mark: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of CSV or TSV text that say something.

    Args:
        path: The file, for messages.
        text: Its text.
        mark: What separates columns. With tabs, quotes are characters as any other.

    Yields:
        The line, from 1, and the cells without blanks around them.

    Raises:
        DatasetError: It is no such table.
    """
    quoting: Literal[0, 3] = csv.QUOTE_NONE if mark == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, quoting=quoting, skipinitialspace=True)
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells) and not cells[0].startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        raise DatasetError(f"{path}, line {reader.line_num}: not a table: {error}.") from error


def _places(path: Path, heading: list[str] | None, count: int, columns: Columns) -> tuple[int, int | None]:
    names = [] if heading is None else [cell.lower() for cell in heading]
    if columns.path is not None:
        name_at = _place(path, columns.path, heading, count)
    elif heading is None:
        name_at = 0
    else:
        name_at = _known(names, _NAMES, path, heading)
    if columns.label is not None:
        return name_at, _place(path, columns.label, heading, count)
    if heading is not None:
        return name_at, next((names.index(name) for name in _LABELS if name in names), None)
    if count > 2:
        raise DatasetError(
            f"{path} has {count} columns without a heading: say which are used, "
            "columns: {path: 0, label: 1}."
        )
    return name_at, 1 if count == 2 else None


def _known(names: list[str], wanted: Sequence[str], path: Path, heading: list[str]) -> int:
    for name in wanted:
        if name in names:
            return names.index(name)
    raise DatasetError(
        f"{path}: the heading {', '.join(map(printable, heading))} names no column of files, and no entry of "
        "it is a file. Give it: columns: {path: NAME}."
    )


def _place(path: Path, column: Column, heading: list[str] | None, count: int) -> int:
    if isinstance(column, int):
        if 0 <= column < count:
            return column
        raise DatasetError(
            f"{path} has {counted(count, 'column[s]')}: there is no column {column}, counted from 0."
        )
    if heading is None:
        raise DatasetError(f"{path} has no heading: give the column {column!r} as a number, from 0.")
    if column not in heading:
        raise DatasetError(
            f"{path} has no column {column!r}.{suggestion(column, heading)} "
            f"There are: {', '.join(map(printable, heading))}."
        )
    return heading.index(column)


def inside_folder(name: str) -> PurePosixPath | None:
    """A listed name as a path below the folder of its files; None if it leads out of it.

    >>> str(inside_folder("a/b.png")), inside_folder("../b.png"), inside_folder("/b.png")
    ('a/b.png', None, None)
    """
    path = PurePosixPath(name)
    return None if path.is_absolute() or ".." in path.parts or "\0" in name else path
