"""The calibration run: dataset → activations → calibrator → cache and sidecar."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from importlib.metadata import version as package_version
from math import ceil
from pathlib import Path
from typing import Any

from calib import __version__
from calib.calibrators import (
    CalibrationCache,
    Calibrator,
    RangeTable,
    Sidecar,
    make_calibrator,
    sidecar_path,
    write_with_sidecar,
)
from calib.data import Dataset, Recipe, fingerprint, load_recipe, open_calibration
from calib.errors import ModelError, UsageError
from calib.files import check_writable
from calib.graph.collection import Collector
from calib.graph.feeds import FeedBuilder
from calib.graph.intake import OnnxModel, load_model
from calib.graph.observed import ObservedSession
from calib.progress import track

__all__ = ["CalibrationResult", "calibrate"]


@dataclass(frozen=True)
class CalibrationResult:
    """What a calibration run made.

    Attributes:
        ranges: amax of every float activation, in network order.
        cache: The calibration cache.
        samples: Number of samples used.
        batches_asked: Number of batches asked for.
        batches_used: Number of batches counted.
        sample_ids: Every sample used, in order.
        notes: What was converted, skipped or is worth knowing, a line each.
        path: Where the cache was written; None where it was not.
    """

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
    data: str | os.PathLike[str] | Recipe | Dataset,
    *,
    method: str = "entropy",
    samples: int | None = None,
    batch_size: int = 32,
    seed: int | None = None,
    tensorrt: str = "8.6.0",
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> CalibrationResult:
    """Calibrates a model on sample data.

    Args:
        model: The ONNX model, or its path.
        data: A recipe, its path or shipped name, or a dataset, which is then used whole and in order.
        method: "entropy" (convolutional networks) or "minmax" (box coordinates, transformers).
        samples: Number of calibration samples; the recipe's by default.
        batch_size: Samples a batch. Entropy depends on it a little, as in TensorRT.
        seed: Seed of the selection of samples; the recipe's by default.
        tensorrt: The TensorRT version that shall read the cache.
        out: Where to write the cache; its sidecar goes beside it. None writes nothing.
        threads: Threads inside an operator; None for one a core.

    Returns:
        Ranges, cache, and what was used.

    Raises:
        CalibError: Something cannot be used, with what and why; nothing is written then.
    """
    if batch_size < 1:
        raise UsageError(f"Batch size must be at least 1, got {batch_size}.")
    calibrator = make_calibrator(method)
    cache_of = _cache_maker(calibrator, tensorrt)
    if out is not None:
        check_writable(out)
        check_writable(sidecar_path(out))
    dataset = _open(data, samples, seed)
    network = model if isinstance(model, OnnxModel) else load_model(model)
    _refuse_quantized(network)
    run = _CalibrationRun(network, dataset, batch_size, threads)
    ranges = run.ranges(calibrator)
    cache = cache_of(ranges)
    result = CalibrationResult(
        ranges=ranges,
        cache=cache,
        samples=len(dataset),
        batches_asked=run.asked,
        batches_used=run.used,
        sample_ids=dataset.ids,
        notes=(*dataset.notes, *run.notes, *_remarks(ranges, len(dataset), batch_size)),
        path=None if out is None else Path(out),
    )
    if out is not None:
        sidecar = _sidecar(result, network, data, dataset, method, batch_size, seed)
        write_with_sidecar(cache, sidecar, out)
    return result


def _cache_maker(calibrator: Calibrator[Any], tensorrt: str) -> Any:
    """Checks the version before the work, not after it."""
    CalibrationCache({}, calibrator.algorithm, tensorrt)
    return lambda ranges: CalibrationCache.from_ranges(ranges, calibrator.algorithm, tensorrt)


def _open(data: str | os.PathLike[str] | Recipe | Dataset, samples: int | None, seed: int | None) -> Dataset:
    if isinstance(data, Dataset):
        if samples is None:
            return data
        if not 1 <= samples <= len(data):
            raise UsageError(f"Asked for {samples} samples, dataset {data.name!r} has {len(data)}.")
        return data.subset(range(samples))
    recipe = data if isinstance(data, Recipe) else load_recipe(data)
    return open_calibration(recipe, samples=samples, seed=seed)


def _refuse_quantized(model: OnnxModel) -> None:
    if model.quantized_nodes:
        raise ModelError(
            f"{model.path} already has {model.quantized_nodes} QuantizeLinear and DequantizeLinear nodes. "
            "Calibrate the float model that it was made from."
        )


class _CalibrationRun:
    """One pass of a dataset through the observed model into a calibrator."""

    def __init__(self, model: OnnxModel, dataset: Dataset, batch_size: int, threads: int | None) -> None:
        self._dataset = dataset
        self._model = model
        self._batch_size = self._checked_batch_size(model, len(dataset), batch_size)
        self._builder = FeedBuilder(model.inputs, str(model.path))
        self._session = ObservedSession(model, threads)
        self.asked = ceil(len(dataset) / self._batch_size)
        self.used = 0

    @staticmethod
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

    @property
    def notes(self) -> tuple[str, ...]:
        return self._builder.notes

    def ranges(self, calibrator: Calibrator[Any]) -> RangeTable:
        """Counts every batch; the first bad one stops the run."""
        whole = self._model.fixed_batch is not None
        with Collector(self._session, self._builder, calibrator, whole=whole) as collector:
            for batch in track(self._dataset.batches(self._batch_size), self.asked, "Calibrating"):
                collector.add(batch)
            collector.finish()
            self.used = collector.batches
        return calibrator.compute().arranged(self._session.source_of)


def _remarks(ranges: RangeTable, samples: int, batch_size: int) -> list[str]:
    remarks = []
    if samples < batch_size:
        remarks.append(f"only {samples} samples: one partial batch (batch size {batch_size})")
    if ranges.zero:
        shown = ", ".join(ranges.zero[:5]) + (" …" if len(ranges.zero) > 5 else "")
        remarks.append(
            f"{len(ranges.zero)} tensors are zero on all {samples} samples and have no INT8 scale ({shown}): "
            "add data that excites them, or leave them in float"
        )
    return remarks


def _sidecar(
    result: CalibrationResult,
    model: OnnxModel,
    data: str | os.PathLike[str] | Recipe | Dataset,
    dataset: Dataset,
    method: str,
    batch_size: int,
    seed: int | None,
) -> Sidecar:
    graph_hash, weights_hash = model.content_hashes()
    recipe = None if isinstance(data, Dataset) else data if isinstance(data, Recipe) else load_recipe(data)
    return Sidecar(
        calib_version=__version__,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        cache_sha256=sha256(result.cache.to_text().encode()).hexdigest(),
        header=result.cache.header,
        method=method,
        model=model.path.name,
        model_sha256=model.sha256,
        graph_sha256=graph_hash,
        weights_sha256=weights_hash,
        dataset=dataset.name,
        recipe="" if recipe is None else recipe.path.name,
        dataset_fingerprint=fingerprint(dataset),
        preprocess=dict(recipe.preprocess if recipe else {}),
        samples=result.samples,
        batch_size=batch_size,
        batches_asked=result.batches_asked,
        batches_used=result.batches_used,
        seed=seed if recipe is None or seed is not None else recipe.calibration.seed,
        sample_ids=result.sample_ids,
        zero_tensors=result.zero_tensors,
        versions={"python": platform.python_version()}
        | {name: package_version(name) for name in ("numpy", "onnx", "onnxruntime")},
    )
