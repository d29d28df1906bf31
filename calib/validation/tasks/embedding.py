"""Embeddings: whether cosine similarities of pairs rank them as people do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from calib.data import Array, Batch
from calib.data.task_options import EmbeddingOptions
from calib.data.truth import Pair
from calib.errors import UsageError, ValidationError
from calib.validation.intervals import Floats
from calib.validation.resampling import Statistic
from calib.validation.tasks.base import Context, Figure, Judge, Task, labelled, pick_output
from calib.validation.tasks.correlations import Correlation
from calib.validation.tasks.statistics import Ratios, joined, ratio
from calib.wording import counted, inflected

__all__ = ["EmbeddingTask"]

_TRUTH = "a pair with its score (calib.data.truth.Pair)"


class _PairJudge(Judge[Floats]):
    def __init__(self) -> None:
        self._labelled: bool | None = None
        self._vectors: list[Floats] = []
        self._pairs: list[Pair] = []
        self._origins: list[str] = []
        self._close: list[float] = []

    def add(self, answers: Floats, batch: Batch, baseline: Floats | None) -> None:
        self._labelled = labelled(batch, Pair, _TRUTH, self._labelled)
        self._vectors.extend(answers)
        self._origins.extend(batch.origins)
        if self._labelled:
            self._pairs.extend(batch.labels)
        if baseline is not None:
            # What is not finite agrees with nothing.
            close = _cosines(answers, baseline)
            self._close.extend(np.where(np.isfinite(close), close, 0.0).tolist())

    @cached_property
    def _complete(self) -> list[tuple[int, int]]:
        """The two samples of each pair of which both are there."""
        members: dict[str, list[int]] = {}
        for index, pair in enumerate(self._pairs):
            members.setdefault(pair.pair, []).append(index)
        for name, found in members.items():
            if len(found) > 2 or len({self._pairs[index].score for index in found}) > 1:
                where = ", ".join(self._origins[index] for index in found[:3])
                raise ValidationError(
                    f"Pair {name!r} must be two samples with one score; it is "
                    f"{counted(len(found), 'sample[s]')}: {where}. "
                    "Correct the labels."
                )
        return [(found[0], found[1]) for found in members.values() if len(found) == 2]

    @property
    def halves(self) -> int:
        """Samples whose other half was not validated."""
        return len(self._pairs) - 2 * len(self._complete)

    @cached_property
    def _scored(self) -> tuple[Floats, Floats] | None:
        """Similarity and score of every pair; None where there are too few, or one is not finite."""
        if len(self._complete) < 2:
            return None
        first, second = (np.stack([self._vectors[pair[side]] for pair in self._complete]) for side in (0, 1))
        similar = _cosines(first, second)
        scores = np.array([self._pairs[pair[0]].score for pair in self._complete], np.float64)
        return (similar, scores) if np.isfinite(similar).all() else None

    def figures(self) -> tuple[Figure, ...]:
        found = []
        if self._labelled:
            statistic, count = self._correlation, len(self._complete)
            values: list[float | None] = [None, None]
            note = (
                f"{counted(self.halves, 'sample[s] [is|are]')} left out: the other half of "
                f"{inflected(self.halves, '[its|their]')} pair is not here"
                if self.halves
                else ""
            )
            if statistic is not None:
                values = list(statistic(np.ones((1, count)))[0].tolist())
            else:
                note = note or "fewer than two pairs, or embeddings that are not finite"
            names = ("spearman", "pearson")
            found = [
                Figure(name, value, count, unit="", note=note)
                for name, value in zip(names, values, strict=True)
            ]
        if self._close:
            mean = float(np.mean(self._close))
            found.append(Figure("embedding_agreement", mean, len(self._close), unit=""))
        return tuple(found)

    @property
    def _correlation(self) -> Correlation | None:
        if self._scored is None:
            return None
        similar, scores = self._scored
        return Correlation(similar[:, None], scores[:, None])

    def statistic(self) -> Statistic | None:
        """Pairs are drawn, not samples; agreement is of single samples and has no place among them."""
        if self._correlation is not None:
            return self._correlation
        if self._close and not self._labelled:
            close: Ratios = ratio("embedding_agreement", self._close)
            return joined((close,))
        return None


def _cosines(first: Floats, second: Floats) -> Floats:
    """Of each row; 0 where a vector is, and NaN where one is not finite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        found: Floats = np.where(lengths == 0, 0.0, (first * second).sum(axis=1) / lengths)
    return found


class EmbeddingTask(Task[Floats]):
    """Vectors of samples.

    Attributes:
        options: What the recipe says.
    """

    kind = "embedding"
    main = "spearman"

    def __init__(self, options: EmbeddingOptions, context: Context) -> None:
        self.options = options
        self._output = options.output
        self._name = context.dataset.name
        self._without = False

    @override
    def answers(self, outputs: Mapping[str, Array], batch: Batch) -> Floats:
        samples, axes = len(batch), 2 if self.options.pooling is None else 3
        wanted = "vectors [N, size]" if axes == 2 else "vectors of tokens [N, tokens, size]"
        self._output = pick_output(
            outputs,
            self._output,
            lambda array: array.ndim == axes and len(array) == samples and array.dtype.kind == "f",
            f"{wanted} for {samples} samples (task: {{pooling: mean}} makes one vector of those of tokens)",
        )
        self._without = self._without or all(label is None for label in batch.labels)
        array = outputs[self._output].astype(np.float64)
        if self.options.pooling == "first":
            return array[:, 0]
        return array if self.options.pooling is None else self._mean(array, batch)

    def _mean(self, array: Floats, batch: Batch) -> Floats:
        name = self.options.mask
        if name is None:
            mean: Floats = array.mean(axis=1)
            return mean
        if name not in batch.inputs:
            raise UsageError(
                f"task.mask: there is no input {name!r}. The inputs are {', '.join(batch.inputs)}."
            )
        mask = batch.inputs[name].astype(np.float64)
        if mask.shape != array.shape[:2]:
            raise ValidationError(
                f"Mask {name!r} has shape {list(mask.shape)}, and output {self._output!r} "
                f"{list(array.shape)}: the mask needs one number for each token."
            )
        total: Floats = (array * mask[:, :, None]).sum(axis=1)
        counts: Floats = np.maximum(mask.sum(axis=1, keepdims=True), 1e-9)
        pooled: Floats = np.divide(total, counts)
        return pooled

    @override
    def judge(self) -> Judge[Floats]:
        return _PairJudge()

    @override
    def doubts(self, baseline: Judge[Any]) -> tuple[str, ...]:
        """A correlation that chance explains."""
        from calib.validation.resampling import distribution

        statistic = baseline.statistic()
        if statistic is None or "spearman" not in statistic.names:
            return ()
        found = distribution(statistic, 499)
        value, low = float(found.values[0]), found.interval("spearman").low
        if not np.isfinite(value) or (low is not None and low > 0):
            return ()
        return (
            f"FP32's correlation with the scores is {value:.4f}, no better than chance: doubt the pairs, the "
            "tokenizer or the pooling before INT8.",
        )

    @override
    def warnings(self) -> tuple[str, ...]:
        if not self._without:
            return ()
        return (f"Dataset {self._name!r} has no pairs with scores: only agreement with FP32 is measured.",)
