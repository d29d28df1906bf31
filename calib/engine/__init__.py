"""TensorRT and the GPU: what is here and what it can do, and building engines.

What builds engines reads ONNX models, which takes its time to import: it is imported when first asked for,
so that ``calib doctor`` works where that is what is broken.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from calib.engine.detect import GpuInfo, TensorRTInfo, detect_gpus, detect_tensorrt
from calib.engine.telemetry import GpuReading, GpuReadings, TelemetrySampler

if TYPE_CHECKING:
    from calib.engine.api import Api, capture_log, load_api
    from calib.engine.building import build
    from calib.engine.engine_file import BuildRecord, Engine
    from calib.engine.engine_summary import EngineSummary, summarize_layers
    from calib.engine.inspector import EngineLayer, inspect_engine, parse_layers
    from calib.engine.layer_files import read_layers, read_times
    from calib.engine.shapes import InputRange, resolve_shapes, shapes_of_feeds

__all__ = [
    "Api",
    "BuildRecord",
    "Engine",
    "EngineLayer",
    "EngineSummary",
    "GpuInfo",
    "GpuReading",
    "GpuReadings",
    "InputRange",
    "TelemetrySampler",
    "TensorRTInfo",
    "build",
    "capture_log",
    "detect_gpus",
    "detect_tensorrt",
    "inspect_engine",
    "load_api",
    "parse_layers",
    "read_layers",
    "read_times",
    "resolve_shapes",
    "shapes_of_feeds",
    "summarize_layers",
]

_HOME = {
    "Api": "calib.engine.api",
    "BuildRecord": "calib.engine.engine_file",
    "Engine": "calib.engine.engine_file",
    "EngineLayer": "calib.engine.inspector",
    "EngineSummary": "calib.engine.engine_summary",
    "InputRange": "calib.engine.shapes",
    "build": "calib.engine.building",
    "capture_log": "calib.engine.api",
    "inspect_engine": "calib.engine.inspector",
    "load_api": "calib.engine.api",
    "parse_layers": "calib.engine.inspector",
    "read_layers": "calib.engine.layer_files",
    "read_times": "calib.engine.layer_files",
    "resolve_shapes": "calib.engine.shapes",
    "shapes_of_feeds": "calib.engine.shapes",
    "summarize_layers": "calib.engine.engine_summary",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'calib.engine' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
