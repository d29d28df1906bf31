"""Building engines with any TensorRT from 8.6 on: ``calib.build``."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from calib import __version__
from calib.calibrators import CalibrationCache
from calib.calibrators.provenance import cache_files
from calib.engine.api import Api, load_api
from calib.engine.build_request import BuildRequest
from calib.engine.builder_run import BuildJob, BuiltPlan, run_builder
from calib.engine.engine_cache import EngineCache, engine_key
from calib.engine.engine_file import BuildRecord, Engine
from calib.engine.network_source import hash_network, open_source, with_free_sizes, with_whole_shapes
from calib.engine.preparation import Prepared, Scales, prepare
from calib.engine.shapes import InputRange, ShapesLike, resolve_shapes
from calib.engine.sound_builds import avoidable_nodes, build_soundly
from calib.engine.target_device import TargetDevice, open_target
from calib.engine.timing_cache import TimingCache, timing_cache_path
from calib.files import check_apart, check_writable
from calib.graph import OnnxModel, load_model
from calib.wording import as_several

__all__ = ["BuildRecord", "Engine", "build"]


def build(
    model: str | os.PathLike[str] | OnnxModel,
    *,
    precision: str = "fp32",
    cache: str | os.PathLike[str] | CalibrationCache | None = None,
    out: str | os.PathLike[str] | None = None,
    shapes: ShapesLike = (),
    level: int | None = None,
    workspace_mib: int | None = None,
    tf32: bool | None = None,
    route: str = "auto",
    timing_cache: str | os.PathLike[str] | None = None,
    engine_cache: str | os.PathLike[str] | None = None,
    version_compatible: bool = False,
    hardware_compatible: bool = False,
    keep_float: Sequence[str] = (),
    conv_transpose: str = "auto",
    calibrator: Any | None = None,
    flavour: str = "tensorrt",
    device: int = 0,
    compute_capability: tuple[int, int] | None = None,
) -> Engine:
    """Builds a TensorRT engine.

    Args:
        model: The ONNX model, or its path: float, or with Q/DQ nodes.
        precision: "fp32"; "fp16"; "int8", the rest in FP32; "best", INT8 and the rest in FP16.
        cache: Calibration cache, or its path, for "int8" and "best" of a float model. Where "fp16" needs an
            FP16 form of the model (TensorRT 11, TensorRT-RTX) its ranges say what must stay in FP32.
        out: Where to write the engine, with its record beside it; None writes nothing.
        shapes: "input:1x3x224x224", or smallest:usual:largest of these, a text an input; or input → shape, or
            → three shapes; of an input that holds sizes of other tensors, its values. A model whose batch
            alone is dynamic is built for batches of 1 to 32, tuned for 8.
        level: Builder optimization level, 0 (fastest build) to 5; None for TensorRT's default.
        workspace_mib: Largest scratch memory of a layer in MiB; None for all of the GPU's.
        tf32: Whether FP32 layers may be computed in TF32; off by default.
        route: "implicit" hands the cache to the builder (TensorRT up to 10), "explicit" writes its scales
            into the model as Q/DQ nodes; "auto" is implicit where the builder can.
        timing_cache: Folder or file for timings; one file for each GPU and TensorRT.
        engine_cache: Folder where engines are kept, by the hash of all that made them.
        version_compatible: Let later releases of the same major version load the engine.
        hardware_compatible: Let other GPUs from Ampere on load it.
        keep_float: Regular expressions of nodes, or of their outputs, that do not become INT8; or, with
            "fp16", that stay in FP32.
        conv_transpose: What becomes of transposed convolutions in INT8 engines: "int8", "float", or "auto":
            float before TensorRT 10, which builds none above level 0 where their output is INT8.
        calibrator: A calibrator of TensorRT in place of a cache.
        flavour: "tensorrt", or "tensorrt_rtx" for TensorRT-RTX, which builds without a GPU.
        device: Number of the GPU.
        compute_capability: What TensorRT-RTX builds for, such as (8, 6).

    Returns:
        The engine and the record of what made it.

    Raises:
        CalibError: It cannot be built, with what TensorRT said and what to try; nothing is written then.
    """
    request = BuildRequest(
        precision=precision,
        route=route,
        level=level,
        workspace_mib=workspace_mib,
        tf32=bool(tf32),
        version_compatible=version_compatible,
        hardware_compatible=hardware_compatible,
        keep_float=as_several(keep_float),
        conv_transpose=conv_transpose,
        flavour=flavour,
        device=device,
        compute_capability=compute_capability,
    )
    _check_out(out, model, cache)
    network = model if isinstance(model, OnnxModel) else load_model(model)
    scales = _scales(cache, calibrator)
    job = _Build(request, network, scales, not isinstance(model, OnnxModel), timing_cache, engine_cache)
    engine = job.run(load_api(flavour), shapes)
    return engine if out is None else engine.save(out)


def _check_out(
    out: str | os.PathLike[str] | None,
    model: str | os.PathLike[str] | OnnxModel,
    cache: str | os.PathLike[str] | CalibrationCache | None,
) -> None:
    if out is None:
        return
    check_writable(out)
    source = model.path if isinstance(model, OnnxModel) else Path(model)
    check_apart(out, {"model": source, **cache_files(cache)})


def _scales(cache: str | os.PathLike[str] | CalibrationCache | None, calibrator: Any | None) -> Scales:
    if cache is None or isinstance(cache, CalibrationCache):
        return Scales(cache, None, calibrator)
    return Scales(CalibrationCache.read(cache), Path(cache), calibrator)


# Ways to an engine that are told by "route" and "device", and make no other one.
_ROADS = ("route", "device")


class _Build:
    """One call of ``build``, after its arguments were checked."""

    def __init__(
        self,
        request: BuildRequest,
        model: OnnxModel,
        scales: Scales,
        from_file: bool,
        timing_cache: str | os.PathLike[str] | None,
        engine_cache: str | os.PathLike[str] | None,
    ) -> None:
        self._request = request
        self._model = model
        self._scales = scales
        self._from_file = from_file
        self._timing_cache = timing_cache
        self._shape_notes: tuple[str, ...] = ()
        self._engines = EngineCache(engine_cache) if engine_cache is not None else None

    def run(self, api: Api, shapes: ShapesLike) -> Engine:
        ranges, notes = resolve_shapes(self._model, shapes)
        self._shape_notes = tuple(notes)
        prepared = self._prepare(api, self._request)
        with open_target(api, self._request) as device:
            key = self._key(api, prepared, ranges, device)
            found = self._engines.find(key) if self._engines is not None and key else None
            return found or self._build(api, prepared, ranges, device, key)

    def _prepare(self, api: Api, request: BuildRequest) -> Prepared:
        prepared = prepare(api, request, self._model, self._scales)
        model = with_free_sizes(prepared.model)
        if api.target.whole_shapes:
            model = with_whole_shapes(model)
        return replace(prepared, model=model, notes=(*self._shape_notes, *prepared.notes))

    def _build(
        self, api: Api, prepared: Prepared, ranges: tuple[InputRange, ...], device: TargetDevice, key: str
    ) -> Engine:
        timing, notes = self._timing(api, device)
        start = time.perf_counter()

        def run(prepared: Prepared, request: BuildRequest) -> BuiltPlan:
            with open_source(prepared.model, self._unchanged(prepared)) as source:
                job = BuildJob(prepared.model, source, request, ranges, device, prepared.scales, timing)
                built = run_builder(api, job)
            told = (*prepared.notes, *([device.note] if device.note else []))
            return replace(built, notes=(*told, *built.notes))

        def again(nodes: tuple[str, ...]) -> BuiltPlan:
            request = replace(self._request, float_nodes=nodes)
            return run(self._prepare(api, request), request)

        built = run(prepared, self._request)
        if api.target.wrong_layers and self._request.quantized:
            # A calibrator has had its batches.
            can = frozenset() if prepared.scales.calibrator is not None else avoidable_nodes(self._model)
            lean = self._request.version_compatible
            built = build_soundly(api, device, built, again, can, host_code=lean)
        seconds = time.perf_counter() - start
        built = replace(built, notes=(*built.notes, *notes))
        engine = Engine(built.plan, self._record(api, prepared.route, ranges, device, key, built, seconds))
        if self._engines is not None:
            engine = self._keep(engine)
        return engine

    def _keep(self, engine: Engine) -> Engine:
        assert self._engines is not None
        notes = list(self._engines.notes)
        if engine.record.key:
            self._engines.store(engine)
        else:
            notes.append("not kept in the engine cache: a calibrator's data have no hash")
        return replace(engine, record=replace(engine.record, notes=(*engine.record.notes, *notes)))

    def _unchanged(self, prepared: Prepared) -> bool:
        return self._from_file and prepared.model is self._model

    def _timing(self, api: Api, device: TargetDevice) -> tuple[TimingCache | None, list[str]]:
        if self._timing_cache is None:
            return None, []
        if not api.timing_cache:
            return None, [f"{api.title} keeps no timings: --timing-cache was left out"]
        file = check_writable(timing_cache_path(self._timing_cache, api, device))
        return TimingCache(file), []

    def _key(self, api: Api, prepared: Prepared, ranges: Sequence[InputRange], device: TargetDevice) -> str:
        """The hash of everything that makes the engine; empty where data without a hash do."""
        if prepared.scales.calibrator is not None:
            return ""
        cache = prepared.scales.cache
        return engine_key(
            {
                "calib": __version__,
                "tensorrt": [api.flavour, api.version],
                "device": [device.name, device.compute_capability],
                "request": {
                    name: value for name, value in asdict(self._request).items() if name not in _ROADS
                },
                "route": prepared.route,
                "shapes": [str(range_) for range_ in ranges],
                "network": hash_network(prepared.model, self._unchanged(prepared)),
                "cache": None if cache is None else cache.to_text(),
            }
        )

    def _record(
        self,
        api: Api,
        route: str,
        ranges: Sequence[InputRange],
        device: TargetDevice,
        key: str,
        built: BuiltPlan,
        seconds: float,
    ) -> BuildRecord:
        return BuildRecord(
            precision=self._request.precision,
            route=route,
            level=self._request.level,
            tensorrt=api.version,
            flavour=api.flavour,
            device=device.name,
            compute_capability=device.compute_capability,
            shapes=tuple(map(str, ranges)),
            tf32=self._request.tf32,
            build_seconds=round(seconds, 3),
            plan_bytes=len(built.plan),
            plan_sha256=hashlib.sha256(built.plan).hexdigest(),
            model=self._model.path.name,
            model_sha256=self._model.sha256,
            cache_sha256=_cache_hash(self._scales),
            key=key,
            warnings=built.warnings,
            notes=built.notes,
        )


def _cache_hash(scales: Scales) -> str | None:
    if scales.cache is None:
        return None
    return hashlib.sha256(scales.cache.to_text().encode("utf-8")).hexdigest()
