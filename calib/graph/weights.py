"""Constants of a graph, and weights quantized per channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

__all__ = [
    "QuantizedWeight",
    "as_array",
    "constant_of",
    "constants",
    "fits_half",
    "quantize_weight",
    "round_scales",
]

_PLAIN = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}

_LEAST_HALF = 2.0**-17
# 128 times a scale must be a float16 too.
_MOST_HALF = 65504 / 128


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
        if node.op_type == "Constant":
            value = constant_of(node)
            if value is not None:
                found[node.output[0]] = value
        elif node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def constant_of(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """What a Constant node holds, in whichever attribute; None where that is text, or sparse."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return attribute.t
        if attribute.name in _PLAIN:
            value = np.array(onnx.helper.get_attribute_value(attribute), _PLAIN[attribute.name])
            return numpy_helper.from_array(value, node.output[0])
    return None


def fits_half(scale: float) -> bool:
    """Whether float16 holds a scale that ``round_scales`` rounds, and 128 times that.

    >>> fits_half(0.1), fits_half(1e-6), fits_half(1000.0)
    (True, False, False)
    """
    return _LEAST_HALF <= scale <= _MOST_HALF


def round_scales(scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Scales rounded up to float16, so that no value is cut off; as they are where float16 is too coarse.

    float16 has steps of 2^-24 at its low end. A scale from 2^-17 on grows by less than 1/128 there. Smaller
    ones beside it belong to channels that hardly count, and get what there is.

    Args:
        scales: Of one tensor, positive.

    >>> round_scales(np.array([0.1, 2.0**-26], np.float32)).tolist()
    [0.10003662109375, 5.960464477539063e-08]
    >>> round_scales(np.array([2.0**-26], np.float32)).tolist() == [2.0**-26]
    True
    """
    if not fits_half(float(scales.max(initial=0))):
        return scales
    with np.errstate(under="ignore"):
        halves = scales.astype(np.float16)
        low = halves.astype(np.float32) < scales
        return np.where(low, np.nextafter(halves, np.float16(np.inf)), halves).astype(np.float32)


def quantize_weight(weight: npt.NDArray[Any], axis: int, *, half_scales: bool = False) -> QuantizedWeight:
    """Quantizes a weight symmetrically, per channel.

    scale = max|w| / 127 over a channel, q = clamp(round-half-even(w / scale), −127, 127). A channel of
    zeros gets the scale 1/127, since TensorRT refuses a scale that is not positive.

    Args:
        weight: The weight, any float type.
        axis: The channel axis.
        half_scales: Give scales that float16 holds exactly, by ``round_scales``.

    >>> import numpy as np
    >>> q = quantize_weight(np.array([[1.0, -0.5], [0.0, 0.0]]), axis=0)
    >>> q.values.tolist()
    [[127, -64], [0, 0]]
    >>> bool(q.scales[1] > 0)
    True
    """
    with np.errstate(under="ignore"):
        exact = np.asarray(weight, np.float32)
        others = tuple(i for i in range(exact.ndim) if i != axis)
        amax = np.abs(exact).max(axis=others, keepdims=True, initial=0.0)
        scales = (np.where(amax > 0, amax, 1.0).astype(np.float32) / np.float32(127)).astype(np.float32)
    # A denormal channel divides to a scale of zero; the smallest normal number stands in for it.
    scales = np.maximum(scales, np.finfo(np.float32).tiny)
    if half_scales:
        # Dead channels have a scale that says nothing of the weight's size.
        scales = np.where(amax > 0, round_scales(np.where(amax > 0, scales, 0)), round_scales(scales))
    with np.errstate(under="ignore"):
        values = np.clip(np.rint(exact / scales), -127, 127).astype(np.int8)
    return QuantizedWeight(values, scales.reshape(-1), axis)


def as_array(tensor: onnx.TensorProto) -> npt.NDArray[Any]:
    """A constant as an array."""
    return np.asarray(numpy_helper.to_array(tensor))
