"""Models whose weights lie in a file of their own, as those above 2 GiB must.

Written as ONNX's external data: ``OUT.onnx`` and beside it ``OUT.onnx.data``, named by a relative path.
"""

from __future__ import annotations

import os
from pathlib import Path

import onnx

from calib.errors import UsageError
from calib.files import check_writable, write_together
from calib.graph.intake import PROTOBUF_LIMIT, OnnxModel, all_tensors, copy_without_weights

__all__ = ["check_model_path", "data_file", "write_model"]

# Smaller tensors stay in the model, where shape inference finds them.
_LEAST = 1024
# ONNX's external data documentation asks for whole pages, so that the file can be mapped.
_PAGE = 4096


def data_file(path: str | os.PathLike[str]) -> Path:
    """The file beside a model that its weights go to."""
    return Path(f"{os.fspath(path)}.data")


def check_model_path(path: str | os.PathLike[str], source: OnnxModel) -> Path:
    """Refuses a path where a model cannot be written, or would damage the one that it is made from.

    Args:
        path: Where the model shall go.
        source: The model that it is made from.

    Raises:
        UsageError: The path, or that of its weights, is a file of the source.
        OutputError: It cannot be written.
    """
    target = check_writable(path)
    sources = {file.resolve() for file in (source.path, *source.external_files) if file.exists()}
    if target.resolve() in sources:
        raise UsageError(f"--out {path} is the model itself. Choose another file.")
    if _is_split(source) and data_file(target).resolve() in sources:
        raise UsageError(f"The weights beside --out {path} would replace those of {source.path}.")
    return target


def write_model(model: OnnxModel, path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Writes a model; its weights beside it where they were, or where one file cannot hold them.

    Args:
        model: The model.
        path: The .onnx file.

    Returns:
        The files.

    Raises:
        OutputError: They cannot be written; files that were there are as before.
    """
    target = Path(path)
    if not _is_split(model):
        return write_together({target: model.to_bytes()})
    proto, content = _split(model.proto, data_file(target).name)
    return write_together({data_file(target): content, target: bytes(proto.SerializeToString())})


def _is_split(model: OnnxModel) -> bool:
    return bool(model.external_files) or model.byte_size > PROTOBUF_LIMIT


def _split(proto: onnx.ModelProto, location: str) -> tuple[onnx.ModelProto, bytes]:
    """The model without the content of its large tensors, and that content."""
    light = copy_without_weights(proto)
    content = bytearray()
    for tensor in proto.graph.initializer:
        if _is_large(tensor):
            outside = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            _move(tensor.raw_data, outside, content, location)
            light.graph.initializer.append(outside)
        else:
            light.graph.initializer.append(tensor)
    for tensor in all_tensors(light.graph):
        if _is_large(tensor):
            _move(tensor.raw_data, tensor, content, location)
            tensor.ClearField("raw_data")
    return light, bytes(content)


def _is_large(tensor: onnx.TensorProto) -> bool:
    return tensor.HasField("raw_data") and len(tensor.raw_data) >= _LEAST


def _move(values: bytes, tensor: onnx.TensorProto, content: bytearray, location: str) -> None:
    """Appends a tensor's content and says in the tensor where it is."""
    content.extend(bytes(-len(content) % _PAGE))
    entries = {"location": location, "offset": str(len(content)), "length": str(len(values))}
    tensor.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in entries.items())
    tensor.data_location = onnx.TensorProto.EXTERNAL
    content.extend(values)
