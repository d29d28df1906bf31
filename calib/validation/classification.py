"""Top-1 and top-k of classifiers, against labels and between precisions.

The one rule for ties, in every precision: of classes with equal scores the lowest class number ranks
first (as ``numpy.argmax`` and ``torch.argmax`` on a CPU). INT8 has coarse steps and ties more often, so
ties are counted. A sample with a NaN among its scores has no answer: class −1, never right, and never
in agreement.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib.data import Array
from calib.errors import UsageError, ValidationError
from calib.validation.intervals import share_interval
from calib.validation.results import Metric
from calib.wording import counted

__all__ = [
    "NO_ANSWER",
    "Answers",
    "TopKCounter",
    "baseline_warnings",
    "check_labels",
    "class_scores",
    "integer_labels",
    "share_metric",
    "top_classes",
    "wilson_interval",
]

NO_ANSWER = -1

_CONFIDENCE = 0.95
_AGREEMENT = "_agreement"
_LOW_ACCURACY = 0.5
"""Share of the way from chance to all right."""


def wilson_interval(successes: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share, (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n).

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
    It stays within [0, 1] and does not collapse where every sample is right.

    Args:
        successes: Number of samples that are right.
        count: Number of samples; 0 gives the whole range.
        confidence: Confidence of the interval.

    >>> low, high = wilson_interval(8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4902, 0.9433)
    """
    interval = share_interval(successes, count, confidence)
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high


def share_metric(
    name: str,
    successes: int,
    count: int,
    *,
    baseline: float | None = None,
    ties: int = 0,
    note: str = "",
) -> Metric:
    """A share of samples with its Wilson interval; without samples it has no value.

    >>> share_metric("top1", 8, 10, baseline=0.9).drop
    0.09999999999999998
    """
    if not count:
        return Metric(name, None, 0, note="nothing was measured: no samples")
    value = successes / count
    low, high = wilson_interval(successes, count, _CONFIDENCE)
    return Metric(
        name=name,
        value=value,
        count=count,
        successes=successes,
        low=low,
        high=high,
        drop=None if baseline is None else baseline - value,
        note=note,
        ties=ties,
    )


def class_scores(outputs: Mapping[str, Array], samples: int, chosen: str | None = None) -> str:
    """Finds the output that holds a score for each class.

    Args:
        outputs: Outputs of one batch.
        samples: Samples in that batch.
        chosen: The output that the user named; None looks for the only float output of shape
            [samples, classes] or [samples, classes, 1, 1].

    Returns:
        The output's name.

    Raises:
        UsageError: The named output does not exist, or several would do.
        ValidationError: No output, or not the named one, holds class scores.
    """
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
    if chosen is not None and chosen not in outputs:
        raise UsageError(f"The model has no output {chosen!r}. Its outputs are: {shapes}.")
    fitting = [name for name, array in outputs.items() if _is_scores(array, samples)]
    if chosen is not None:
        fitting = [name for name in fitting if name == chosen]
    if not fitting:
        raise ValidationError(
            f"No class scores: a classifier needs a float output of shape [{samples}, classes] with at "
            f"least 2 classes, and has {shapes}. If it is no classifier, remove the task from the recipe."
        )
    if len(fitting) > 1:
        raise UsageError(f"Outputs {', '.join(fitting)} could all be class scores: name one with scores=.")
    return fitting[0]


def _is_scores(array: Array, samples: int) -> bool:
    rows_of_scores = array.ndim >= 2 and array.shape[0] == samples and array.shape[1] >= 2
    return array.dtype.kind == "f" and rows_of_scores and set(array.shape[2:]) <= {1}


@dataclass(frozen=True)
class Answers:
    """What a classifier answers to a batch.

    Attributes:
        top: Best classes first, shape [samples, k]; −1 in the whole row where a score is NaN.
        tied: Whether several classes share the highest score, shape [samples].
        classes: Number of classes.
    """

    top: npt.NDArray[np.int64]
    tied: npt.NDArray[np.bool_]
    classes: int


def top_classes(scores: Array, k: int = 5) -> Answers:
    """Ranks the classes of every sample.

    Args:
        scores: Shape [samples, classes] or [samples, classes, 1, 1].
        k: How many classes to keep, at most all.

    >>> answers = top_classes(np.array([[0.1, 0.7, 0.7], [0.5, 0.2, 0.3]]), k=2)
    >>> answers.top.tolist(), answers.tied.tolist()
    ([[1, 2], [0, 2]], [True, False])
    """
    table = scores.reshape(scores.shape[0], scores.shape[1]).astype(np.float64)
    top = np.argsort(-table, axis=1, kind="stable")[:, :k].astype(np.int64)
    top[np.isnan(table).any(axis=1)] = NO_ANSWER
    best = table.max(axis=1, keepdims=True)
    return Answers(top=top, tied=(table == best).sum(axis=1) > 1, classes=table.shape[1])


class TopKCounter:
    """Counts right answers of one precision and its agreement with the baseline, sample by sample.

    Counts are of samples, never averages of batches, so a smaller last batch weighs what it holds.

    Args:
        k: How many of the best classes the second figure looks at.
    """

    def __init__(self, k: int = 5) -> None:
        self.predictions: list[int] = []
        self._k = k
        self._classes = self._ties = 0
        self._right_1 = bytearray()
        self._right_k = bytearray()
        self._same_1 = bytearray()
        self._same_k = bytearray()

    def add(
        self,
        answers: Answers,
        labels: npt.NDArray[np.int64] | None,
        baseline: Answers | None,
    ) -> None:
        """Counts one batch.

        Args:
            answers: The precision's own answers.
            labels: Class numbers, shape [samples]; None where there are none.
            baseline: The FP32 answers to the same samples; None for the baseline itself.
        """
        self.predictions.extend(answers.top[:, 0].tolist())
        self._classes = answers.classes
        self._ties += int(answers.tied.sum())
        if labels is not None:
            self._right_1 += _hits(answers.top[:, :1], labels).tobytes()
            self._right_k += _hits(answers.top, labels).tobytes()
        if baseline is not None:
            self._same_1 += _hits(answers.top[:, :1], baseline.top[:, 0]).tobytes()
            self._same_k += _hits(answers.top, baseline.top[:, 0]).tobytes()

    @property
    def hits(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Whether each sample is right, or FP32's answer, shape [samples], by the name of the figure.

        Right answers only with labels.
        """
        known = {"top1": self._right_1, f"top1{_AGREEMENT}": self._same_1}
        if self._classes > self._k:
            known |= {self._top_k: self._right_k, f"{self._top_k}{_AGREEMENT}": self._same_k}
        return {name: np.frombuffer(bytes(right), np.bool_) for name, right in known.items() if right}

    def metrics(self, labelled: bool, baseline: Mapping[str, float | None] | None) -> tuple[Metric, ...]:
        """The figures over all samples.

        Args:
            labelled: Whether labels were given.
            baseline: The FP32 values by metric name; None for the baseline itself.

        Returns:
            "top1" and "top5", or another k, where there are labels; "top1_agreement" (the same top-1 class as
            FP32) and "top5_agreement" (FP32's top-1 class is among the candidate's top 5) for candidates.
            Top-k figures are left out where there are at most k classes: they would always be 1.
        """
        count, found = len(self.predictions), []
        known = baseline or {}
        if labelled:
            found.append(self._share("top1", sum(self._right_1), count, known.get("top1")))
            if self._classes > self._k:
                found.append(self._share(self._top_k, sum(self._right_k), count, known.get(self._top_k)))
        if baseline is not None:
            found.append(self._share("top1_agreement", sum(self._same_1), count, None))
            if self._classes > self._k:
                found.append(self._share(f"{self._top_k}{_AGREEMENT}", sum(self._same_k), count, None))
        return tuple(found)

    @property
    def _top_k(self) -> str:
        return f"top{self._k}"

    def _share(self, name: str, successes: int, count: int, baseline: float | None) -> Metric:
        return share_metric(name, successes, count, baseline=baseline, ties=self._ties, note=self._note())

    def _note(self) -> str:
        silent = self.predictions.count(NO_ANSWER)
        notes = []
        if self._ties:
            notes.append(
                f"{counted(self._ties, 'sample[s] tie[s|]')} for top-1: the lowest class number wins"
            )
        if silent:
            notes.append(f"{counted(silent, 'sample[s] [has|have] NaN scores and count[s|]')} as wrong")
        return "; ".join(notes)


def _hits(top: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = ((top == wanted[:, None]) & (top != NO_ANSWER)).any(axis=1)
    return found


def integer_labels(labels: Sequence[object] | None) -> npt.NDArray[np.int64] | None:
    """Labels as class numbers.

    Args:
        labels: The dataset's labels.

    Returns:
        Shape [samples]; None where there are no labels at all, or some sample lacks one.

    Raises:
        ValidationError: A label is not a whole number.
    """
    if labels is None or any(label is None for label in labels):
        return None
    numbers = np.empty(len(labels), np.int64)
    for index, label in enumerate(labels):
        if isinstance(label, bool) or not isinstance(label, (int, np.integer)):
            what = reprlib.repr(label) if isinstance(label, (str, float)) else type(label).__name__
            raise ValidationError(
                f"Label {what} of sample number {index} is not a class number, as the classification task of "
                "the recipe needs. Correct the labels or the task."
            )
        numbers[index] = label
    return numbers


def check_labels(
    labels: npt.NDArray[np.int64],
    classes: int,
    output: str,
    dataset: str,
    class_names: Sequence[str] | None,
) -> str | None:
    """Checks that labels fit the number of scores.

    Returns:
        A warning where the dataset names another number of classes than the output has; else None.

    Raises:
        ValidationError: A label has no score.
    """
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        hint = "They seem counted from 1: a list takes label_offset: -1, class folders take class_names. "
        raise ValidationError(
            f"Dataset {dataset!r} has labels from {low} to {high}, but output {output!r} has "
            f"{classes} scores, for classes 0 to {classes - 1}. {hint if low > 0 and high == classes else ''}"
            "Correct the labels in the recipe, or validate the model that belongs to this dataset."
        )
    if class_names is not None and len(class_names) != classes:
        return (
            f"Dataset {dataset!r} names {counted(len(class_names), 'class[es]')}, output {output!r} "
            f"has {classes} "
            "scores: is the model made for these classes?"
        )
    return None


def baseline_warnings(
    predictions: Sequence[int], labels: npt.NDArray[np.int64], classes: int
) -> tuple[str, ...]:
    """Doubts about data or preprocessing that a poor FP32 score raises, before INT8 is blamed.

    Args:
        predictions: FP32's top-1 class of each sample.
        labels: The class number of each sample.
        classes: Number of classes.

    Returns:
        Warnings: labels that would fit when shifted by one, or a score of less than half of the way from
        chance to all right, which is 0.75 for two classes, and whether it is no better than chance (its
        interval reaches down to 1/classes).
    """
    answers, count = np.asarray(predictions), len(labels)
    right = int((answers == labels).sum())
    low, high = wilson_interval(right, count)
    for shift in (1, -1):
        shifted = int((answers == labels + shift).sum())
        if wilson_interval(shifted, count)[0] > high:
            return (
                f"FP32 top-1 is {100 * right / count:.1f}%, but with every label shifted by {shift:+d} it "
                f"would be {100 * shifted / count:.1f}%: labels and classes are off by one (a background "
                "class?). Correct the labels in the recipe before judging INT8.",
            )
    # A good score of a few samples may be chance, which is no reason to doubt it.
    if right / count >= 1 / classes + _LOW_ACCURACY * (1 - 1 / classes):
        return ()
    doubt = "doubt the labels, the preprocessing or the model before INT8."
    if low <= 1 / classes:
        return (
            f"FP32 top-1 is {100 * right / count:.1f}%, no better than chance ({100 / classes:.1f}% for "
            f"{classes} classes): {doubt}",
        )
    return (f"FP32 top-1 is only {100 * right / count:.1f}%: {doubt}",)
