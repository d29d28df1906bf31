"""What a dataset holds: values of every input and channel, labels, and what was left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calib.data.dataset import Array, Dataset, Sample
from calib.data.fingerprint import fingerprint
from calib.data.preprocess import Preprocess
from calib.data.truth import IGNORED, Boxes, Pair
from calib.progress import track

__all__ = [
    "MANY",
    "Figures",
    "InputFigures",
    "LabelFigures",
    "Overview",
    "Tally",
    "channel_axis",
    "describe",
    "label_figures",
    "sample_kind",
    "spread",
    "steps_of",
]

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Figures:
    """Range and moments of some values; None where none of them is finite.

    Attributes:
        count: How many values there are.
        minimum: The smallest finite value.
        mean: Mean of the finite values.
        maximum: The largest finite value.
        std: Standard deviation of the finite values (divided by their number).
        not_finite: How many are NaN or infinite.
    """

    count: int
    minimum: float | None
    mean: float | None
    maximum: float | None
    std: float | None
    not_finite: int

    @property
    def reach(self) -> float:
        """The largest finite value, whatever its sign; 0 where there is none."""
        return max(abs(self.minimum or 0.0), abs(self.maximum or 0.0))


@dataclass(frozen=True)
class InputFigures:
    """The values of one model input, over the samples that were read.

    Attributes:
        name: The input.
        dtypes: Types that occur.
        shapes: Shapes that occur, without a batch axis, and how many samples have each.
        values: Of all channels together.
        channels: Of each channel; empty where there is no axis of 1, 3 or 4.
        constant: Samples whose values are all the same.
    """

    name: str
    dtypes: tuple[str, ...]
    shapes: Mapping[tuple[int, ...], int]
    values: Figures
    channels: tuple[Figures, ...]
    constant: int


@dataclass(frozen=True)
class LabelFigures:
    """The ground truth.

    Attributes:
        kind: ``classes`` (numbers, or names that recur), ``boxes``, ``pixels`` (of masks), ``numbers``,
            ``texts``, ``pairs`` or ``none``.
        counts: How often each class occurs: samples, boxes, or pixels; empty for other kinds.
        missing: Samples without a label.
        lowest: The smallest number, or the length of the shortest text.
        highest: The largest.
    """

    kind: str = "none"
    counts: Mapping[Any, int] = field(default_factory=dict)
    missing: int = 0
    lowest: float | None = None
    highest: float | None = None


@dataclass(frozen=True)
class Overview:
    """What ``describe`` found.

    Attributes:
        name: The dataset.
        samples: Samples it has.
        read: Samples whose values were read.
        inputs: Its inputs.
        labels: Its ground truth.
        class_names: Name of each class number, where known.
        notes: What was skipped or repaired.
        preprocess: What was done to each sample.
        fingerprint: Identifies data and preprocessing.
    """

    name: str
    samples: int
    read: int
    inputs: tuple[InputFigures, ...]
    labels: LabelFigures
    class_names: tuple[str, ...] | None
    notes: tuple[str, ...]
    preprocess: Mapping[str, Any]
    fingerprint: str


MANY = 64
"""Fewer samples than this are read at once, without a word of progress."""


def spread(count: int, wanted: int | None) -> list[int]:
    """Indices spread evenly over a dataset, the first and the last among them.

    >>> spread(10, 4), spread(3, 8), spread(5, 1)
    ([0, 3, 6, 9], [0, 1, 2], [0])
    """
    if wanted is None or wanted >= count:
        return list(range(count))
    return [int(index) for index in np.linspace(0, count - 1, wanted).astype(np.int64)]


def steps_of(dataset: Dataset) -> Preprocess:
    """The preprocessing that a dataset says was done to its samples; none where it says nothing."""
    record = dataset.description.get("preprocess", {})
    known = {key: value for key, value in record.items() if key in Preprocess.model_fields}
    return Preprocess.model_validate(known)


def channel_axis(shape: Sequence[int], layout: str) -> int | None:
    """The axis of the channels of an image: the layout's, or one that could be.

    Args:
        shape: Of one sample.
        layout: What the recipe says.

    Returns:
        None where no first or last axis of three is 1, 3 or 4 long.

    >>> channel_axis((3, 8, 9), "chw"), channel_axis((8, 9, 1), "chw"), channel_axis((8, 9), "chw")
    (0, 2, None)
    """
    if len(shape) != 3:
        return None
    first, other = (0, 2) if layout.startswith("c") else (2, 0)
    return next((axis for axis in (first, other) if shape[axis] in _CHANNELS), None)


class Tally:
    """Adds up values, a sample after another, in double precision.

    Means and squares are merged as in Chan, Golub and LeVeque, "Updating formulae and a pairwise
    algorithm for computing sample variances" (1979), so that a large mean does not swallow the spread.
    """

    def __init__(self) -> None:
        self._count = self._finite = 0
        self._mean = self._squares = 0.0
        self._low, self._high = math.inf, -math.inf

    def add(self, values: Array) -> None:
        """Counts values of any shape."""
        exact = np.asarray(values, np.float64).ravel()
        finite = exact[np.isfinite(exact)]
        self._count += exact.size
        if not finite.size:
            return
        mean, merged = float(finite.mean()), self._finite + finite.size
        shift = mean - self._mean
        self._squares += float(np.square(finite - mean).sum())
        self._squares += shift * shift * self._finite * finite.size / merged
        self._mean += shift * finite.size / merged
        self._finite = merged
        self._low, self._high = min(self._low, float(finite.min())), max(self._high, float(finite.max()))

    def figures(self) -> Figures:
        """What was counted so far.

        >>> tally = Tally()
        >>> tally.add(np.array([1.0, 3.0, np.nan]))
        >>> tally.figures()
        Figures(count=3, minimum=1.0, mean=2.0, maximum=3.0, std=1.0, not_finite=1)
        """
        if not self._finite:
            return Figures(self._count, None, None, None, None, self._count)
        std = math.sqrt(self._squares / self._finite)
        return Figures(self._count, self._low, self._mean, self._high, std, self._count - self._finite)


class _InputTally:
    """Adds up one input."""

    def __init__(self, name: str, layout: str) -> None:
        self._name, self._layout = name, layout
        self._dtypes: dict[str, None] = {}
        self._shapes: Counter[tuple[int, ...]] = Counter()
        self._all = Tally()
        self._channels: dict[int, Tally] = {}
        self._constant = 0

    def add(self, values: Array) -> None:
        self._dtypes[str(values.dtype)] = None
        self._shapes[values.shape] += 1
        self._all.add(values)
        self._constant += bool(values.size > 1 and (values == values.flat[0]).all())
        axis = channel_axis(values.shape, self._layout)
        if axis is not None:
            for number, channel in enumerate(np.moveaxis(values, axis, 0)):
                self._channels.setdefault(number, Tally()).add(channel)

    def figures(self) -> InputFigures:
        channels = tuple(tally.figures() for _, tally in sorted(self._channels.items()))
        return InputFigures(
            name=self._name,
            dtypes=tuple(self._dtypes),
            shapes=dict(self._shapes.most_common()),
            values=self._all.figures(),
            channels=channels,
            constant=self._constant,
        )


def describe(dataset: Dataset, samples: int | None = None) -> Overview:
    """Reads a dataset and says what it holds.

    Args:
        dataset: Any dataset.
        samples: Samples to read, spread evenly; None for all. Labels that are known without reading
            are counted over all samples.

    Raises:
        DatasetError: A sample cannot be read.

    >>> from calib.data import from_arrays
    >>> overview = describe(from_arrays("ramp", {"x": np.arange(6.0).reshape(3, 2)}, labels=[0, 1, 0]))
    >>> overview.inputs[0].values.mean, overview.labels.counts
    (2.5, {0: 2, 1: 1})
    """
    layout = steps_of(dataset).layout
    tallies: dict[str, _InputTally] = {}
    truth: list[Any] = []
    chosen = spread(len(dataset), samples)
    for index in track(chosen, len(chosen), "Reading samples", least=MANY):
        sample = dataset[index]
        truth.append(sample.label)
        for name, values in sample.inputs.items():
            tallies.setdefault(name, _InputTally(name, layout)).add(values)
    return Overview(
        name=dataset.name,
        samples=len(dataset),
        read=len(chosen),
        inputs=tuple(tally.figures() for tally in tallies.values()),
        labels=label_figures(truth if dataset.labels is None else dataset.labels),
        class_names=dataset.class_names,
        notes=dataset.notes,
        preprocess=dataset.description.get("preprocess", {}),
        fingerprint=fingerprint(dataset),
    )


def label_figures(labels: Iterable[Any]) -> LabelFigures:
    """Counts ground truth of any task."""
    every = list(labels)
    known = [label for label in every if label is not None]
    missing = len(every) - len(known)
    if not known:
        return LabelFigures(missing=missing)
    first = known[0]
    if isinstance(first, Boxes):
        return LabelFigures("boxes", _counted(np.concatenate([truth.classes for truth in known])), missing)
    if isinstance(first, np.ndarray) and first.ndim == 2 and first.dtype.kind in "iu":
        pixels = Counter[int]()
        for mask in known:
            pixels.update(_counted(mask[mask != IGNORED]))
        return LabelFigures("pixels", dict(sorted(pixels.items())), missing)
    if isinstance(first, Pair):
        return _extent("pairs", [pair.score for pair in known], missing)
    names = isinstance(first, str) and 2 * len(set(known)) <= len(known)
    if names or isinstance(first, (bool, int, np.integer)):
        return LabelFigures("classes", dict(sorted(Counter(known).items())), missing)
    if isinstance(first, str):
        return _extent("texts", [len(text) for text in known], missing)
    return _extent("numbers", np.concatenate([np.ravel(number) for number in known]), missing)


def _counted(numbers: Array) -> dict[int, int]:
    values, counts = np.unique(numbers, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _extent(kind: str, numbers: Sequence[float] | Array, missing: int) -> LabelFigures:
    return LabelFigures(kind, {}, missing, float(np.min(numbers)), float(np.max(numbers)))


def sample_kind(sample: Sample, name: str) -> str:
    """How an input can be drawn: ``image``, ``plot`` or ``none``.

    Images are arrays of two axes, or of three with 1, 3 or 4 channels first or last; plots are
    floating-point arrays with one axis longer than one, such as sound.
    """
    values = sample.inputs[name]
    long = [side for side in values.shape if side > 1]
    if values.dtype.kind == "f" and len(long) == 1 and long[0] >= 16:
        return "plot"
    if len(long) < 2 or values.ndim not in (2, 3):
        return "none"
    return "image" if values.ndim == 2 or channel_axis(values.shape, "chw") is not None else "none"
