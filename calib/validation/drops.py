"""Intervals and tests of the drops in a run's figures, from right and wrong answers to the same samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calib.errors import ValidationError
from calib.validation.corrections import holm
from calib.validation.intervals import Interval
from calib.validation.paired import PairedTable, difference_interval, mcnemar
from calib.validation.results import Metric

__all__ = ["ClassDrop", "class_drops", "correct_drops", "with_drop"]

Hits = npt.NDArray[np.bool_]


def with_drop(metric: Metric, hits: Mapping[str, Hits], baseline: Mapping[str, Hits]) -> Metric:
    """A figure with the interval and the test of its drop, where there are right and wrong answers.

    Args:
        metric: The figure of a candidate.
        hits: Whether the candidate is right, by name of the figure; each of shape [samples].
        baseline: The same of the baseline.

    >>> right, wrong = np.array([True] * 9 + [False]), np.array([True] * 7 + [False] * 3)
    >>> found = with_drop(Metric("top1", 0.7, 10, drop=0.2), {"top1": wrong}, {"top1": right})
    >>> round(found.drop_low, 3), round(found.drop_high, 3), found.drop_p_value   # 2 became wrong: 2/2²
    (-0.133, 0.51, 0.5)
    """
    if metric.drop is None or metric.name not in hits or metric.name not in baseline:
        return metric
    table = PairedTable.from_hits(baseline[metric.name], hits[metric.name])
    interval = difference_interval(table, metric.confidence)
    test = mcnemar(table.only_baseline, table.only_candidate)
    return replace(
        metric,
        drop_low=interval.low,
        drop_high=interval.high,
        drop_method=interval.method,
        drop_p_value=test.p_value,
        drop_mid_p=test.mid_p,
    )


def correct_drops(groups: Sequence[Sequence[Metric]]) -> tuple[tuple[Metric, ...], ...]:
    """Holm's correction over all drops that are judged together.

    Args:
        groups: The figures of each run.

    Returns:
        The same figures, with ``drop_p_adjusted``.
    """
    known = [metric.drop_p_value for group in groups for metric in group if metric.drop_p_value is not None]
    adjusted = iter(holm(known))
    return tuple(
        tuple(
            metric if metric.drop_p_value is None else replace(metric, drop_p_adjusted=next(adjusted))
            for metric in group
        )
        for group in groups
    )


@dataclass(frozen=True)
class ClassDrop:
    """What one class lost.

    Attributes:
        label: The class number.
        table: Right answers of both on its samples.
        interval: Interval of the drop.
    """

    label: int
    table: PairedTable
    interval: Interval

    @property
    def drop(self) -> float:
        """Baseline minus candidate, of this class alone."""
        return self.table.drop


def class_drops(
    labels: npt.ArrayLike, baseline: npt.ArrayLike, candidate: npt.ArrayLike, confidence: float = 0.95
) -> tuple[ClassDrop, ...]:
    """The drop of every class that has samples, the largest first; of equals the class with more samples.

    Args:
        labels: Class number of each sample, shape [samples]; samples below 0 have no label.
        baseline: Whether the baseline is right, shape [samples].
        candidate: Whether the candidate is right.
        confidence: Confidence of each interval, by itself.

    Raises:
        ValidationError: The numbers of samples differ.

    >>> found = class_drops([0, 0, 1, 1], [True, True, True, True], [True, True, True, False])
    >>> [(one.label, one.drop) for one in found]
    [(1, 0.5), (0, 0.0)]
    """
    classes = np.asarray(labels, np.int64)
    before, after = np.asarray(baseline, np.bool_), np.asarray(candidate, np.bool_)
    if not classes.shape == before.shape == after.shape or classes.ndim != 1:
        raise ValidationError(
            "Classes are judged on the labels and answers of the same samples; got "
            f"{classes.shape}, {before.shape} and {after.shape}."
        )
    drops = []
    for label in np.unique(classes[classes >= 0]).tolist():
        chosen = classes == label
        table = PairedTable.from_hits(before[chosen], after[chosen])
        drops.append(ClassDrop(label, table, difference_interval(table, confidence)))
    return tuple(sorted(drops, key=lambda one: (-one.drop, -one.table.count, one.label)))
