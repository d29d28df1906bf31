"""Layers and their times from files: of TensorRT's inspector and profiler, or of an engine."""

from __future__ import annotations

import json
import os
from pathlib import Path

from calib.engine.inspector import EngineLayer, inspect_engine, parse_layers
from calib.errors import EngineError

__all__ = ["read_layers", "read_times"]

_JSON = (".json", ".gz")


def read_layers(path: str | os.PathLike[str]) -> tuple[EngineLayer, ...]:
    """Reads layers from the inspector's JSON, or from an engine, which needs TensorRT and its GPU.

    Args:
        path: ``.json`` or ``.json.gz``, as TensorRT's inspector and ``trtexec --exportLayerInfo`` write
            it; or a serialized engine.

    Raises:
        EngineError: No such file, not such a file, or the engine cannot be loaded here.
        MissingExtraError: It is an engine, and TensorRT is not installed.
    """
    source = Path(path)
    data = _read(source)
    if source.suffix.lower() in _JSON:
        return parse_layers(data, str(source))
    return _of_engine(data, source)


def _of_engine(plan: bytes, source: Path) -> tuple[EngineLayer, ...]:
    from calib.engine.api import capture_log, load_api
    from calib.engine.loading import load_engine
    from calib.engine.memory import open_device

    api = load_api()
    with open_device() as device:
        log = capture_log(api)
        runtime, engine = load_engine(api, plan, log, origin=str(source), here=device.name)
        context = engine.create_execution_context()
        layers = inspect_engine(api, engine, context)
        del context, engine, runtime
    return layers


def read_times(path: str | os.PathLike[str]) -> dict[str, float]:
    """Reads layer → milliseconds: a JSON object, or what ``trtexec --exportProfile`` writes.

    Raises:
        EngineError: No such file, or of neither form.
    """
    source = Path(path)
    try:
        document = json.loads(_read(source), strict=False)
    except ValueError as error:
        raise EngineError(f"{source} is not JSON: {error}.") from error
    if isinstance(document, list):
        # trtexec: the first entry holds the count, the others name, timeMs, averageMs, percentage.
        document = {
            entry["name"]: entry.get("averageMs")
            for entry in document
            if isinstance(entry, dict) and "name" in entry
        }
    if not isinstance(document, dict) or not all(isinstance(v, (int, float)) for v in document.values()):
        raise EngineError(f"{source} must map layers to milliseconds, or be trtexec's --exportProfile.")
    return {str(name): float(value) for name, value in document.items()}


def _read(source: Path) -> bytes:
    try:
        return source.read_bytes()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or error
        raise EngineError(f"Cannot read {source}: {reason}.") from error
