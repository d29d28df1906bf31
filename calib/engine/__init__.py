"""TensorRT and the GPU: what is here and what it can do, and building engines.

What builds engines reads ONNX models, which takes its time to import: it is imported when first asked for,
so that ``calib doctor`` works where that is what is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calib.engine.detect import GpuInfo, TensorRTInfo, detect_gpus, detect_tensorrt
from calib.engine.telemetry import GpuReading, GpuReadings, TelemetrySampler
from calib.lazy import lazy_names

if TYPE_CHECKING:
    from calib.engine.api import Api, capture_log, load_api
    from calib.engine.building import build
    from calib.engine.completion import HelperScales, NetworkLayer, complete_cache, read_network
    from calib.engine.engine_file import BuildRecord, Engine
    from calib.engine.engine_summary import EngineSummary, summarize_layers
    from calib.engine.fusion import Fusion, describe_fusion
    from calib.engine.inspector import EngineLayer, EngineTensor, inspect_engine, parse_layers
    from calib.engine.layer_files import read_layers, read_times
    from calib.engine.memory import Buffer, Device, Event, Graph, Stream, open_device
    from calib.engine.native import cache_calibrator, native_calibrator, set_calibration_profile
    from calib.engine.native_calibration import NativeCalibration, calibrate_natively
    from calib.engine.shapes import InputRange, resolve_shapes, shapes_of_feeds
    from calib.engine.why_not_int8 import FloatLayer, explain_float_layers
    from calib.engine.why_slower import explain_slower

__all__ = [
    "Api",
    "Buffer",
    "BuildRecord",
    "Device",
    "Engine",
    "EngineLayer",
    "EngineSummary",
    "EngineTensor",
    "Event",
    "FloatLayer",
    "Fusion",
    "GpuInfo",
    "GpuReading",
    "GpuReadings",
    "Graph",
    "HelperScales",
    "InputRange",
    "NativeCalibration",
    "NetworkLayer",
    "Stream",
    "TelemetrySampler",
    "TensorRTInfo",
    "build",
    "cache_calibrator",
    "calibrate_natively",
    "capture_log",
    "complete_cache",
    "describe_fusion",
    "detect_gpus",
    "detect_tensorrt",
    "explain_float_layers",
    "explain_slower",
    "inspect_engine",
    "load_api",
    "native_calibrator",
    "open_device",
    "parse_layers",
    "read_layers",
    "read_network",
    "read_times",
    "resolve_shapes",
    "set_calibration_profile",
    "shapes_of_feeds",
    "summarize_layers",
]

_HOME = {
    "Api": "calib.engine.api",
    "Buffer": "calib.engine.memory",
    "BuildRecord": "calib.engine.engine_file",
    "Device": "calib.engine.memory",
    "Engine": "calib.engine.engine_file",
    "EngineLayer": "calib.engine.inspector",
    "EngineSummary": "calib.engine.engine_summary",
    "EngineTensor": "calib.engine.inspector",
    "Event": "calib.engine.memory",
    "FloatLayer": "calib.engine.why_not_int8",
    "Fusion": "calib.engine.fusion",
    "Graph": "calib.engine.memory",
    "HelperScales": "calib.engine.completion",
    "InputRange": "calib.engine.shapes",
    "NativeCalibration": "calib.engine.native_calibration",
    "NetworkLayer": "calib.engine.completion",
    "Stream": "calib.engine.memory",
    "build": "calib.engine.building",
    "cache_calibrator": "calib.engine.native",
    "calibrate_natively": "calib.engine.native_calibration",
    "capture_log": "calib.engine.api",
    "complete_cache": "calib.engine.completion",
    "describe_fusion": "calib.engine.fusion",
    "explain_slower": "calib.engine.why_slower",
    "inspect_engine": "calib.engine.inspector",
    "load_api": "calib.engine.api",
    "native_calibrator": "calib.engine.native",
    "open_device": "calib.engine.memory",
    "parse_layers": "calib.engine.inspector",
    "read_layers": "calib.engine.layer_files",
    "read_network": "calib.engine.completion",
    "read_times": "calib.engine.layer_files",
    "resolve_shapes": "calib.engine.shapes",
    "set_calibration_profile": "calib.engine.native",
    "shapes_of_feeds": "calib.engine.shapes",
    "summarize_layers": "calib.engine.engine_summary",
    "explain_float_layers": "calib.engine.why_not_int8",
}


__getattr__ = lazy_names(__name__, _HOME)
