"""ONNX Runtime sessions on the CPU."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from calib.errors import ModelError, require
from calib.graph.external import write_model
from calib.graph.faults import describe_fault
from calib.graph.intake import PROTOBUF_LIMIT, OnnxModel

__all__ = ["open_session", "runtime_errors", "session_options"]

_PURPOSE = "Running ONNX models"


def session_options(*, optimize: bool = False, threads: int | None = None, float_qdq: bool = False) -> Any:
    """Options of a session whose idle threads do not spin.

    Args:
        optimize: Whether the graph may be rewritten. Ranges and Q/DQ simulation need it as it is.
        threads: Threads inside an operator; None for one a core.
        float_qdq: Whether Q/DQ pairs are computed in float, as TensorRT does, and never fused into
            integer kernels.
    """
    runtime = require("onnxruntime", "onnxruntime", _PURPOSE)
    options = runtime.SessionOptions()
    level = runtime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    # Spinning threads fight with the counting of activations for the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Every failure arrives as an exception too; printing it as well would give two messages for one.
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = threads
    if float_qdq:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def open_session(source: OnnxModel | bytes | str | os.PathLike[str], options: Any) -> Any:
    """Opens a session on the CPU.

    Args:
        source: A loaded model, its bytes, or a file, which may have external data.
        options: As ``session_options`` makes them.

    Raises:
        ModelError: ONNX Runtime refuses the model; the message names operator, domain and node.
    """
    runtime = require("onnxruntime", "onnxruntime", _PURPOSE)
    try:
        if isinstance(source, OnnxModel) and source.byte_size > PROTOBUF_LIMIT:
            return _open_large(source, options)
        target = source.to_bytes() if isinstance(source, OnnxModel) else source
        content = target if isinstance(target, bytes) else os.fspath(target)
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except runtime_errors() as error:
        name = _name(source)
        raise ModelError(f"ONNX Runtime cannot load {name}: {describe_fault(error, source)}") from error


def _open_large(model: OnnxModel, options: Any) -> Any:
    """Opens a model that only files can hold, by way of files that are gone afterwards."""
    runtime = require("onnxruntime", "onnxruntime", _PURPOSE)
    with tempfile.TemporaryDirectory(prefix="calib-") as folder:
        path = Path(folder) / "model.onnx"
        write_model(model, path)
        return runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])


def runtime_errors() -> tuple[type[Exception], ...]:
    """ONNX Runtime's errors, which have no base class of their own."""
    state = require("onnxruntime.capi.onnxruntime_pybind11_state", "onnxruntime", _PURPOSE)
    own = (item for item in vars(state).values() if isinstance(item, type))
    return (RuntimeError, ValueError, *(item for item in own if issubclass(item, Exception)))


def _name(source: OnnxModel | bytes | str | os.PathLike[str]) -> str:
    if isinstance(source, OnnxModel):
        return str(source.path)
    return "the model" if isinstance(source, bytes) else os.fspath(source)
