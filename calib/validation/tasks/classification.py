"""Classification: the class with the highest score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from calib.data import Array, Batch
from calib.data.task_options import ClassificationOptions
from calib.validation.classification import (
    NO_ANSWER,
    Answers,
    TopKCounter,
    baseline_warnings,
    check_labels,
    class_scores,
    integer_labels,
    top_classes,
)
from calib.validation.intervals import Floats
from calib.validation.resampling import Statistic
from calib.validation.tasks.base import ClassCount, Context, Figure, Judge, Task
from calib.validation.tasks.confusion import confused_answers

__all__ = ["ClassificationTask", "MacroF1"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MacroF1:
    """The mean over classes of F1 = 2·right / (samples of the class + answers of the class).

    Classes that neither a label nor an answer names are left out, as scikit-learn's ``f1_score`` does with
    ``average="macro"``; a sample without an answer is wrong, and an answer to no class.

    Attributes:
        labels: Class of each sample, shape [samples].
        predictions: Answer to each sample; below 0 for none.

    >>> float(MacroF1(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))(np.ones((1, 4)))[0, 0])  # (2/3 + 4/5)/2
    0.7333333333333334
    """

    labels: Numbers
    predictions: Numbers

    @property
    def names(self) -> tuple[str, ...]:
        """The one figure."""
        return ("macro_f1",)

    @property
    def classes(self) -> tuple[int, ...]:
        """None: recall tells of a class, and needs no resamples."""
        return ()

    @property
    def units(self) -> int:
        """Number of samples."""
        return len(self.labels)

    @property
    def work(self) -> int:
        """Numbers that one evaluation touches."""
        return 3 * len(self.labels) + self._size

    @property
    def _size(self) -> int:
        return int(max(self.labels.max(initial=0), self.predictions.max(initial=0))) + 1

    def __call__(self, weights: Floats) -> Floats:
        """Macro F1 of each draw."""
        answered = self.predictions != NO_ANSWER
        right = answered & (self.labels == self.predictions)
        every = np.ones(len(self.labels), np.bool_)
        hits = self._counts(self.labels, right, weights)
        total = self._counts(self.labels, every, weights)
        total += self._counts(self.predictions, answered, weights)
        with np.errstate(invalid="ignore"):
            mean: Floats = np.nanmean(2 * hits / total, axis=1, keepdims=True)
        return mean

    def _counts(self, classes: Numbers, chosen: npt.NDArray[np.bool_], weights: Floats) -> Floats:
        """Weight of each class, shape [draws, classes]."""
        from scipy.sparse import csr_array

        index = np.flatnonzero(chosen)
        shape = (self._size, len(classes))
        members = csr_array((np.ones(len(index)), (classes[index], index)), shape=shape)
        counts: Floats = np.asarray(members @ weights.T).T
        return counts


class _ClassJudge(Judge[Answers]):
    def __init__(self, task: ClassificationTask) -> None:
        self.counter = TopKCounter(task.options.top_k)
        self._task = task
        self._candidate = False

    def add(self, answers: Answers, batch: Batch, baseline: Answers | None) -> None:
        labels, seen = self._task.numbers, len(self.counter.predictions)
        self._candidate = self._candidate or baseline is not None
        known = None if labels is None else labels[seen : seen + len(batch)]
        self.counter.add(answers, known, baseline)

    def figures(self) -> tuple[Figure, ...]:
        labelled = self._task.numbers is not None
        found = [
            Figure(one.name, one.value, one.count, one.successes, ties=one.ties, note=one.note)
            for one in self.counter.metrics(labelled, {} if self._candidate else None)
        ]
        statistic = self.statistic()
        if statistic is not None:
            value = float(statistic(np.ones((1, statistic.units)))[0, 0])
            place = sum(not one.name.endswith("_agreement") for one in found)
            found.insert(place, Figure("macro_f1", value, statistic.units))
        return tuple(found)

    def statistic(self) -> Statistic | None:
        labels = self._task.numbers
        if labels is None or not self.counter.predictions:
            return None
        return MacroF1(labels[: len(self.counter.predictions)], np.array(self.counter.predictions, np.int64))

    @property
    def hits(self) -> Mapping[str, npt.NDArray[np.bool_]]:
        return self.counter.hits

    @property
    def predictions(self) -> Sequence[int]:
        return self.counter.predictions

    def classes(self) -> tuple[ClassCount, ...]:
        """The recall of each class that has samples: the part of its samples that is right."""
        labels, hits = self._task.numbers, self.counter.hits
        if labels is None or "top1" not in hits:
            return ()
        labels = labels[: len(self.counter.predictions)]
        counts, right = np.bincount(labels), np.bincount(labels, weights=hits["top1"])
        return tuple(
            ClassCount(int(label), int(counts[label]), float(right[label] / counts[label]))
            for label in np.flatnonzero(counts)
        )

    def confusions(self) -> tuple[tuple[int, int, int], ...]:
        labels, answers = self._task.numbers, np.array(self.counter.predictions, np.int64)
        if labels is None:
            return ()
        known = answers != NO_ANSWER
        return confused_answers(labels[: len(answers)][known], answers[known])

    def changed(self, baseline: Judge[Answers]) -> npt.NDArray[np.bool_] | None:
        changed: npt.NDArray[np.bool_] = np.array(self.predictions) != np.array(baseline.predictions)
        return changed


class ClassificationTask(Task[Answers]):
    """One class of several.

    Attributes:
        options: What the recipe says.
        numbers: Class number of every sample; None without labels.
    """

    kind = "classification"
    class_metric = "recall"
    main = "top1"

    def __init__(self, options: ClassificationOptions, context: Context) -> None:
        self.options = options
        self.numbers = integer_labels(context.dataset.labels)
        self._dataset = context.dataset
        self._output = options.output
        self._classes = 0
        self._warnings: list[str] = []

    @override
    def answers(self, outputs: Mapping[str, Array], batch: Batch) -> Answers:
        if not self._classes:
            self._output = class_scores(outputs, len(batch), self._output)
            self._classes = outputs[self._output].shape[1]
            self._check_labels(self._output)
        assert self._output is not None
        class_scores({self._output: outputs[self._output]}, len(batch), self._output)
        return top_classes(outputs[self._output], self.options.top_k)

    def _check_labels(self, output: str) -> None:
        if self.numbers is None:
            self._warnings.append(
                f"Dataset {self._dataset.name!r} has no label for some or all samples: accuracy is not "
                "measured, only agreement with FP32."
            )
            return
        names = self._dataset.class_names
        doubt = check_labels(self.numbers, self._classes, output, self._dataset.name, names)
        if doubt:
            self._warnings.append(doubt)

    @override
    def judge(self) -> Judge[Answers]:
        return _ClassJudge(self)

    @override
    def labels(self) -> Sequence[int] | None:
        return None if self.numbers is None else tuple(self.numbers.tolist())

    @override
    def doubts(self, baseline: Judge[Any]) -> tuple[str, ...]:
        if self.numbers is None or not self._classes or not baseline.predictions:
            return ()
        return baseline_warnings(baseline.predictions, self.numbers, self._classes)

    @override
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._warnings)
