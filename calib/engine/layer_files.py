"""Layers and their times from files: of TensorRT's inspector and profiler, or of an engine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calib.engine.inspector import EngineLayer, inspect_engine, parse_layers
from calib.errors import EngineError
from calib.files import read_bounded

if TYPE_CHECKING:
    from calib.engine.api import Api

__all__ = ["inspect_plan", "is_engine", "read_layers", "read_times", "set_largest_shapes"]

_GZIP = b"\x1f\x8b"


def read_layers(path: str | os.PathLike[str], *, host_code: bool = False) -> tuple[EngineLayer, ...]:
    """Reads layers from the inspector's JSON, or from an engine, which needs TensorRT and its GPU.

    Dynamic inputs of an engine take the largest shapes of its first optimization profile: without shapes the
    inspector tells no formats.

    Args:
        path: JSON, or JSON compressed by gzip, as TensorRT's inspector and ``trtexec --exportLayerInfo``
            write it; or a serialized engine.
        host_code: Lets a version-compatible engine run the runtime code it holds; for trusted ones only.

    Raises:
        EngineError: No such file, not such a file, or the engine cannot be loaded here.
        MissingExtraError: It is an engine, and TensorRT is not installed.
    """
    source = Path(path)
    if not is_engine(source):
        return parse_layers(read_bounded(source, "file of layers or times", EngineError), str(source))
    return _of_engine(source, host_code)


def is_engine(source: Path) -> bool:
    """Whether a file is an engine, and not JSON, by its first bytes: an engine may be called anything.

    Raises:
        EngineError: There is no such file, it is empty, or it is an ONNX model or a calibration cache.
    """
    try:
        with source.open("rb") as stream:
            start = stream.read(64)
    except OSError as error:
        raise EngineError(f"Cannot read {source}: {_why(error)}.") from error
    if not start:
        raise EngineError(f"{source} is empty.")
    if start.startswith(_GZIP) or start.lstrip()[:1] in (b"{", b"["):
        return False
    if source.suffix.lower() == ".onnx":
        raise EngineError(
            f"{source} is an ONNX model, not an engine. Build one: calib build {source}; or see what "
            f"TensorRT can run of it: calib doctor --model {source}"
        )
    if start.startswith(b"TRT-"):
        raise EngineError(
            f"{source} is a calibration cache, not an engine. See what it holds: calib cache show {source}"
        )
    return True


def _of_engine(source: Path, host_code: bool) -> tuple[EngineLayer, ...]:
    from calib.engine.api import load_api
    from calib.engine.engine_file import Engine
    from calib.engine.memory import open_device

    made = Engine.load(source)
    with open_device() as device:
        return inspect_plan(
            load_api(made.record.flavour),
            made.plan,
            origin=str(source),
            here=device.name,
            host_code=host_code,
        )


def inspect_plan(
    api: Api, plan: bytes, *, origin: str, here: str, host_code: bool
) -> tuple[EngineLayer, ...]:
    """The layers of a serialized engine, with the largest shapes. CUDA must have been started.

    Args:
        api: The engine's TensorRT.
        plan: The serialized engine.
        origin: Where it comes from, for messages.
        here: The GPU that is here, for messages.
        host_code: Lets a version-compatible engine run the runtime code it holds; for trusted ones only.

    Raises:
        EngineError: It cannot be loaded here, or tells nothing.
    """
    from calib.engine.api import capture_log
    from calib.engine.loading import load_engine

    log = capture_log(api)
    runtime, engine = load_engine(api, plan, log, origin=origin, here=here, host_code=host_code)
    context = engine.create_execution_context()
    if context is None:
        raise EngineError(f"{api.title} can make no context of {origin}: the GPU's memory may not do.")
    set_largest_shapes(api, engine, context)
    layers = inspect_engine(api, engine, context)
    del context, engine, runtime
    return layers


def set_largest_shapes(api: Api, engine: Any, context: Any) -> None:
    """Gives dynamic inputs the largest shapes of the first optimization profile.

    Only they tell of every part of a tensor whether it has gaps (``calib.engine.wrong_layers``).

    Args:
        api: The engine's TensorRT.
        engine: A deserialized engine.
        context: An execution context of it, on its first profile.

    Raises:
        EngineError: TensorRT takes none of its own shapes.
    """
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        if engine.get_tensor_mode(name) != api.trt.TensorIOMode.INPUT:
            continue
        if all(size >= 0 for size in engine.get_tensor_shape(name)):
            continue
        largest = tuple(engine.get_tensor_profile_shape(name, 0)[2])
        if not context.set_input_shape(name, largest):
            raise EngineError(
                f"{api.title} refuses shape {largest} of input {name!r}, which its profile has."
            )


def read_times(path: str | os.PathLike[str]) -> dict[str, float]:
    """Reads layer → milliseconds: a JSON object, or what ``trtexec --exportProfile`` writes.

    Raises:
        EngineError: No such file, or of neither form.
    """
    source = Path(path)
    try:
        document = json.loads(read_bounded(source, "file of layers or times", EngineError), strict=False)
    except (ValueError, RecursionError) as error:
        raise EngineError(f"{source} is not JSON, or cut off: {error}.") from error
    if isinstance(document, list):
        document = _of_trtexec(document)
    if (
        not isinstance(document, dict)
        or not document
        or not all(_is_time(value) for value in document.values())
    ):
        raise EngineError(
            f"{source} must map layers to milliseconds, each at least 0, or be what trtexec --exportProfile "
            "writes."
        )
    return {str(name): float(value) for name, value in document.items()}


def _of_trtexec(entries: list[Any]) -> dict[str, Any]:
    """The first entry holds the count, the others name, timeMs, averageMs, percentage."""
    times: dict[str, Any] = {}
    for entry in entries:
        if isinstance(entry, dict) and "name" in entry:
            value, before = entry.get("averageMs"), times.get(entry["name"], 0.0)
            times[entry["name"]] = before + value if _is_time(value) and _is_time(before) else None
    return times


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _why(error: OSError) -> str:
    return "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
