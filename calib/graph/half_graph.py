"""A graph as the FP16 conversion looks at it: element types, shapes, and what may become float16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx

from calib.graph.operators import is_standard
from calib.graph.subgraphs import inner_graphs, names_read_inside
from calib.graph.tensor_types import infer_tensors
from calib.graph.weights import constants

__all__ = ["HalfGraph", "Slots"]

_FLOAT = onnx.TensorProto.FLOAT
_HALF = "tensor(float16)"
_CONTROL = ("If", "Loop", "Scan", "SequenceMap")


@dataclass(frozen=True)
class Slots:
    """Places of a node whose float32 tensors ONNX lets be float16.

    Attributes:
        inputs: Indices of such inputs.
        outputs: Indices of such outputs.
        unknown: Tensors in places that could be float16 whose type is not known.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    unknown: tuple[str, ...] = ()


class HalfGraph:
    """Types, shapes and roles of the tensors of a model's main graph.

    Args:
        proto: The model.

    Attributes:
        proto: As given.
        nodes: The main graph's nodes, in order.
        constants: Tensor → its constant value.
        types: Tensor → element type, where it is known.
        shapes: Tensor → its sizes, None where one is not fixed.
        producer: Tensor → index of the node that makes it.
        readers: Tensor → indices of the nodes that read it, those included that read it in a subgraph.
        outputs: Names of the model's outputs.
        captured: Tensors that a subgraph reads.
        static: Tensors computed from constants and sizes alone; dequantized weights are none of them.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = proto
        self.nodes = list(proto.graph.node)
        self.constants = constants(proto.graph)
        self.types, self.shapes = infer_tensors(proto)
        self.types.update({name: tensor.data_type for name, tensor in self.constants.items()})
        self.producer = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[int]] = {}
        self.captured: set[str] = set()
        for index, node in enumerate(self.nodes):
            inside = names_read_inside(node)
            self.captured |= inside
            for name in dict.fromkeys((*node.input, *sorted(inside))):
                self.readers.setdefault(name, []).append(index)
        self.outputs = {output.name for output in proto.graph.output}
        self.static = self._static()
        self._opsets = {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import}
        self._complete_types()

    @property
    def opset(self) -> int:
        """Version of ONNX's own operators."""
        return self._opsets.get("ai.onnx", 1)

    def is_float(self, name: str) -> bool:
        """Whether a tensor is float32."""
        return self.types.get(name) == _FLOAT

    def float_inputs(self, node: onnx.NodeProto) -> Iterator[str]:
        """The float32 activations that a node reads."""
        return (name for name in node.input if name not in self.constants and self.is_float(name))

    def float_outputs(self, node: onnx.NodeProto) -> Iterator[str]:
        """The float32 activations that a node makes."""
        return (name for name in node.output if name not in self.constants and self.is_float(name))

    def array_size(self, name: str, axes: tuple[int, ...] | None) -> int | None:
        """Number of elements along axes of a tensor, all axes by default; None where it is not fixed."""
        shape = self.shapes.get(name)
        if shape is None or any(not -len(shape) <= axis < len(shape) for axis in axes or ()):
            return None
        sizes = shape if axes is None else [shape[axis] for axis in axes]
        total = 1
        for size in sizes:
            if size is None:
                return None
            total *= size
        return total

    def slots(self, node: onnx.NodeProto) -> Slots:
        """What of a node may be float16, by ONNX's own definition of its operator."""
        schema = self.schema(node)
        if schema is None:
            return Slots((), ())
        kinds_in = _kinds(schema, node.input, schema.inputs)
        kinds_out = _kinds(schema, node.output, schema.outputs)
        if node.op_type.startswith("Optional") or any(map(_holds_tensors, (*kinds_in, *kinds_out))):
            # What comes out of a sequence has the type of what went in: neither can be changed alone.
            return Slots((), ())
        able_in = [i for i, kinds in enumerate(kinds_in) if _HALF in kinds]
        able_out = [i for i, kinds in enumerate(kinds_out) if _HALF in kinds]
        names = [*(node.input[i] for i in able_in), *(node.output[i] for i in able_out)]
        return Slots(
            tuple(i for i in able_in if self.is_float(node.input[i])),
            tuple(i for i in able_out if self.is_float(node.output[i])),
            tuple(name for name in names if name and name not in self.types),
        )

    def schema(self, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
        """ONNX's definition of a node's operator; None for custom ones, functions and control flow."""
        functions = {(function.domain, function.name) for function in self.proto.functions}
        if not is_standard(node) or (node.domain, node.op_type) in functions or node.op_type in _CONTROL:
            return None
        try:
            return onnx.defs.get_schema(node.op_type, self.opset, "")
        except onnx.defs.SchemaError:
            return None

    def _static(self) -> set[str]:
        """Tensors that no data gets into but sizes of tensors."""
        static = set(self.constants)
        for node in self.nodes:
            inputs = [name for name in node.input if name]
            sizes = node.op_type in ("Shape", "Size") or (inputs and static.issuperset(inputs))
            if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
                continue
            if (sizes or node.op_type == "Constant") and not any(inner_graphs(node)):
                static.update(name for name in node.output if name)
        return static

    def _complete_types(self) -> None:
        """Finds types that inference lost behind a custom operator, from what else a node reads and makes."""
        while True:
            found = {name: kind for node in self.nodes for name, kind in self._from_partners(node)}
            if not found:
                return
            self.types.update(found)

    def _from_partners(self, node: onnx.NodeProto) -> Iterator[tuple[str, int]]:
        names = [name for name in (*node.input, *node.output) if name]
        if all(name in self.types for name in names):
            return
        schema = self.schema(node)
        if schema is None:
            return
        formal = [*_formal(node.input, schema.inputs), *_formal(node.output, schema.outputs)]
        parameters = [item.type_str for item in formal]
        known: dict[str, int] = {}
        for name, parameter in zip((*node.input, *node.output), parameters, strict=False):
            if name in self.types:
                known[parameter] = self.types[name]
        for name, parameter in zip((*node.input, *node.output), parameters, strict=False):
            if name and name not in self.types and parameter in known:
                yield name, known[parameter]


def _holds_tensors(kinds: set[str]) -> bool:
    """Whether a place is for sequences of tensors alone, or for optional ones."""
    return all(kind.startswith(("seq(", "optional(")) for kind in kinds)


def _formal(
    names: Sequence[str], formal: Sequence[onnx.defs.OpSchema.FormalParameter]
) -> Sequence[onnx.defs.OpSchema.FormalParameter]:
    """The formal parameter of each actual one; the last may stand for several."""
    return [formal[min(index, len(formal) - 1)] for index in range(len(names) if formal else 0)]


def _kinds(
    schema: onnx.defs.OpSchema,
    names: Sequence[str],
    formal: Sequence[onnx.defs.OpSchema.FormalParameter],
) -> list[set[str]]:
    allowed = {item.type_param_str: set(item.allowed_type_strs) for item in schema.type_constraints}
    return [allowed.get(item.type_str, {item.type_str}) for item in _formal(names, formal)]
