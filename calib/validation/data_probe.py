"""Runs a model on a few samples, as they are and prepared otherwise, and scores each preparation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from calib.data import Array, Dataset
from calib.data.overview import steps_of
from calib.errors import ModelError, UsageError, ValidationError
from calib.graph import FeedBuilder, OnnxModel, TensorSpec
from calib.progress import track
from calib.runners import OnnxRuntimeRunner, Runner, carrying
from calib.validation.batch_norms import FirstConv, NormFit, NormProbe
from calib.validation.classification import class_scores, integer_labels, top_classes
from calib.validation.input_variants import InputVariant, input_variants, pixel_scale
from calib.validation.intervals import bootstrap_interval, share_interval
from calib.validation.paired import PairedTable, mcnemar
from calib.validation.subject import batches

__all__ = ["Preparation", "Probe", "better_than", "rank"]

Floats = npt.NDArray[np.float64]

_ALPHA = 0.01
_NEARER = 0.8
_LOW = 0.5


@dataclass(frozen=True)
class Preparation:
    """How well one preparation of the samples fits the model.

    Attributes:
        name: "as in the recipe", or what is different.
        advice: What to set in the recipe.
        hits: Whether each sample is classified rightly; None without labels.
        predictions: The class of each sample; None without class scores.
        classes: How many classes the model has; 0 without class scores.
        distances: Each sample's distance from what the BatchNorms remember; None without any.
        changes: What was done to the input, in order.
    """

    name: str
    advice: str
    hits: npt.NDArray[np.bool_] | None
    predictions: npt.NDArray[np.int64] | None
    classes: int
    distances: Floats | None
    changes: tuple[InputVariant, ...] = ()

    def accuracy(self) -> tuple[float, float, float] | None:
        """Top-1 with its 95 % interval (Wilson); None without labels."""
        if self.hits is None or not len(self.hits):
            return None
        interval = share_interval(int(self.hits.sum()), len(self.hits))
        return float(self.hits.mean()), interval.low or 0.0, 1.0 if interval.high is None else interval.high

    def distance(self) -> tuple[float, float | None, float | None] | None:
        """Mean distance from the BatchNorms with its 95 % interval (bootstrap); None without any."""
        if self.distances is None:
            return None
        interval = bootstrap_interval([self.distances], np.mean)
        return float(self.distances.mean()), interval.low, interval.high


def better_than(base: Preparation, other: Preparation, tests: int) -> bool:
    """Whether another preparation surely fits better than the recipe's.

    With labels: McNemar's exact test of the samples whose answer changed, at 1 % shared out over all tests
    (Bonferroni). Without: the mean distance from the BatchNorms falls below 0.8 of the recipe's, and the
    bootstrap interval of the difference, at the same level, lies above 0.

    Args:
        base: The recipe's preparation.
        other: The other one, of the same samples.
        tests: How many others there are.
    """
    if base.hits is not None and other.hits is not None:
        table = PairedTable.from_hits(base.hits, other.hits)
        p_value = mcnemar(table.only_baseline, table.only_candidate).p_value
        return table.drop < 0 and p_value * tests < _ALPHA
    if base.distances is None or other.distances is None:
        return False
    if other.distances.mean() >= _NEARER * base.distances.mean():
        return False
    difference = base.distances - other.distances
    interval = bootstrap_interval([difference], np.mean, confidence=1 - _ALPHA / tests)
    return interval.low is not None and interval.low > 0


class Probe:
    """One model and the samples that it is tried on.

    Args:
        model: The FP32 model.
        dataset: The samples; all of them are read, once.
        classify: Whether its labels are class numbers that the model answers with.
        scores: The output that holds class scores; None looks for it.
        threads: Threads inside an operator; None for one a core.
        batch_size: Samples a batch, where neither model nor state insist on another.

    Attributes:
        output: The output that holds class scores; empty where there is none.
        no_scores: Why there is none.
        fits: The BatchNorms as the recipe's preparation meets them.
        first_conv: The first convolution of a model without BatchNorms.

    Raises:
        DatasetError: A sample does not fit the model's inputs.
        ModelError: ONNX Runtime refuses the model.
    """

    def __init__(
        self,
        model: OnnxModel,
        dataset: Dataset,
        *,
        classify: bool,
        scores: str | None = None,
        threads: int | None = None,
        batch_size: int = 8,
    ) -> None:
        self._model, self._dataset = model, dataset
        self._labels = integer_labels(dataset.labels) if classify else None
        self._classify, self._scores, self._threads = classify, scores, threads
        # What a state was before is known to the runner only.
        self._norms = None if dataset.state else NormProbe(model, threads)
        builder = FeedBuilder(model.inputs, str(model.path))
        pairs = list(batches(dataset, batch_size, model.fixed_batch))
        self._rows = [(len(batch), len(fed)) for batch, fed in pairs]
        self._feeds = [builder.feeds(fed) for _, fed in pairs]
        self.output = self.no_scores = ""
        self.fits: tuple[NormFit, ...] = ()
        self.first_conv: FirstConv | None = None

    def preparations(self) -> list[Preparation]:
        """Scores the recipe's preparation, then every variant, then two of them together.

        The second round goes on from the best variant. Where none is better and most samples are wrong, it
        is over all pairs: two faults can hide each other.
        """
        fp32 = OnnxRuntimeRunner(self._model, "fp32", threads=self._threads, optimize=True)
        with carrying([fp32], self._dataset.state)[0] as runner:
            base = self._score(runner, ())
            variants = self._variants()
            if not variants or (base.hits is None and base.distances is None):
                return [base]
            first = self._scored(runner, [(variant,) for variant in variants])
            found = [base, *first]
            better = [one for one in first if better_than(base, one, len(first))]
            pairs = list(combinations(variants, 2))
            if better:
                best = max(better, key=rank).changes[0]
                pairs = [(best, variant) for variant in variants]
            elif base.hits is None or base.hits.mean() >= _LOW:
                return found
            pairs = [pair for pair in pairs if _independent(*pair)]
            found += self._scored(runner, pairs)
        return found

    def _scored(self, runner: Runner, several: Sequence[tuple[InputVariant, ...]]) -> list[Preparation]:
        """Scores variants; those that the model cannot run, such as turned images, are left out."""
        found = []
        for changes in track(several, len(several), "Trying other preparations") if several else ():
            with suppress(ModelError, ValidationError):
                found.append(self._score(runner, changes))
        return found

    @property
    def _image_input(self) -> TensorSpec | None:
        """The only input that could be images."""
        found = [spec for spec in self._model.inputs if len(spec.shape) == 4 and spec.dtype.kind == "f"]
        return found[0] if len(found) == 1 else None

    def _variants(self) -> list[InputVariant]:
        spec = self._image_input
        if spec is None:
            return []
        steps = steps_of(self._dataset)
        arrays = [feed[spec.name] for feed in self._feeds]
        low, high = min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)
        images = "decoder" in self._dataset.description.get("preprocess", {})
        return input_variants(spec, arrays[0].shape, steps, pixel_scale(steps, images, low, high))

    def _prepared(self, changes: tuple[InputVariant, ...]) -> Iterator[dict[str, Array]]:
        """The batches with something changed, one after another: all of them would be large."""
        spec = self._image_input
        for feed in self._feeds:
            batch = dict(feed)
            if spec is not None:
                for variant in changes:
                    batch[spec.name] = variant.change(batch[spec.name])
            yield batch

    def _score(self, runner: Runner, changes: tuple[InputVariant, ...]) -> Preparation:
        answers = self._answers(runner, self._prepared(changes)) if self._classify else None
        moments = None if self._norms is None else self._norms.moments(self._prepared(changes))
        distances = None
        if self._norms is not None and moments is not None:
            distances = self._norms.distances(moments)
            if not changes:
                self.fits, self.first_conv = self._norms.fits(moments), self._norms.first_conv(moments)
        hits = None if answers is None or self._labels is None else answers[0] == self._labels
        return Preparation(
            name=" and ".join(variant.name for variant in changes) or "as in the recipe",
            advice="; ".join(variant.advice for variant in changes),
            hits=hits,
            predictions=None if answers is None else answers[0],
            classes=0 if answers is None else answers[1],
            distances=None if distances is None else distances[: sum(rows for rows, _ in self._rows)],
            changes=changes,
        )

    def _answers(
        self, runner: Runner, feeds: Iterable[Mapping[str, Array]]
    ) -> tuple[npt.NDArray[np.int64], int] | None:
        """Class of each sample and the number of classes; None where there are no class scores."""
        found, classes = [], 0
        for feed, (rows, fed) in zip(feeds, self._rows, strict=True):
            outputs = runner.infer(feed)
            try:
                self.output = class_scores(outputs, fed, self._scores)
            except (UsageError, ValidationError) as error:
                if self._scores is not None:
                    raise
                self._classify, self.no_scores = False, str(error)
                return None
            answers = top_classes(outputs[self.output][:rows], k=1)
            found.append(answers.top[:, 0])
            classes = answers.classes
        return np.concatenate(found), classes


def rank(preparation: Preparation) -> float:
    """The higher the better, among preparations of the same samples."""
    if preparation.hits is not None:
        return float(preparation.hits.mean())
    return -float(preparation.distances.mean()) if preparation.distances is not None else 0.0


def _independent(variant: InputVariant, other: InputVariant) -> bool:
    """Whether both can be done: not the same, and not two value ranges."""
    values = ("with values", "with ImageNet")
    return variant.name != other.name and not (
        variant.name.startswith(values) and other.name.startswith(values)
    )
