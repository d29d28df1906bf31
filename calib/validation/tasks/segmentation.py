"""Semantic segmentation: mean intersection over union, pixel accuracy, and agreement with FP32's pixels.

A pixel with a NaN among its scores has no answer, as a sample of a classification: it is never right, and
never in agreement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from calib.data import Array, Batch
from calib.data.task_options import SegmentationOptions
from calib.errors import ValidationError
from calib.validation.classification import NO_ANSWER
from calib.validation.intervals import Floats
from calib.validation.resampling import Statistic
from calib.validation.tasks.base import ClassCount, Context, Figure, Judge, Task, labelled, pick_output
from calib.validation.tasks.confusion import frequent_confusions
from calib.validation.tasks.resizing import resize_bilinear, resize_nearest
from calib.validation.tasks.statistics import joined, ratio
from calib.wording import counted

__all__ = ["MeanIou", "SegmentationTask"]

_TRUTH = "a mask of class numbers, an array (height, width)"
_CHANGED = 0.01
Numbers = npt.NDArray[np.int64]
_Answers = tuple[Numbers, ...]


@dataclass(frozen=True, eq=False)
class MeanIou:
    """The mean over classes of IoU = right pixels / (pixels of the class + answers of it − right pixels).

    Pixels of all images are counted together. Classes that neither a mask nor an answer has are left out, as
    scikit-learn's ``jaccard_score`` does with ``average="macro"``.

    Attributes:
        right: Right pixels of each image and class, shape [images, classes].
        either: Pixels of the class, in the mask or in the answer.
        classes: Class numbers of the columns that masks have.
    """

    right: Floats
    either: Floats
    classes: tuple[int, ...]

    names = ("mIoU",)

    @property
    def units(self) -> int:
        """Number of images."""
        return len(self.right)

    @property
    def work(self) -> int:
        """Numbers that one evaluation touches."""
        return 2 * self.right.size

    def __call__(self, weights: Floats) -> Floats:
        """Mean IoU of each draw, then the IoU of each class."""
        either = weights @ self.either
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(either > 0, (weights @ self.right) / either, np.nan)
            mean = np.nansum(each, axis=1, keepdims=True) / (either > 0).sum(axis=1, keepdims=True)
        return np.concatenate([mean, each[:, list(self.classes)]], axis=1)


class _PixelJudge(Judge[_Answers]):
    def __init__(self, task: SegmentationTask) -> None:
        self._task = task
        self._labelled: bool | None = None
        self._matrices: list[Numbers] = []
        self._matrix: Numbers = np.zeros((0, 0), np.int64)
        self._same: list[int] = []
        self._pixels: list[int] = []
        self._silent = 0

    def add(self, answers: _Answers, batch: Batch, baseline: _Answers | None) -> None:
        self._labelled = labelled(batch, np.ndarray, _TRUTH, self._labelled)
        for row, answer in enumerate(answers):
            if self._labelled:
                self._count(answer, np.asarray(batch.labels[row]), batch.origins[row])
            self._pixels.append(answer.size)
            answered = answer != NO_ANSWER
            self._silent += answer.size - int(answered.sum())
            if baseline is not None:
                self._same.append(int((answered & (answer == baseline[row])).sum()))

    def _count(self, answer: Numbers, mask: Array, origin: str) -> None:
        classes, ignore = self._task.classes, self._task.options.ignore
        judged = mask != ignore
        wanted, given = mask[judged].astype(np.int64), answer[judged]
        if wanted.size and (wanted.min() < 0 or wanted.max() >= classes):
            wrong = int(wanted.min() if wanted.min() < 0 else wanted.max())
            raise ValidationError(
                f"The mask of sample {origin} has class {wrong}, and the model answers {classes} classes, 0 "
                f"to {classes - 1}. Correct the masks, or say with task: {{ignore: {wrong}}} that such "
                "pixels are not judged."
            )
        # The last column is of the pixels without an answer.
        given, columns = np.where(given == NO_ANSWER, classes, given), classes + 1
        matrix = np.bincount(wanted * columns + given, minlength=classes * columns).reshape(classes, columns)
        if not self._matrix.size:
            self._matrix = np.zeros_like(matrix)
        self._matrix += matrix
        # Of an image three numbers a class are kept: right pixels, pixels of the mask, pixels of the answer.
        self._matrices.append(np.stack([matrix.diagonal(), matrix.sum(axis=1), matrix.sum(axis=0)[:classes]]))

    @cached_property
    def _counts(self) -> Numbers:
        """Right pixels, pixels of masks and of answers; shape [images, 3, classes]."""
        return np.stack(self._matrices)

    @cached_property
    def mean_iou(self) -> MeanIou | None:
        """None without labels, or where every pixel is ignored."""
        if not self._matrices or not self._matrix.any():
            return None
        right, wanted, given = np.moveaxis(self._counts, 1, 0).astype(np.float64)
        present = np.flatnonzero(wanted.sum(axis=0))
        return MeanIou(right, wanted + given - right, tuple(present.tolist()))

    def figures(self) -> tuple[Figure, ...]:
        count, found = len(self._pixels), []
        silent = f"{counted(self._silent, 'pixel[s] [has|have] NaN scores and count[s|]')} as wrong"
        told = silent if self._silent else ""
        if self._labelled:
            mean = self.mean_iou
            note = told if mean is not None else "no pixel of a mask is judged"
            value = None if mean is None else float(mean(np.ones((1, mean.units)))[0, 0])
            pixels = self._matrix.sum()
            accuracy = float(np.trace(self._matrix) / pixels) if pixels else None
            found = [
                Figure("mIoU", value, count, note=note),
                Figure("pixel_accuracy", accuracy, count, note=note),
            ]
        if self._same:
            agreement = sum(self._same) / max(1, sum(self._pixels))
            found.append(Figure("pixel_agreement", agreement, count, note=told))
        return tuple(found)

    def statistic(self) -> Statistic | None:
        parts: list[Statistic] = []
        if self.mean_iou is not None:
            judged = self._counts[:, 1].sum(axis=1)
            parts = [self.mean_iou, ratio("pixel_accuracy", self._counts[:, 0].sum(axis=1), judged)]
        if self._same:
            parts.append(ratio("pixel_agreement", self._same, self._pixels))
        return joined(parts)

    def classes(self) -> tuple[ClassCount, ...]:
        if self.mean_iou is None:
            return ()
        pixels = self._matrix.sum(axis=1)
        return tuple(ClassCount(label, int(pixels[label])) for label in self.mean_iou.classes)

    def confusions(self) -> tuple[tuple[int, int, int], ...]:
        return frequent_confusions(self._matrix[:, :-1])

    @property
    def constant(self) -> tuple[int, float] | None:
        """The most frequent class, and the mIoU of a model that answers nothing else."""
        pixels = self._matrix.sum(axis=1)
        if not pixels.sum():
            return None
        return int(pixels.argmax()), float(pixels.max() / pixels.sum()) / int((pixels > 0).sum())

    def changed(self, baseline: Judge[_Answers]) -> npt.NDArray[np.bool_]:
        return np.array(
            [same < (1 - _CHANGED) * size for same, size in zip(self._same, self._pixels, strict=False)]
        )

    def change(self, baseline: Judge[_Answers], index: int) -> str:
        moved = self._pixels[index] - self._same[index]
        return (
            f"{100 * moved / max(1, self._pixels[index]):.2f}% of the pixels changed class" if moved else ""
        )


class SegmentationTask(Task[_Answers]):
    """A class for every pixel.

    Attributes:
        options: What the recipe says.
        classes: Number of classes; 0 until the first batch.
    """

    kind = "segmentation"
    class_metric = "IoU"
    main = "mIoU"

    def __init__(self, options: SegmentationOptions, context: Context) -> None:
        self.options = options
        self.classes = 0
        self._output = options.output
        self._names = context.dataset.class_names
        self._resized = ""

    @override
    def answers(self, outputs: Mapping[str, Array], batch: Batch) -> _Answers:
        samples = len(batch)
        self._output = pick_output(
            outputs,
            self._output,
            lambda array: len(array) == samples if array.ndim in (3, 4) else False,
            f"scores [N, C, h, w] or classes [N, h, w] of pixels for {samples} samples",
        )
        array = outputs[self._output]
        sizes = [label.shape if isinstance(label, np.ndarray) else None for label in batch.labels]
        return tuple(
            self._image(array[row], size, batch.origins[row])
            for row, size in zip(range(samples), sizes, strict=True)
        )

    def _image(self, array: Array, size: tuple[int, ...] | None, origin: str) -> Numbers:
        if array.ndim == 3 and self.options.channels == "last":
            array = np.moveaxis(array, -1, 0)
        scores = array if array.ndim == 3 else array[None]
        if scores.shape[0] == 1 and scores.dtype.kind in "iub":
            return self._numbered(self._sized(scores, size, origin, exact=True)[0])
        scores = self._sized(scores.astype(np.float64), size, origin)
        self._set_classes(max(2, len(scores)))
        silent = np.isnan(scores.max(axis=0))
        if len(scores) > 1:
            best: Numbers = np.where(silent, NO_ANSWER, scores.argmax(axis=0)).astype(np.int64)
            return best
        if self.options.scores == "logits":
            # exp of a large negative logit's opposite overflows to infinity, whose inverse is right: 0.
            with np.errstate(over="ignore"):
                scores = 1.0 / (1.0 + np.exp(-scores))
        chosen: Numbers = np.where(silent, NO_ANSWER, scores[0] >= self.options.threshold).astype(np.int64)
        return chosen

    def _set_classes(self, count: int) -> None:
        self.classes = self.classes or count

    def _numbered(self, numbers: Array) -> Numbers:
        """Class numbers that the model gives itself: as many classes as the dataset names, or 256."""
        self._set_classes(len(self._names) if self._names else 256)
        found = numbers.astype(np.int64)
        if found.size and not 0 <= found.min() <= found.max() < self.classes:
            raise ValidationError(
                f"Output {self._output!r} has class numbers from {found.min()} to {found.max()}; expected 0 "
                f"to {self.classes - 1}."
            )
        return found

    def _sized(self, scores: Array, size: tuple[int, ...] | None, origin: str, exact: bool = False) -> Array:
        if size is None or scores.shape[1:] == size:
            return scores
        if len(size) != 2:
            raise ValidationError(f"The mask of sample {origin} has shape {size}; expected {_TRUTH}.")
        way = self.options.resize
        if way is None:
            raise ValidationError(
                f"Output {self._output!r} has {list(scores.shape[1:])} pixels, the mask of sample {origin} "
                f"has {list(size)}. Say how the output is resized, with task: {{resize: bilinear}} or "
                "nearest, or give masks of the output's size."
            )
        self._resized = (
            f"Output {self._output!r}, {list(scores.shape[1:])} pixels, was resized to the mask's "
            f"{list(size)} ({'nearest' if exact else way})."
        )
        return (resize_nearest if exact or way == "nearest" else resize_bilinear)(scores, (size[0], size[1]))

    @override
    def judge(self) -> Judge[_Answers]:
        return _PixelJudge(self)

    @override
    def doubts(self, baseline: Judge[Any]) -> tuple[str, ...]:
        """An mIoU that answering one class everywhere would reach too."""
        assert isinstance(baseline, _PixelJudge)
        constant, mean = baseline.constant, baseline.mean_iou
        if constant is None or mean is None:
            return ()
        value, (label, chance) = float(mean(np.ones((1, mean.units)))[0, 0]), constant
        if value > chance:
            return ()
        return (
            f"FP32 mIoU is {100 * value:.1f}%, no better than answering class {label} everywhere "
            f"({100 * chance:.1f}%): doubt the "
            "masks' class numbers, the preprocessing or the output before INT8.",
        )

    @override
    def warnings(self) -> tuple[str, ...]:
        return (self._resized,) if self._resized else ()
