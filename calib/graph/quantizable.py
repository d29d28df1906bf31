"""A copy of a model in the form that pairs are put into: opset, constant weights, and whether in float16."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from calib.errors import first_names
from calib.graph.folding import computed_weights, fold_constants, with_constant_weights
from calib.graph.intake import OnnxModel
from calib.graph.operators import WEIGHTED, is_standard
from calib.graph.opset import fit_opset
from calib.graph.targets import Target, typed_target
from calib.graph.weights import constants

__all__ = ["Quantizable", "has_half_weights", "quantizable"]


@dataclass(frozen=True)
class Quantizable:
    """A model that pairs can be put into.

    Attributes:
        proto: The model, a copy.
        notes: What was changed.
        half: Whether it has weights in float16, and the target reads scales in that type.
    """

    proto: onnx.ModelProto
    notes: tuple[str, ...]
    half: bool


def quantizable(model: OnnxModel, target: Target) -> Quantizable:
    """Brings a model into an opset that a target reads, and makes constants of computed weights.

    Args:
        model: The float model.
        target: The runtime.

    Raises:
        ModelError: The opset is none for the target.
    """
    half = "fp16" in target.scale_types and has_half_weights(model)
    proto, notes = fit_opset(model, typed_target(target, "fp16") if half else target)
    folded = fold_constants(proto, computed_weights(proto.graph))
    if folded:
        notes.append(f"weights that nodes computed from constants are constants now: {first_names(folded)}")
    return Quantizable(proto, tuple(notes), half)


def has_half_weights(model: OnnxModel) -> bool:
    """Whether nodes that can be quantized have weights in float16, as in a model that was exported so."""
    graph = with_constant_weights(model).proto.graph
    known = constants(graph)
    weights = (node.input[1] for node in graph.node if node.op_type in WEIGHTED and is_standard(node))
    return any(name in known and known[name].data_type == onnx.TensorProto.FLOAT16 for name in weights)
