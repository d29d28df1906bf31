"""Columns of outputs that are of very different sizes, each with its own error."""

from __future__ import annotations

from calib.report import numbers
from calib.report.blocks import Cell, Column, Table
from calib.report.merge import Merged
from calib.report.text import shorten, visible
from calib.wording import counted

__all__ = ["columns_table"]

_NAME_LIMIT = 48
_MOST_ROWS = 60


def columns_table(merged: Merged) -> Table | None:
    """Errors of the columns of each output whose columns differ in range; None where none do."""
    found = [
        (output.output, row.label, group)
        for row in merged.rows
        for output in row.run.outputs
        for group in output.groups
    ]
    if not found:
        return None
    rows = tuple(
        (
            Cell(shorten(visible(name), _NAME_LIMIT), code=True),
            Cell(label),
            Cell(group.columns, f"of axis {group.axis}"),
            Cell(numbers.significant(group.reference_amax)),
            Cell(numbers.significant(group.steps, 2)),
            Cell("no error" if not group.max_abs else numbers.decibels(group.sqnr_db)),
            Cell(numbers.cosine(group.cosine)),
            Cell(numbers.significant(group.max_abs)),
        )
        for name, label, group in found[:_MOST_ROWS]
    )
    titles = ("Reference amax", "Steps", "SQNR (dB)", "Cosine", "Max abs error")
    columns = (
        *(Column(title, False) for title in ("Output", "Precision", "Columns")),
        *map(Column, titles),
    )
    left = len(found) - len(rows)
    notes = (
        "Steps: how many of 127 the largest value has under one INT8 scale for the whole output.",
        *((f"{counted(left, 'more [is|are]')} in the results file.",) if left else ()),
    )
    return Table("Outputs that join values of very different ranges, column by column.", columns, rows, notes)
