"""From the answers of every precision to figures with intervals, each against FP32's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calib.validation.classification import share_metric
from calib.validation.drops import correct_drops, with_drop
from calib.validation.metric_records import ClassFigure, Draws, Metric
from calib.validation.resampling import Distribution, distribution, resample_count
from calib.validation.tasks.base import ClassCount, Figure, Judge, Task

__all__ = ["Judgement", "judge_runs"]

_AGREEMENT = "_agreement"


@dataclass(frozen=True)
class Judgement:
    """Everything that the answers of one precision tell.

    Attributes:
        metrics: The figures.
        draws: Figure → its resamples.
        class_metric: What ``classes`` holds.
        classes: The figure of every class.
        confusions: Class, answer and how often.
    """

    metrics: tuple[Metric, ...] = ()
    draws: dict[str, Draws] = field(default_factory=dict)
    class_metric: str = ""
    classes: tuple[ClassFigure, ...] = ()
    confusions: tuple[tuple[int, int, int], ...] = ()


def judge_runs(
    task: Task[Any], judges: Sequence[Judge[Any]], class_names: Sequence[str] | None = None
) -> tuple[Judgement, ...]:
    """Works out the figures of all precisions.

    Args:
        task: What is judged.
        judges: The answers, FP32's first.
        class_names: Name of each class number.

    Returns:
        One for each precision, in the same order.
    """
    sides = _sides(judges)
    own = sides[0]
    first = own.metrics({})
    values = {metric.name: metric.value for metric in first}
    groups = [side.metrics(values, own) for side in sides[1:]]
    every = (first, *correct_drops(groups))
    return tuple(
        Judgement(
            metrics=metrics,
            draws={} if side.spread is None else side.draws(metrics),
            class_metric=task.class_metric if side.judge.classes() else "",
            classes=side.classes(None if side is own else own, class_names or ()),
            confusions=side.judge.confusions(),
        )
        for side, metrics in zip(sides, every, strict=True)
    )


@dataclass(frozen=True)
class _Side:
    """One precision: its answers and their resamples."""

    judge: Judge[Any]
    spread: Distribution | None

    def metrics(self, values: dict[str, float | None], baseline: _Side | None = None) -> tuple[Metric, ...]:
        return tuple(self._metric(figure, values, baseline) for figure in self.judge.figures())

    def _metric(self, figure: Figure, values: dict[str, float | None], baseline: _Side | None) -> Metric:
        before = None if figure.name.endswith(_AGREEMENT) else values.get(figure.name)
        if figure.successes is not None or (not figure.count and figure.unit == "share"):
            metric = share_metric(
                figure.name,
                figure.successes or 0,
                figure.count,
                baseline=before,
                ties=figure.ties,
                note=figure.note,
            )
            if baseline is None or before is None:
                return metric
            return with_drop(metric, self.judge.hits, baseline.judge.hits)
        value = figure.number
        metric = Metric(
            name=figure.name,
            value=value,
            count=figure.count,
            interval="none",
            higher_is_better=figure.higher_is_better,
            drop=None if value is None or before is None else before - value,
            note=figure.note,
            ties=figure.ties,
            unit=figure.unit,
        )
        return metric if value is None else self._with_spread(metric, baseline)

    def _with_spread(self, metric: Metric, baseline: _Side | None) -> Metric:
        """The figure with the intervals that its resamples give."""
        if self.spread is None or not self.spread.has(metric.name):
            return metric
        own = self.spread.interval(metric.name, metric.confidence)
        metric = replace(
            metric,
            low=own.low,
            high=own.high,
            interval=own.method,
            note="; ".join(
                part for part in (metric.note, "" if own.method == "no spread" else own.note) if part
            ),
        )
        if metric.drop is None or baseline is None or baseline.spread is None:
            return metric
        drop = self.spread.drop_interval(baseline.spread, metric.name, metric.confidence)
        return replace(metric, drop_low=drop.low, drop_high=drop.high, drop_method=drop.method)

    def draws(self, metrics: Sequence[Metric]) -> dict[str, Draws]:
        assert self.spread is not None
        wanted = {metric.name for metric in metrics}
        return {name: draws for name, draws in self.spread.packed.items() if name in wanted}

    def classes(self, baseline: _Side | None, names: Sequence[str]) -> tuple[ClassFigure, ...]:
        counts = self.judge.classes()
        values = self._class_values(counts)
        before = {} if baseline is None else baseline._class_values(baseline.judge.classes())
        errors = {} if baseline is None else self._class_errors(baseline)
        found = []
        for one in counts:
            value, old = values[one.label], before.get(one.label)
            drop = None if value is None or old is None else old - value
            name = names[one.label] if 0 <= one.label < len(names) else ""
            found.append(ClassFigure(one.label, name, one.count, value, drop, errors.get(one.label)))
        return tuple(found)

    def _class_values(self, counts: Sequence[ClassCount]) -> dict[int, float | None]:
        found: dict[int, float | None] = {one.label: one.value for one in counts}
        if self.spread is not None:
            pairs = zip(self.spread.classes, self.spread.class_values.tolist(), strict=True)
            found.update({label: value if math.isfinite(value) else None for label, value in pairs})
        return found

    def _class_errors(self, baseline: _Side) -> dict[int, float]:
        if self.spread is None or baseline.spread is None or self.spread.classes != baseline.spread.classes:
            return {}
        _, errors = self.spread.class_drops(baseline.spread)
        pairs = zip(self.spread.classes, errors.tolist(), strict=True)
        return {label: error for label, error in pairs if math.isfinite(error)}


def _sides(judges: Sequence[Judge[Any]]) -> list[_Side]:
    statistics = [judge.statistic() for judge in judges]
    resamples = resample_count(max((one.work for one in statistics if one is not None), default=0))
    return [
        _Side(judge, None if statistic is None else distribution(statistic, resamples))
        for judge, statistic in zip(judges, statistics, strict=True)
    ]
