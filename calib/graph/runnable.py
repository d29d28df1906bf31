"""The part of a model that ONNX Runtime can compute: up to the inputs of nodes that it has no kernel for.

TensorRT's plug-ins, such as EfficientNMS_TRT, are nodes that only TensorRT can run. What comes before them
can be calibrated all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import onnx

from calib.errors import ModelError, first_names
from calib.graph.faults import operator_without_kernel
from calib.graph.graph_view import label
from calib.graph.intake import OnnxModel
from calib.graph.operators import WEIGHTED
from calib.graph.runtime import open_session
from calib.graph.subgraphs import names_read_inside, nodes_inside
from calib.wording import counted

__all__ = ["RunnablePart", "cut_before", "open_runnable"]


@dataclass(frozen=True)
class RunnablePart:
    """A model without nodes that cannot be computed.

    Attributes:
        model: What is left of it.
        missing: Operator and domain of what ONNX Runtime has no kernel for.
        nodes: Nodes of these operators that were left out.
        behind: Names of the nodes that depend on them, left out too.
        tensors: What all of these would have made.
    """

    model: OnnxModel
    missing: frozenset[tuple[str, str]] = frozenset()
    nodes: tuple[onnx.NodeProto, ...] = ()
    behind: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, in words; empty where nothing was."""
        if not self.nodes:
            return ()
        named = [
            f"{node.op_type} {label(node)!r} (domain {node.domain or 'ai.onnx'!r})" for node in self.nodes
        ]
        behind = f", nor what comes behind: {first_names(self.behind)}" if self.behind else ""
        return (
            f"not run, since ONNX Runtime has no kernel for it: {first_names(named)}{behind}; "
            f"without a range: {first_names(self.tensors)} ({counted(len(self.tensors), 'tensor[s]')})",
        )


def open_runnable(
    model: OnnxModel, observed: Callable[[OnnxModel], OnnxModel], options: Any
) -> tuple[Any, RunnablePart]:
    """Opens a session of as much of a model as ONNX Runtime has kernels for.

    Args:
        model: The model.
        observed: Makes of a model what is opened: with more outputs.
        options: As ``session_options`` makes them.

    Returns:
        The session, and what it is of.

    Raises:
        ModelError: ONNX Runtime refuses the model for another reason, or nothing that can be quantized comes
            before what it has no kernel for; node, operator and domain are named.
    """
    part, session = RunnablePart(model), None
    while session is None:
        session, part = _opened(model, part, observed, options)
    return session, part


def _opened(
    model: OnnxModel, part: RunnablePart, observed: Callable[[OnnxModel], OnnxModel], options: Any
) -> tuple[Any, RunnablePart]:
    """The session of a part; or none, and a smaller part to try."""
    try:
        return open_session(observed(part.model), options), part
    except ModelError as error:
        missing = operator_without_kernel(error.__cause__, part.model)
        if missing is None or missing in part.missing:
            raise
        smaller = cut_before(model, part.missing | {missing})
        if not any(node.op_type in WEIGHTED for node in smaller.model.proto.graph.node):
            raise ModelError(f"{error} Nothing that can be quantized comes before it.") from error
        return None, smaller


def cut_before(model: OnnxModel, missing: Collection[tuple[str, str]]) -> RunnablePart:
    """A model without nodes of some operators, and without what depends on them.

    Args:
        model: The model.
        missing: The operators, each with its domain; "" is ONNX's own.
    """
    proto = model.edited()
    lacking = _with_functions(proto, missing)
    lost: dict[str, None] = {}
    kept: list[onnx.NodeProto] = []
    nodes, behind = [], []
    for node in proto.graph.node:
        if _uses((node,), lacking):
            nodes.append(node)
        elif lost.keys() & {*node.input, *names_read_inside(node)}:
            behind.append(label(node))
        else:
            kept.append(node)
            continue
        lost.update(dict.fromkeys(name for name in node.output if name))
    outputs = [output for output in proto.graph.output if output.name not in lost]
    del proto.graph.node[:], proto.graph.output[:]
    proto.graph.node.extend(kept)
    proto.graph.output.extend(outputs)
    rest = OnnxModel(model.path, proto, model.external_files)
    return RunnablePart(rest, frozenset(missing), tuple(nodes), tuple(behind), tuple(lost))


def _with_functions(proto: onnx.ModelProto, missing: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Operators that are missing, and the model's functions that use them, be it by other functions."""
    found = set(missing)
    while more := {(f.name, f.domain) for f in proto.functions if _uses(f.node, found)} - found:
        found |= more
    return found


def _uses(nodes: Collection[onnx.NodeProto], missing: Collection[tuple[str, str]]) -> bool:
    """Whether nodes, or nodes inside of them, are of an operator that is missing."""
    every = (inner for node in nodes for inner in (node, *nodes_inside(node)))
    return any((node.op_type, node.domain) in missing for node in every)
