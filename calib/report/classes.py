"""Tables of single classes: which of them lose, and which are taken for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

from calib.report import numbers
from calib.report.blocks import Cell, Column, Table, Tone
from calib.report.changes import CHANCE, class_p_values
from calib.report.merge import Merged, Row
from calib.report.metrics import sentence_start
from calib.report.numbers import MISSING
from calib.report.text import shorten, visible
from calib.validation.results import ClassFigure
from calib.wording import counted

__all__ = ["classes_table", "confusions_table"]

_MOST_CLASSES = 20
_MOST_PAIRS = 10
_NAME_LIMIT = 40
_NORMAL = 1.96


def classes_table(merged: Merged) -> Table | None:
    """The figure of each class in each run, the class that lost most first; None where there is none."""
    rows = [row for row in merged.rows if row.run.classes]
    if not rows:
        return None
    known = {label: one for row in rows for label, one in _by_label(row).items()}
    order = sorted(known, key=lambda label: (-_largest_drop(rows, label), label))
    shown = order[:_MOST_CLASSES]
    left = len(order) - len(shown)
    metric = next(row.run.class_metric for row in rows)
    columns = (Column("Class", False), Column("Count"), *(Column(row.label) for row in rows))
    tests = [class_p_values(merged, row) for row in rows]
    cells = tuple(_class_cells(known[label], rows, tests, len(order)) for label in shown)
    notes = (f"{counted(left, 'more class[ is|es are]')} in the results file.",) if left else ()
    errors = any(one.drop_error is not None for row in rows for one in row.run.classes)
    beneath = ", with about its 95% interval where it is known" if errors else ""
    coloured = " Coloured: more than chance explains among so many classes." if errors or any(tests) else ""
    caption = (
        f"{sentence_start(visible(metric))} of each class, the largest drop first. Beneath: the drop in "
        f"points{beneath}.{coloured}"
    )
    return Table(caption, columns, cells, notes)


def _by_label(row: Row) -> dict[int, ClassFigure]:
    return {one.label: one for one in row.run.classes}


def _largest_drop(rows: list[Row], label: int) -> float:
    found = [_by_label(row).get(label) for row in rows]
    return max((one.drop for one in found if one is not None and one.drop is not None), default=0.0)


def _is_shown(one: ClassFigure, p_value: float | None, classes: int) -> bool:
    """Whether a drop is more than chance explains in one of so many classes (Bonferroni)."""
    level = CHANCE / classes
    if p_value is not None:
        return p_value < level
    if not one.drop or not one.drop_error:
        return False
    return abs(one.drop) > NormalDist().inv_cdf(1 - level / 2) * one.drop_error


def _class_cells(
    example: ClassFigure, rows: list[Row], tests: Sequence[Mapping[int, float]], classes: int
) -> tuple[Cell, ...]:
    name = shorten(visible(example.name), _NAME_LIMIT) if example.name else ""
    figures = (_by_label(row).get(example.label) for row in rows)
    return (
        Cell(name or str(example.label), f"class {example.label}" if name else ""),
        Cell(numbers.whole(example.count)),
        *(
            _class_cell(one, test.get(example.label), classes)
            for one, test in zip(figures, tests, strict=True)
        ),
    )


def _class_cell(one: ClassFigure | None, p_value: float | None, classes: int) -> Cell:
    if one is None or one.value is None:
        return Cell(MISSING)
    value = numbers.percent(one.value, one.count)
    if one.drop is None:
        return Cell(value)
    reach = (
        "" if one.drop_error is None else f" ± {numbers.unsigned_points(_NORMAL * one.drop_error, one.count)}"
    )
    tone: Tone = ("bad" if one.drop > 0 else "good") if _is_shown(one, p_value, classes) else ""
    return Cell(value, f"{numbers.points(one.drop, one.count)}{reach}", tone)


def confusions_table(merged: Merged) -> Table | None:
    """The most frequent wrong answers, side by side; None where there are none."""
    rows = [row for row in merged.rows if row.run.confusions]
    if not rows:
        return None
    counts = [{(label, answer): count for label, answer, count in row.run.confusions} for row in rows]
    pairs = dict.fromkeys(pair for one in counts for pair in one)
    order = sorted(pairs, key=lambda pair: (-max(one.get(pair, 0) for one in counts), pair))[:_MOST_PAIRS]
    names = {one.label: one.name for row in merged.rows for one in row.run.classes if one.name}
    cells = tuple(
        (
            Cell(_class_name(label, names)),
            Cell(_class_name(answer, names)),
            *(Cell(numbers.whole(one.get((label, answer), 0))) for one in counts),
        )
        for label, answer in order
    )
    columns = (Column("Class", False), Column("Taken for", False), *(Column(row.label) for row in rows))
    return Table("The most frequent wrong answers, and how often each run gives them.", columns, cells)


def _class_name(label: int, names: dict[int, str]) -> str:
    return shorten(visible(names[label]), _NAME_LIMIT) if label in names else str(label)
