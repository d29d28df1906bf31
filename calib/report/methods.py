"""Which of several calibrations keeps a model better: entropy against min-max, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from calib.report import numbers
from calib.report.changes import by_chance
from calib.report.merge import Merged, Row, level_of
from calib.report.metrics import sentence_start, value_text, wording
from calib.report.text import visible
from calib.validation.outcomes import hits_of
from calib.validation.paired import PairedTable, mcnemar
from calib.validation.resampling import paired_draws
from calib.validation.shifts import draw_difference
from calib.wording import counted

__all__ = ["calibration_findings"]

_LEAST_DB = 1.0
_MOST_OUTPUTS = 8
_WORDS = {"minmax": "min-max"}


def calibration_findings(merged: Merged) -> tuple[tuple[str, str], ...]:
    """A lead and a sentence wherever INT8 was run with several calibrations; empty elsewhere.

    For each output the calibration with the highest SQNR is named where another's is at least 1 dB lower.
    The figures that speak for the task are compared too, with the exact McNemar test of the samples that only
    one of the two answers rightly, or, where answers are not right or wrong, with paired resamples.
    """
    return tuple((_lead(rows), _sentence(rows)) for rows in _contests(merged))


def _contests(merged: Merged) -> Iterator[list[Row]]:
    """Runs that differ in their calibration only."""
    groups: dict[tuple[str, str], dict[str, Row]] = {}
    for row in merged.rows:
        if row.run.calibration:
            # Of one calibration the first: another route or other kernels are no other calibration.
            groups.setdefault((row.source.key, row.run.runner), {}).setdefault(row.run.calibration, row)
    return (list(rows.values()) for rows in groups.values() if len(rows) > 1)


def _lead(rows: Sequence[Row]) -> str:
    source = rows[0].source
    runners = {run.runner for run in source.results.runs}
    parts = [" or ".join(_method(row) for row in rows), source.key]
    parts += [visible(rows[0].run.runner)] if len(runners) > 1 else []
    return " · ".join(part for part in parts if part)


def _method(row: Row) -> str:
    return _WORDS.get(row.run.calibration, visible(row.run.calibration))


def _sentence(rows: Sequence[Row]) -> str:
    names = dict.fromkeys(output.output for row in rows for output in row.run.outputs)
    contests = [_ranked([(_level(row, name), row) for row in rows]) for name in names]
    found = [
        f"{_method(best.row)} keeps output '{visible(name)}' better: {_figures(best, worse)}"
        for name, (best, worse) in zip(names, contests, strict=True)
        if best is not None and worse
    ]
    shown = found[:_MOST_OUTPUTS]
    if len(found) > len(shown):
        shown.append(f"{counted(len(found) - len(shown), 'more output[s] differ[s|]')}, see below")
    outputs = "; ".join(shown) or f"no output's SQNR differs by {_LEAST_DB:.0f} dB or more"
    return " ".join(part for part in (f"{outputs}.", _accuracy(rows)) if part)


class _Standing(NamedTuple):
    """How well one run does, in dB."""

    level: float
    row: Row


def _level(row: Row, name: str) -> float | None:
    output = next((output for output in row.run.outputs if output.output == name), None)
    return None if output is None else level_of(output)


def _ranked(pairs: Sequence[tuple[float | None, Row]]) -> tuple[_Standing | None, list[_Standing]]:
    """The best, and those that are clearly worse."""
    known = [_Standing(level, row) for level, row in pairs if level is not None]
    if not known:
        return None, []
    best = max(known, key=lambda standing: standing.level)
    # Two infinities are equal; their difference would be NaN.
    worse = [one for one in known if one.level != best.level and best.level - one.level >= _LEAST_DB]
    return best, worse


def _figures(best: _Standing, worse: Sequence[_Standing]) -> str:
    named = len(worse) > 1
    others = [_figure(one.level) + (f" ({_method(one.row)})" if named else "") for one in worse]
    return f"{_figure(best.level)} against {' and '.join(others)}"


def _figure(level: float) -> str:
    if math.isinf(level):
        return "no error" if level > 0 else "values that cannot be compared"
    return f"{numbers.decibels(level)} dB"


def _accuracy(rows: Sequence[Row]) -> str:
    name = rows[0].source.results.judged_by
    found = [(metric, row) for row in rows if (metric := row.metric(name)) and metric.value is not None]
    if len(found) < 2:
        return ""
    sign = 1.0 if found[0][0].higher_is_better else -1.0
    known = [(sign * (metric.value or 0.0), row) for metric, row in found]
    highest, best = max(known, key=lambda pair: pair[0])
    behind = [row for value, row in known if value < highest]
    if not behind:
        return f"{sentence_start(wording(name).phrase)} is the same."
    word = "higher" if sign > 0 else "lower"
    return " ".join(_against(best, other, name, word) for other in behind)


def _against(best: Row, other: Row, name: str, word: str) -> str:
    shares = [value_text(metric) for row in (best, other) if (metric := row.metric(name))]
    better, worse = _method(best), _method(other)
    figure = sentence_start(wording(name).phrase)
    text = f"{figure} is {word} with {better} than with {worse}: {' against '.join(shares)}"
    said = _significance(best, other, name)
    return f"{text} ({said})." if said else f"{text}."


def _significance(best: Row, other: Row, name: str) -> str:
    """What the same samples say of a difference: McNemar's test of right answers, or paired resamples."""
    results = best.source.results
    hits = [hits_of(results, row.run, name) for row in (other, best)]
    if hits[0] is not None and hits[1] is not None:
        table = PairedTable.from_hits(hits[0], hits[1])
        if not table.disagreements:
            return ""
        moved = f"{counted(table.only_candidate, 'sample[s]')} right only with {_method(best)}"
        p_value = mcnemar(table.only_baseline, table.only_candidate).p_value
        return f"{moved}, {table.only_baseline} with {_method(other)}; {by_chance(p_value)}"
    draws = paired_draws(other.run.draws.get(name), best.run.draws.get(name), best.run.label)
    return "" if draws is None else by_chance(draw_difference(*draws)["p_value"])
