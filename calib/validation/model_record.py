"""What results keep of the model under test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from calib.validation.results import ModelRecord

if TYPE_CHECKING:
    from calib.graph import OnnxModel

__all__ = ["describe_model", "model_name"]


def describe_model(model: OnnxModel) -> ModelRecord:
    """Name, hash, inputs, outputs and size of a model."""
    return ModelRecord(
        name=model.path.name,
        path=str(model.path),
        sha256=model.sha256,
        opset=model.opset,
        inputs={spec.name: str(spec) for spec in model.inputs},
        outputs={spec.name: str(spec) for spec in model.outputs},
        nodes=len(model.proto.graph.node),
        parameters=model.parameters,
    )


def model_name(model: str | os.PathLike[str] | OnnxModel) -> str:
    """The path of a model, for commands and messages."""
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else str(model.path)
