"""Runners: one protocol over ONNX Runtime, TensorRT and PyTorch."""

from calib.runners.base import RecordedRunner, Runner
from calib.runners.batch_times import BatchTimes
from calib.runners.carrying import CarryingRunner, carrying
from calib.runners.onnx_runtime import OnnxRuntimeRunner
from calib.runners.pytorch import PyTorchRunner
from calib.runners.tensorrt import TensorRTRunner

__all__ = [
    "BatchTimes",
    "CarryingRunner",
    "OnnxRuntimeRunner",
    "PyTorchRunner",
    "RecordedRunner",
    "Runner",
    "TensorRTRunner",
    "carrying",
]
