"""TensorRT and the GPU: what is here, and what it can do."""

from calib.engine.detect import GpuInfo, TensorRTInfo, detect_gpus, detect_tensorrt

__all__ = ["GpuInfo", "TensorRTInfo", "detect_gpus", "detect_tensorrt"]
