"""The FP16 form of a model, as typed ONNX."""

from __future__ import annotations

import warnings

import onnx

from calib.errors import ModelError, require
from calib.graph.intake import OnnxModel

__all__ = ["to_float16"]


def to_float16(model: OnnxModel) -> OnnxModel:
    """Converts weights and activations to float16; inputs and outputs keep their types.

    Uses ONNX Runtime's converter, which leaves operators that have no float16 form in float32 behind
    casts. Weights beyond float16's range (65504) are clipped to it.

    Args:
        model: The FP32 model.

    Raises:
        ModelError: The model cannot be converted.
        MissingExtraError: ONNX Runtime is not installed.
    """
    purpose = "Converting a model to FP16"
    converter = require("onnxruntime.transformers.float16", "onnxruntime", purpose)
    try:
        with warnings.catch_warnings():
            # One line for each weight that float16 rounds to its smallest or largest value.
            warnings.simplefilter("ignore", UserWarning)
            proto = converter.convert_float_to_float16(model.edited(), keep_io_types=True)
    except (ValueError, TypeError, RuntimeError, onnx.checker.ValidationError) as error:
        raise ModelError(f"{model.path} cannot be converted to FP16: {error}.") from error
    return OnnxModel(model.path.with_suffix(".fp16.onnx"), proto)
