"""Answers that a candidate changed, and whether chance could explain the difference."""

from __future__ import annotations

from dataclasses import dataclass

from calib.report import numbers
from calib.report.merge import Merged, Row
from calib.validation.paired import mcnemar

__all__ = ["Changes", "by_chance", "changed_answers"]

_CHANCE = 0.05


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
    verdict = "chance could explain it" if p_value >= _CHANCE else "more than chance explains"
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
    labels = after.source.results.labels
    if labels is None or len(labels) != len(new):
        return Changes(len(new), changed)
    known = [triple for triple in zip(labels, old, new, strict=True) if triple[0] >= 0]
    wrong = sum(first == label != second for label, first, second in known)
    right = sum(second == label != first for label, first, second in known)
    p_value = mcnemar(wrong, right).p_value if wrong or right else None
    return Changes(len(new), changed, wrong, right, p_value)
