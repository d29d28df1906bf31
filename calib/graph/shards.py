"""One calibration in several processes, with the bits of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from calib.calibrators.partial import Partial, merge_partials
from calib.data import Dataset
from calib.graph.job import CalibrationJob, Counted, count_range, first_grids
from calib.progress import track

__all__ = ["count_in_blocks", "count_sharded", "shard_state"]


def count_sharded(job: CalibrationJob, shards: int, state: Path | None = None) -> Counted:
    """Counts a calibration in several processes.

    The processes are joblib's: loky here, or what ``joblib.parallel_config`` names, such as dask or
    ray on a cluster. Each counts a contiguous range of batches. All count on the grids of the first
    batch, which one process therefore looks at beforehand. A tensor that is all zero in the first batch
    gets its grid from the first batch in which it is not: shards that could not know it count this
    tensor again.

    Args:
        job: The calibration.
        shards: Number of processes; no more than there are batches.
        state: File whose name the shards' own states are made from; None keeps none.

    Returns:
        The statistics of all batches.

    Raises:
        CalibError: A batch cannot be counted; the sample is named.
    """
    from joblib import Parallel, delayed

    shards = min(shards, job.batches)
    # The shards are processes themselves: each reads its own samples.
    job = replace(job, dataset=replace(job.dataset, workers=0)) if isinstance(job.dataset, Dataset) else job
    ranges = [job.shard(number, shards) for number in range(1, shards + 1)]
    # Hashed once here, not once in every process.
    _ = job.origin
    grids = first_grids(job)
    calls = [
        delayed(count_range)(
            job,
            start,
            stop,
            grids=grids,
            state=None if state is None else shard_state(state, number, shards),
            keep=True,
        )
        for number, (start, stop) in enumerate(ranges, start=1)
    ]
    work = Parallel(n_jobs=shards, return_as="generator")(calls)
    counted = list(track(work, shards, f"Calibrating in {shards} shards"))
    parts = _on_one_grid(job, [found.partial for found in counted])
    return _joined(counted, parts, "shard")


def count_in_blocks(
    job: CalibrationJob, blocks: int, state: Path | None = None
) -> tuple[Counted, list[Partial]]:
    """Counts a calibration block by block, so that any choice of blocks can be looked at afterwards.

    Args:
        job: The calibration.
        blocks: Number of blocks of consecutive batches; no more than there are batches.
        state: File whose name the blocks' own states are made from; None keeps none.

    Returns:
        The statistics of all batches, with the bits of an ordinary run; and those of each block.
    """
    blocks = min(blocks, job.batches)
    grids: dict[str, float] = {}
    counted = []
    for number in range(1, blocks + 1):
        start, stop = job.shard(number, blocks)
        own = None if state is None else shard_state(state, number, blocks)
        found = count_range(job, start, stop, grids=grids, state=own, keep=True, show=True)
        grids |= found.partial.calibrator.grids()
        counted.append(found)
    parts = [found.partial for found in counted]
    return _joined(counted, parts, "block"), parts


def _joined(counted: Sequence[Counted], parts: Sequence[Partial], what: str) -> Counted:
    """The parts as one, with the notes of all."""
    whole = merge_partials([(f"{what} {i}/{len(parts)}", part) for i, part in enumerate(parts, start=1)])
    return Counted(whole, tuple(dict.fromkeys(note for found in counted for note in found.notes)))


def shard_state(state: Path, number: int, shards: int) -> Path:
    """Where a shard keeps its own state."""
    return state.with_name(f"{state.name}.{number}of{shards}")


def _on_one_grid(job: CalibrationJob, parts: list[Partial]) -> list[Partial]:
    """Counts tensors again in shards whose grid turned out to be another than that of an earlier shard."""
    from joblib import Parallel, delayed

    grids: dict[str, float] = {}
    wrong: dict[int, list[str]] = {}
    for place, part in enumerate(parts):
        for name, first in part.calibrator.grids().items():
            if grids.setdefault(name, first) != first:
                wrong.setdefault(place, []).append(name)
    calls = [
        delayed(count_range)(job, parts[place].start, parts[place].stop, grids=grids, only=names)
        for place, names in wrong.items()
    ]
    for place, again in zip(wrong, Parallel(n_jobs=max(len(calls), 1))(calls), strict=True):
        _replace(parts[place], again.partial, wrong[place], grids)
    return parts


def _replace(part: Partial, again: Partial, names: list[str], grids: Mapping[str, float]) -> None:
    for name in names:
        part.calibrator.statistics[name] = again.calibrator.statistics[name]
        assert part.calibrator.grids()[name] == grids[name]
