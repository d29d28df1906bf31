"""ONNX Runtime's calibration table as FlatBuffers, by ONNX Runtime's own generated classes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from types import ModuleType

from calib.errors import CacheError, require

__all__ = ["pack_table", "unpack_table"]

_PACKAGE = "onnxruntime.quantization.CalTableFlatBuffers"
_PURPOSE = "ONNX Runtime's calibration.flatbuffers"


def _modules() -> tuple[ModuleType, ModuleType, ModuleType]:
    return (
        require("flatbuffers", "onnxruntime", _PURPOSE),
        require(f"{_PACKAGE}.KeyValue", "onnxruntime", _PURPOSE),
        require(f"{_PACKAGE}.TrtTable", "onnxruntime", _PURPOSE),
    )


def pack_table(rows: Iterable[tuple[str, str]]) -> bytes:
    """The file of a table.

    Args:
        rows: Name and value of each tensor; values are text in this form too.

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    flatbuffers, key_value, trt_table = _modules()
    builder = flatbuffers.Builder(1024)
    entries = []
    for name, text in rows:
        key, value = builder.CreateString(name), builder.CreateString(text)
        key_value.KeyValueStart(builder)
        key_value.KeyValueAddKey(builder, key)
        key_value.KeyValueAddValue(builder, value)
        entries.append(key_value.KeyValueEnd(builder))
    trt_table.TrtTableStartDictVector(builder, len(entries))
    for entry in entries:
        builder.PrependUOffsetTRelative(entry)
    vector = builder.EndVector()
    trt_table.TrtTableStart(builder)
    trt_table.TrtTableAddDict(builder, vector)
    builder.Finish(trt_table.TrtTableEnd(builder))
    return bytes(builder.Output())


def unpack_table(content: bytes, source: str) -> list[tuple[str, str]]:
    """Name and value of each tensor of a table's file.

    Args:
        content: The file's content.
        source: Its name, for messages.

    Raises:
        CacheError: The content is no such table.
        MissingExtraError: onnxruntime is not installed.
    """
    _, _, trt_table = _modules()
    try:
        table = trt_table.TrtTable.GetRootAs(content, 0)
        count = table.DictLength()
        # A damaged length must not start a loop over more rows than the file has bytes for.
        if count * 4 > len(content):
            raise IndexError(f"{count} rows in {len(content)} bytes")
        entries = [table.Dict(index) for index in range(count)]
        # The writer fills the vector from its end.
        return [(entry.Key().decode("utf-8"), entry.Value().decode("utf-8")) for entry in reversed(entries)]
    except (struct.error, IndexError, TypeError, ValueError, AttributeError) as error:
        raise CacheError(
            f"{source} is not ONNX Runtime's calibration.flatbuffers, or it is damaged: {error}."
        ) from error
