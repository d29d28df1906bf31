"""ONNX Runtime sessions, and its failures in words."""

from __future__ import annotations

import re
from typing import Any

from calib.errors import ModelError, require
from calib.graph.intake import OnnxModel

__all__ = ["open_session", "plain_reason", "session_options"]


def session_options(*, optimize: bool, threads: int | None = None) -> Any:
    """Options of a session whose idle threads do not spin.

    Args:
        optimize: Whether the graph may be rewritten. Ranges and Q/DQ simulation need it as it is.
        threads: Threads inside an operator; None for one a core.
    """
    runtime = require("onnxruntime", "onnxruntime", "Running ONNX models")
    options = runtime.SessionOptions()
    level = runtime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    # Spinning threads fight with the counting of activations for the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    return options


def open_session(model: OnnxModel, options: Any) -> Any:
    """Opens a session on the CPU.

    Raises:
        ModelError: ONNX Runtime cannot load the model; its reason is given, with the operator.
    """
    runtime = require("onnxruntime", "onnxruntime", "Running ONNX models")
    try:
        return runtime.InferenceSession(model.to_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no base class but Exception
        raise ModelError(f"ONNX Runtime cannot load {model.path}: {plain_reason(error)}") from error


def plain_reason(error: Exception) -> str:
    """An ONNX Runtime error without its status prefix and source lines."""
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(
        r"(/[\w./-]+\.(?:cc|h):\d+ )?onnxruntime::[\w:<>~ ]+\([^)]*\)( const)?( mutable)? ?", "", text
    )
    return text[:600].rstrip(". ") + "."
