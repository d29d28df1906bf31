"""Regression: mean absolute error, root mean square error, R² and Spearman's correlation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from calib.data import Array, Batch
from calib.data.task_options import RegressionOptions
from calib.errors import ValidationError
from calib.validation.intervals import Floats
from calib.validation.resampling import Statistic
from calib.validation.tasks.base import Context, Figure, Judge, Task, labelled, pick_output
from calib.validation.tasks.correlations import Correlation
from calib.validation.tasks.statistics import joined, ratio
from calib.wording import counted

__all__ = ["Determination", "RegressionTask"]

_TRUTH = "a number, or an array of numbers of one axis"
_NUMBERS = (int, float, np.integer, np.floating, np.ndarray)


@dataclass(frozen=True, eq=False)
class Determination:
    """R² = 1 − Σw(y − p)² / Σw(y − ȳ)², averaged over the columns of labels y and answers p.

    Attributes:
        labels: Shape [samples, columns].
        answers: Of the same shape.
    """

    labels: Floats
    answers: Floats

    names = ("R2",)
    classes = ()

    @property
    def units(self) -> int:
        """Number of samples."""
        return len(self.labels)

    @property
    def work(self) -> int:
        """Numbers that one evaluation touches."""
        return 4 * self.labels.size

    def __call__(self, weights: Floats) -> Floats:
        """R² of each draw; NaN where labels do not vary."""
        total = weights.sum(axis=1, keepdims=True)
        # Sums of squares around a point near the mean do not cancel.
        centred = self.labels - self.labels.mean(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = weights @ centred / total
            squares = weights @ centred**2
            spread = squares - total * mean**2
            left = (weights @ (self.labels - self.answers) ** 2) / spread
        # Of equal labels, which are all that a draw may have, the difference is no more than rounding.
        varies = spread > len(self.labels) * np.finfo(np.float64).eps * squares
        found: Floats = np.where(varies, 1 - left, np.nan).mean(axis=1, keepdims=True)
        return found


class _NumberJudge(Judge[Floats]):
    def __init__(self, task: RegressionTask) -> None:
        self._task = task
        self._labelled: bool | None = None
        self._answers: list[Floats] = []
        self._labels: list[Floats] = []

    def add(self, answers: Floats, batch: Batch, baseline: Floats | None) -> None:
        self._labelled = labelled(batch, _NUMBERS, _TRUTH, self._labelled)
        for row, answer in enumerate(answers):
            self._answers.append(answer)
            if self._labelled:
                self._labels.append(_fitting(batch.labels[row], answer, batch.origins[row]))

    @property
    def labels(self) -> Floats:
        """Shape [samples, columns]."""
        return np.stack(self._labels)

    @property
    def answers(self) -> Floats:
        """Shape [samples, columns]."""
        return np.stack(self._answers)

    def figures(self) -> tuple[Figure, ...]:
        if not self._labelled:
            return ()
        count, unit = len(self._answers), self._task.options.unit
        statistic = self.statistic()
        broken = int((~np.isfinite(self.answers)).any(axis=1).sum())
        note = f"{counted(broken, 'answer[s] [is|are]')} NaN or infinite" if broken else ""
        values: list[float | None] = [None] * 4
        if statistic is not None:
            values = list(statistic(np.ones((1, count)))[0].tolist())
        shape = (("MAE", False, unit), ("RMSE", False, unit), ("R2", True, ""), ("spearman", True, ""))
        return tuple(
            Figure(name, value, count, higher_is_better=higher, unit=what, note=note)
            for (name, higher, what), value in zip(shape, values, strict=True)
        )

    def statistic(self) -> Statistic | None:
        if not self._labels or not np.isfinite(self.answers).all():
            return None
        errors = self.answers - self.labels
        return joined(
            (
                ratio("MAE", np.abs(errors).mean(axis=1)),
                ratio("RMSE", (errors**2).mean(axis=1), then=np.sqrt),
                Determination(self.labels, self.answers),
                Correlation(self.labels, self.answers, ("spearman",)),
            )
        )


def _fitting(label: Any, answer: Floats, origin: str) -> Floats:
    numbers = np.asarray(label, np.float64).reshape(-1)
    if numbers.shape != answer.shape:
        raise ValidationError(
            f"Sample {origin} has {counted(len(numbers), 'number[s]')} as its label, and the model answers "
            f"{len(answer)}. Correct "
            "the labels, or name another output with task: {output: …}."
        )
    if not np.isfinite(numbers).all():
        raise ValidationError(f"The label of sample {origin} is not finite: {numbers.tolist()}. Correct it.")
    return numbers


class RegressionTask(Task[Floats]):
    """Numbers.

    Attributes:
        options: What the recipe says.
    """

    kind = "regression"
    main = "MAE"

    def __init__(self, options: RegressionOptions, context: Context) -> None:
        self.options = options
        self._output = options.output
        self._name = context.dataset.name
        self._without = False

    @override
    def answers(self, outputs: Mapping[str, Array], batch: Batch) -> Floats:
        samples = len(batch)
        self._output = pick_output(
            outputs,
            self._output,
            lambda array: array.ndim >= 1 and len(array) == samples and array.dtype.kind == "f",
            f"a float output of numbers for each of {samples} samples",
        )
        self._without = self._without or all(label is None for label in batch.labels)
        return outputs[self._output].reshape(samples, -1).astype(np.float64)

    @override
    def judge(self) -> Judge[Floats]:
        return _NumberJudge(self)

    @override
    def doubts(self, baseline: Judge[Any]) -> tuple[str, ...]:
        """An R² that answering the labels' mean would reach too."""
        found = {one.name: one.value for one in baseline.figures()}
        value = found.get("R2")
        if value is None or not value <= 0:
            return ()
        return (
            f"FP32 R² is {value:.4f}, no better than answering the mean of the labels: doubt the labels, "
            "their unit, the preprocessing or the model before INT8.",
        )

    @override
    def warnings(self) -> tuple[str, ...]:
        if not self._without:
            return ()
        return (f"Dataset {self._name!r} has no labels: accuracy is not measured.",)
