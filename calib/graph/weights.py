"""Constants of a graph, and weights quantized per channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

__all__ = ["QuantizedWeight", "as_array", "constants", "quantize_weight", "round_scales"]


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight in INT8.

    Attributes:
        values: int8, in −127 … 127, the weight's shape.
        scales: float32, one for each channel, all positive.
        axis: The channel axis.
    """

    values: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    axis: int


def constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Tensor name → its constant value, from initializers, Constant nodes and an Identity of either.

    Exporters write an Identity where several nodes share a weight.
    """
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            found[node.output[0]] = value
        elif node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def round_scales(scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Scales with the 11 bits of float16, where it has all of them: from 2^-14 to 65504; others as they are.

    >>> round_scales(np.array([0.1, 2.0**-20], np.float32)).tolist()
    [0.0999755859375, 9.5367431640625e-07]
    """
    inside = (scales >= 2.0**-14) & (scales <= 65504.0)
    return np.where(inside, np.where(inside, scales, 1).astype(np.float16).astype(np.float32), scales)


def quantize_weight(weight: npt.NDArray[Any], axis: int, *, half_scales: bool = False) -> QuantizedWeight:
    """Quantizes a weight symmetrically, per channel.

    scale = max|w| / 127 over a channel, q = clamp(round-half-even(w / scale), −127, 127). A channel of
    zeros gets the scale 1/127, since TensorRT refuses a scale that is not positive.

    Args:
        weight: The weight, any float type.
        axis: The channel axis.
        half_scales: Give scales that float16 holds exactly, where it has them.

    >>> import numpy as np
    >>> q = quantize_weight(np.array([[1.0, -0.5], [0.0, 0.0]]), axis=0)
    >>> q.values.tolist()
    [[127, -64], [0, 0]]
    >>> bool(q.scales[1] > 0)
    True
    """
    exact = np.asarray(weight, np.float32)
    others = tuple(i for i in range(exact.ndim) if i != axis)
    amax = np.abs(exact).max(axis=others, keepdims=True, initial=0.0)
    scales = (np.where(amax > 0, amax, 1.0).astype(np.float32) / np.float32(127)).astype(np.float32)
    # A denormal channel divides to a scale of zero; the smallest normal number stands in for it.
    scales = np.maximum(scales, np.finfo(np.float32).tiny)
    if half_scales:
        scales = round_scales(scales)
    values = np.clip(np.rint(exact / scales), -127, 127).astype(np.int8)
    return QuantizedWeight(values, scales.reshape(-1), axis)


def as_array(tensor: onnx.TensorProto) -> npt.NDArray[Any]:
    """A constant as an array."""
    return np.asarray(numpy_helper.to_array(tensor))
