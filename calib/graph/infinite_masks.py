"""Tensors that hold a mask's minus infinity, as PyTorch writes attention masks."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from calib.graph.operators import is_standard

__all__ = ["infinite_masks"]

# Operators whose outputs are infinite where an input is. What is not here, Softmax before all, makes it
# finite again; where it does not, calibration names the tensor as one with infinite values.
_MOVE = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Cast", "Expand", "Tile")
_CUT = ("Slice", "Split", "Concat", "Gather", "GatherElements", "GatherND", "Pad", "Trilu", "Dropout")
_PUT = ("Where", "ScatterND", "ScatterElements")
_COMPUTE = ("Add", "Sum", "Sub", "Mul", "Div", "LogSoftmax")
_CARRY = frozenset((*_MOVE, *_CUT, *_PUT, *_COMPUTE))
_MAKE = ("Constant", "ConstantOfShape")


def infinite_masks(graph: onnx.GraphProto) -> frozenset[str]:
    """Outputs of nodes that minus infinity may reach from a constant of the graph.

    ``scores.masked_fill(mask, float("-inf"))`` and the float masks of PyTorch's attention make them.
    Infinities that the data make, by a division or a logarithm, are none of these.

    Args:
        graph: The graph. What its nodes' subgraphs hold is not followed.
    """
    weights = {tensor.name: tensor for tensor in graph.initializer}
    known: dict[str, bool] = {}
    found: set[str] = set()
    for node in graph.node:
        if node.op_type in _MAKE and is_standard(node):
            holds = any(_holds(attribute) for attribute in node.attribute)
        elif node.op_type in _CARRY and is_standard(node):
            for name in weights.keys() & set(node.input) - known.keys():
                known[name] = _is_infinite(weights[name])
            holds = any(known.get(name, False) for name in node.input)
        else:
            continue
        if holds:
            known |= dict.fromkeys(node.output, True)
            found.update(name for name in node.output if name)
    return frozenset(found)


def _holds(attribute: onnx.AttributeProto) -> bool:
    if attribute.type == onnx.AttributeProto.TENSOR:
        return _is_infinite(attribute.t)
    return bool(np.isneginf([attribute.f, *attribute.floats]).any())


def _is_infinite(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE):
        return False
    return bool(np.isneginf(numpy_helper.to_array(tensor)).any())
