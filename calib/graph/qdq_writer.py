"""Writing a plan's Q/DQ nodes into a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.calibrators.amax import amax_of
from calib.data import Array
from calib.graph.graph_edit import FreshNames, declare_initializers, drop_unread
from calib.graph.graph_view import label
from calib.graph.operators import WEIGHTED, adds_two, commutes
from calib.graph.placement import Plan
from calib.graph.weights import QuantizedWeight, as_array, constants, quantize_weight, round_scales

__all__ = ["Pair", "QdqWriter"]


@dataclass(frozen=True)
class Pair:
    """A Q/DQ pair on an activation, or a dequantized weight.

    Attributes:
        tensor: The tensor that is quantized.
        scale: Its scale; the largest of its channels for a weight.
        readers: Nodes that read it through the pair.
        weight: Whether it is a weight.
        rule: Why it stands there.
        own_scale: Its scale in the cache where it shares a larger one with other tensors, else None.
    """

    tensor: str
    scale: float
    readers: tuple[str, ...]
    weight: bool = False
    rule: str = ""
    own_scale: float | None = None

    @property
    def amax(self) -> float:
        """The range that the scale stands for."""
        return amax_of(self.scale)


class QdqWriter:
    """Puts a plan's Q/DQ nodes into a graph.

    Args:
        proto: The model, which is changed.
        cache: Tensor → scale, before scales were shared.
        float_weights: Store weights in float, quantized in the graph, and not as INT8.
        half_scales: Round every scale to what float16 holds: the scales stay float32, and become float16
            later without another rounding.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        cache: Mapping[str, float],
        *,
        float_weights: bool = False,
        half_scales: bool = False,
    ) -> None:
        self._proto = proto
        self._graph = proto.graph
        self._float_weights = float_weights
        self._half_scales = half_scales
        self._cache = cache
        self._constants = constants(proto.graph)
        self._fresh = FreshNames(proto.graph).fresh
        self._before: dict[int, list[onnx.NodeProto]] = {}
        self._half: frozenset[str] = frozenset()
        self._quantized: frozenset[int] = frozenset()

    def apply(self, plan: Plan) -> list[Pair]:
        """Adds the nodes in topological order and redirects the readers.

        Each pair stands right before the first node that reads it.
        """
        nodes = list(self._graph.node)
        self._half = plan.half
        self._quantized = frozenset(site.node for site in plan.weights)
        pairs = [
            self._activation(tensor, plan.scales[tensor], places, nodes)
            for tensor, places in plan.activations.items()
        ]
        shared: dict[tuple[str, int], list[int]] = {}
        for site in plan.weights:
            shared.setdefault((site.weight, site.axis), []).append(site.node)
        pairs += [self._weight(name, axis, users, nodes) for (name, axis), users in shared.items()]
        ordered = [node for index, node in enumerate(nodes) for node in (*self._before.get(index, ()), node)]
        del self._graph.node[:]
        self._graph.node.extend(ordered)
        drop_unread(self._graph, {site.weight for site in plan.weights})
        declare_initializers(self._proto)
        return pairs

    def _activation(
        self,
        tensor: str,
        value: float,
        places: Sequence[tuple[int, int]],
        nodes: Sequence[onnx.NodeProto],
    ) -> Pair:
        kind = self._type_of(tensor)
        rounded = kind is np.float16 or self._half_scales
        scale = np.float32(round_scales(np.array(value, np.float32)) if rounded else value)
        parameters = [
            self._constant(f"{tensor}_scale", np.array(scale, kind)),
            self._constant(f"{tensor}_zero_point", np.array(0, np.int8)),
        ]
        quantized, restored = self._fresh(f"{tensor}_quantized"), self._fresh(f"{tensor}_dequantized")
        quantize_node = helper.make_node(
            "QuantizeLinear", [tensor, *parameters], [quantized], name=self._fresh(f"{tensor}_QuantizeLinear")
        )
        restore_node = helper.make_node(
            "DequantizeLinear",
            [quantized, *parameters],
            [restored],
            name=self._fresh(f"{tensor}_DequantizeLinear"),
        )
        self._before.setdefault(min(index for index, _ in places), []).extend([quantize_node, restore_node])
        for index, position in places:
            nodes[index].input[position] = restored
        readers = [nodes[index] for index, _ in places]
        own = self._cache[tensor]
        return Pair(
            tensor,
            float(scale),
            tuple(label(reader) for reader in readers),
            rule=", ".join(dict.fromkeys(self._place_of(index, nodes[index]) for index, _ in places)),
            own_scale=None if own == value else float(own),
        )

    def _place_of(self, index: int, reader: onnx.NodeProto) -> str:
        if adds_two(reader):
            return f"skip input of a residual {reader.op_type}"
        if commutes(reader):
            # What only moves values has a pair where the tensor has other readers in INT8.
            return f"branch through {reader.op_type}"
        in_float = reader.op_type in WEIGHTED and index not in self._quantized
        return f"input of {reader.op_type}" + (" in float, of what INT8 layers make" if in_float else "")

    def _type_of(self, tensor: str) -> type[np.float16 | np.float32]:
        """The float type of an activation, which its scale has too."""
        return np.float16 if tensor in self._half else np.float32

    def _weight(self, name: str, axis: int, users: Sequence[int], nodes: Sequence[onnx.NodeProto]) -> Pair:
        half = self._constants[name].data_type == onnx.TensorProto.FLOAT16
        values = as_array(self._constants[name])
        weight = quantize_weight(values, axis, half_scales=half or self._half_scales)
        if half:
            weight = replace(weight, scales=weight.scales.astype(np.float16))
        restored = self._fresh(f"{name}_dequantized")
        self._before.setdefault(min(users), []).extend(self._weight_nodes(name, weight, restored))
        for index in users:
            nodes[index].input[1] = restored
            _state_kernel_shape(nodes[index], weight.values.shape)
        rule = f"weight of {nodes[users[0]].op_type}, a scale for each channel of axis {axis}"
        readers = tuple(label(nodes[i]) for i in users)
        return Pair(name, float(weight.scales.max()), readers, weight=True, rule=rule)

    def _weight_nodes(self, name: str, weight: QuantizedWeight, restored: str) -> list[onnx.NodeProto]:
        """What makes the restored weight: a DequantizeLinear of INT8 values, or both nodes on float ones."""
        parameters = [
            self._constant(f"{name}_scale", weight.scales),
            self._constant(f"{name}_zero_point", np.zeros(len(weight.scales), np.int8)),
        ]
        nodes = []
        if self._float_weights:
            quantized = self._fresh(f"{name}_quantized")
            nodes.append(self._node("QuantizeLinear", name, [name, *parameters], quantized, weight.axis))
        else:
            quantized = self._constant(f"{name}_quantized", weight.values)
        return [
            *nodes,
            self._node("DequantizeLinear", name, [quantized, *parameters], restored, weight.axis),
        ]

    def _node(self, kind: str, name: str, inputs: Sequence[str], output: str, axis: int) -> onnx.NodeProto:
        return helper.make_node(kind, inputs, [output], name=self._fresh(f"{name}_{kind}"), axis=axis)

    def _constant(self, name: str, value: Array) -> str:
        unique = self._fresh(name)
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), unique))
        return unique


def _state_kernel_shape(node: onnx.NodeProto, weight: Sequence[int]) -> None:
    """Writes the size of a convolution's kernel as an attribute, where a model leaves it to the weight.

    TensorRT's parser cannot see the size of a weight that comes out of a DequantizeLinear: "The input tensor
    shape misaligns with the input kernel shape".
    """
    if node.op_type in ("Conv", "ConvTranspose") and all(a.name != "kernel_shape" for a in node.attribute):
        node.attribute.append(helper.make_attribute("kernel_shape", list(weight[2:])))
