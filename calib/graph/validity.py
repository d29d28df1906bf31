"""Whether a model that was made is valid ONNX."""

from __future__ import annotations

import onnx

from calib.errors import ModelError
from calib.graph.cache_model import without_large_weights
from calib.graph.foreign import give_domain, has_foreign_nodes
from calib.graph.intake import PROTOBUF_LIMIT, OnnxModel

__all__ = ["check_valid"]


def check_valid(model: OnnxModel, form: str, source: OnnxModel | None = None) -> None:
    """Refuses a model that ONNX's own checker refuses.

    Args:
        model: The model that was made.
        form: What it is, for the message: "quantized".
        source: What it was made from: a fault that was there before is passed over.

    Raises:
        ModelError: It is not valid, and why.
    """
    fault = _fault(model)
    if fault is not None and (source is None or str(fault) != str(_fault(source))):
        raise ModelError(f"The {form} form of {model.path} is not valid ONNX: {fault}") from fault


def _fault(model: OnnxModel) -> onnx.checker.ValidationError | None:
    # The checker takes one protocol buffer; types and shapes stand in for weights that it cannot hold.
    small = model.byte_size <= PROTOBUF_LIMIT
    proto = _with_foreign_domain(model.proto if small else without_large_weights(model.proto))
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        return error
    return None


def _with_foreign_domain(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model as the checker takes it: TensorRT's parser reads plug-ins of ONNX's own domain as well."""
    if not has_foreign_nodes(proto):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    give_domain(copy)
    return copy
