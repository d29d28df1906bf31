"""Figures of the user's own, computed by a function of theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from calib.data import Array, Batch, load_object
from calib.data.task_options import CustomOptions
from calib.errors import UsageError, ValidationError
from calib.validation.intervals import Floats
from calib.validation.resampling import Statistic
from calib.validation.tasks.base import Context, Figure, Judge, Task, rows_of
from calib.validation.tasks.statistics import joined, ratio
from calib.validation.tasks.user_code import called
from calib.wording import counted

__all__ = ["CustomTask"]

_Answers = list[dict[str, Array]]


@dataclass(frozen=True, eq=False)
class _Found:
    """What the function gave: figures, and one number a sample where it gave those."""

    values: dict[str, float]
    samples: dict[str, Floats]


@dataclass(frozen=True, eq=False)
class _Recomputed:
    """Figures that the function computes anew for samples as often as they were drawn."""

    task: CustomTask
    outputs: _Answers
    labels: list[Any]
    names: tuple[str, ...]
    classes: tuple[int, ...] = ()

    @property
    def units(self) -> int:
        return len(self.outputs)

    @property
    def work(self) -> int:
        return len(self.outputs)

    def __call__(self, weights: Floats) -> Floats:
        rows = np.empty((len(weights), len(self.names)))
        for row, counts in enumerate(weights):
            index = np.repeat(np.arange(len(counts)), counts.astype(np.int64)).tolist()
            found = self.task.compute(
                [self.outputs[i] for i in index], [self.labels[i] for i in index], "a resample"
            )
            rows[row] = [found.values.get(name, math.nan) for name in self.names]
        return rows


class _CustomJudge(Judge[_Answers]):
    def __init__(self, task: CustomTask) -> None:
        self._task = task
        self._outputs: _Answers = []
        self._labels: list[Any] = []
        self._ids: list[str] = []

    def add(self, answers: _Answers, batch: Batch, baseline: _Answers | None) -> None:
        self._outputs.extend(answers)
        self._labels.extend(batch.labels)
        self._ids.extend(batch.origins)

    @cached_property
    def _found(self) -> _Found:
        where = f"{counted(len(self._ids), 'sample[s]')}, {self._ids[0]} to {self._ids[-1]}"
        return self._task.compute(self._outputs, self._labels, where)

    def figures(self) -> tuple[Figure, ...]:
        found, options = self._found, self._task.options
        if not self._task.main:
            self._task.main = next(iter(found.values))
        directions = options.higher_is_better
        return tuple(
            Figure(
                name,
                value,
                len(self._outputs),
                higher_is_better=directions if isinstance(directions, bool) else directions[name],
                unit=options.unit,
                note="" if math.isfinite(value) else f"the function gave {value}",
            )
            for name, value in found.values.items()
        )

    def statistic(self) -> Statistic | None:
        found, count = self._found, len(self._outputs)
        parts: list[Statistic] = [
            ratio(name, values) for name, values in found.samples.items() if np.isfinite(values).all()
        ]
        rest = tuple(name for name in found.values if name not in found.samples)
        if rest and self._task.options.resamples and count > 1:
            parts.append(_Recomputed(self._task, self._outputs, self._labels, rest))
        return joined(parts)


class CustomTask(Task[_Answers]):
    """A function of the user's.

    Attributes:
        options: What the recipe says.
        main: The first figure that the function gives; empty before it was called.
    """

    kind = "custom"

    def __init__(self, options: CustomOptions, context: Context) -> None:
        self.options = options
        self.main = ""
        self._function = load_object(options.metric)
        if not callable(self._function):
            raise UsageError(
                f"task.metric {options.metric!r} is no function but {type(self._function).__name__}."
            )

    @property
    def _what(self) -> str:
        return f"Metric {self.options.metric!r}"

    @override
    def answers(self, outputs: Mapping[str, Array], batch: Batch) -> _Answers:
        rows = [rows_of(outputs, row, len(batch), self._what) for row in range(len(batch))]
        # A runner may write its next answer into the same memory.
        return [{name: array.copy() for name, array in row.items()} for row in rows]

    def compute(self, outputs: Sequence[dict[str, Array]], labels: Sequence[Any], where: str) -> _Found:
        """Calls the function.

        Raises:
            ValidationError: It failed, or gave something else than figures.
        """
        given = called(self._what, where, self._function, list(outputs), list(labels))
        pair = isinstance(given, tuple) and len(given) == 2
        values, samples = given if pair else (given, {})
        if not isinstance(values, Mapping) or not values or not isinstance(samples, Mapping):
            raise ValidationError(
                f"{self._what} must give a mapping name → number, or a pair of that and a mapping name → one "
                f"number a sample; it gave {type(given).__name__}."
            )
        found = {str(name): self._number(str(name), value) for name, value in values.items()}
        return _Found(
            found, {str(name): self._row(str(name), row, found, outputs) for name, row in samples.items()}
        )

    def _number(self, name: str, value: Any) -> float:
        directions = self.options.higher_is_better
        if not isinstance(directions, bool) and name not in directions:
            raise UsageError(
                f"task.higher_is_better does not say whether more of {name!r} is better. Add it; it has "
                f"{', '.join(directions) or 'nothing'}."
            )
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise ValidationError(
                f"{self._what}: {name} must be a number, got {type(value).__name__}."
            ) from error

    def _row(self, name: str, values: Any, found: Mapping[str, float], outputs: Sequence[Any]) -> Floats:
        try:
            row = np.asarray(values, np.float64)
        except (TypeError, ValueError) as error:
            raise ValidationError(f"{self._what}: the samples' {name} must be numbers: {error}.") from error
        if row.shape != (len(outputs),) or name not in found:
            raise ValidationError(
                f"{self._what}: the samples' {name} must be one number for each of {len(outputs)} samples, "
                f"and {name} one of the figures; got shape {row.shape}."
            )
        mean = float(row.mean()) if len(row) else math.nan
        if not math.isclose(mean, found[name], rel_tol=1e-6, abs_tol=1e-9):
            raise ValidationError(
                f"{self._what}: {name} is {found[name]:g}, and the mean over samples {mean:g}. Samples may "
                "only be given for figures that are their mean; set task: {resamples: 200} for intervals "
                "of others."
            )
        return row

    @override
    def judge(self) -> Judge[_Answers]:
        return _CustomJudge(self)

    @override
    def doubts(self, baseline: Judge[Any]) -> tuple[str, ...]:
        """A figure that is not finite, or a share that is 0: there is no telling what a low one is."""
        found = baseline.figures()[:1]
        if not found or found[0].value is None:
            return ()
        value = found[0].value
        low = not math.isfinite(value) or (
            self.options.unit == "share" and found[0].higher_is_better and value <= 0
        )
        if not low:
            return ()
        return (
            f"FP32's {found[0].name} is {value:g}: doubt the data, the preprocessing or the metric "
            "before INT8.",
        )
