"""The calibration run: dataset → activations → calibrator → cache and sidecar."""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from calib.calibrators import Adequacy, MagnitudeCalibrator, assess
from calib.calibrators.partial import read_partial
from calib.data import Stream
from calib.errors import UsageError
from calib.files import check_apart
from calib.graph.intake import OnnxModel
from calib.graph.job import CalibrationJob, Counted, count_range, count_stream, first_grids, parse_shard
from calib.graph.outcome import CalibrationResult, finish_partial
from calib.graph.request import Request, make_job
from calib.graph.shards import count_in_blocks, count_sharded
from calib.wording import counted

__all__ = ["calibrate", "calibrate_shard"]

_BLOCKS = 8
"""Blocks that the samples are cut into for judging whether there were enough."""

_LEAST_BLOCKS = 4
"""As few as can be judged; for the statistics that take much memory."""


def calibrate(
    model: str | os.PathLike[str] | OnnxModel,
    data: Any,
    *,
    method: str = "entropy",
    percentile: float | None = None,
    samples: int | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    tensorrt: str = "8.6.0",
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    workers: int | None = None,
    shards: int = 1,
    assess: bool = False,
) -> CalibrationResult:
    """Calibrates a model on sample data.

    A run that writes a cache keeps its state beside it while it runs, as ``OUT.state``: killed at any
    moment and started again with the same arguments, it goes on and ends with the same bits.

    Args:
        model: The ONNX model, or its path.
        data: A recipe, its path or shipped name; a dataset; or a reader you have: ONNX Runtime's
            CalibrationDataReader, Polygraphy's load_data, a torch DataLoader, an iterable of dicts or
            arrays, a function that makes one, or "module:object", which names any of these. Datasets and
            readers are used whole and in order, unless ``samples`` says otherwise.
        method: "entropy" (convolutional networks), "minmax" (box coordinates, transformers),
            "percentile" (transformers, rare outliers) or "mse".
        percentile: Percentage of the values to keep, for "percentile"; 99.99 by default.
        samples: Number of calibration samples; the recipe's by default.
        batch_size: Samples a batch; 32 by default, but a reader's own batches. Entropy depends on it a
            little, as in TensorRT.
        seed: Seed of the selection of samples; the recipe's by default.
        tensorrt: The TensorRT version that shall read the cache.
        out: Where to write the cache; its sidecar goes beside it. None writes nothing.
        threads: Threads inside an operator; None for one a core.
        workers: Processes that read and prepare samples; the recipe's number by default. The bits are the
            same.
        shards: Number of processes; the bits are those of one.
        assess: Whether to judge if there were enough samples; see ``CalibrationResult.adequacy``.

    Returns:
        Ranges, cache, and what was used.

    Raises:
        CalibError: Something cannot be used, with what and why; no cache is written then.
    """
    if shards < 1:
        raise UsageError(f"Shards must be at least 1, got {shards}.")
    if shards > 1 and workers:
        raise UsageError("--workers and --shards cannot be combined: each shard reads its own samples.")
    wanted = Request(method, percentile, samples, batch_size, seed, tensorrt, threads, workers)
    job = make_job(model, data, wanted, out)
    state = None if out is None else Path(out).with_name(Path(out).name + ".state")
    found, adequacy = _count(job, shards, assess, state)
    result = replace(finish_partial(found.partial, out, found.notes), adequacy=adequacy)
    if state is not None:
        for path in (state, *state.parent.glob(f"{glob.escape(state.name)}.*of*")):
            path.unlink(missing_ok=True)
    return result


def _count(
    job: CalibrationJob, shards: int, assess_samples: bool, state: Path | None
) -> tuple[Counted, Adequacy | None]:
    if isinstance(job.dataset, Stream):
        if shards > 1 or assess_samples:
            raise UsageError("A reader is read in order: --shards and --assess need a recipe or a dataset.")
        return count_stream(job, job.dataset), None
    if assess_samples and shards > 1:
        raise UsageError("--assess and --shards cannot be combined.")
    if assess_samples:
        return _assessed(job, state)
    if shards > 1:
        return count_sharded(job, shards, state), None
    return count_range(job, 0, job.batches, state=state, show=True), None


def _assessed(job: CalibrationJob, state: Path | None) -> tuple[Counted, Adequacy]:
    if job.batches < _LEAST_BLOCKS:
        raise UsageError(
            f"--assess needs at least {_LEAST_BLOCKS} batches to compare, got {job.batches}. "
            "Use more samples, or a smaller --batch-size."
        )
    large = isinstance(job.calibrator(), MagnitudeCalibrator)
    found, blocks = count_in_blocks(job, _LEAST_BLOCKS if large else _BLOCKS, state)
    calibrators = [block.calibrator for block in blocks]
    return found, assess(calibrators, job.calibrator, samples=len(job.sample_ids), show=True)


def calibrate_shard(
    model: str | os.PathLike[str] | OnnxModel,
    data: Any,
    shard: str,
    out: str | os.PathLike[str],
    *,
    method: str = "entropy",
    percentile: float | None = None,
    samples: int | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    tensorrt: str = "8.6.0",
    threads: int | None = None,
    workers: int | None = None,
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
        workers: As for ``calibrate``.
        grids_of: A partial file whose grids to count on, where merging found that they differ.

    Raises:
        CalibError: Something cannot be used, with what and why.
    """
    number, shards = parse_shard(shard)
    wanted = Request(method, percentile, samples, batch_size, seed, tensorrt, threads, workers)
    check_apart(out, {"file of --grids-of": grids_of})
    job = make_job(model, data, wanted, out)
    if isinstance(job.dataset, Stream):
        raise UsageError("A reader is read in order: --shard needs a recipe or a dataset.")
    if shards > job.batches:
        raise UsageError(f"--shard {shard}: there are only {counted(job.batches, 'batch[es]')} to share out.")
    start, stop = job.shard(number, shards)
    known = {} if grids_of is None else read_partial(grids_of).calibrator.grids()
    grids = first_grids(job) | known
    path = Path(out)
    found = count_range(job, start, stop, grids=grids, state=path if grids_of is None else None, show=True)
    found.partial.write(path)
    return found
