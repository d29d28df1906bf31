"""The activation scales that a Q/DQ model holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx

from calib.data import Array
from calib.errors import ModelError
from calib.graph.dependence import data_dependent_outputs
from calib.graph.intake import OnnxModel
from calib.graph.weights import as_array, constants

__all__ = ["QdqScales", "read_qdq_scales"]

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_ADVICE = (
    "TensorRT's cache holds one symmetric int8 scale a tensor. Quantize again with symmetric int8 "
    "activations (ONNX Runtime: activation_type=QInt8, ActivationSymmetric=True)."
)


@dataclass(frozen=True)
class QdqScales:
    """Scales of a Q/DQ model.

    Attributes:
        scales: Tensor of the float model → scale, in network order.
        weights: Number of quantized weights, which no cache holds.
    """

    scales: Mapping[str, float]
    weights: int


def read_qdq_scales(model: OnnxModel) -> QdqScales:
    """Takes the scale of every QuantizeLinear on an activation.

    A scale goes to the tensor that is quantized; if its dequantized form is an output of the model,
    to that output, whose name the float model's tensor had.

    Args:
        model: A model with Q/DQ nodes.

    Raises:
        ModelError: There is no quantized activation, or one that no cache can express: not int8, a zero
            point other than 0, per channel, a scale that is computed or not positive, two scales for
            one tensor. The tensor is named.
    """
    graph = model.proto.graph
    known = constants(graph)
    activations = {info.name for info in graph.input} | set(data_dependent_outputs(graph))
    activations -= {tensor.name for tensor in graph.initializer}
    names = _Names(graph)
    scales: dict[str, float] = {}
    for node in _nodes(graph, "QuantizeLinear"):
        if node.input[0] not in activations:
            continue
        name = names.of(node)
        scale = _scale(node, known, f"{model.path}: tensor {name!r}")
        if scales.setdefault(name, scale) != scale:
            raise ModelError(
                f"{model.path}: tensor {name!r} is quantized twice, with scales {scales[name]} and {scale}. "
                "A calibration cache holds one. " + _ADVICE
            )
    if not scales:
        raise ModelError(
            f"{model.path} has no QuantizeLinear on an activation, so no scales to take. "
            "Give a Q/DQ model, as calib quantize or ONNX Runtime's QuantFormat.QDQ writes it."
        )
    return QdqScales(MappingProxyType(scales), _weights(graph, activations))


def _nodes(graph: onnx.GraphProto, op: str) -> Iterator[onnx.NodeProto]:
    return (node for node in graph.node if node.op_type == op and node.domain in _DOMAINS)


def _weights(graph: onnx.GraphProto, activations: set[str]) -> int:
    return sum(node.input[0] not in activations for node in _nodes(graph, "DequantizeLinear"))


class _Names:
    """The name that a quantized tensor has in the float model."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        outputs = {info.name for info in graph.output}
        self._kept = outputs | {info.name for info in graph.input}
        self._output_of = {
            node.input[0]: node.output[0]
            for node in _nodes(graph, "DequantizeLinear")
            if node.output[0] in outputs
        }

    def of(self, node: onnx.NodeProto) -> str:
        """The name of the tensor that a QuantizeLinear quantizes."""
        name = node.input[0]
        return name if name in self._kept else self._output_of.get(node.output[0], name)


def _scale(node: onnx.NodeProto, known: Mapping[str, onnx.TensorProto], what: str) -> float:
    scale = _constant(node, 1, known, what, "scale")
    if scale.size != 1:
        raise ModelError(f"{what} is quantized per channel, with {scale.size} scales. {_ADVICE}")
    _check_type(node, known, what)
    value = float(np.float32(scale.reshape(-1)[0]))
    if not (np.isfinite(value) and value > 0):
        raise ModelError(f"{what} has the scale {value}; it must be finite and > 0. {_ADVICE}")
    return value


def _check_type(node: onnx.NodeProto, known: Mapping[str, onnx.TensorProto], what: str) -> None:
    if len(node.input) > 2 and node.input[2]:
        zero_point = _constant(node, 2, known, what, "zero point")
        element = known[node.input[2]].data_type
    else:
        zero_point = np.zeros(1, np.int8)
        kinds = (attribute.i for attribute in node.attribute if attribute.name == "output_dtype")
        element = next(kinds, 0) or onnx.TensorProto.UINT8
    if np.any(np.asarray(zero_point, np.float64)):
        shown = float(np.asarray(zero_point, np.float64).reshape(-1)[0])
        raise ModelError(f"{what} has the zero point {shown:g}: its range is not symmetric. {_ADVICE}")
    if element != onnx.TensorProto.INT8:
        kind = onnx.TensorProto.DataType.Name(element).lower()
        raise ModelError(f"{what} is quantized to {kind}, not int8. {_ADVICE}")


def _constant(
    node: onnx.NodeProto, index: int, known: Mapping[str, onnx.TensorProto], what: str, role: str
) -> Array:
    tensor = known.get(node.input[index])
    if tensor is None:
        raise ModelError(f"{what}: its {role} {node.input[index]!r} is computed, not constant. {_ADVICE}")
    return as_array(tensor)
