"""Rows of text files: plain lines, CSV, TSV, or JSON line by line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from calib.data.sources.base import listed
from calib.data.sources.findings import Findings
from calib.errors import DatasetError
from calib.files import read_bounded_text
from calib.wording import counted, suggestion

__all__ = ["Column", "TextForm", "TextRow", "form_of", "read_rows"]

TextForm = Literal["lines", "csv", "tsv", "jsonl"]
Column = str | int
"""Name of a column in the heading, or its number from 0."""

_MOST = 1 << 30
_ENDINGS: Mapping[str, TextForm] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "lines",
}


@dataclass(frozen=True)
class TextRow:
    """The cells of one row that were asked for.

    Attributes:
        index: Number of the row, from 0, those that are left out counted.
        line: Its line in the file, from 1.
        cells: One a column.
    """

    index: int
    line: int
    cells: tuple[str, ...]


def form_of(path: Path) -> TextForm:
    """The form of a file, by its ending.

    Raises:
        DatasetError: The ending says nothing.
    """
    form = _ENDINGS.get(path.suffix.lower())
    if form is None:
        raise DatasetError(f"{path}: its form does not show; set format: lines, csv, tsv or jsonl.")
    return form


def read_rows(path: Path, form: TextForm, columns: Sequence[Column], findings: Findings) -> list[TextRow]:
    """Reads some columns of a file of texts.

    Rows that are cut short, and rows in which one of the columns is empty, go to findings; empty lines
    do not count.

    Args:
        path: The file, at most 1 GiB.
        form: How it is read. With tabs, quotes are characters as any other.
        columns: The columns; names stand in a heading, or are keys of JSON; numbers mean no heading.
        findings: Takes what cannot be used.

    Raises:
        DatasetError: The file cannot be read, a column is not there, or there are no rows.
    """
    text = read_bounded_text(path, "file of texts", DatasetError, limit=_MOST)
    if form == "lines":
        found = [
            TextRow(index, line, (content.strip(),))
            for index, (line, content) in enumerate(_filled_lines(text))
        ]
    elif form == "jsonl":
        found = list(_of_json(path, text, columns, findings))
    else:
        found = list(_of_table(path, text, "," if form == "csv" else "\t", columns, findings))
    rows = []
    for row in found:
        if all(cell.strip() for cell in row.cells):
            rows.append(row)
        else:
            findings.leave_out("row[s] with an empty cell", f"line {row.line}")
    return rows


def _filled_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, numbered from 1; a line ends in LF or CR LF and nothing else."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def _of_table(
    path: Path, text: str, mark: str, columns: Sequence[Column], findings: Findings
) -> Iterator[TextRow]:
    quoting: Literal[0, 3] = csv.QUOTE_NONE if mark == "\t" else csv.QUOTE_MINIMAL
    csv.field_size_limit(1 << 24)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, quoting=quoting)
    places: list[int] | None = None
    width, index = 0, 0
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if places is None:
                width = len(row)
                places = _places(path, row, columns)
                if any(isinstance(column, str) for column in columns):
                    continue
            if len(row) != width:
                findings.leave_out(
                    f"row[s] that [has|have] not {width} columns", f"line {reader.line_num} ({len(row)})"
                )
            else:
                yield TextRow(index, reader.line_num, tuple(row[place] for place in places))
            index += 1
    except csv.Error as error:
        raise DatasetError(f"{path}, line {reader.line_num}: not a table: {error}.") from error


def _places(path: Path, first: list[str], columns: Sequence[Column]) -> list[int]:
    names = [cell.strip() for cell in first]
    places = []
    for column in columns:
        if isinstance(column, int):
            if not 0 <= column < len(first):
                raise DatasetError(
                    f"{path} has {counted(len(first), 'column[s]')}: there is no column {column}, from 0."
                )
            places.append(column)
        elif column in names:
            places.append(names.index(column))
        else:
            raise DatasetError(
                f"{path} has no column {column!r}.{suggestion(column, names)} There are: {listed(names)}. "
                "A file without a heading has columns by number, from 0."
            )
    return places


def _of_json(path: Path, text: str, columns: Sequence[Column], findings: Findings) -> Iterator[TextRow]:
    for index, (line, content) in enumerate(_filled_lines(text)):
        try:
            entry = json.loads(content)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            findings.leave_out("line[s] that [is|are] no JSON object", f"line {line}")
            continue
        if index == 0:
            _check_keys(path, entry, columns)
        values = [entry.get(str(column)) for column in columns]
        if any(value is None or isinstance(value, (dict, list)) for value in values):
            findings.leave_out("line[s] that lack[s|] a value", f"line {line}")
        else:
            yield TextRow(index, line, tuple(map(_as_text, values)))


def _check_keys(path: Path, entry: Mapping[str, Any], columns: Sequence[Column]) -> None:
    for column in columns:
        if str(column) not in entry:
            raise DatasetError(
                f"{path}, line 1 has no key {column!r}.{suggestion(str(column), entry)} "
                f"It has: {listed(list(entry))}."
            )


def _as_text(value: Any) -> str:
    """A value of JSON as a table would hold it."""
    if isinstance(value, bool):
        return str(int(value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
