"""Tables with a row for each run: columns that say how their cells are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from calib.report.blocks import Cell, Column, Table
from calib.report.merge import Row
from calib.report.numbers import MISSING

__all__ = ["Field", "table_of_runs"]


@dataclass(frozen=True)
class Field:
    """A column, how its cells are made, and whether it goes where no row has a figure."""

    title: str
    cell: Callable[[Row], Cell]
    optional: bool = True
    numeric: bool = True


def table_of_runs(
    caption: str, rows: Iterable[Row], fields: Sequence[Field], notes: Iterable[str] = ()
) -> Table:
    """A table whose columns without any figure are left out, and whose gaps are explained."""
    rows = tuple(rows)
    columns = [
        (field, [field.cell(row) for row in rows])
        for field in fields
        if not field.optional or any(not field.cell(row).missing for row in rows)
    ]
    cells = tuple(zip(*(made for _, made in columns), strict=True))
    titles = tuple(Column(field.title, field.numeric) for field, _ in columns)
    gap = any(cell.missing for row in cells for cell in row)
    every = (*((f"{MISSING}: not measured, or does not apply.",) if gap else ()), *notes)
    return Table(caption, titles, cells, tuple(dict.fromkeys(every)))
