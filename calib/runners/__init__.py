"""Runners: one protocol over ONNX Runtime, TensorRT and PyTorch."""

from calib.runners.base import Runner
from calib.runners.onnx_runtime import OnnxRuntimeRunner

__all__ = ["OnnxRuntimeRunner", "Runner"]
