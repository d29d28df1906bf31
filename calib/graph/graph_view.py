"""A graph as the placement rules look at it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cached_property

import onnx

from calib.calibrators import unusable_reason
from calib.calibrators.cache_lint import mask_tensors
from calib.graph.dependence import data_dependent_outputs
from calib.graph.operators import is_standard
from calib.graph.subgraphs import names_read_inside
from calib.graph.tensor_types import infer_tensors
from calib.graph.weights import constants, fits_half

__all__ = ["COARSE", "GraphView", "label"]

COARSE = "for which float16 scales are too coarse or too small"


class GraphView:
    """What the rules ask of a graph.

    Args:
        proto: The model.
        scales: Tensor → INT8 scale.
        half: Whether pairs may stand on float16 tensors, with scales in float16.

    Attributes:
        scales: As given.
        nodes: The main graph's nodes, in order.
        constants: Tensor → its constant value.
        producer: Tensor → index of the node that makes it.
        readers: Tensor → how many inputs read its values; a model output and a subgraph count as readers.
        functions: Name and domain → a function that the model defines itself.
        half: As given.
    """

    def __init__(self, proto: onnx.ModelProto, scales: Mapping[str, float], half: bool = False) -> None:
        self.scales = scales
        self.half = half
        self._proto = proto
        self._graph = proto.graph
        self.nodes = list(proto.graph.node)
        self.constants = constants(proto.graph)
        self.producer = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.readers = Counter(
            name for node in self.nodes if _reads_values(node) for name in node.input if name
        )
        self.readers.update(output.name for output in proto.graph.output)
        self.readers.update(name for node in self.nodes for name in names_read_inside(node))
        self.functions = {(function.name, function.domain): function for function in proto.functions}
        self._masks = mask_tensors(scales)

    @cached_property
    def moving(self) -> frozenset[str]:
        """The tensors that depend on the data; all others are constants, or computed from constants."""
        weights = {tensor.name for tensor in self._graph.initializer}
        inputs = {info.name for info in self._graph.input} - weights
        return frozenset(inputs.union(data_dependent_outputs(self._graph)))

    def obstacle(self, tensor: str) -> str:
        """Why an activation's scale cannot be used; empty where it can."""
        if tensor not in self.scales:
            return f"no scale for its input {tensor!r}"
        reason = unusable_reason(self.scales[tensor])
        if reason:
            return f"the scale of its input {tensor!r} is {reason}"
        if tensor in self._masks:
            return f"its input {tensor!r} holds a mask's constant: {self._masks[tensor]}"
        if self.half and tensor not in self._types:
            return f"the type of its input {tensor!r} is not known"
        if self.is_half(tensor) and not fits_half(self.scales[tensor]):
            return f"the scale of its float16 input {tensor!r} is {self.scales[tensor]:.3g}, {COARSE}"
        return ""

    def is_half(self, tensor: str) -> bool:
        """Whether a tensor is float16 and its pair has a float16 scale."""
        return self.half and self._types.get(tensor) == onnx.TensorProto.FLOAT16

    def sizes(self, tensor: str) -> tuple[int | None, ...]:
        """The sizes of a tensor, None where one is not fixed; none at all where they are not known."""
        return self._inferred[1].get(tensor, ())

    @property
    def _types(self) -> dict[str, int]:
        return self._inferred[0]

    @cached_property
    def _inferred(self) -> tuple[dict[str, int], dict[str, tuple[int | None, ...]]]:
        return infer_tensors(self._proto)

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """Of each node, the number of nodes on the longest way to it from an input."""
        found: list[int] = []
        for node in self.nodes:
            before = [self.producer[name] for name in node.input if name in self.producer]
            found.append(1 + max((found[index] for index in before if index < len(found)), default=0))
        return tuple(found)

    @cached_property
    def places(self) -> Mapping[str, list[tuple[int, int]]]:
        """Tensor → the (node index, input index) places of the main graph that read its values."""
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            for position, name in enumerate(node.input if _reads_values(node) else ()):
                found[name].append((index, position))
        return found


def _reads_values(node: onnx.NodeProto) -> bool:
    """Whether a node reads more than its input's sizes, which an engine knows without writing the tensor."""
    return node.op_type not in ("Shape", "Size") or not is_standard(node)


def label(node: onnx.NodeProto) -> str:
    """A node's name, or that of its first output where it has none."""
    return node.name or next((name for name in node.output if name), node.op_type)
