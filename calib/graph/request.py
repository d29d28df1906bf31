"""From the arguments of a calibration to a job, everything checked that can be."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib.calibrators import CalibrationCache, make_calibrator, sidecar_path
from calib.calibrators.cache_edit import with_header
from calib.data import (
    Array,
    Dataset,
    Recipe,
    Stream,
    load_object,
    load_recipe,
    looks_like_object,
    open_calibration,
    open_reader,
)
from calib.data.selection import pick
from calib.errors import UsageError
from calib.files import check_apart, check_writable
from calib.graph.feeds import FeedBuilder
from calib.graph.intake import OnnxModel, load_model
from calib.graph.job import CalibrationJob
from calib.wording import counted

__all__ = ["Request", "make_job", "sample_feeds"]

_BATCH_SIZE = 32
_FEW = 8


@dataclass(frozen=True)
class Request:
    """How to calibrate: the arguments that ``calibrate`` and ``calibrate_shard`` share.

    Attributes:
        method: Name of the calibrator.
        percentile: Percentage of the values to keep, for "percentile".
        samples: Number of calibration samples; None for what the data says.
        batch_size: Samples a batch; None for the default, or a reader's own batches.
        seed: Seed of the selection of samples.
        tensorrt: The TensorRT version that shall read the cache.
        threads: Threads inside an operator; None for one a core.
        workers: Processes that read samples; None for what the recipe says.
    """

    method: str
    percentile: float | None
    samples: int | None
    batch_size: int | None
    seed: int | None
    tensorrt: str
    threads: int | None
    workers: int | None = None


def make_job(
    model: str | os.PathLike[str] | OnnxModel,
    data: Any,
    wanted: Request,
    out: str | os.PathLike[str] | None,
) -> CalibrationJob:
    """Checks everything that can be checked before the work, and makes a job of it.

    Args:
        model: The model, or its path.
        data: What ``calibrate`` takes as data.
        wanted: How to calibrate.
        out: File that will be written; None for none.

    Raises:
        CalibError: Something cannot be used, with what and why.
    """
    if wanted.batch_size is not None and wanted.batch_size < 1:
        raise UsageError(f"Batch size must be at least 1, got {wanted.batch_size}.")
    if wanted.threads is not None and wanted.threads < 1:
        raise UsageError(f"Threads must be at least 1, got {wanted.threads}.")
    options = {} if wanted.percentile is None else {"percentile": wanted.percentile}
    algorithm = make_calibrator(wanted.method, **options).algorithm
    with_header(CalibrationCache({}, algorithm), version=wanted.tensorrt)
    targets = () if out is None else (check_writable(out), check_writable(sidecar_path(out)))
    network = model if isinstance(model, OnnxModel) else load_model(model)
    _check_apart(targets, "model", [network.path])
    _check_apart(targets, "model's file of weights", network.external_files)
    network.refuse_quantized("Calibrate the float model that it was made from.")
    FeedBuilder(network.inputs, str(network.path))
    recipe, dataset = _opened(data, network, wanted)
    if recipe is not None:
        _check_apart(targets, "recipe", [recipe.path])
        _check_apart(targets, "data", _data_files(recipe))
    if wanted.workers is not None:
        dataset = _read_by(dataset, wanted.workers)
    seed = wanted.seed
    return CalibrationJob(
        model=network,
        dataset=dataset,
        method=wanted.method,
        options=options,
        batch_size=_checked_batch_size(network, dataset, wanted.batch_size),
        threads=wanted.threads,
        recipe="" if recipe is None else recipe.path.name,
        preprocess={} if recipe is None else recipe.preprocess,
        seed=seed if recipe is None or seed is not None else recipe.calibration.seed,
        tensorrt=wanted.tensorrt,
    )


def _data_files(recipe: Recipe) -> list[Path]:
    """Whatever the source of the samples names that may be a file: arrays, a list, annotations."""
    values = recipe.source_of("calibration").model_dump().values()
    return [recipe.data_root / value for value in values if isinstance(value, str)]


def _check_apart(targets: Iterable[Path], what: str, sources: Sequence[Path]) -> None:
    """Refuses a cache, or its sidecar, that would replace what it is made from."""
    for target in targets:
        for source in sources:
            check_apart(target, {what: source})


def sample_feeds(model: OnnxModel, data: Any, samples: int) -> list[dict[str, Array]]:
    """A few samples, as a model takes them.

    Args:
        model: The model.
        data: What ``calibrate`` takes as data.
        samples: How many, up to whole batches; fewer where the data has no more.

    Returns:
        Batches, one array for each input.

    Raises:
        CalibError: Something cannot be used, with what and why.
    """
    builder = FeedBuilder(model.inputs, str(model.path))
    _, opened = _opened(data, model, Request("minmax", None, None, None, None, "8.6.0", None))
    fixed = _checked_batch_size(model, opened, None) if _carries_state(opened) else model.fixed_batch
    batches = opened.batches(fixed) if isinstance(opened, Stream) else opened.batches(fixed or _FEW)
    feeds: list[dict[str, Array]] = []
    read = 0
    for batch in batches:
        # State in the middle of a sequence is known only to who runs the sequence.
        if fixed in (None, len(batch)) and batch.begins:
            feeds.append(builder.feeds(batch))
        read += len(batch)
        if read >= samples:
            break
    if not feeds:
        raise UsageError(f"{model.path} insists on batches of {fixed}: give at least that many samples.")
    return feeds


def _opened(data: Any, model: OnnxModel, wanted: Request) -> tuple[Recipe | None, Dataset | Stream]:
    if isinstance(data, (str, os.PathLike, Recipe)) and not _names_object(data):
        recipe = data if isinstance(data, Recipe) else load_recipe(data)
        return recipe, open_calibration(recipe, samples=wanted.samples, seed=wanted.seed)
    source, name = (load_object(data), data) if isinstance(data, str) else (data, None)
    axes = {spec.name: len(spec.shape) for spec in model.inputs}
    opened = open_reader(source, name, inputs=list(axes), axes=axes)
    if isinstance(opened, Dataset):
        return None, _chosen(opened, wanted.samples, wanted.seed)
    if wanted.seed is not None:
        raise UsageError("A reader is read in order: --seed needs a recipe or a dataset.")
    return None, opened if wanted.samples is None else opened.first(wanted.samples)


def _read_by(dataset: Dataset | Stream, workers: int) -> Dataset:
    if isinstance(dataset, Stream):
        raise UsageError("A reader is read in order, by this process: --workers needs a recipe or a dataset.")
    return dataset.with_workers(workers)


def _names_object(data: str | os.PathLike[str] | Recipe) -> bool:
    return isinstance(data, str) and looks_like_object(data)


def _chosen(dataset: Dataset, samples: int | None, seed: int | None) -> Dataset:
    if samples is None and seed is None:
        return dataset
    wanted = len(dataset) if samples is None else samples
    if not 1 <= wanted <= len(dataset):
        raise UsageError(
            f"Asked for {counted(wanted, 'sample[s]')}, dataset {dataset.name!r} has {len(dataset)}."
        )
    if seed is None:
        return dataset.subset(range(wanted))
    return dataset.subset(pick(dataset, wanted, seed, cover=True))


def _carries_state(dataset: Dataset | Stream) -> bool:
    return isinstance(dataset, Dataset) and bool(dataset.state)


def _checked_batch_size(model: OnnxModel, dataset: Dataset | Stream, wanted: int | None) -> int | None:
    """The batch size to use; None for a reader's own batches."""
    fixed = model.fixed_batch
    if _carries_state(dataset):
        if wanted not in (None, 1) or fixed not in (None, 1):
            raise UsageError(
                f"Dataset {dataset.name!r} carries state, which goes one sample at a time: the batch size "
                f"must be 1, got {wanted or fixed}. Leave out --batch-size, and export the model with "
                "batch 1 or a dynamic batch."
            )
        return 1
    if isinstance(dataset, Stream):
        return wanted or fixed
    if fixed is None or fixed == wanted:
        return wanted or _BATCH_SIZE
    if len(dataset) % fixed:
        usable = max(len(dataset) // fixed, 1) * fixed
        raise UsageError(
            f"{model.path} insists on batches of {fixed}, but "
            f"{counted(len(dataset), 'sample[s] [does|do]')} not divide by it. "
            f"Use --samples {usable}, or export the model with a dynamic batch."
        )
    return fixed
