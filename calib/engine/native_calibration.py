"""Calibration by TensorRT itself, on the GPU: the same data, its own cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any

from calib.calibrators import CalibrationCache, Sidecar, write_with_sidecar
from calib.data import Dataset
from calib.engine.api import Api, load_api
from calib.engine.building import build
from calib.engine.memory import Device, open_device
from calib.engine.native import check_kind, native_calibrator
from calib.errors import CalibError, EngineError, UsageError
from calib.graph import CalibrationJob, FeedBuilder, OnnxModel
from calib.graph.request import Request, make_job
from calib.wording import counted, inflected

__all__ = ["NativeCalibration", "calibrate_natively"]


@dataclass(frozen=True)
class NativeCalibration:
    """What a calibration by TensorRT made.

    Attributes:
        method: One of "entropy", "minmax", "entropy1", "legacy".
        cache: TensorRT's calibration cache; it has rows of helper layers that the ONNX model does not have.
        asked: How often TensorRT asked for a batch, the last time in vain.
        used: Number of batches that it got.
        samples: Number of samples in these.
        tensorrt: TensorRT's version.
        device: The GPU.
        notes: What was converted, dropped or is worth knowing, a line each.
        path: Where the cache was written; None where it was not.
    """

    method: str
    cache: CalibrationCache
    asked: int
    used: int
    samples: int
    tensorrt: str
    device: str
    notes: tuple[str, ...] = ()
    path: Path | None = None


def calibrate_natively(
    model: str | os.PathLike[str] | OnnxModel,
    data: Any,
    *,
    method: str = "entropy",
    samples: int | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    level: int = 0,
    device: int = 0,
    out: str | os.PathLike[str] | None = None,
) -> NativeCalibration:
    """Lets TensorRT 8 to 10 calibrate a model on sample data, by building an INT8 engine that is thrown away.

    It is for comparing, and for what TensorRT alone sees: the cache has rows of helper layers too. For the
    rest ``calib.calibrate`` gives the same scales without a GPU.

    Args:
        model: The float ONNX model, or its path.
        data: As for ``calib.calibrate``.
        method: "entropy" (IInt8EntropyCalibrator2), "minmax", "entropy1" (IInt8EntropyCalibrator) or
            "legacy"; the last two see the network after fusion.
        samples: Number of calibration samples; the recipe's by default.
        batch_size: Samples a batch; 32 by default. What fills no last batch is dropped.
        seed: Seed of the selection of samples; the recipe's by default.
        level: Builder optimization level; 0 builds fastest, and the cache is the same with any.
        device: Number of the GPU.
        out: Where to write the cache; its sidecar goes beside it. None writes nothing.

    Returns:
        The cache, and what was used.

    Raises:
        MissingExtraError: TensorRT, or both of PyCUDA and cuda-python, are not installed.
        EngineError: There is no GPU, this TensorRT has no calibrators, or it fails.
        CalibError: Something cannot be used, with what and why; a sample that cannot be loaded is named.
    """
    check_kind(method)
    api = load_api("tensorrt")
    if not api.calibrators:
        raise EngineError(
            f"{api.title} has no calibrators of its own: they ended with TensorRT 10. Calibrate without "
            "--native, which gives the same scales on any machine."
        )
    with open_device(device) as gpu:
        wanted = Request(
            method=method if method in ("entropy", "minmax") else "entropy",
            percentile=None,
            samples=samples,
            batch_size=batch_size,
            seed=seed,
            tensorrt=api.version,
            threads=None,
        )
        job, notes = _whole_batches(make_job(model, data, wanted, out))
        return _Run(api, gpu, job, method, level, notes).result(out)


def _whole_batches(job: CalibrationJob) -> tuple[CalibrationJob, list[str]]:
    """The job on as many samples as fill batches, since TensorRT takes batches of one size."""
    if not isinstance(job.dataset, Dataset) or job.batch_size is None:
        return job, []
    if job.dataset.state:
        raise UsageError(
            f"Dataset {job.dataset.name!r} carries state ({', '.join(job.dataset.state)}), which TensorRT's "
            "own calibrators cannot do. Calibrate without --native."
        )
    count, notes = len(job.dataset), []
    size = min(job.batch_size, count) if job.model.fixed_batch is None else job.batch_size
    if count < size:
        raise UsageError(
            f"{job.model.path} insists on batches of {size}, but there are "
            f"{counted(count, 'sample[s]')}. Use more."
        )
    if size < job.batch_size:
        notes.append(f"only {counted(count, 'sample[s]')}: one batch of {size} instead of {job.batch_size}")
    if count % size:
        left = count % size
        notes.append(
            f"{counted(left, 'sample[s]')} at the end {inflected(left, '[was|were]')} dropped: "
            f"TensorRT takes whole batches of {size} only. "
            f"--samples {count - left} says so, or choose a batch size that divides {count}"
        )
        job = replace(job, dataset=job.dataset.subset(range(count - left)))
    return replace(job, batch_size=size), notes


class _Run:
    """One calibration, after everything was opened."""

    def __init__(
        self, api: Api, gpu: Device, job: CalibrationJob, method: str, level: int, notes: list[str]
    ) -> None:
        self._api = api
        self._gpu = gpu
        self._job = job
        self._method = method
        self._level = level
        self._notes = notes
        self._feeds = FeedBuilder(job.model.inputs, str(job.model.path))

    def result(self, out: str | os.PathLike[str] | None) -> NativeCalibration:
        """Calibrates, and writes the cache."""
        with self._calibrator() as calibrator:
            self._build(calibrator)
            cache: CalibrationCache | None = calibrator.written
            if cache is None:
                raise EngineError(
                    f"{self._api.title} asked for {counted(calibrator.asked, 'batch[es]')}, got "
                    f"{calibrator.used} and made "
                    "no cache of them. Its log (calib build --json shows the warnings) may say why."
                )
            unread = calibrator.drain()
        self._remark(calibrator, unread)
        found = NativeCalibration(
            method=self._method,
            cache=cache,
            asked=calibrator.asked,
            used=calibrator.used,
            samples=calibrator.samples,
            tensorrt=self._api.version,
            device=self._gpu.name,
            notes=(*self._job.dataset.notes, *self._feeds.notes, *self._notes),
            path=None if out is None else Path(out),
        )
        if out is not None:
            write_with_sidecar(cache, self._sidecar(found, found.used + unread), out)
        return found

    @contextmanager
    def _calibrator(self) -> Iterator[Any]:
        job = self._job
        calibrator = native_calibrator(
            self._api, self._method, job.dataset, self._feeds, self._gpu, batch_size=job.batch_size
        )
        try:
            yield calibrator
        finally:
            calibrator.free()

    def _build(self, calibrator: Any) -> None:
        """Builds for the shape of the batches; an engine that fails after calibration is no loss."""
        shapes = dict(calibrator.shapes)
        try:
            build(
                self._job.model,
                precision="int8",
                route="implicit",
                calibrator=calibrator,
                shapes=shapes,
                level=self._level,
                # Binds no layer: what TensorRT calibrates shall not hang on what an engine could not do.
                conv_transpose="int8",
                device=self._gpu.index,
            )
        except CalibError as error:
            calibrator.raise_failure()
            if calibrator.written is None:
                raise
            self._notes.append(f"TensorRT calibrated, but could not build the engine then: {error}")
        calibrator.raise_failure()

    def _remark(self, calibrator: Any, unread: int) -> None:
        if calibrator.dropped:
            self._notes.append(
                f"{counted(calibrator.dropped, 'sample[s] [was|were]')} dropped: TensorRT takes whole "
                "batches of "
                f"{calibrator.batch_size} only"
            )
        if unread:
            self._notes.append(
                f"TensorRT stopped asking: it took {calibrator.used} of {calibrator.used + unread} batches"
            )

    def _sidecar(self, found: NativeCalibration, batches: int) -> Sidecar:
        origin = self._job.origin
        known = origin.model_dump() | {
            "method": f"native-{found.method}",
            "options": {},
            "versions": {
                **{name: version for name, version in origin.versions.items() if name != "onnxruntime"},
                "tensorrt": found.tensorrt,
            },
        }
        return Sidecar(
            **known,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            cache_sha256=sha256(found.cache.to_text().encode()).hexdigest(),
            header=found.cache.header,
            batches_asked=batches,
            batches_used=found.used,
            zero_tensors=tuple(name for name, scale in found.cache.items() if scale == 0),
        )
