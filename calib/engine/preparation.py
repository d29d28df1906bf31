"""From what was asked for to the ONNX model that the parser reads, and what the builder gets beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from onnx import TensorProto

from calib.calibrators import CalibrationCache, encode_version, read_sidecar
from calib.calibrators.algorithms import ALGORITHMS
from calib.engine.api import Api
from calib.engine.build_request import BuildRequest
from calib.engine.fusion import node_label
from calib.errors import CacheError, EngineError, ModelError, UsageError, first_names
from calib.graph import OnnxModel, convert_float16, quantize_model
from calib.graph.cache_model import compare_names, lint_provenance, name_faults
from calib.graph.explanation import left_in_words
from calib.graph.graph_view import label
from calib.graph.targets import Treatment
from calib.wording import counted

__all__ = ["Prepared", "Scales", "check_scales", "prepare"]

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_REST = "what does not run in INT8 runs in FP32; --precision best makes that FP16"


@dataclass(frozen=True)
class Scales:
    """Where INT8 gets its scales from.

    Attributes:
        cache: A calibration cache.
        cache_path: Its file; None where it has none.
        calibrator: A calibrator of TensorRT, which calibrates during the build.
    """

    cache: CalibrationCache | None = None
    cache_path: Path | None = None
    calibrator: Any | None = None

    @property
    def given(self) -> bool:
        """Whether there are any."""
        return self.cache is not None or self.calibrator is not None


@dataclass(frozen=True)
class Prepared:
    """What TensorRT is given.

    Attributes:
        model: The model that the parser reads.
        route: "float", "implicit INT8" or "explicit INT8".
        scales: What the builder gets; nothing for the other routes.
        notes: What was decided.
    """

    model: OnnxModel
    route: str
    scales: Scales = Scales()
    notes: tuple[str, ...] = ()


def prepare(api: Api, request: BuildRequest, model: OnnxModel, scales: Scales) -> Prepared:
    """Decides how the engine gets its precision.

    Args:
        api: TensorRT.
        request: What to build.
        model: The model, float or with Q/DQ nodes.
        scales: Where INT8 gets its scales from.

    Raises:
        UsageError: Things were asked for that exclude each other.
        CacheError: The cache is for another TensorRT, algorithm or model.
        ModelError: The model cannot be converted, or is quantized already.
        EngineError: This TensorRT cannot do it.
    """
    if not request.quantized:
        return _prepare_float(api, request, model, scales)
    if model.quantized_nodes:
        return _prepare_quantized(api, request, model, scales)
    if not scales.given:
        raise UsageError(
            f"--precision {request.precision} needs the ranges of {model.path.name}: pass --cache "
            f"MODEL.cache (made by: calib calibrate {model.path.name} --data RECIPE), or a model with Q/DQ "
            "nodes."
        )
    if scales.cache is not None and scales.calibrator is not None:
        raise UsageError("Pass a cache or a calibrator, not both: the calibrator's own cache would be read.")
    route = _route(api, request, scales)
    return (_prepare_implicit if route == "implicit" else _prepare_explicit)(api, request, model, scales)


def check_scales(api: Api, request: BuildRequest, model: OnnxModel, scales: Scales) -> None:
    """Refuses a cache that the build would refuse, for those who build other engines before.

    Args:
        api: TensorRT.
        request: What to build: INT8.
        model: The float model.
        scales: The cache.

    Raises:
        CacheError: The cache is for another TensorRT, algorithm or model.
        EngineError: This TensorRT has not the route.
    """
    route = _route(api, request, scales)
    if scales.cache is not None:
        if route == "implicit":
            _check_header(api, scales.cache, _name(scales))
        _check_names(scales, model)


def _prepare_float(api: Api, request: BuildRequest, model: OnnxModel, scales: Scales) -> Prepared:
    typed = request.half and not api.precision_flags
    if scales.calibrator is not None or (scales.cache is not None and not typed):
        raise UsageError(
            f"--precision {request.precision} uses no calibration cache. Leave it out, or pass --precision "
            "int8 or best."
        )
    if model.quantized_nodes:
        raise UsageError(
            f"{model.path} has {model.quantized_nodes} Q/DQ or integer nodes, which run in INT8: pass "
            f"--precision int8 or best, or the float model for {request.precision}."
        )
    if not typed:
        return Prepared(model, "float", notes=tuple(_typed_notes(api, request, model)))
    half = convert_float16(model, ranges=scales.cache, keep_float=request.keep_float)
    note = f"{api.title} has no FP16 flag: built from an FP16 form of the model"
    if half.kept:
        note += (
            f", in which {len(half.kept)} of {half.converted + len(half.kept)} nodes stay in FP32 (calib "
            "fp16 --explain lists them, with the reasons)"
        )
    return Prepared(half.model, "float", notes=(note, *half.notes))


def _prepare_quantized(api: Api, request: BuildRequest, model: OnnxModel, scales: Scales) -> Prepared:
    """A model that has its scales already."""
    if scales.given or request.keep_float:
        raise ModelError(
            f"{model.path} already has {model.quantized_nodes} Q/DQ or integer nodes, whose scales count: a "
            "cache, a calibrator or --keep-float is of no use. Leave it out, or pass the float model."
        )
    if request.route == "implicit":
        raise UsageError(f"{model.path} has Q/DQ nodes, which is the explicit route. Leave --route out.")
    notes = [f"built from the {model.quantized_nodes} Q/DQ nodes that the model has"]
    target = api.target
    if target.most_opset is not None and model.opset > target.most_opset:
        notes.append(f"opset {model.opset} is above the {target.most_opset} that {api.title} reads for sure")
    if not api.precision_flags:
        notes.append("every type is the model's own: there are no precision flags")
        notes += _typed_notes(api, request, model)
    elif not request.half:
        notes.append(_REST)
    return Prepared(model, "explicit INT8", notes=tuple(notes))


def _typed_notes(api: Api, request: BuildRequest, model: OnnxModel) -> list[str]:
    """What an engine of FP32 is not, where the builder takes every type from the model."""
    if api.precision_flags or request.half:
        return []
    graph = model.proto.graph
    typed = [(tensor.name, tensor.data_type) for tensor in graph.initializer]
    typed += [(info.name, info.type.tensor_type.elem_type) for info in (*graph.input, *graph.output)]
    found = [name for name, kind in typed if kind in _HALVES]
    if not found:
        return []
    return [
        f"{api.title} takes every type from the model, in which {counted(len(found), 'tensor[s] [is|are]')} "
        f"FP16 or BF16: it computes in these types there, and not in FP32: {first_names(found, most=3)}"
    ]


def _route(api: Api, request: BuildRequest, scales: Scales) -> str:
    wanted = request.route if request.route != "auto" else "implicit" if api.calibrators else "explicit"
    if wanted == "implicit" and not api.calibrators:
        raise EngineError(
            f"{api.title} has no calibrators (they ended with TensorRT 10), so no implicit INT8. Use --route "
            "explicit: the cache's scales are written into the model as Q/DQ nodes."
        )
    if wanted == "explicit" and scales.calibrator is not None:
        raise UsageError(
            "A calibrator of TensorRT works on the implicit route alone, which TensorRT 11 no longer has. "
            "Calibrate with calib calibrate and pass its cache."
        )
    return wanted


def _prepare_implicit(api: Api, request: BuildRequest, model: OnnxModel, scales: Scales) -> Prepared:
    notes = [] if request.half else [_REST]
    if scales.cache is not None:
        _check_header(api, scales.cache, _name(scales))
        notes += _check_names(scales, model)
    return Prepared(model, "implicit INT8", scales, tuple(notes))


def _prepare_explicit(api: Api, request: BuildRequest, model: OnnxModel, scales: Scales) -> Prepared:
    assert scales.cache is not None  # _route refuses a calibrator
    notes = _check_names(scales, model)
    target = api.target.name
    typed = request.half and not api.precision_flags
    wrong = [label(node) for node in model.proto.graph.node if node_label(node) in request.float_nodes]
    result = quantize_model(
        model,
        scales.cache,
        (*request.keep_float, *(f"^{re.escape(name)}$" for name in wrong)),
        target=target,
        float_type="fp16" if typed else "fp32",
        conv_transpose=cast(Treatment, request.conv_transpose),
    )
    notes.append(
        f"{counted(len(result.activations), 'activation[s]')} quantized by Q/DQ nodes, in the form "
        f"for {target}"
    )
    if result.left_float:
        left = result.left_float
        notes.append(
            left_in_words(
                [replace(one, reason="wrong in INT8") if one.node in wrong else one for one in left]
            )
        )
    if typed:
        notes.append(f"{api.title} has no FP16 flag: the rest was converted to FP16")
    elif not request.half:
        notes.append(_REST)
    return Prepared(result.model, "explicit INT8", notes=(*notes, *result.notes))


def _name(scales: Scales) -> str:
    return str(scales.cache_path) if scales.cache_path else "The cache"


def _check_header(api: Api, cache: CalibrationCache, name: str) -> None:
    """Refuses a cache that TensorRT would ignore, to calibrate without data and fail elsewhere."""
    if cache.algorithm not in ALGORITHMS:
        raise CacheError(
            f"{name} is of algorithm {cache.algorithm!r}, for which TensorRT has no calibrator: it has "
            f"{', '.join(ALGORITHMS)}. Give it the header of one: {_convert(name, '--algorithm entropy')}"
        )
    if cache.legacy_settings is not None:
        # Its own header names no version.
        return
    if cache.version is not None and encode_version(cache.version) == encode_version(api.version):
        return
    found = f"for TensorRT {cache.version}" if cache.version else f"of no version ({cache.header})"
    raise CacheError(
        f"{name} is headed {found}, but this is TensorRT {api.version}, which would ignore it and calibrate "
        "without data. The scales hold for the same model in any version, as far as the names do. If that is "
        f"so here, give it another header: {_convert(name, f'--tensorrt {_short(api)}')}"
    )


def _convert(name: str, option: str) -> str:
    file = name if name != "The cache" else "IN.cache"
    return f"calib cache convert {file} OUT.cache {option}"


def _short(api: Api) -> str:
    return ".".join(map(str, api.release))


def _check_names(scales: Scales, model: OnnxModel) -> list[str]:
    """Notes on how a cache fits a model; refuses one of another model."""
    assert scales.cache is not None
    names = compare_names(scales.cache, model)
    if not names.matched:
        raise CacheError(
            f"{_name(scales)} belongs to another model: none of its "
            f"{counted(len(scales.cache), 'entr[y|ies]')} names a float activation of {model.path}. "
            f"{_nearest(names.only_cache)}"
        )
    notes = [names.summary, *name_faults(names, model)]
    if unusable := scales.cache.unusable:
        notes.append(
            f"{counted(len(unusable), 'entr[y holds a scale|ies hold scales]')} that INT8 cannot use: "
            f"{first_names(list(unusable))}"
        )
    sidecar = read_sidecar(scales.cache_path) if scales.cache_path else None
    if sidecar is not None:
        notes += [finding.message for finding in lint_provenance(sidecar, model)]
    return notes


def _nearest(names: Sequence[str]) -> str:
    return f"It names {first_names(names)}. calib cache lint --model MODEL.onnx compares the two."
