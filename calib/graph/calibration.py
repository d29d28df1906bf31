"""The calibration run: dataset → activations → calibrator → cache and sidecar."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path

from calib.calibrators import (
    CalibrationCache,
    MagnitudeHistogram,
    PercentileCalibrator,
    RangeTable,
    Sidecar,
    make_calibrator,
    read_sidecar,
    sidecar_path,
    write_with_sidecar,
)
from calib.calibrators.partial import Partial
from calib.data import Dataset, Recipe, load_recipe, open_calibration
from calib.errors import CacheError, ModelError, UsageError
from calib.files import check_writable
from calib.graph.feeds import FeedBuilder
from calib.graph.intake import OnnxModel, load_model
from calib.graph.job import CalibrationJob, Counted, count_range, first_grids, parse_shard
from calib.graph.shards import count_sharded, shard_state

__all__ = ["CalibrationResult", "calibrate", "calibrate_shard", "finish_partial"]

Data = str | os.PathLike[str] | Recipe | Dataset


@dataclass(frozen=True)
class CalibrationResult:
    """What a calibration run made.

    Attributes:
        method: The calibrator's name.
        ranges: amax of every float activation, in network order.
        cache: The calibration cache.
        samples: Number of samples used.
        batches_asked: Number of batches asked for.
        batches_used: Number of batches counted.
        sample_ids: Every sample used, in order.
        notes: What was converted, skipped or is worth knowing, a line each.
        path: Where the cache was written; None where it was not.
    """

    method: str
    ranges: RangeTable
    cache: CalibrationCache
    samples: int
    batches_asked: int
    batches_used: int
    sample_ids: tuple[str, ...]
    notes: tuple[str, ...]
    path: Path | None

    @property
    def zero_tensors(self) -> tuple[str, ...]:
        """Tensors that were zero on all samples; INT8 has no scale for them."""
        return self.ranges.zero


def calibrate(
    model: str | os.PathLike[str] | OnnxModel,
    data: Data,
    *,
    method: str = "entropy",
    percentile: float | None = None,
    samples: int | None = None,
    batch_size: int = 32,
    seed: int | None = None,
    tensorrt: str = "8.6.0",
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    shards: int = 1,
) -> CalibrationResult:
    """Calibrates a model on sample data.

    A run that writes a cache keeps its state beside it while it runs, as ``OUT.state``: killed at any
    moment and started again with the same arguments, it goes on and ends with the same bits.

    Args:
        model: The ONNX model, or its path.
        data: A recipe, its path or shipped name, or a dataset, which is then used whole and in order.
        method: "entropy" (convolutional networks), "minmax" (box coordinates, transformers),
            "percentile" (transformers, rare outliers) or "mse".
        percentile: Percentage of the values to keep, for "percentile"; 99.99 by default.
        samples: Number of calibration samples; the recipe's by default.
        batch_size: Samples a batch. Entropy depends on it a little, as in TensorRT.
        seed: Seed of the selection of samples; the recipe's by default.
        tensorrt: The TensorRT version that shall read the cache.
        out: Where to write the cache; its sidecar goes beside it. None writes nothing.
        threads: Threads inside an operator; None for one a core.
        shards: Number of processes; the bits are those of one.

    Returns:
        Ranges, cache, and what was used.

    Raises:
        CalibError: Something cannot be used, with what and why; no cache is written then.
    """
    if shards < 1:
        raise UsageError(f"Shards must be at least 1, got {shards}.")
    wanted = _Wanted(method, percentile, samples, batch_size, seed, tensorrt, threads)
    job = _job(model, data, wanted, out)
    state = None if out is None else Path(out).with_name(Path(out).name + ".state")
    if shards == 1:
        counted = count_range(job, 0, job.batches, state=state, show=True)
    else:
        counted = count_sharded(job, shards, state)
    result = finish_partial(counted.partial, out, counted.notes)
    if state is not None:
        for path in (state, *(shard_state(state, number, shards) for number in range(1, shards + 1))):
            path.unlink(missing_ok=True)
    return result


def calibrate_shard(
    model: str | os.PathLike[str] | OnnxModel,
    data: Data,
    shard: str,
    out: str | os.PathLike[str],
    *,
    method: str = "entropy",
    percentile: float | None = None,
    samples: int | None = None,
    batch_size: int = 32,
    seed: int | None = None,
    tensorrt: str = "8.6.0",
    threads: int | None = None,
    grids_of: str | os.PathLike[str] | None = None,
) -> Counted:
    """Counts one shard of a calibration into a partial file, for ``finish_partial`` of all of them.

    Args:
        model: As for ``calibrate``; so are the other arguments that are not listed.
        data: As for ``calibrate``.
        shard: "k/N", from "1/N" to "N/N".
        out: The partial file. A run that is killed goes on from it.
        method: As for ``calibrate``.
        percentile: As for ``calibrate``.
        samples: As for ``calibrate``.
        batch_size: As for ``calibrate``.
        seed: As for ``calibrate``.
        tensorrt: As for ``calibrate``.
        threads: As for ``calibrate``.
        grids_of: A partial file whose grids to count on, where merging found that they differ.

    Raises:
        CalibError: Something cannot be used, with what and why.
    """
    from calib.calibrators.partial import read_partial

    number, shards = parse_shard(shard)
    wanted = _Wanted(method, percentile, samples, batch_size, seed, tensorrt, threads)
    job = _job(model, data, wanted, out)
    if shards > job.batches:
        raise UsageError(f"--shard {shard}: there are only {job.batches} batches to share out.")
    start, stop = job.shard(number, shards)
    grids: Mapping[str, float] = {} if grids_of is None else read_partial(grids_of).calibrator.grids()
    if job.calibrator().order_dependent:
        grids = first_grids(job) | dict(grids)
    path = Path(out)
    counted = count_range(job, start, stop, grids=grids, state=path if grids_of is None else None, show=True)
    counted.partial.write(path)
    return counted


def finish_partial(
    whole: Partial, out: str | os.PathLike[str] | None = None, notes: tuple[str, ...] = ()
) -> CalibrationResult:
    """Computes the ranges of a calibration whose batches are all counted, and writes cache and sidecar.

    Args:
        whole: The statistics of all batches.
        out: Where to write the cache; None writes nothing.
        notes: What else is worth knowing.

    Raises:
        CalibError: Nothing was counted, or the files cannot be written.
    """
    ranges = whole.calibrator.compute().arranged(whole.source_of)
    cache = CalibrationCache.from_ranges(ranges, whole.calibrator.algorithm, whole.tensorrt)
    result = CalibrationResult(
        method=whole.origin.method,
        ranges=ranges,
        cache=cache,
        samples=whole.origin.samples,
        batches_asked=whole.batches,
        batches_used=whole.done - whole.start,
        sample_ids=whole.origin.sample_ids,
        notes=(*whole.notes, *notes, *_remarks(ranges, whole), *_replaced(whole, out)),
        path=None if out is None else Path(out),
    )
    if out is not None:
        write_with_sidecar(cache, _sidecar(result, whole), out)
    return result


@dataclass(frozen=True)
class _Wanted:
    """The arguments that ``calibrate`` and ``calibrate_shard`` share."""

    method: str
    percentile: float | None
    samples: int | None
    batch_size: int
    seed: int | None
    tensorrt: str
    threads: int | None


def _job(
    model: str | os.PathLike[str] | OnnxModel,
    data: Data,
    wanted: _Wanted,
    out: str | os.PathLike[str] | None,
) -> CalibrationJob:
    """Checks everything that can be checked before the work."""
    if wanted.batch_size < 1:
        raise UsageError(f"Batch size must be at least 1, got {wanted.batch_size}.")
    options = {} if wanted.percentile is None else {"percentile": wanted.percentile}
    CalibrationCache({}, make_calibrator(wanted.method, **options).algorithm, wanted.tensorrt)
    if out is not None:
        check_writable(out)
        check_writable(sidecar_path(out))
    recipe, dataset = _opened(data, wanted)
    network = model if isinstance(model, OnnxModel) else load_model(model)
    _refuse_quantized(network)
    FeedBuilder(network.inputs, str(network.path))
    seed = wanted.seed
    return CalibrationJob(
        model=network,
        dataset=dataset,
        method=wanted.method,
        options=options,
        batch_size=_checked_batch_size(network, len(dataset), wanted.batch_size),
        threads=wanted.threads,
        recipe="" if recipe is None else recipe.path.name,
        preprocess={} if recipe is None else recipe.preprocess,
        seed=seed if recipe is None or seed is not None else recipe.calibration.seed,
        tensorrt=wanted.tensorrt,
    )


def _opened(data: Data, wanted: _Wanted) -> tuple[Recipe | None, Dataset]:
    if isinstance(data, Dataset):
        return None, _chosen(data, wanted.samples)
    recipe = data if isinstance(data, Recipe) else load_recipe(data)
    return recipe, open_calibration(recipe, samples=wanted.samples, seed=wanted.seed)


def _chosen(dataset: Dataset, samples: int | None) -> Dataset:
    if samples is None:
        return dataset
    if not 1 <= samples <= len(dataset):
        raise UsageError(f"Asked for {samples} samples, dataset {dataset.name!r} has {len(dataset)}.")
    return dataset.subset(range(samples))


def _refuse_quantized(model: OnnxModel) -> None:
    if model.quantized_nodes:
        raise ModelError(
            f"{model.path} already has {model.quantized_nodes} QuantizeLinear and DequantizeLinear nodes. "
            "Calibrate the float model that it was made from."
        )


def _checked_batch_size(model: OnnxModel, samples: int, batch_size: int) -> int:
    fixed = model.fixed_batch
    if fixed is None or fixed == batch_size:
        return batch_size
    if samples % fixed:
        raise UsageError(
            f"{model.path} insists on batches of {fixed}, but {samples} samples do not divide by it. "
            f"Use --samples {max(samples // fixed, 1) * fixed}, or export the model with a dynamic batch."
        )
    return fixed


def _remarks(ranges: RangeTable, whole: Partial) -> list[str]:
    remarks = []
    samples = whole.origin.samples
    if samples < whole.origin.batch_size:
        remarks.append(f"only {samples} samples: one partial batch (batch size {whole.origin.batch_size})")
    if ranges.zero:
        remarks.append(
            f"{len(ranges.zero)} tensors are zero on all {samples} samples and have no INT8 scale "
            f"({_some(ranges.zero)}): add data that excites them, or leave them in float"
        )
    known = whole.calibrator.statistics
    masked = [
        name
        for name, statistic in known.items()
        if isinstance(statistic, MagnitudeHistogram) and statistic.dominated_by_outliers() is not None
    ]
    if masked:
        remarks.append(
            f"{len(masked)} tensors are dominated by a constant beyond a million times their ordinary "
            f"values, such as an attention mask ({_some(masked)}): leave them in float"
        )
    if isinstance(whole.calibrator, PercentileCalibrator) and whole.calibrator.sparse:
        sparse = whole.calibrator.sparse
        remarks.append(
            f"{len(sparse)} tensors are zero up to the percentile, their maximum was taken ({_some(sparse)})"
        )
    return remarks


def _some(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def _replaced(whole: Partial, out: str | os.PathLike[str] | None) -> list[str]:
    """What the cache that is replaced was made with, if that differs."""
    if out is None or not Path(out).exists():
        return []
    try:
        before = read_sidecar(out)
    except CacheError:
        return [f"replaced {out}, whose sidecar could not be read"]
    if before is None:
        return [f"replaced {out}, which had no sidecar"]
    changed = before.differences(whole.origin)
    return [f"replaced {out}; since it was made changed: {', '.join(changed)}"] if changed else []


def _sidecar(result: CalibrationResult, whole: Partial) -> Sidecar:
    return Sidecar(
        **whole.origin.model_dump(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        cache_sha256=sha256(result.cache.to_text().encode()).hexdigest(),
        header=result.cache.header,
        batches_asked=result.batches_asked,
        batches_used=result.batches_used,
        zero_tensors=result.zero_tensors,
    )
