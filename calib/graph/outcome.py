"""From the statistics of all batches to ranges, cache, sidecar and what is worth knowing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path

from calib.calibrators import (
    Adequacy,
    CalibrationCache,
    MagnitudeHistogram,
    PercentileCalibrator,
    RangeTable,
    Sidecar,
    read_sidecar,
    write_with_sidecar,
)
from calib.calibrators.cache_lint import mask_tensors
from calib.calibrators.partial import Partial
from calib.errors import CacheError, CalibrationError, first_names
from calib.wording import counted, inflected

__all__ = ["CalibrationResult", "finish_partial"]


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
        adequacy: Whether there were enough samples; None where that was not asked for.
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
    adequacy: Adequacy | None = None

    @property
    def zero_tensors(self) -> tuple[str, ...]:
        """Tensors that were zero on all samples; INT8 has no scale for them."""
        return self.ranges.zero


def finish_partial(
    whole: Partial, out: str | os.PathLike[str] | None = None, notes: tuple[str, ...] = ()
) -> CalibrationResult:
    """Computes the ranges of a calibration whose batches are all counted, and writes cache and sidecar.

    Args:
        whole: The statistics of all batches.
        out: Where to write the cache; None writes nothing.
        notes: What else is worth knowing.

    Raises:
        CalibError: Batches are missing, nothing was counted, or the files cannot be written.
    """
    if (whole.start, whole.done) != (0, whole.batches):
        raise CalibrationError(
            f"Parts are missing: batches {whole.start} to {whole.done} of {whole.batches} are counted. Merge "
            "all parts first: calib cache merge PART ..., or merge_partials."
        )
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


def _remarks(ranges: RangeTable, whole: Partial) -> list[str]:
    remarks = []
    samples = whole.origin.samples
    if samples < whole.origin.batch_size:
        remarks.append(
            f"only {counted(samples, 'sample[s]')}: one partial batch (batch size {whole.origin.batch_size})"
        )
    if ranges.zero:
        remarks.append(
            f"{counted(len(ranges.zero), 'tensor[s] [is|are]')} zero on all "
            f"{counted(samples, 'sample[s]')} and "
            f"{inflected(len(ranges.zero), '[has|have]')} no INT8 scale "
            f"({first_names(ranges.zero)}): "
            f"{inflected(len(ranges.zero), 'add data that excites [it|them], or leave [it|them] in float')}"
        )
    dominated = (
        name
        for name, statistic in whole.calibrator.statistics.items()
        if isinstance(statistic, MagnitudeHistogram) and statistic.dominated_by_outliers() is not None
    )
    masked = list(dict.fromkeys((*mask_tensors(ranges.scales), *dominated)))
    if masked:
        remarks.append(
            f"{counted(len(masked), 'tensor[s] [is|are]')} dominated by a constant such as an "
            "attention mask's "
            f"({first_names(masked)}): INT8 would see zero for all else in "
            f"{inflected(len(masked), '[it, so it stays|them, so they stay] in float')}"
        )
    if isinstance(whole.calibrator, PercentileCalibrator) and whole.calibrator.sparse:
        sparse = whole.calibrator.sparse
        remarks.append(
            f"{counted(len(sparse), 'tensor[s] [is|are]')} zero up to the percentile, "
            f"{inflected(len(sparse), '[its|their]')} maximum was taken "
            f"({first_names(sparse)})"
        )
    return remarks


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
