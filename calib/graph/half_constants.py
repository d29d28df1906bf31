"""Constants in float16: which of them keep a node in float32."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx

from calib.graph.half_graph import HalfGraph
from calib.graph.half_ranges import LARGEST, SMALLEST_NORMAL
from calib.graph.weights import as_array

__all__ = ["ConstantRules", "half_values", "is_bound"]

_VANISHES = 2.0**-25
_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm")
_WITH_SHIFT = ("LayerNormalization", "InstanceNormalization", "GroupNormalization")


@dataclass(frozen=True)
class _Extent:
    """Absolute values of a constant: the largest finite one, the smallest above 0, and what is lost."""

    largest: float
    smallest: float
    lost: float
    size: int


@dataclass
class ConstantRules:
    """Judges the constants that a node reads.

    Attributes:
        graph: The graph.
        beyond: Constants beyond float16's range, which keep nodes in float32 → how far they reach.
        lossy: Weight → share of its values that become 0.
    """

    graph: HalfGraph
    beyond: dict[str, float] = field(default_factory=dict)
    lossy: dict[str, float] = field(default_factory=dict)
    _extents: dict[str, _Extent] = field(default_factory=dict)

    def reason(self, node: onnx.NodeProto, inputs: tuple[int, ...]) -> str:
        """Why a node's constants cannot be float16; empty where they can."""
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            return self._scale_reason(node)
        for index in inputs:
            if node.input[index] in self.graph.constants:
                reason = self._one(node, index)
                if reason:
                    return reason
        return self._batch_norm(node) if node.op_type == "BatchNormalization" else ""

    def _one(self, node: onnx.NodeProto, index: int) -> str:
        name = node.input[index]
        extent = self._extent(name)
        if extent.largest > LARGEST and not is_bound(node, index):
            self.beyond[name] = extent.largest
            return f"its constant {name!r} reaches {extent.largest:.6g}, beyond float16's {LARGEST:.0f}"
        if node.op_type == "BatchNormalization":
            return ""
        if 0 < extent.largest < SMALLEST_NORMAL and (extent.size == 1 or not _is_bias(node, index)):
            return f"its constant {name!r} is at most {extent.largest:.3g}, {_small(extent.largest)}"
        if node.op_type == "Div" and index == 1 and 0 < extent.smallest < SMALLEST_NORMAL:
            return f"its divisor {name!r} goes down to {extent.smallest:.3g}, {_small(extent.smallest)}"
        if extent.lost:
            self.lossy[name] = extent.lost
        return ""

    def _scale_reason(self, node: onnx.NodeProto) -> str:
        """Q/DQ scales: float16 from opset 19 on, and only where it has them."""
        if self.graph.opset < 19:
            return f"float16 scales need opset 19; the model has {self.graph.opset}"
        name = node.input[1]
        if name not in self.graph.constants:
            return f"its scale {name!r} is computed"
        extent = self._extent(name)
        if extent.largest * 128 > LARGEST or not self._holds(name):
            return (
                f"its scale {name!r} goes from {extent.smallest:.3g} to {extent.largest:.3g}: float16 is too "
                "coarse for it, or 128 times it is beyond float16"
            )
        return ""

    def _holds(self, name: str) -> bool:
        """Whether float16 has scales to 1/256, half a step at the end of INT8's range."""
        scales = as_array(self.graph.constants[name]).astype(np.float64)
        return bool(np.all(np.abs(half_values(scales, False) - scales) <= scales / 256))

    def _batch_norm(self, node: onnx.NodeProto) -> str:
        """Folding the statistics must not leave the range: scale / √(variance + epsilon)."""
        if any(name not in self.graph.constants for name in node.input[1:5]):
            return "its statistics are computed"
        scale, shift, mean, variance = (
            as_array(self.graph.constants[name]).astype(np.float64) for name in node.input[1:5]
        )
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        with np.errstate(all="ignore"):
            halves = half_values(variance, False).astype(np.float64)
            factor = half_values(scale, False) / np.sqrt(halves + epsilon)
            exact = scale / np.sqrt(variance + epsilon)
            offset = shift - mean * factor
        largest = float(np.max(np.abs(np.concatenate((factor, offset))), initial=0.0))
        if not largest <= LARGEST:
            return f"its scale by √variance reaches {largest:.3g}, beyond float16's {LARGEST:.0f}"
        if np.any(np.abs(factor - exact) > 0.01 * np.abs(exact) + 2.0**-20):
            return "its variances are too small for float16"
        return ""

    def _extent(self, name: str) -> _Extent:
        if name not in self._extents:
            magnitude = np.abs(as_array(self.graph.constants[name]).reshape(-1)).astype(
                np.float32, copy=False
            )
            finite = magnitude[np.isfinite(magnitude)]
            nonzero = finite[finite > 0]
            lost = float(np.mean(nonzero < _VANISHES)) if nonzero.size else 0.0
            self._extents[name] = _Extent(
                float(nonzero.max(initial=0.0)),
                float(nonzero.min()) if nonzero.size else 0.0,
                lost,
                magnitude.size,
            )
        return self._extents[name]


def _is_bias(node: onnx.NodeProto, index: int) -> bool:
    """Whether a constant is only added: what is lost of it is small against what it is added to."""
    sums = node.op_type in ("Add", "Sub", "Sum")
    return sums or (index == 2 and node.op_type in (*_WITH_BIAS, *_WITH_SHIFT))


def is_bound(node: onnx.NodeProto, index: int) -> bool:
    """Whether an input only bounds values, so that float16's own end may stand for a larger bound."""
    return node.op_type == "Clip" and index in (1, 2)


def half_values(values: npt.NDArray[np.generic], saturate: bool) -> npt.NDArray[np.float16]:
    """Values rounded to float16.

    Args:
        values: Any float type.
        saturate: Give ±65504 for what is beyond; otherwise the caller has seen to it that nothing is.

    >>> half_values(np.array([1e6, -np.inf, 0.1]), saturate=True).tolist()
    [65504.0, -65504.0, 0.0999755859375]
    """
    with np.errstate(over="ignore", under="ignore"):
        exact = np.clip(values, -LARGEST, LARGEST) if saturate else values
        return np.asarray(exact, np.float16)


def _small(value: float) -> str:
    if value < _VANISHES:
        return "which is 0 in float16"
    return "where float16 loses bits"
