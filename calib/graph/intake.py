"""Reading an ONNX model and knowing what goes in and what comes out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from calib.errors import ModelError
from calib.files import sha256_file
from calib.graph.operators import is_quantized
from calib.graph.other_formats import describe_other_format
from calib.graph.subgraphs import all_nodes
from calib.wording import counted

__all__ = [
    "PROTOBUF_LIMIT",
    "OnnxModel",
    "TensorSpec",
    "all_tensors",
    "copy_without_weights",
    "load_model",
]

PROTOBUF_LIMIT = (2 << 30) - 1
"""Bytes that one protocol buffer can hold."""

_FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
)


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model.

    Attributes:
        name: Its name.
        dtype: Its numpy type.
        shape: A number where a size is fixed, a name where it is symbolic, None where nothing is said.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...]

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join('?' if size is None else str(size) for size in self.shape)}]"


@dataclass(frozen=True)
class OnnxModel:
    """A model in memory.

    Attributes:
        path: The file it came from, or the file it is meant for.
        proto: The model. Treat it as read-only: ``edited`` gives a copy to change.
        external_files: The files that weights were read from, where they lie outside the model.
    """

    path: Path
    proto: onnx.ModelProto
    external_files: tuple[Path, ...] = ()

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What must be fed: graph inputs that are no initializers."""
        weights = {tensor.name for tensor in self.proto.graph.initializer}
        return tuple(_spec(info, self.path) for info in self.proto.graph.input if info.name not in weights)

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The model's outputs."""
        return tuple(_spec(info, self.path) for info in self.proto.graph.output)

    @property
    def metadata(self) -> dict[str, str]:
        """What the model's maker wrote into it, by key."""
        return {entry.key: entry.value for entry in self.proto.metadata_props}

    @property
    def opset(self) -> int:
        """Version of the default operator set; 0 where the model does not use it."""
        versions = [entry.version for entry in self.proto.opset_import if entry.domain in ("", "ai.onnx")]
        return int(versions[0]) if versions else 0

    @property
    def fixed_batch(self) -> int | None:
        """The batch size that the model insists on; None where any goes.

        An input without axes has no batch and is left out of account.
        """
        sizes = {spec.shape[0] for spec in self.inputs if spec.shape}
        fixed = [size for size in sizes if isinstance(size, int)]
        return fixed[0] if len(sizes) == 1 and fixed else None

    @cached_property
    def sha256(self) -> str:
        """Hash of the file it came from, or of its content where there is no such file."""
        return sha256_file(self.path) if self.path.is_file() else hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def quantized_nodes(self) -> int:
        """Number of nodes that quantize, dequantize or compute in integers, at any depth and in functions."""
        return len(self._quantized)

    @property
    def quantized_tensors(self) -> tuple[str, ...]:
        """The tensors that go into these nodes; what one of them hands to the next counts once."""
        made = {name for node in self._quantized for name in node.output}
        read = (node.input[0] for node in self._quantized if node.input)
        return tuple(dict.fromkeys(name for name in read if name not in made))

    def refuse_quantized(self, advice: str) -> None:
        """Refuses a model that is quantized already.

        Args:
            advice: What to do, as a sentence.

        Raises:
            ModelError: It has such nodes.
        """
        if not self.quantized_nodes:
            return
        tensors = self.quantized_tensors
        example = f", the first of them {tensors[0]!r}" if tensors else ""
        raise ModelError(
            f"{self.path} already has {self.quantized_nodes} QuantizeLinear, DequantizeLinear or integer "
            f"nodes, on {counted(len(tensors), 'tensor[s]')}{example}. {advice}"
        )

    @cached_property
    def _quantized(self) -> list[onnx.NodeProto]:
        inside = (node for function in self.proto.functions for node in function.node)
        return [node for node in (*all_nodes(self.proto.graph), *inside) if is_quantized(node)]

    def edited(self) -> onnx.ModelProto:
        """A copy of the model that may be changed."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self.proto)
        return copy

    @cached_property
    def byte_size(self) -> int:
        """Size of the model with its weights; of the weights alone where it is beyond 2 GiB."""
        weights = sum(map(_tensor_bytes, all_tensors(self.proto.graph)))
        # A protocol buffer beyond the limit cannot even be measured.
        return weights if weights > PROTOBUF_LIMIT else int(self.proto.ByteSize())

    @property
    def parameters(self) -> int:
        """Number of floating-point weights, in Constant nodes too, where PaddlePaddle writes them."""
        tensors = (one for one in all_tensors(self.proto.graph) if one.data_type in _FLOATS)
        return sum(int(np.prod(tensor.dims, dtype=np.int64)) for tensor in tensors)

    def to_bytes(self) -> bytes:
        """The serialized model.

        Raises:
            ModelError: It is larger than the 2 GiB that one protocol buffer can hold.
        """
        if self.byte_size > PROTOBUF_LIMIT:
            raise ModelError(
                f"{self.path} is larger than 2 GiB and cannot be one file. Write it with its weights apart."
            )
        return bytes(self.proto.SerializeToString())

    def content_hashes(self) -> tuple[str, str]:
        """SHA-256 of the graph without its weights, and of the weights alone."""
        weights = hashlib.sha256()
        for tensor in self.proto.graph.initializer:
            weights.update(f"{tensor.name}|{tensor.data_type}|{list(tensor.dims)}|".encode())
            array = onnx.numpy_helper.to_array(tensor)
            weights.update(tensor.raw_data or np.ascontiguousarray(array).tobytes())
        skeleton = copy_without_weights(self.proto).SerializeToString(deterministic=True)
        return hashlib.sha256(skeleton).hexdigest(), weights.hexdigest()


def all_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and tensors in attributes, those in subgraphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_tensors(attribute.g)


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    if not tensor.HasField("raw_data"):
        return int(tensor.ByteSize())
    # Asking for the bytes themselves would copy them.
    size = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    return int(np.prod(tensor.dims, dtype=np.int64)) * size


def copy_without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model but for its initializers, which are not even copied: they may be large."""
    stripped, graph = onnx.ModelProto(), onnx.GraphProto()
    for source, target, left_out in ((proto, stripped, "graph"), (proto.graph, graph, "initializer")):
        for field, value in source.ListFields():
            if field.name == left_out:
                continue
            if field.message_type is None and not hasattr(value, "extend"):
                setattr(target, field.name, value)
            elif hasattr(value, "extend"):
                getattr(target, field.name).extend(value)
            else:
                getattr(target, field.name).CopyFrom(value)
    stripped.graph.CopyFrom(graph)
    return stripped


def load_model(path: str | os.PathLike[str]) -> OnnxModel:
    """Reads an ONNX file, with its external weights where it has some.

    Args:
        path: The .onnx file.

    Raises:
        ModelError: No such file, not an ONNX model, an empty graph, missing external weights, constants whose
            values do not fit their shape.
    """
    source = Path(path)
    if source.is_dir():
        raise ModelError(f"{source} is a folder. Give the path of an .onnx file.")
    if not source.exists():
        raise ModelError(f"No such model: {source}. Give the path of an .onnx file.")
    model = _parse(source)
    if not model.proto.graph.node or not model.proto.opset_import:
        raise ModelError(f"{source} is not an ONNX model: it has no nodes or names no operator set.")
    return model


def _parse(source: Path) -> OnnxModel:
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.load(source, load_external_data=False)
    except DecodeError as error:
        raise ModelError(f"{source} is not an ONNX model. {describe_other_format(source)}") from error
    except OSError as error:
        raise ModelError(f"Cannot read model {source}: {error.strerror or error}.") from error
    files = tuple(source.parent / name for name in _locations(proto))
    try:
        onnx.load_external_data_for_model(proto, str(source.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(
            f"{source}: its external weights cannot be read. {_external(proto, source)}"
        ) from error
    for tensor in all_tensors(proto.graph):
        _check_values(tensor, source)
    return OnnxModel(source, proto, files)


def _check_values(tensor: onnx.TensorProto, source: Path) -> None:
    """Refuses a constant with more or fewer values than its shape has room for."""
    name = tensor.name or "(no name)"
    _dtype(tensor.data_type, name, source)
    try:
        onnx.numpy_helper.to_array(tensor)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{source}: constant {name!r} of shape {list(tensor.dims)} does not hold the "
            f"values of that shape ({error}). The file is damaged; export the model again."
        ) from error


def _locations(proto: onnx.ModelProto) -> list[str]:
    """Names of the files that a model's weights lie in."""
    entries = (entry for tensor in all_tensors(proto.graph) for entry in tensor.external_data)
    return sorted({entry.value for entry in entries if entry.key == "location"})


def _external(proto: onnx.ModelProto, source: Path) -> str:
    """Names the weight files that a model wants and that are not there."""
    wanted = _locations(proto)
    missing = [name for name in wanted if not (source.parent / name).is_file()]
    if missing:
        names = ", ".join(missing[:5])
        return f"Expected beside the model, but not there: {names}. Copy them into {source.parent.resolve()}."
    return f"The files are there but damaged, links, or outside the model's folder: {', '.join(wanted[:5])}."


def _spec(info: onnx.ValueInfoProto, path: Path) -> TensorSpec:
    if not info.type.HasField("tensor_type"):
        raise ModelError(f"{path}: {info.name!r} is no tensor (a sequence or map), which is not supported.")
    kind = info.type.tensor_type
    return TensorSpec(info.name, _dtype(kind.elem_type, info.name, path), _shape(kind.shape))


def _dtype(element: int, name: str, path: Path) -> np.dtype[Any]:
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: element type {element} of {name!r} is unknown.") from error


def _shape(shape: onnx.TensorShapeProto) -> tuple[int | str | None, ...]:
    # Some exporters write -1 or 0 for a size that is not fixed.
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else (dim.dim_param or None)
        for dim in shape.dim
    )
