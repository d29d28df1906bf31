"""TensorRT and the GPU: what is here, and what it can do."""

from calib.engine.detect import GpuInfo, TensorRTInfo, detect_gpus, detect_tensorrt
from calib.engine.telemetry import GpuReading, GpuReadings, TelemetrySampler

__all__ = [
    "GpuInfo",
    "GpuReading",
    "GpuReadings",
    "TelemetrySampler",
    "TensorRTInfo",
    "detect_gpus",
    "detect_tensorrt",
]
