"""Judges answers of tasks without any model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from plain_runner import PlainRunner

from calib.data import Array, Batch, Dataset, Sample
from calib.data.geometry import Geometry
from calib.data.task_options import parse_task
from calib.validation.comparison import Comparison
from calib.validation.results import Metric
from calib.validation.tasks import Context

Outputs = Mapping[str, Array]


class TableRunner(PlainRunner):
    """Answers with rows of given outputs; input ``i`` holds the number of the sample."""

    name, clock, note = "table", "none", ""

    def __init__(self, precision: str, outputs: Outputs | Callable[[Array], dict[str, Array]]) -> None:
        self.precision = precision
        self._outputs = outputs
        self.output_names = ("y",) if callable(outputs) else tuple(outputs)

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        index = feeds["i"].reshape(-1)
        if callable(self._outputs):
            return self._outputs(index)
        return {name: np.asarray(array)[index] for name, array in self._outputs.items()}

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        return 1.0


def numbered(
    labels: Sequence[Any],
    *,
    geometries: Sequence[Geometry] | None = None,
    inputs: Outputs | None = None,
    class_names: tuple[str, ...] | None = None,
) -> Dataset:
    """Samples ``s0``, ``s1`` … whose input ``i`` is their number."""

    def load(index: int) -> Sample:
        given = {name: array[index] for name, array in (inputs or {}).items()}
        geometry = None if geometries is None else geometries[index]
        feeds = {"i": np.array([index]), **given}
        return Sample(f"s{index}", feeds, labels[index], f"file {index}", geometry=geometry)

    ids = tuple(f"s{index}" for index in range(len(labels)))
    whole = all(isinstance(label, int) for label in labels)
    return Dataset("numbered", ids, load, tuple(labels) if whole else None, class_names)


def judged(
    task: Any,
    dataset: Dataset,
    fp32: Any,
    int8: Any = None,
    *,
    batch: int = 4,
    context: Context | None = None,
) -> Comparison:
    """Compares outputs of FP32 and INT8, a row a sample; INT8 is the same where none is given."""
    runners = [TableRunner("fp32", fp32), TableRunner("int8", fp32 if int8 is None else int8)]
    comparison = Comparison(runners, dataset, task=parse_task(task), context=context)
    for part in dataset.batches(batch):
        comparison.add(part, part.inputs)
    return comparison


def metrics(comparison: Comparison, which: int = 0) -> dict[str, Metric]:
    """The figures of FP32, or of INT8 where ``which`` is 1."""
    return {metric.name: metric for metric in comparison.judgements[which].metrics}


def values(comparison: Comparison, which: int = 0) -> dict[str, float | None]:
    return {name: metric.value for name, metric in metrics(comparison, which).items()}


def one_batch(count: int, labels: Sequence[Any] = ()) -> Batch:
    names = tuple(f"s{index}" for index in range(count))
    return Batch(names, {}, tuple(labels) or (None,) * count, names)
