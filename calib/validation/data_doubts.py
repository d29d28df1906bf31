"""Doubts about data that only a model can raise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from calib.data import Batch, Dataset, Recipe
from calib.data.checks_values import Reading
from calib.data.findings import Finding, Severity
from calib.errors import DatasetError
from calib.graph import FeedBuilder, OnnxModel, TensorSpec
from calib.validation.batch_norms import FirstConv, NormFit
from calib.validation.classification import baseline_warnings
from calib.validation.data_probe import Preparation, Probe, better_than, rank
from calib.wording import counted, sentence

__all__ = ["Subject", "check_fit", "check_model"]

_FAR_RATIO, _OFF_RATIO = 12.0, 4.0
_FAR_SHIFT, _OFF_SHIFT = 12.0, 4.0
# Seven trained networks lie between 1.1 and 1.7, and beyond 200 with values of 0 to 255.
_CONV_RATIO = 30.0
_GAIN = 0.05


@dataclass(frozen=True)
class Subject:
    """One model, and the samples that it is tried on.

    Attributes:
        model: The FP32 model.
        recipe: Where the samples come from; None for a dataset from Python.
        dataset: All samples of the use.
        samples: Those that are tried.
        scores: The output that holds class scores; None looks for it.
        threads: Threads inside an operator; None for one a core.
        alike: Whether the samples are of one shape, so that they make batches.
    """

    model: OnnxModel
    recipe: Recipe | None
    dataset: Dataset
    samples: Dataset
    scores: str | None
    threads: int | None
    alike: bool = True

    @property
    def source(self) -> str:
        """The recipe's file, or the dataset's name."""
        if self.recipe is None or not self.recipe.path.is_file():
            return self.dataset.name
        return str(self.recipe.path)

    @property
    def task(self) -> str | None:
        """The task that the recipe states, by its name."""
        task = None if self.recipe is None else self.recipe.task
        return None if task is None else task.kind

    @property
    def output(self) -> str | None:
        """The output that holds class scores, by the caller's word or the recipe's."""
        task = None if self.recipe is None else self.recipe.task
        stated: str | None = getattr(task, "output", None) if self.classify else None
        return self.scores or stated

    @property
    def classify(self) -> bool:
        """Whether labels are class numbers that the model may answer with."""
        labels = self.samples.labels
        if labels is None or self.task not in (None, "classification"):
            return False
        return all(isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in labels)


def check_fit(model: OnnxModel, reading: Reading) -> list[Finding]:
    """Whether the samples of one use can be fed: names, shapes, types.

    Args:
        model: The model.
        reading: What was read of the use; its first sample of each shape is tried.
    """
    builder = FeedBuilder(model.inputs, str(model.path))
    first: dict[object, str] = {}
    for sample in reading.samples:
        first.setdefault((tuple(sample.shapes.items()), tuple(sample.dtypes.items())), sample.id)
    numbers = {name: index for index, name in enumerate(reading.dataset.ids)}
    for name in first.values():
        batch = reading.dataset.batch([numbers[name]])
        try:
            builder.feeds(batch.filled(model.fixed_batch or 0))
        except DatasetError as error:
            return [Finding("input-misfit", "error", str(error), (name,), _axes(model, batch))]
    return [Finding("converted", "note", sentence(note)) for note in builder.notes]


def _axes(model: OnnxModel, batch: Batch) -> str:
    """Advice where the axes only stand in another order."""
    for spec in model.inputs:
        for name, array in batch.inputs.items():
            if (spec.name == name or len(model.inputs) == len(batch.inputs) == 1) and array.ndim == 4:
                order = _order(spec, array.shape)
                if order is not None:
                    return order
    return ""


def _order(spec: TensorSpec, shape: tuple[int, ...]) -> str | None:
    if len(spec.shape) != 4:
        return None
    for axes in permutations((1, 2, 3)):
        moved = [shape[axis] for axis in axes]
        wanted = spec.shape[1:]
        fits = all(not isinstance(want, int) or want == got for want, got in zip(wanted, moved, strict=True))
        if fits and axes in ((3, 1, 2), (2, 3, 1)):
            first, then = ("hwc", "chw") if axes == (3, 1, 2) else ("chw", "hwc")
            return (
                f"The samples are {first.upper()} and the model takes {then.upper()}: set "
                f"preprocess.layout: {then}, and for arrays source.layout: {first}."
            )
    return None


def check_model(subject: Subject, *, judged: bool = False) -> tuple[list[Finding], list[Preparation]]:
    """Everything that a run of the model says of the data.

    Args:
        subject: Model and samples; they must fit each other.
        judged: Whether the recipe's task has judged FP32's answers already.

    Returns:
        The findings, and every preparation that was tried, the recipe's first.
    """
    probe = Probe(
        subject.model,
        subject.samples,
        classify=subject.classify,
        scores=subject.output,
        threads=subject.threads,
        batch_size=8 if subject.alike else 1,
    )
    tried = probe.preparations()
    base = tried[0]
    found = _scores(subject, base, probe) or _labels(subject, base, probe.output)
    misfit = any(finding.code == "labels-outputs" and finding.severity == "error" for finding in found)
    if base.hits is not None and not misfit:
        found += _accuracy(subject, base)
    found += _norms(probe.fits, len(subject.samples)) + _first_conv(probe.first_conv)
    found += _better(tried)
    judged = judged or any(finding.code == "no-labels" for finding in found)
    if not judged and base.hits is None and base.distances is None and probe.first_conv is None:
        text = "There are neither labels nor BatchNorms nor a biased first convolution to judge values by."
        found.append(Finding("not-judged", "note", text, advice="Look at them: calib data show --out"))
    return found, tried


def _scores(subject: Subject, base: Preparation, probe: Probe) -> list[Finding]:
    """A classification whose class scores are not to be found."""
    if base.classes or subject.task != "classification":
        return []
    if not probe.no_scores:
        kind = None if not subject.samples.labels else type(subject.samples.labels[0]).__name__
        have = f"labels are of type {kind}" if kind is not None else "samples have no labels"
        text = f"The task is classification, which needs a class number of every sample, but {have}."
        advice = "Give all of them one (kind audio: classes: folders), or correct the recipe's task."
        return [Finding("no-labels", "error", text, (subject.source,), advice)]
    message = probe.no_scores.replace("name one with scores=", "name one with --scores")
    return [Finding("no-class-scores", "error", message, (str(subject.model.path),))]


def _labels(subject: Subject, base: Preparation, output: str) -> list[Finding]:
    labels, names = subject.dataset.labels, subject.dataset.class_names
    if not base.classes:
        return []
    where = (subject.source, str(subject.model.path))
    found = []
    numbers = [int(label) for label in labels or () if isinstance(label, (int, np.integer))]
    if numbers and (max(numbers) >= base.classes or min(numbers) < 0):
        message = (
            f"Labels go from {min(numbers)} to {max(numbers)}, but output {output!r} has {base.classes} "
            f"scores, for classes 0 to {base.classes - 1}."
        )
        advice = "Correct the labels, or take the model that belongs to this dataset."
        found.append(Finding("labels-outputs", "error", message, where, advice))
    elif names is not None and len(names) != base.classes:
        severity: Severity = "error" if len(names) > base.classes else "warning"
        message = (
            f"{counted(len(names), 'class name[s]')}, {counted(base.classes, 'output[s]')} ({output!r})."
        )
        advice = "Is the model made for these classes? A background class makes one output more."
        found.append(Finding("labels-outputs", severity, message, where, advice))
    return found


def _accuracy(subject: Subject, base: Preparation) -> list[Finding]:
    """The doubts that validation has too, before INT8 is judged."""
    assert base.predictions is not None
    labels = np.asarray(subject.samples.labels, np.int64)
    found = []
    for text in baseline_warnings(base.predictions.tolist(), labels, base.classes):
        shifted = "shifted by" in text
        code = "labels-off-by-one" if shifted else "low-accuracy"
        # Without a task the labels may mean something else.
        certain = shifted or (subject.task is not None and "no better than chance" in text)
        severity: Severity = "error" if certain else "warning"
        found.append(Finding(code, severity, text, (subject.source,)))
    if not found:
        accuracy = base.accuracy()
        assert accuracy is not None
        text = f"FP32 top-1 is {_percent(accuracy)} on {counted(len(labels), 'sample[s]')}."
        found.append(Finding("accuracy", "note", text))
    return found


def _norms(fits: Sequence[NormFit], samples: int) -> list[Finding]:
    if not fits:
        return []
    first = fits[0]
    ratio = max(first.std_ratio, 1 / first.std_ratio) if first.std_ratio else float("inf")
    message = (
        f"The first BatchNorm gets values {first.std_ratio:.3g} times as spread as in training, and its "
        f"channels' means are off by {first.z_rms:.3g} standard deviations (root mean square of "
        f"{counted(first.channels, 'channel[s]')}, {counted(samples, 'sample[s]')})."
    )
    if ratio < _OFF_RATIO and first.z_rms < _OFF_SHIFT:
        return [Finding("batchnorm", "note", message, (first.name,))]
    far = ratio >= _FAR_RATIO or first.z_rms >= _FAR_SHIFT
    advice = "Compare scale, mean and std with the training code."
    return [Finding("batchnorm", "error" if far else "warning", message, (first.name,), advice)]


def _first_conv(conv: FirstConv | None) -> list[Finding]:
    if conv is None or 1 / _CONV_RATIO <= conv.ratio <= _CONV_RATIO:
        return []
    size = "large" if conv.ratio > 1 else "small"
    message = (
        f"The first convolution's outputs vary {conv.ratio:.3g} times as much as its biases are large: the "
        f"values look too {size} for it."
    )
    advice = "Compare scale, mean and std with the training code: 0 to 255 in place of 0 to 1?"
    return [Finding("first-convolution", "warning", message, (conv.name,), advice)]


def _surest(tried: Sequence[Preparation]) -> Preparation | None:
    """The preparation that fits surely better than the recipe's; of two steps only if both are needed."""
    base, others = tried[0], tried[1:]
    singles = [other for other in others if len(other.changes) == 1]
    pairs = [other for other in others if len(other.changes) > 1]
    better = [other for other in singles if better_than(base, other, len(singles))]
    if not better:
        return max((pair for pair in pairs if better_than(base, pair, len(others))), key=rank, default=None)
    best = max(better, key=rank)
    return max((pair for pair in pairs if better_than(best, pair, len(pairs))), key=rank, default=best)


def _better(tried: Sequence[Preparation]) -> list[Finding]:
    base, chosen = tried[0], _surest(tried)
    if chosen is None:
        return []
    ours, theirs = base.accuracy(), chosen.accuracy()
    name, advice = (
        f"{chosen.name[0].upper()}{chosen.name[1:]}",
        f"Try {chosen.advice}.{_others(tried, chosen)}",
    )
    if ours is not None and theirs is not None and base.hits is not None:
        message = (
            f"{name} FP32 top-1 would be {_percent(theirs)} instead of {_percent(ours)} on the same "
            f"{counted(len(base.hits), 'sample[s]')}."
        )
        severity: Severity = "error" if theirs[0] - ours[0] >= _GAIN else "warning"
        return [Finding("preprocessing", severity, message, advice=advice)]
    here, there = base.distance(), chosen.distance()
    assert here is not None
    assert there is not None
    message = (
        f"{name} the BatchNorms' inputs would be nearer to those of training: distance {_distance(there)} "
        f"instead of {_distance(here)}."
    )
    return [Finding("preprocessing", "warning", message, advice=advice)]


def _others(tried: Sequence[Preparation], chosen: Preparation) -> str:
    """Other preparations, of as many steps, that these samples do not tell from the chosen one."""
    base, rest = tried[0], tried[1:]
    alike = [
        other.name
        for other in rest
        if other is not chosen
        and len(other.changes) == len(chosen.changes)
        and better_than(base, other, len(rest))
        and not better_than(other, chosen, len(rest))
    ]
    return f" On these samples as good, or nearly: {', '.join(alike)}." if alike else ""


def _percent(share: tuple[float, float, float]) -> str:
    value, low, high = (100 * number for number in share)
    return f"{value:.1f}% ({low:.1f} to {high:.1f}%)"


def _distance(figure: tuple[float, float | None, float | None]) -> str:
    value, low, high = figure
    ends = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    return f"{value:.3f}{ends}"
