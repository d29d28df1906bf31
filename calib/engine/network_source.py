"""The model as the parser reads it: bytes, or a file where the weights lie beside it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calib.files import sha256_file
from calib.graph import OnnxModel
from calib.graph.external import write_model
from calib.graph.intake import PROTOBUF_LIMIT
from calib.graph.whole_shapes import has_shape_ranges, split_shape_ranges

__all__ = ["NetworkSource", "hash_network", "open_source", "with_free_sizes", "with_whole_shapes"]


@dataclass(frozen=True)
class NetworkSource:
    """What the parser is given: one of the two.

    Attributes:
        content: The serialized model.
        file: The model's file.
    """

    content: bytes | None = None
    file: Path | None = None


@contextmanager
def open_source(model: OnnxModel, unchanged: bool) -> Iterator[NetworkSource]:
    """A model for the parser; files that had to be written for it are gone afterwards.

    Args:
        model: The model.
        unchanged: Whether it is as its file holds it.
    """
    if unchanged and model.external_files:
        yield NetworkSource(file=model.path)
    elif model.byte_size <= PROTOBUF_LIMIT:
        yield NetworkSource(content=model.to_bytes())
    else:
        with tempfile.TemporaryDirectory(prefix="calib-build-") as folder:
            file = Path(folder, "model.onnx")
            write_model(model, file)
            yield NetworkSource(file=file)


def with_free_sizes(model: OnnxModel) -> OnnxModel:
    """The model without names of sizes that one input has twice, such as PaddlePaddle's "?" for H and W.

    TensorRT takes equal names for equal sizes: "Input dimensions with this name are inconsistent". A model
    without such names is given back as it is.

    Args:
        model: The model.
    """
    names = [
        [axis.dim_param for axis in info.type.tensor_type.shape.dim if axis.dim_param]
        for info in model.proto.graph.input
    ]
    repeated = {name for found in names for name in found if found.count(name) > 1}
    if not repeated:
        return model
    proto = model.edited()
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for axis in info.type.tensor_type.shape.dim:
            if axis.dim_param in repeated:
                axis.ClearField("dim_param")
    return OnnxModel(model.path, proto, model.external_files)


def with_whole_shapes(model: OnnxModel) -> OnnxModel:
    """The model without Shape nodes of a part of the axes, for parsers that take them for all axes.

    A model without such nodes is given back as it is.

    Args:
        model: The model.
    """
    if not has_shape_ranges(model.proto.graph):
        return model
    proto = model.edited()
    split_shape_ranges(proto)
    return OnnxModel(model.path, proto, model.external_files)


def hash_network(model: OnnxModel, unchanged: bool) -> str:
    """SHA-256 of all that the parser reads, weights in other files included.

    Args:
        model: The model.
        unchanged: Whether it is as its file holds it.
    """
    digest = hashlib.sha256()
    if unchanged and model.path.is_file():
        for file in (model.path, *model.external_files):
            digest.update(sha256_file(file).encode())
    elif model.byte_size <= PROTOBUF_LIMIT:
        digest.update(model.to_bytes())
    else:
        digest.update("".join(model.content_hashes()).encode())
    return digest.hexdigest()
