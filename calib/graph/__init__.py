"""ONNX graphs: reading them, observing their activations, Q/DQ nodes, FP16."""

from calib.graph.attention import count_attention
from calib.graph.calibration import calibrate, calibrate_shard
from calib.graph.capabilities import LayerRow, LayerTable, layer_table
from calib.graph.explanation import Explanation, FloatGroup, Subgraph
from calib.graph.feeds import FeedBuilder
from calib.graph.half import HalfModel, convert_float16, to_float16
from calib.graph.half_check import HalfError
from calib.graph.half_simulation import simulate_float16
from calib.graph.intake import OnnxModel, TensorSpec, load_model
from calib.graph.job import CalibrationJob, Counted, count_range
from calib.graph.observed import ObservedSession
from calib.graph.outcome import CalibrationResult, finish_partial
from calib.graph.parts import PARTS, quantize_part
from calib.graph.placement import LeftFloat
from calib.graph.qdq_writer import Pair
from calib.graph.quantization import QuantizedModel, quantize, quantize_model
from calib.graph.request import sample_feeds
from calib.graph.runtime import open_session, session_options
from calib.graph.shared_scales import SharedScale
from calib.graph.state import StateKeeper
from calib.graph.targets import DEFAULT_TARGET, TARGETS, Target, find_target
from calib.graph.torch_check import OutputCheck
from calib.graph.torch_export import ExportedModel, export
from calib.graph.torch_module import load_module
from calib.graph.transposed import count_transposed

__all__ = [
    "DEFAULT_TARGET",
    "PARTS",
    "TARGETS",
    "CalibrationJob",
    "CalibrationResult",
    "Counted",
    "Explanation",
    "ExportedModel",
    "FeedBuilder",
    "FloatGroup",
    "HalfError",
    "HalfModel",
    "LayerRow",
    "LayerTable",
    "LeftFloat",
    "ObservedSession",
    "OnnxModel",
    "OutputCheck",
    "Pair",
    "QuantizedModel",
    "SharedScale",
    "StateKeeper",
    "Subgraph",
    "Target",
    "TensorSpec",
    "calibrate",
    "calibrate_shard",
    "convert_float16",
    "count_attention",
    "count_range",
    "count_transposed",
    "export",
    "find_target",
    "finish_partial",
    "layer_table",
    "load_model",
    "load_module",
    "open_session",
    "quantize",
    "quantize_model",
    "quantize_part",
    "sample_feeds",
    "session_options",
    "simulate_float16",
    "to_float16",
]
