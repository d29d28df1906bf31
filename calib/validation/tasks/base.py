"""What a task is: how outputs become answers, and how answers are judged.

A task reads a batch's outputs into answers, the same way for every precision. A judge collects the answers of
one precision, compares them with the labels and with FP32's, and gives figures and the statistic that they
are resampled by.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from calib.data import Array, Batch, Dataset
from calib.errors import UsageError, ValidationError
from calib.validation.resampling import Statistic

__all__ = [
    "ClassCount",
    "Context",
    "Figure",
    "Judge",
    "Task",
    "labelled",
    "pick_output",
    "rows_of",
    "shapes_of",
]

Answers = TypeVar("Answers")


@dataclass(frozen=True)
class Figure:
    """One figure of one precision.

    Attributes:
        name: Its name, such as "mAP".
        value: The figure; None where nothing was measured.
        count: Samples, or other units, behind it.
        successes: Samples that are right, where the figure is their share.
        higher_is_better: Direction.
        unit: "share", or the unit of the numbers.
        ties: Samples whose highest score several classes share.
        note: Why it is None, or what to know of it.
    """

    name: str
    value: float | None
    count: int
    successes: int | None = None
    higher_is_better: bool = True
    unit: str = "share"
    ties: int = 0
    note: str = ""

    @property
    def number(self) -> float | None:
        """The figure, or the share of samples that are right; None where nothing was measured.

        >>> Figure("top1", None, 8, successes=6).number, Figure("mAP", math.nan, 8).number
        (0.75, None)
        """
        if self.successes is not None:
            return self.successes / self.count if self.count else None
        return self.value if self.value is not None and math.isfinite(self.value) else None


@dataclass(frozen=True)
class ClassCount:
    """A class, how often it occurs, and its figure by itself; None where the statistic gives it."""

    label: int
    count: int
    value: float | None = None


@dataclass(frozen=True)
class Context:
    """What a task may know beside its options.

    Attributes:
        dataset: The validation dataset.
        metadata: The model's metadata.
        file: Finds a file of the recipe's data root, by its path and the option that names it.
    """

    dataset: Dataset
    metadata: Mapping[str, str] = field(default_factory=dict)
    file: Callable[[str, str], Path] = lambda path, option: Path(path)


class Judge(ABC, Generic[Answers]):
    """The answers of one precision, judged sample by sample."""

    @abstractmethod
    def add(self, answers: Answers, batch: Batch, baseline: Answers | None) -> None:
        """Counts one batch.

        Args:
            answers: What the precision answers.
            batch: The samples, with their labels.
            baseline: What FP32 answers to them; None for FP32 itself.
        """

    @abstractmethod
    def figures(self) -> tuple[Figure, ...]:
        """The figures over all samples, the main one first; agreement with FP32 last."""

    def statistic(self) -> Statistic | None:
        """The figures as a function of resampling weights; None where shares of samples say it all."""
        return None

    @property
    def hits(self) -> Mapping[str, npt.NDArray[np.bool_]]:
        """Whether each sample is right, shape [samples], by name of the figure."""
        return {}

    @property
    def predictions(self) -> Sequence[int] | None:
        """The class that each sample is given; None where answers are no classes of samples."""
        return None

    def classes(self) -> tuple[ClassCount, ...]:
        """The classes that have a figure of their own."""
        return ()

    def confusions(self) -> tuple[tuple[int, int, int], ...]:
        """Class, answer and how often, the most frequent first; right answers left out."""
        return ()

    def changed(self, baseline: Judge[Answers]) -> npt.NDArray[np.bool_] | None:
        """Whether each sample's answer is another than FP32's; None where that says nothing."""
        return None

    def change(self, baseline: Judge[Answers], index: int) -> str:
        """What is another in a sample's answer, in words."""
        return ""


class Task(ABC, Generic[Answers]):
    """What a model is for.

    Attributes:
        kind: Its name in recipes.
        main: The figure that speaks for it.
        class_metric: What the figure of a class is called; empty where there is none.
    """

    kind: ClassVar[str]
    class_metric: ClassVar[str] = ""
    main: str

    @abstractmethod
    def answers(self, outputs: Mapping[str, Array], batch: Batch) -> Answers:
        """Reads a batch's outputs.

        Args:
            outputs: Every output of the model.
            batch: The samples.

        Raises:
            UsageError: An option names what there is not.
            ValidationError: The outputs cannot be read as the options say.
        """

    @abstractmethod
    def judge(self) -> Judge[Answers]:
        """A judge for one precision."""

    def labels(self) -> Sequence[int] | None:
        """Class number of every sample, where labels are that."""
        return None

    def doubts(self, baseline: Judge[Any]) -> tuple[str, ...]:
        """What a poor FP32 score makes doubtful in data or preprocessing, before INT8 is blamed."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """What else to know of the data and the outputs."""
        return ()


def shapes_of(outputs: Mapping[str, Array]) -> str:
    """Outputs with their shapes, for messages."""
    return ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())


def rows_of(outputs: Mapping[str, Array], row: int, samples: int, what: str) -> dict[str, Array]:
    """The outputs as the model gives them for one sample alone, a batch of one.

    Whether the first axis counts samples or, say, detections need not be known then.

    Args:
        outputs: Outputs of a batch.
        row: The sample's place in it.
        samples: Samples in the batch.
        what: What needs them, for messages.

    Raises:
        ValidationError: An output has no row for each of several samples.
    """
    for name, array in outputs.items():
        if samples > 1 and (not array.ndim or len(array) != samples):
            raise ValidationError(
                f"{what} gets the outputs of each sample, and output {name!r} is {list(array.shape)} for "
                f"{samples} samples. Validate with --batch-size 1."
            )
    return {name: array[row : row + 1] if samples > 1 else array for name, array in outputs.items()}


def pick_output(
    outputs: Mapping[str, Array],
    chosen: str | None,
    fits: Callable[[Array], bool],
    wanted: str,
) -> str:
    """Finds the output that a task reads.

    Args:
        outputs: Outputs of one batch.
        chosen: The output that the recipe names; None takes the only one that fits.
        fits: Whether an output can be it.
        wanted: What it should be, for messages: "class scores of pixels [N, C, h, w]".

    Raises:
        UsageError: The named output does not exist, or several would do.
        ValidationError: None fits.
    """
    if chosen is not None and chosen not in outputs:
        raise UsageError(f"task.output: the model has no output {chosen!r}. It has {shapes_of(outputs)}.")
    fitting = [name for name, array in outputs.items() if fits(array) and chosen in (None, name)]
    if not fitting:
        which = "" if chosen is None else f" of output {chosen!r}"
        raise ValidationError(f"Expected {wanted}{which}; the model has {shapes_of(outputs)}.")
    if len(fitting) > 1:
        raise UsageError(
            f"Outputs {', '.join(fitting)} could all be {wanted}: name one with task: {{output: …}}."
        )
    return fitting[0]


def labelled(batch: Batch, kind: type | tuple[type, ...], wanted: str, before: bool | None) -> bool:
    """Whether a batch has labels, which must be of one type, or be missing in all samples.

    Args:
        batch: The samples.
        kind: The type of a label.
        wanted: What a label should be, for messages.
        before: Whether the batches before had labels; None for the first one.

    Raises:
        ValidationError: A label is of another type, or some samples have one and others not.
    """
    for label, origin in zip(batch.labels, batch.origins, strict=True):
        if label is not None and (not isinstance(label, kind) or isinstance(label, bool)):
            raise ValidationError(
                f"Sample {origin} has the label {_short(label)}, which is not {wanted}. Correct the labels, "
                "or the task of the recipe."
            )
        has = label is not None
        if before is None:
            before = has
        if has is not before:
            raise ValidationError(
                f"Sample {origin} has {'a' if has else 'no'} label, unlike those before it: give all samples "
                "labels, or none."
            )
    return bool(before)


def _short(label: object) -> str:
    text = repr(label) if isinstance(label, (str, int, float)) else f"of type {type(label).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}…"
