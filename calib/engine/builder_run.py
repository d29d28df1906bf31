"""One run of TensorRT's builder: network, config, profile, build; an error where TensorRT returns None."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from calib.engine.api import Api, capture_log
from calib.engine.build_request import BuildRequest
from calib.engine.faults import find_hints, no_gpu_reason, parser_faults, unknown_operators, worst_lines
from calib.engine.float_layers import keep_layers_float
from calib.engine.handover import calibration_notes, hand_over, raise_failure
from calib.engine.network_source import NetworkSource
from calib.engine.preparation import Scales
from calib.engine.shapes import InputRange
from calib.engine.target_device import TargetDevice
from calib.engine.timing_cache import TimingCache
from calib.errors import EngineError, UsageError, first_names
from calib.graph import OnnxModel
from calib.wording import counted, inflected

__all__ = ["BuildJob", "BuiltPlan", "run_builder"]

_MISSING_SCALE = re.compile(r"Missing scale and zero-point for tensor (.+?), expect fall back")
_MOST_WARNINGS = 50
_WEIGHTS_HEAD = "TensorRT encountered issues when converting weights"
_WEIGHTS = re.compile(r"\s*- (\d+ weights are affected .*)")


@dataclass(frozen=True)
class BuildJob:
    """Everything that the builder needs.

    Attributes:
        model: What the parser reads.
        source: The same as bytes or as a file.
        request: How to build.
        ranges: The shapes of every input.
        device: What to build for.
        scales: The cache or the calibrator that the builder gets; neither on other routes.
        timing: The timing cache; None for none.
    """

    model: OnnxModel
    source: NetworkSource
    request: BuildRequest
    ranges: tuple[InputRange, ...]
    device: TargetDevice
    scales: Scales = field(default_factory=Scales)
    timing: TimingCache | None = None


@dataclass(frozen=True)
class BuiltPlan:
    """A built engine.

    Attributes:
        plan: TensorRT's bytes.
        warnings: What it warned of, each line once; missing scales are counted in ``notes`` instead.
        notes: What is to know.
    """

    plan: bytes
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def run_builder(api: Api, job: BuildJob) -> BuiltPlan:
    """Builds an engine.

    Args:
        api: TensorRT.
        job: What to build.

    Raises:
        EngineError: No GPU, the parser or the builder failed; with what they said and what to try.
        CalibrationError: The calibrator failed.
        UsageError: An option cannot be meant for this model.
    """
    try:
        with _deprecations_ignored():
            return _run(api, job)
    except BaseException as error:
        # Else the error holds builder and network through the frames that it passed, for as long as it lives.
        traceback.clear_frames(error.__traceback__)
        raise


def _run(api: Api, job: BuildJob) -> BuiltPlan:
    log = capture_log(api)
    builder = _make_builder(api, log)
    if api.has("plugins"):
        api.trt.init_libnvinfer_plugins(log, "")
    network = _parse(api, job, builder, log)
    calibrator, handed = _calibrator(api, job, network)
    notes = list(handed)
    config = _configure(api, job, builder, network, calibrator, log)
    if _chooses_types(api, job.request, calibrator):
        notes += keep_layers_float(api, network, config, job.request)
    plan = _serialize(api, job, builder, network, config, calibrator, log)
    notes += calibration_notes(calibrator)
    if job.timing is not None:
        job.timing.store(config)
        notes += job.timing.notes
    said, scale_notes = _warnings(log.lines)
    return BuiltPlan(plan, said, (*notes, *scale_notes))


def _chooses_types(api: Api, request: BuildRequest, calibrator: Any | None) -> bool:
    """Whether the builder is what keeps layers float; on other ways the model's own types and nodes do."""
    return calibrator is not None or (not request.quantized and bool(api.precision_flags))


@contextmanager
def _deprecations_ignored() -> Iterator[None]:
    """TensorRT 10 marks as deprecated what 8.6 needs; the table of features decides what is called."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _make_builder(api: Api, log: Any) -> Any:
    try:
        return api.trt.Builder(log)
    except (TypeError, RuntimeError) as error:
        # Without CUDA the constructor makes nothing, and pybind11 says only that.
        reason = no_gpu_reason(api, log.lines) or _said(log.lines) or str(error)
        raise EngineError(
            f"{api.title} cannot build here: {reason}. Build on the machine that runs the engine; calib "
            "doctor shows GPUs and drivers, and TensorRT-RTX (--rtx) builds without a GPU."
        ) from error


def _parse(api: Api, job: BuildJob, builder: Any, log: Any) -> Any:
    network = builder.create_network(_network_flags(api))
    parser = api.trt.OnnxParser(network, log)
    if job.source.file is not None:
        parsed = parser.parse_from_file(str(job.source.file))
    else:
        parsed = parser.parse(job.source.content)
    if not parsed:
        raise EngineError(_parser_message(api, job.model, parser, log.lines))
    return network


def _calibrator(api: Api, job: BuildJob, network: Any) -> tuple[Any | None, tuple[str, ...]]:
    """The calibrator that the builder gets, and notes; one that hands over the cache where there is one."""
    if job.scales.cache is None:
        return job.scales.calibrator, ()
    return hand_over(api, network, job.model, job.scales.cache)


def _network_flags(api: Api) -> int:
    flags, bits = api.trt.NetworkDefinitionCreationFlag, 0
    # Ignored by 10, gone in 11; without it 8.6 cannot parse ONNX.
    if api.has("explicit_batch"):
        bits |= 1 << int(flags.EXPLICIT_BATCH)
    if api.strong_typing == "always" and api.has("strongly_typed_flag"):
        bits |= 1 << int(flags.STRONGLY_TYPED)
    return bits


def _parser_message(api: Api, model: OnnxModel, parser: Any, lines: Sequence[tuple[str, str]]) -> str:
    faults = parser_faults(parser, model)
    told = [str(fault) for fault in faults] or worst_lines(lines) or ["the parser gave no reason"]
    unknown = unknown_operators(parser, model)
    if unknown:
        listed = ", ".join(f"{operator} ({counted(count, 'node[s]')})" for operator, count in unknown.items())
        told.append(f"operators that its parser has no importer for: {listed}")
    return _message(f"{api.title} cannot parse {model.path}", told)


def _configure(api: Api, job: BuildJob, builder: Any, network: Any, calibrator: Any | None, log: Any) -> Any:
    config, request, trt = builder.create_builder_config(), job.request, api.trt
    if api.has("compute_capabilities") and job.device.compute_capability is not None:
        major, minor = job.device.compute_capability
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{major}{minor}"), 0)
    _set_flags(api, request, config)
    if request.level is not None:
        config.builder_optimization_level = request.level
    if request.workspace_mib is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, request.workspace_mib << 20)
    if api.has("detailed_profiling"):
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = _add_profile(api, job, builder, network, config, log)
    if calibrator is not None:
        if api.has("calibration_profile"):
            config.set_calibration_profile(_calibration_profile(calibrator, builder, profile))
        config.int8_calibrator = calibrator
    if job.timing is not None:
        job.timing.attach(config, log)
    return config


def _set_flags(api: Api, request: BuildRequest, config: Any) -> None:
    flags = api.trt.BuilderFlag
    if api.precision_flags and request.quantized:
        config.set_flag(flags.INT8)
    if api.precision_flags and request.half:
        config.set_flag(flags.FP16)
    if api.has("tf32"):
        (config.set_flag if request.tf32 else config.clear_flag)(flags.TF32)
    if request.version_compatible:
        _need(api, "version_compatible", "--version-compatible")
        config.set_flag(flags.VERSION_COMPATIBLE)
    if request.hardware_compatible:
        _need(api, "hardware_compatible", "--hardware-compatible")
        config.hardware_compatibility_level = api.trt.HardwareCompatibilityLevel.AMPERE_PLUS


def _need(api: Api, feature: str, option: str) -> None:
    if api.flavour == "tensorrt_rtx":
        # It has the calls, which warn and do nothing, or fail for want of a library that it never had.
        raise EngineError(
            f"{api.title} has nothing for {option}: its engines are for the GPUs of --compute-capability and "
            "for its own version. Leave it out, or build with TensorRT."
        )
    if not api.has(feature):
        raise EngineError(
            f"{api.title} has nothing for {option}. Leave it out, or use TensorRT 8.6 or later."
        )


def _add_profile(api: Api, job: BuildJob, builder: Any, network: Any, config: Any, log: Any) -> Any:
    profile = builder.create_optimization_profile()
    ranges = {range_.name: range_ for range_ in job.ranges}
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        range_ = ranges.get(tensor.name)
        if tensor.is_shape_tensor:
            if range_ is None or not range_.values:
                raise UsageError(_asking_for_values(tensor, job.model))
            profile.set_shape_input(tensor.name, range_.smallest, range_.usual, range_.largest)
        elif range_ is not None and range_.usual:
            _check_no_values(range_, tensor)
            profile.set_shape(tensor.name, range_.smallest, range_.usual, range_.largest)
    if config.add_optimization_profile(profile) < 0:
        told = worst_lines(log.lines)
        raise EngineError(_message(f"{api.title} does not take the shapes {_listed(job.ranges)}", told))
    return profile


def _asking_for_values(tensor: Any, model: OnnxModel) -> str:
    name = tensor.name
    return (
        f"Input {name!r} of {model.path} holds sizes of other tensors (a shape tensor): TensorRT builds for "
        f"a range of its values. Pass --shapes {name}:VALUES, or smallest:usual:largest of them, such as "
        f"{name}:112x112:224x224:448x448 for a height and a width; or make it a constant when exporting."
    )


def _check_no_values(range_: InputRange, tensor: Any) -> None:
    shape = tuple(tensor.shape)
    if range_.values and not (range_.fixed and range_.usual == shape):
        raise UsageError(
            f"--shapes {range_}: input {range_.name!r} holds no sizes of other tensors, and its shape is "
            f"{'x'.join(map(str, shape)) or 'that of a scalar'}. Leave it out."
        )


def _calibration_profile(calibrator: Any, builder: Any, profile: Any) -> Any:
    """The shapes that calibration runs with: those of the batches, which need not be the usual ones."""
    shapes = getattr(calibrator, "shapes", None)
    if not shapes:
        return profile
    own = builder.create_optimization_profile()
    for name, shape in shapes.items():
        own.set_shape(name, shape, shape, shape)
    return own


def _listed(ranges: Sequence[InputRange]) -> str:
    return ", ".join(map(str, ranges))


def _serialize(
    api: Api, job: BuildJob, builder: Any, network: Any, config: Any, calibrator: Any | None, log: Any
) -> bytes:
    cause: Exception | None = None
    try:
        plan = builder.build_serialized_network(network, config)
    except (RuntimeError, MemoryError) as error:
        plan, cause = None, error
    raise_failure(calibrator)
    if plan is not None and plan.nbytes:
        return bytes(memoryview(plan))
    told = worst_lines(log.lines) or ([str(cause)] if cause else ["the builder gave no reason"])
    if (reason := no_gpu_reason(api, log.lines)) and api.flavour == "tensorrt":
        told.append(reason)
    what = f"{api.title} cannot build {job.model.path} ({job.request.precision}) for {job.device.name}"
    raise EngineError(_message(what, told)) from cause


def _said(lines: Sequence[tuple[str, str]]) -> str:
    return "; ".join(worst_lines(lines))


def _message(what: str, told: Sequence[str]) -> str:
    hints = find_hints(told)
    parts = [f"{what}:", *(f"  {line}" for line in told), *(f"Try: {hint}" for hint in hints)]
    return "\n".join(parts)


def _joined(texts: Iterable[str]) -> list[str]:
    """Lines, with what TensorRT tells of weights in lines of their own behind the one that it belongs to."""
    found: list[str] = []
    head: int | None = None
    for text in texts:
        if head is not None and (match := _WEIGHTS.match(text)):
            found[head] = f"{found[head].rstrip('.;')}; {match[1]}"
            continue
        head = len(found) if text.startswith(_WEIGHTS_HEAD) else head
        found.append(text)
    return found


def _warnings(lines: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], list[str]]:
    """Warnings and errors of a build that succeeded, and a note on scales that were missing."""
    texts = _joined(dict.fromkeys(text for severity, text in lines if severity != "INFO"))
    missing = [match[1] for text in texts if (match := _MISSING_SCALE.search(text))]
    others = [text for text in texts if not _MISSING_SCALE.search(text)]
    notes = []
    if missing:
        notes.append(
            f"{counted(len(missing), 'tensor[s] [has|have]')} no usable scale; layers that touch "
            f"{inflected(len(missing), '[it|them]')} do not run in INT8: "
            f"{first_names(missing)}"
        )
    if len(others) > _MOST_WARNINGS:
        notes.append(f"{len(others) - _MOST_WARNINGS} further warnings of the builder are left out")
    return tuple(others[:_MOST_WARNINGS]), notes
