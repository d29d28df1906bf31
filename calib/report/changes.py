"""Answers that a candidate changed, and whether chance could explain the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calib.report import numbers
from calib.report.merge import Merged, Row
from calib.validation.paired import mcnemar

__all__ = ["CHANCE", "Changes", "by_chance", "changed_answers", "class_p_values"]

CHANCE = 0.05
"""Differences that chance alone shows in fewer cases than this are more than chance."""

_Turn = tuple[int, int, int]


@dataclass(frozen=True)
class Changes:
    """The answers of one run against another's, sample by sample: of a candidate against the baseline's.

    Attributes:
        samples: Samples compared.
        changed: Samples with another top-1 class.
        became_wrong: Right in the baseline, wrong in the candidate; None without labels.
        became_right: The reverse.
        p_value: Exact McNemar test of the two; None without labels or without any such sample.
    """

    samples: int
    changed: int
    became_wrong: int | None = None
    became_right: int | None = None
    p_value: float | None = None


def by_chance(p_value: float) -> str:
    """What a p-value says, in words.

    >>> by_chance(0.27), by_chance(0.0002)
    ('chance could explain it, p = 0.27', 'more than chance explains, p < 0.001')
    """
    verdict = "chance could explain it" if p_value >= CHANCE else "more than chance explains"
    return f"{verdict}, p = {numbers.probability(p_value)}".replace("= <", "< ")


def changed_answers(merged: Merged, row: Row) -> Changes | None:
    """Compares a candidate's predictions with its baseline's.

    Returns:
        The comparison; None for a baseline, or where either has no predictions of the same length.
    """
    baseline = merged.baseline_of(row)
    return None if baseline is None or row.is_baseline else _compare_answers(baseline, row)


def _compare_answers(before: Row, after: Row) -> Changes | None:
    """Compares the predictions of two runs of one source, sample by sample.

    Args:
        before: Takes the baseline's part.
        after: Takes the candidate's part.

    Returns:
        The comparison; None where either has no predictions of the same length.
    """
    old, new = before.run.predictions, after.run.predictions
    if not old or not new or len(old) != len(new):
        return None
    changed = sum(first != second for first, second in zip(old, new, strict=True))
    turns = _turns(before, after)
    if turns is None:
        return Changes(len(new), changed)
    wrong = sum(first == label for label, first, _ in turns)
    return Changes(len(new), changed, wrong, len(turns) - wrong, _p_value(turns))


def class_p_values(merged: Merged, row: Row) -> dict[int, float]:
    """Class → exact McNemar test of the answers to its samples; empty where there are no such answers."""
    baseline = merged.baseline_of(row)
    turns = None if baseline is None or row.is_baseline else _turns(baseline, row)
    by_class: dict[int, list[_Turn]] = {}
    for turn in turns or ():
        by_class.setdefault(turn[0], []).append(turn)
    tests = ((label, _p_value(found)) for label, found in by_class.items())
    return {label: p_value for label, p_value in tests if p_value is not None}


def _turns(before: Row, after: Row) -> list[_Turn] | None:
    """Label and both answers of each sample that one of them has right and the other not.

    None where labels or answers are missing, or are not of the same samples.
    """
    old, new, labels = before.run.predictions, after.run.predictions, after.source.results.labels
    if not old or not new or labels is None or not len(old) == len(new) == len(labels):
        return None
    return [
        triple
        for triple in zip(labels, old, new, strict=True)
        if triple[0] >= 0 and (triple[1] == triple[0]) is not (triple[2] == triple[0])
    ]


def _p_value(turns: Sequence[_Turn]) -> float | None:
    wrong = sum(first == label for label, first, _ in turns)
    return mcnemar(wrong, len(turns) - wrong).p_value if turns else None
