"""From a PyTorch network to an ONNX model that a target reads, checked against PyTorch's own outputs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from calib.data import Array
from calib.errors import ModelError, UsageError
from calib.files import check_apart, check_writable
from calib.graph.external import write_model
from calib.graph.intake import PROTOBUF_LIMIT, OnnxModel
from calib.graph.lower_opset import LOWEST_OPSET
from calib.graph.targets import DEFAULT_TARGET, Target, find_target
from calib.graph.torch_check import OutputCheck, check_outputs
from calib.graph.torch_inputs import (
    DynamicSpec,
    InputsSpec,
    dynamic_inputs,
    network_inputs,
)
from calib.graph.torch_module import foreign_code, load_module, module_name
from calib.graph.torch_names import flat_outputs, output_names
from calib.graph.torch_trace import Signature, bind_inputs, trace

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ExportedModel", "export", "opset_for"]

# What PyTorch says where floats are to be indices: of an embedding, of gather, of one_hot, of a tensor.
_WANTS_INTEGERS = re.compile(
    r"scalar types: Long|Expected dtype int32|only applicable to index tensor|used as indices must be long"
)

# PyTorch's own default. All releases of TensorRT 10 read it, and it writes GELU as one operator.
_USUAL_OPSET = 20
_HIGHEST_OPSET = 23


@dataclass(frozen=True)
class ExportedModel:
    """What an export made.

    Attributes:
        model: The model.
        target: The runtime that it was made for.
        checks: Each output against PyTorch's: on the shapes given, then on other sizes where some may vary.
            Empty where the check was left out.
        files: The files written; empty where it was not written.
        torch: Version of PyTorch that exported it.
        notes: What is to know.
    """

    model: OnnxModel
    target: str
    checks: tuple[OutputCheck, ...]
    files: tuple[Path, ...]
    torch: str
    notes: tuple[str, ...] = ()


def opset_for(target: Target, wanted: int | None = None) -> int:
    """The opset to export with: the highest that every release of a target reads, at most PyTorch's default.

    Args:
        target: The runtime.
        wanted: An opset that was asked for.

    Raises:
        UsageError: The exporter does not write it, or the target does not read it.

    >>> [opset_for(find_target(name)) for name in ("tensorrt-8.6", "tensorrt-10", "onnxruntime")]
    [17, 20, 20]
    """
    if wanted is None:
        return min(_USUAL_OPSET, target.sure_opset or _USUAL_OPSET)
    if not LOWEST_OPSET <= wanted <= _HIGHEST_OPSET:
        raise UsageError(f"--opset must be from {LOWEST_OPSET} to {_HIGHEST_OPSET}, got {wanted}.")
    if target.most_opset is not None and wanted > target.most_opset:
        raise UsageError(
            f"--opset {wanted}: {target.name} reads up to {target.most_opset}. Leave --opset out, or choose "
            "another --target."
        )
    return wanted


def export(
    module: nn.Module | Callable[..., Any] | str,
    *,
    inputs: InputsSpec,
    out: str | os.PathLike[str] | None = None,
    target: str = DEFAULT_TARGET,
    opset: int | None = None,
    dynamic: DynamicSpec | None = None,
    weights: str | os.PathLike[str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    output_names: Sequence[str] | None = None,
    check: bool = True,
) -> ExportedModel:
    """Exports a PyTorch network to ONNX with PyTorch's current exporter, and checks the model.

    The network runs in evaluation mode on the CPU. Its outputs on random input are compared with ONNX
    Runtime's on the model, and, where sizes may vary, on other sizes too.

    Args:
        module: A torch module, a class or function that makes one, or ``package.module:name`` or
            ``path/to/file.py:name`` of one of these.
        inputs: Each input as ``[name:]sizes[:type]``, such as "1x3x224x224" or "ids:2x16:int64"; or a
            mapping from names to shapes or example arrays. Names that are all parameters of ``forward``
            are passed by keyword, others in their order.
        out: The .onnx file; None writes nothing. Weights beyond 2 GiB go to a file beside it.
        target: Runtime that shall read it: "tensorrt-8.6", "tensorrt-10", "tensorrt-11", "onnxruntime".
        opset: Operator set, 17 to 23; None for the target's.
        dynamic: Sizes that may vary: "batch" for the first axis of every input, or
            "images:0=batch,2=height"; several of them, or input → axis → name. None fixes all.
        weights: File of a state dict, read with ``weights_only=True``.
        arguments: Keyword arguments of the class or function that makes the network.
        output_names: Names of the outputs; by default the keys of the dict that ``forward`` returns, or
            "output".
        check: Whether outputs are compared with PyTorch's.

    Returns:
        The model, and how close its outputs are to PyTorch's.

    Raises:
        UsageError: An option cannot be meant, or does not fit the network.
        ModelError: The network cannot be made or exported, or its model computes something else; nothing
            is written then.
        MissingExtraError: torch, onnxscript or (for the check) onnxruntime is not installed.
    """
    chosen = find_target(target)
    version = opset_for(chosen, opset)
    given = network_inputs(inputs)
    name = module_name(module)
    path = Path(f"{name}.onnx") if out is None else check_writable(out)
    if out is not None:
        check_apart(out, {"file of weights": weights})
    network = load_module(module, arguments=arguments, weights=weights)
    job = _Export(network, given, dynamic, output_names, name)
    model = OnnxModel(path, job.proto(version, _source(module, weights)))
    _check_model(model, name)
    checks, notes = job.check(model) if check else ((), [])
    files = () if out is None else write_model(model, path)
    return ExportedModel(model, chosen.name, checks, files, _torch_version(), (*notes, *_doubts(checks)))


class _Export:
    """One network on its way."""

    def __init__(
        self,
        network: nn.Module,
        given: Sequence[Any],
        dynamic: DynamicSpec | None,
        wanted: Sequence[str] | None,
        name: str,
    ) -> None:
        bound = bind_inputs(network, given, name)
        self._signature = Signature(dynamic_inputs(bound.inputs, dynamic), bound.form)
        self._network = network
        self._name = name
        found = self._outputs({})
        self._names = output_names(
            [label for label, _ in found], wanted, [item.name for item in self._signature.inputs]
        )

    def _outputs(self, sizes: Mapping[str, int]) -> list[tuple[str, Any]]:
        """What PyTorch gives on the example inputs."""
        import torch

        args, kwargs = self._signature.arguments(self._signature.arrays(sizes))
        what = f"Running {self._name} on {self._described(sizes)}"
        try:
            with foreign_code(what), torch.inference_mode():
                returned = self._network(*args, **kwargs)
        except ModelError as error:
            raise ModelError(f"{error}{self._type_hint(str(error))}") from (error.__cause__ or error)
        return flat_outputs(returned, self._name)

    def _type_hint(self, reason: str) -> str:
        """What to do where a network indexes with an input that nobody said to be whole numbers."""
        floats = [item for item in self._signature.inputs if item.dtype.kind == "f"]
        if not floats or not _WANTS_INTEGERS.search(reason):
            return ""
        sizes = "x".join(map(str, floats[0].shape))
        return (
            f" An --input without a type is float32: give whole numbers theirs, as in --input "
            f"{floats[0].name}:{sizes}:int64."
        )

    def _described(self, sizes: Mapping[str, int]) -> str:
        arrays = self._signature.arrays(sizes)
        return ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in arrays.items())

    def proto(self, opset: int, source: str) -> onnx.ModelProto:
        """The model, with a record of what made it."""
        proto = trace(self._network, self._signature, self._names, opset, self._name)
        record = {"torch": _torch_version(), "source": source, "exported_with": self._described({})}
        onnx.helper.set_model_props(proto, record)
        return proto

    def check(self, model: OnnxModel) -> tuple[tuple[OutputCheck, ...], list[str]]:
        """Compares outputs on the shapes given, and on other sizes where some may vary."""
        checks = self._compared(model, {}, self._outputs({}))
        sizes = self._other_sizes()
        if not sizes:
            return checks, []
        try:
            outputs = self._outputs(sizes)
        except ModelError as error:
            return checks, [f"not checked on another size, since PyTorch itself fails there: {error}"]
        return (*checks, *self._compared(model, sizes, outputs)), []

    def _compared(
        self, model: OnnxModel, sizes: Mapping[str, int], outputs: Sequence[tuple[str, Any]]
    ) -> tuple[OutputCheck, ...]:
        reference: list[Array] = [tensor.detach().numpy() for _, tensor in outputs]
        feeds = self._signature.arrays(sizes)
        return check_outputs(model, feeds, reference, self._described(sizes))

    def _other_sizes(self) -> dict[str, int]:
        """Another size for each that may vary: two more in a batch, twice as much elsewhere."""
        return {
            label: item.shape[axis] + 2 if axis == 0 else item.shape[axis] * 2
            for item in self._signature.inputs
            for axis, label in item.dynamic.items()
        }


def _check_model(model: OnnxModel, name: str) -> None:
    if model.byte_size > PROTOBUF_LIMIT:
        return  # onnx checks models of that size in files alone; ONNX Runtime checks this one on loading.
    try:
        onnx.checker.check_model(model.proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"{name}: the exported model is not valid ONNX: {reason}. Try another --opset."
        ) from error


def _doubts(checks: Sequence[OutputCheck]) -> list[str]:
    small = dict.fromkeys(check.output for check in checks if check.says_little)
    if not small:
        return []
    return [
        f"output {', '.join(small)} is all but zero on random input, so that the check says little of it; "
        "give trained weights"
    ]


def _source(module: Any, weights: str | os.PathLike[str] | None) -> str:
    text = module if isinstance(module, str) else module_name(module)
    return text if weights is None else f"{text} with {Path(weights).name}"


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
