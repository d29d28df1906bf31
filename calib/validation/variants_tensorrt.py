"""The precisions of one model as TensorRT engines on a GPU, beside ONNX Runtime's FP32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calib.errors import UsageError
from calib.validation.engine_options import EngineOptions
from calib.validation.engine_shapes import Feeds, engine_shapes
from calib.validation.naming import RunName
from calib.validation.options import Options
from calib.validation.provenance import Calibration
from calib.validation.variants import Variant
from calib.wording import sentence

if TYPE_CHECKING:
    from calib.engine import Api, Engine
    from calib.graph import OnnxModel
    from calib.runners import TensorRTRunner

__all__ = ["make"]

# Said of every export from PyTorch: indices and shapes that INT32 holds; advice on the line before.
_HARMLESS = ("INT64 weights", "Check verbose logs", "If this is not the desired behavior")
_RESTS = {"fp16": "best", "fp32": "int8"}


def make(
    model: OnnxModel, options: Options, calibrations: Sequence[Calibration], feeds: Feeds | None = None
) -> Iterator[Variant]:
    """Builds an engine for each precision, one after another, and loads it.

    Args:
        model: The FP32 model.
        options: Precisions, batch sizes, and how engines are built.
        calibrations: The scales for "int8", which is built once with each, by each route.
        feeds: Makes every batch, by which shapes are found that neither model nor options say.

    Raises:
        UsageError: "int8" without scales.
        CacheError: TensorRT or the model does not take a cache; it is told before anything is built.
        EngineError: No GPU, or TensorRT cannot build or load an engine.
        MissingExtraError: TensorRT is not installed.
    """
    from calib.engine.api import load_api

    chosen, api = options.engine, load_api()
    if "int8" in options.precisions:
        _check_caches(api, model, chosen, calibrations)
    shapes = chosen.shapes or engine_shapes(model, options, feeds)
    for precision in options.precisions:
        if precision != "int8":
            yield _variant(model, RunName(precision, runner="tensorrt"), chosen, shapes, {})
            continue
        for calibration in calibrations:
            for route in chosen.routes():
                form = "Q/DQ" if route == "explicit" and chosen.route == "both" else ""
                name = replace(calibration.run, runner="tensorrt", form=form)
                scales = {
                    "cache": calibration.cache,
                    "route": route,
                    "keep_float": options.keep_float,
                    "conv_transpose": chosen.conv_transpose,
                }
                yield _variant(model, name, chosen, shapes, scales)


def _check_caches(
    api: Api, model: OnnxModel, chosen: EngineOptions, calibrations: Sequence[Calibration]
) -> None:
    """INT8 is built last, minutes after the rest: what is wrong with its caches is told at once."""
    from calib.engine.build_request import BuildRequest
    from calib.engine.preparation import Scales, check_scales

    if not calibrations:
        raise UsageError("INT8 needs a calibration cache.")
    for calibration in calibrations:
        for route in chosen.routes():
            request = BuildRequest(precision=_RESTS[chosen.rest], route=route)
            check_scales(api, request, model, Scales(calibration.cache, calibration.path))


def _variant(
    model: OnnxModel,
    name: RunName,
    chosen: EngineOptions,
    shapes: Sequence[str],
    scales: Mapping[str, Any],
) -> Variant:
    from calib.engine import build
    from calib.runners import TensorRTRunner

    precision = _RESTS[chosen.rest] if name.precision == "int8" else name.precision
    engine = build(
        model,
        precision=precision,
        shapes=shapes,
        level=chosen.level,
        workspace_mib=chosen.workspace_mib,
        timing_cache=chosen.timing_cache,
        engine_cache=chosen.engine_cache,
        **scales,
    )
    runner = TensorRTRunner(engine, name.precision, cuda_graph=chosen.cuda_graph)
    return Variant(
        name,
        runner,
        _describe(engine, runner),
        warnings=_warnings(name, engine),
        engine=engine,
        scales=scales.get("cache"),
        again=lambda number: _variant(
            model,
            _numbered(name, number),
            replace(chosen, timing_cache=None, engine_cache=None),
            shapes,
            scales,
        ),
    )


def _numbered(name: RunName, number: int) -> RunName:
    """What a further build of an engine is called."""
    return replace(name, form=f"{name.form} build {number}".strip())


def _describe(engine: Engine, runner: TensorRTRunner) -> str:
    record = engine.record
    level = "default level" if record.level is None else f"level {record.level}"
    source = "from the engine cache" if record.from_cache else f"built in {record.build_seconds:.0f} s"
    return " ".join([f"{record.route}, {level}, {source}; {runner.note}.", *map(sentence, record.notes)])


def _warnings(name: RunName, engine: Engine) -> tuple[str, ...]:
    said = [line for line in engine.record.warnings if not any(part in line for part in _HARMLESS)]
    return tuple(f"{name.label}: {line}" for line in said)
