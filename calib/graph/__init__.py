"""ONNX graphs: reading them, observing their activations, Q/DQ nodes, FP16."""

from calib.graph.calibration import calibrate, calibrate_shard
from calib.graph.feeds import FeedBuilder
from calib.graph.half import to_float16
from calib.graph.intake import OnnxModel, TensorSpec, load_model
from calib.graph.job import CalibrationJob, Counted, count_range
from calib.graph.observed import ObservedSession
from calib.graph.outcome import CalibrationResult, finish_partial
from calib.graph.placement import LeftFloat
from calib.graph.quantization import Pair, QuantizedModel, quantize, quantize_model
from calib.graph.runtime import open_session, session_options

__all__ = [
    "CalibrationJob",
    "CalibrationResult",
    "Counted",
    "FeedBuilder",
    "LeftFloat",
    "ObservedSession",
    "OnnxModel",
    "Pair",
    "QuantizedModel",
    "TensorSpec",
    "calibrate",
    "calibrate_shard",
    "count_range",
    "finish_partial",
    "load_model",
    "open_session",
    "quantize",
    "quantize_model",
    "session_options",
    "to_float16",
]
