"""Finds what is wrong with data and preprocessing before INT8 is blamed for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from calib.data import (
    Dataset,
    Recipe,
    load_recipe,
    looks_like_object,
    open_calibration,
    open_validation,
)
from calib.data.checks import check_datasets, check_image_files, same_files
from calib.data.checks_values import Reading
from calib.data.findings import Finding, passes
from calib.data.overview import spread
from calib.data.reader_samples import open_object
from calib.errors import DatasetError, UsageError
from calib.validation.data_recorded import check_cache

if TYPE_CHECKING:
    from calib.graph import OnnxModel
    from calib.validation.data_probe import Preparation

__all__ = ["DataCheck", "PreparationScore", "check_data"]

_TRIED, _LEAST = 128, 16
# Values of all samples that are tried, which are kept in memory: 256 MiB of float32.
_MOST_VALUES = 1 << 26


@dataclass(frozen=True)
class PreparationScore:
    """How well one preparation of the samples fits the model.

    Attributes:
        name: "as in the recipe", or what is different.
        advice: What to set in the recipe.
        samples: Samples that it was tried on.
        top1: FP32 top-1; None without labels.
        top1_low: Lower end of its 95 % interval.
        top1_high: Upper end.
        distance: Mean distance from what the BatchNorms remember; None without any.
        distance_low: Lower end of its 95 % interval.
        distance_high: Upper end.
    """

    name: str
    advice: str
    samples: int
    top1: float | None
    top1_low: float | None
    top1_high: float | None
    distance: float | None
    distance_low: float | None
    distance_high: float | None


@dataclass(frozen=True)
class DataCheck:
    """What a check of data found.

    Attributes:
        dataset: The dataset's name.
        model: The model's path; empty where none was given.
        read: Samples that were read, by use.
        findings: The findings, errors first.
        preparations: The recipe's preparation first, then others of the same samples.
    """

    dataset: str
    model: str
    read: Mapping[str, int]
    findings: tuple[Finding, ...]
    preparations: tuple[PreparationScore, ...] = ()

    def passed(self, *, strict: bool = False) -> bool:
        """Whether there is no error; if strict, no warning either."""
        return passes(self.findings, strict=strict)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)


def check_data(
    data: str | os.PathLike[str] | Recipe | Dataset,
    model: str | os.PathLike[str] | OnnxModel | None = None,
    *,
    validation: Dataset | None = None,
    cache: str | os.PathLike[str] | None = None,
    samples: int | None = 256,
    scores: str | None = None,
    threads: int | None = None,
) -> DataCheck:
    """Looks for faults in data and preprocessing.

    Without a model: files that were left out, unusual images, NaN, constant or mixed values, calibration
    and validation values of different size, missing classes, lists cut off, duplicates. With one: inputs
    that do not fit, labels that do not fit the outputs or the recipe's task or are off by one, a low FP32
    accuracy by that task, values that BatchNorms or the first convolution do not expect, and other
    preparations that fit surely better. With a cache: ranges and recorded preprocessing that are not those
    of the data.

    Args:
        data: A recipe, its path or shipped name, a reader as ``module:object``, or the calibration dataset.
        model: The FP32 ONNX model, or its path.
        validation: The validation dataset, where ``data`` is a dataset.
        cache: A calibration cache that is meant for these data.
        samples: Samples of each use to read, spread evenly; None for all. Other preparations are tried on
            up to 128 of them.
        scores: The output that holds class scores; None finds it.
        threads: Threads within an operator; None for every core.

    Returns:
        The findings.

    Raises:
        UsageError: ``samples`` is below 1, or a recipe was given with a validation dataset.
        DatasetError: The data cannot be opened.
        ModelError: The model cannot be read or run.
        CacheError: The cache cannot be read.
    """
    if samples is not None and samples < 1:
        raise UsageError(f"No samples: expected at least 1, got {samples}.")
    network = _loaded(model)
    recipe, uses, found = _opened(data, validation, samples)
    ours, theirs = uses["calibration"], uses.get("validation", uses["calibration"])
    known = {}
    if recipe is not None:
        found += check_image_files(recipe, uses)
        if all(recipe.source_of(use).images for use in uses):
            known = same_files(ours, theirs, recipe.data_root)
    about_data, readings = check_datasets(ours, theirs if "validation" in uses else None, samples, known)
    found += about_data
    if cache is not None:
        found += check_cache(cache, recipe, network, readings)
    tried: list[Preparation] = []
    if network is not None:
        about_model, tried = _against(network, recipe, readings, scores, threads)
        found += about_model
    return DataCheck(
        dataset=ours.name,
        model="" if network is None else str(network.path),
        read={reading.use: len(reading.samples) for reading in readings},
        findings=tuple(sorted(found, key=lambda finding: _ORDER[finding.severity])),
        preparations=tuple(map(_score, tried)),
    )


_ORDER = {"error": 0, "warning": 1, "note": 2}


def _loaded(model: str | os.PathLike[str] | OnnxModel | None) -> OnnxModel | None:
    from calib.graph import load_model

    return load_model(model) if isinstance(model, (str, os.PathLike)) else model


def _opened(
    data: str | os.PathLike[str] | Recipe | Dataset, validation: Dataset | None, samples: int | None
) -> tuple[Recipe | None, dict[Any, Dataset], list[Finding]]:
    """The recipe, the dataset of each use, and what there is to say of a use that cannot be opened."""
    if isinstance(data, str) and looks_like_object(data):
        data = open_object(data, samples or _TRIED)
    if isinstance(data, Dataset):
        uses = (
            {"calibration": data} if validation is None else {"calibration": data, "validation": validation}
        )
        return None, uses, []
    if validation is not None:
        raise UsageError("A recipe has its own validation data: validation= is for datasets made in Python.")
    recipe = data if isinstance(data, Recipe) else load_recipe(data)
    calibration = open_calibration(recipe)
    try:
        return recipe, {"calibration": calibration, "validation": open_validation(recipe)}, []
    except DatasetError as error:
        finding = Finding("no-validation", "warning", str(error), advice="Nothing is checked of validation.")
        return recipe, {"calibration": calibration}, [finding]


def _against(
    model: OnnxModel,
    recipe: Recipe | None,
    readings: tuple[Reading, ...],
    scores: str | None,
    threads: int | None,
) -> tuple[list[Finding], list[Preparation]]:
    """Findings on data and model together; those on accuracy only where the samples fit the inputs."""
    from calib.validation.data_doubts import Subject, check_fit, check_model
    from calib.validation.data_tasks import check_task

    fitting = (finding for reading in readings for finding in check_fit(model, reading))
    # One fault of both uses is one finding, where the sample is no part of the message.
    found = list({finding.message: finding for finding in fitting}.values())
    broken = any(
        figures.not_finite
        for reading in readings
        for sample in reading.samples
        for figures in sample.values.values()
    )
    if broken or any(finding.severity == "error" for finding in found):
        return found, []
    last = readings[-1]
    indices = _tried(last)
    if not indices:
        return found, []
    samples = last.dataset.subset(indices)
    alike = all(sample.shapes == last.samples[0].shapes for sample in last.samples)
    batched = alike or bool(last.dataset.padding)
    subject = Subject(model, recipe, last.dataset, samples, scores, threads, batched)
    about_task = check_task(
        model,
        recipe,
        last.dataset,
        samples.ids,
        scores=scores,
        threads=threads,
        batch_size=8 if batched else 1,
    )
    about_model, tried = check_model(subject, judged=bool(about_task))
    return [*found, *about_task, *about_model], tried


def _tried(reading: Reading) -> list[int]:
    """Samples to try: spread evenly, but the first in order where one's state goes into the next."""
    if reading.dataset.state:
        return [] if reading.failed else list(range(min(len(reading.dataset), _TRIED)))
    ids = [sample.id for sample in reading.samples]
    values = max((sum(map(prod, sample.shapes.values())) for sample in reading.samples), default=0)
    chosen = {
        ids[index] for index in spread(len(ids), max(_LEAST, min(_TRIED, _MOST_VALUES // (values or 1))))
    }
    return [index for index, name in enumerate(reading.dataset.ids) if name in chosen]


def _score(preparation: Preparation) -> PreparationScore:
    accuracy, distance = preparation.accuracy(), preparation.distance()
    rows = preparation.hits if preparation.hits is not None else preparation.distances
    return PreparationScore(
        preparation.name,
        preparation.advice,
        0 if rows is None else len(rows),
        *(accuracy or (None, None, None)),
        *(distance or (None, None, None)),
    )
