"""ONNX Runtime's calibration table in its three forms: JSON, text, FlatBuffers.

A table holds ranges (amax), not scales, and has no header. ``calibration.json`` has both ends of a
range; ``calibration.cache`` is text, ``name value`` a line, and ``calibration.flatbuffers`` is what
ONNX Runtime's TensorRT provider reads; these two hold one number. The provider makes float32 of it and
TensorRT divides by 127, so that is what a table means here too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from calib.calibrators.amax import amax_of, has_exact_amax
from calib.calibrators.cache import CalibrationCache
from calib.calibrators.cache_text import decode_text
from calib.calibrators.ranges import RangeTable
from calib.calibrators.runtime_flatbuffers import pack_table, unpack_table
from calib.errors import CacheError, UsageError
from calib.files import read_bounded

__all__ = ["RUNTIME_FORMS", "RuntimeTable", "inexact_tensors", "parse_table", "read_table", "render_table"]

RUNTIME_FORMS = MappingProxyType(
    {
        "onnxruntime-json": ".json",
        "onnxruntime-cache": ".cache",
        "onnxruntime-flatbuffers": ".flatbuffers",
    }
)
"""Form → the ending that ONNX Runtime gives it."""

_MAX_BYTES = 256 << 20
_LARGEST = float(np.finfo(np.float32).max)
_ONE_SIDED = (
    "ONNX Runtime's newer versions write the upper end of a range in this form even where the lower end "
    "lies further from zero; calibration.json has both"
)


@dataclass(frozen=True)
class RuntimeTable:
    """What a table holds.

    Attributes:
        ranges: amax of each tensor.
        algorithm: Header algorithm of the method that the table names; None where it names none.
        notes: What is worth knowing about the reading.
    """

    ranges: RangeTable
    algorithm: str | None
    notes: tuple[str, ...] = ()


def read_table(path: str | os.PathLike[str], form: str) -> RuntimeTable:
    """Reads a table.

    Args:
        path: The file.
        form: One of ``RUNTIME_FORMS``.

    Raises:
        CacheError: It cannot be read, or a range is missing or cannot be used, with the tensor's name.
        MissingExtraError: The FlatBuffers form without onnxruntime.
    """
    content = read_bounded(path, "calibration table", CacheError, limit=_MAX_BYTES)
    return parse_table(content, form, os.fspath(path))


def parse_table(content: bytes, form: str, source: str = "calibration table") -> RuntimeTable:
    r"""Reads a table's content; ``source`` is its name in messages.

    Raises:
        CacheError: As ``read_table``.
        UsageError: There is no such form.
        MissingExtraError: The FlatBuffers form without onnxruntime.

    >>> parse_table(b"data 2.64\n", "onnxruntime-cache").ranges.scales["data"]
    0.02078740...
    """
    if form not in RUNTIME_FORMS:
        raise UsageError(f"Form of a table must be one of {', '.join(RUNTIME_FORMS)}, got {form!r}.")
    if form == "onnxruntime-json":
        return _parse_json(content, source)
    rows = _text_rows(content, source) if form == "onnxruntime-cache" else unpack_table(content, source)
    ranges = _collect(((name, (_number(text, name, source),)) for name, text in rows), source)
    for name, amax in rows:
        if ranges[name] != 0 and amax.lstrip().startswith("-"):
            raise CacheError(f"{source}: range {amax} of tensor {name!r} is negative: {_ONE_SIDED}.")
    return RuntimeTable(ranges, None, (_ONE_SIDED,))


def render_table(cache: CalibrationCache, form: str) -> bytes:
    r"""A cache's entries as a table, byte for byte as ONNX Runtime writes one.

    Ranges are written so that reading them restores every float32 bit of the scales, but for the
    tensors that ``inexact_tensors`` names: those are off by one last bit.

    Args:
        cache: The cache.
        form: One of ``RUNTIME_FORMS``.

    Raises:
        CacheError: A range is not finite.
        UsageError: There is no such form.
        MissingExtraError: The FlatBuffers form without onnxruntime.

    >>> render_table(CalibrationCache({"data": 0.5}), "onnxruntime-cache")
    b'data 63.5\n'
    """
    if form not in RUNTIME_FORMS:
        raise UsageError(f"Form of a table must be one of {', '.join(RUNTIME_FORMS)}, got {form!r}.")
    ranges = {name: amax_of(scale) for name, scale in cache.items()}
    for name, amax in ranges.items():
        if not 0 <= amax <= _LARGEST:
            raise CacheError(
                f"Range of tensor {name!r} is {amax}, which no table can hold. "
                "Calibrate again, or leave it out with --drop-unusable."
            )
    if form == "onnxruntime-json":
        return _render_json(ranges, cache.algorithm)
    rows = [(name, str(ranges[name])) for name in sorted(ranges)]
    if form == "onnxruntime-flatbuffers":
        return pack_table(rows)
    return "".join(f"{name} {text}\n" for name, text in rows).encode("utf-8")


def inexact_tensors(cache: CalibrationCache) -> tuple[str, ...]:
    """Tensors whose scale no float32 range gives, so that a table moves it by one last bit."""
    return tuple(name for name, scale in cache.items() if not has_exact_amax(scale))


def _text_rows(content: bytes, source: str) -> list[tuple[str, str]]:
    lines = decode_text(content, source, "ONNX Runtime's text table").split("\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        row = line.rstrip(" \t\r")
        name, _, text = row.rpartition(" ")
        if row and not name:
            raise CacheError(f"{source}, line {number}: expected 'tensor name value', got {row[:80]!r}.")
        if row:
            rows.append((name, text))
    return rows


def _number(text: str, name: str, source: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise CacheError(
            f"{source}: range of tensor {name!r} must be a number, got {text[:40]!r}."
        ) from error


def _collect(rows: Iterable[tuple[str, Iterable[float]]], source: str) -> RangeTable:
    """The amax of each tensor: the largest absolute value of what its row holds."""
    found: dict[str, float] = {}
    for name, ends in rows:
        if name in found:
            raise CacheError(f"{source}: tensor {name!r} is there twice.")
        found[name] = _amax(name, ends, source)
    if not found:
        raise CacheError(f"{source} has no entries.")
    return RangeTable(found)


def _amax(name: str, ends: Iterable[float], source: str) -> float:
    sizes = [abs(end) for end in ends]
    if not sizes:
        raise CacheError(f"{source}: tensor {name!r} has no range.")
    if not all(size <= _LARGEST for size in sizes):
        raise CacheError(
            f"{source}: range of tensor {name!r} is not finite ({', '.join(map(str, sizes[:4]))}). "
            "Calibrate again without the samples that cause it."
        )
    return max(sizes)


def _render_json(ranges: Mapping[str, float], algorithm: str) -> bytes:
    def end(value: float) -> dict[str, Any]:
        return {"data": value, "dtype": "float32", "CLS": "numpy.array"}

    tensors = {
        name: {"lowest": end(-amax), "highest": end(amax), "CLS": "TensorData"}
        for name, amax in ranges.items()
    }
    method = "MinMax" if algorithm == "MinMaxCalibration" else "Entropy"
    table = {
        "CLS": "TensorsData",
        "data": tensors,
        "calibration_method": {"CLS": "CalibrationMethod", "value": f"CalibrationMethod.{method}"},
    }
    return json.dumps(table).encode("utf-8")


def _parse_json(content: bytes, source: str) -> RuntimeTable:
    try:
        table = json.loads(content, object_pairs_hook=_unique(source))
    except (ValueError, RecursionError) as error:
        raise CacheError(f"{source} is not ONNX Runtime's JSON table: {error}.") from error
    if not isinstance(table, dict):
        raise CacheError(f"{source} is not ONNX Runtime's JSON table: expected an object of tensors.")
    algorithm = None
    # A tensor may be named "data" too; only the newer form says its class.
    if table.get("CLS") == "TensorsData":
        algorithm = _method(table.get("calibration_method"))
        table = table.get("data")
        if not isinstance(table, dict):
            raise CacheError(f"{source} is not ONNX Runtime's JSON table: it has no 'data' of tensors.")
    rows = ((name, _ends(entry, name, source)) for name, entry in table.items())
    return RuntimeTable(_collect(rows, source), algorithm)


def _unique(source: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise CacheError(f"{source}: {twice!r} is there twice.")
        return entries

    return build


def _method(entry: Any) -> str | None:
    word = str(entry.get("value", "") if isinstance(entry, dict) else entry or "")
    named = {"MinMax": "MinMaxCalibration", "Entropy": "EntropyCalibration2"}
    return named.get(word.rpartition(".")[2])


def _ends(entry: Any, name: str, source: str) -> list[float]:
    """Both ends of a range: ``[low, high]`` of older versions, an object with both in newer ones."""
    if isinstance(entry, dict):
        if "lowest" not in entry or "highest" not in entry:
            raise CacheError(f"{source}: tensor {name!r} has no 'lowest' and 'highest'.")
        ends = [_values(entry[key]) for key in ("lowest", "highest")]
    else:
        ends = [_values(end) for end in entry] if isinstance(entry, list) and len(entry) == 2 else []
    if not ends or not all(ends):
        raise CacheError(
            f"{source}: range of tensor {name!r} must be two numbers, got {json.dumps(entry)[:60]}. "
            "Is this ONNX Runtime's table?"
        )
    return [value for values in ends for value in values]


def _values(end: Any) -> list[float]:
    """The numbers of one end: several where ONNX Runtime calibrated by channel; none if malformed."""
    if isinstance(end, dict):
        end = end.get("data")
    flat = end if isinstance(end, list) else [end]
    while flat and all(isinstance(item, list) for item in flat):
        flat = [value for item in flat for value in item]
    good = all(isinstance(value, int | float) and not isinstance(value, bool) for value in flat)
    try:
        return [float(value) for value in flat] if good else []
    except OverflowError:
        return [math.inf]
