"""One quiet call of PyTorch's exporter, and its model in an opset and IR version that a target reads."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import onnx

from calib.data import Array
from calib.errors import EngineError, ModelError, require
from calib.graph.lower_opset import LOWEST_OPSET, lower_to_17
from calib.graph.torch_call import CallForm, call_form
from calib.graph.torch_faults import explain_fault
from calib.graph.torch_inputs import NetworkInput
from calib.graph.torch_names import name_nodes
from calib.graph.torch_pooling import restore_global_pooling
from calib.graph.whole_shapes import split_shape_ranges

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Signature", "bind_inputs", "trace"]

_LEAST_TORCH = (2, 6)
# The exporter's own operators are written for opset 18; it converts to higher ones, but not to lower.
_NATIVE_OPSET = 18


@dataclass(frozen=True)
class Signature:
    """The inputs of a network, and how they are passed.

    Attributes:
        inputs: The inputs with names, in the order of the ONNX model.
        form: How ``forward`` is called with them.
    """

    inputs: tuple[NetworkInput, ...]
    form: CallForm

    def arrays(self, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Example values by input name.

        Args:
            sizes: Name of a dynamic axis → size, where it differs from the shape's.
        """
        return {item.name: item.example(sizes) for item in self.inputs}

    def arguments(self, arrays: Mapping[str, Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same as positional and keyword arguments: copies, since ``forward`` may change them."""
        import torch

        return self.form.arguments({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})

    def dynamic_shapes(self, dimensions: Mapping[str, Any]) -> Any:
        """What torch.export takes as ``dynamic_shapes``; None where no size may vary."""
        if not dimensions:
            return None
        axes = [
            {axis: dimensions[label] for axis, label in item.dynamic.items()} or None for item in self.inputs
        ]
        if self.form.by_keyword:
            return {item.name: found for item, found in zip(self.inputs, axes, strict=True)}
        return (tuple(axes),) if self.form.variadic else tuple(axes)


def bind_inputs(module: nn.Module, inputs: Sequence[NetworkInput], name: str) -> Signature:
    """Finds out which argument of ``forward`` each input is, and names those that have no name.

    Args:
        module: The network.
        inputs: The inputs.
        name: The network's name, for messages.

    Raises:
        UsageError: ``forward`` takes more inputs, or fewer.
    """
    form = call_form(module, [item.name for item in inputs], name)
    if form.by_keyword:
        named = {item.name: item for item in inputs}
        return Signature(tuple(named[label] for label in form.names), form)
    pairs = zip(inputs, form.names, strict=True)
    return Signature(tuple(replace(item, name=label) for item, label in pairs), form)


def trace(
    module: nn.Module, signature: Signature, outputs: Sequence[str], opset: int, name: str
) -> onnx.ModelProto:
    """Exports a network with ``torch.onnx.export(dynamo=True)``.

    Opset 17 is written as 18 first, since the exporter would leave it at 18 wherever its own conversion
    fails, which it does at every Pad, Split and mean.

    Args:
        module: The network in evaluation mode.
        signature: Its inputs.
        outputs: Names of its outputs.
        opset: The opset, at least 17.
        name: The network's name, for messages.

    Raises:
        ModelError: The exporter fails; the message names the operator or the line.
        EngineError: torch is too old.
        MissingExtraError: onnxscript, which the exporter needs, is not installed.
    """
    _check_software()
    proto = _exported(module, signature, outputs, max(opset, _NATIVE_OPSET), name)
    _check_axes(proto, signature, name)
    restore_global_pooling(proto)
    name_nodes(proto, {path for path, _ in module.named_modules()})
    if opset == LOWEST_OPSET:
        lower_to_17(proto, name)
        # The runtime that needs opset 17 is TensorRT 8.6, which reads whole shapes alone.
        split_shape_ranges(proto)
    written = next(entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx"))
    if written != opset:
        raise ModelError(
            f"{name}: PyTorch's exporter wrote opset {written} where {opset} was asked for. "
            "Try another --opset."
        )
    proto.ir_version = onnx.helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    return proto


def _check_software() -> None:
    import torch

    require("onnxscript", "torch", "Exporting PyTorch networks to ONNX")
    numbers = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
    if numbers < _LEAST_TORCH:
        raise EngineError(
            f"Exporting needs torch {'.'.join(map(str, _LEAST_TORCH))} or newer, this is "
            f"{torch.__version__}. Install a newer one: pip install -U torch"
        )


def _exported(
    module: nn.Module, signature: Signature, outputs: Sequence[str], opset: int, name: str
) -> onnx.ModelProto:
    import torch

    labels = {label: size for label, size in _example_sizes(signature).items()}
    dimensions = {label: torch.export.Dim(label) for label in labels}
    args, kwargs = signature.arguments(signature.arrays(labels))
    try:
        with _quiet():
            program = torch.onnx.export(
                module,
                args,
                kwargs=kwargs,
                dynamo=True,
                opset_version=opset,
                input_names=[item.name for item in signature.inputs],
                output_names=list(outputs),
                dynamic_shapes=signature.dynamic_shapes(dimensions),
                verbose=False,
            )
    except Exception as error:
        # The exporter runs the user's code and raises what that raises, of any type.
        raise ModelError(explain_fault(error, name)) from error
    if program is None:
        raise ModelError(f"{name}: PyTorch's exporter gave no model.")
    proto: onnx.ModelProto = program.model_proto
    return proto


def _example_sizes(signature: Signature) -> dict[str, int]:
    """Sizes to trace dynamic axes with: torch.export takes a size of 1 for one that never varies."""
    return {
        label: max(2, item.shape[axis]) for item in signature.inputs for axis, label in item.dynamic.items()
    }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the exporter's progress, warnings and dumps of graphs away: its errors arrive as exceptions."""
    import torch

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            torch.no_grad(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _check_axes(proto: onnx.ModelProto, signature: Signature, name: str) -> None:
    """Refuses a model where a size that shall vary is fixed: the exporter does that silently."""
    found = {info.name: info.type.tensor_type.shape.dim for info in proto.graph.input}
    lost = [item.name for item in signature.inputs if item.name not in found]
    if lost:
        raise ModelError(
            f"{name} does not use input {', '.join(lost)}: it is not in the ONNX model. "
            "Leave it out of --input."
        )
    for item in signature.inputs:
        for axis, label in item.dynamic.items():
            if not found[item.name][axis].dim_param:
                raise ModelError(
                    f"{name}: size {found[item.name][axis].dim_value} of axis {axis} of input {item.name!r} "
                    f"is written into the network, so that {label!r} cannot be dynamic. Leave it out of "
                    "--dynamic, or compute it from the input's shape in forward."
                )
