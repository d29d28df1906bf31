"""Files that hold INT8 ranges in any of the known forms, read as a cache and written from one."""

from __future__ import annotations

import codecs
import os
import re
from dataclasses import dataclass
from pathlib import Path

from calib.calibrators.cache import CalibrationCache
from calib.calibrators.cache_provenance import write_derived
from calib.calibrators.cache_text import WIDE_MARKS
from calib.calibrators.runtime_table import RUNTIME_FORMS, inexact_tensors, read_table, render_table
from calib.errors import CacheError, UsageError, first_names
from calib.files import write_bytes
from calib.wording import counted

__all__ = ["CACHE_FORMS", "ReadCache", "detect_form", "form_of_output", "read_cache_as", "write_converted"]

CACHE_FORMS = ("tensorrt", *RUNTIME_FORMS)
"""The forms in which ranges are kept as a table."""

_SUFFIXES = {".json": "onnxruntime-json", ".flatbuffers": "onnxruntime-flatbuffers"}
_PEEK = 4096
_LEGACY_HEADER = re.compile(rb"\d+ [0-9a-f]{16} [0-9a-f]{16}")
_VERSION = "8.6.0"
_ALGORITHM = "EntropyCalibration2"


@dataclass(frozen=True)
class ReadCache:
    """A cache that was read from some form.

    Attributes:
        cache: The cache.
        notes: What is worth knowing about the reading, a line each.
    """

    cache: CalibrationCache
    notes: tuple[str, ...] = ()


def detect_form(path: str | os.PathLike[str]) -> str:
    """The form that a file has, by its content: one of ``CACHE_FORMS``, or "qdq" for an ONNX model.

    Raises:
        CacheError: The file cannot be read.
    """
    source = Path(path)
    if source.suffix == ".onnx":
        return "qdq"
    try:
        with source.open("rb") as stream:
            head = stream.read(_PEEK)
    except OSError as error:
        raise CacheError(f"Cannot read {source}: {error.strerror or error}.") from error
    head = head.removeprefix(codecs.BOM_UTF8)
    # What is wrong with UTF-16 text is said where it is read.
    if head.startswith((b"TRT-", *WIDE_MARKS)):
        return "tensorrt"
    if head.lstrip()[:1] == b"{":
        return "onnxruntime-json"
    return "onnxruntime-flatbuffers" if b"\0" in head else _text_form(head)


def _text_form(head: bytes) -> str:
    line = head.split(b"\n")[0].strip()
    name, _, value = line.rpartition(b" ")
    try:
        float(value)
    except ValueError:
        return "tensorrt"
    # "0 3ff0000000000000 3fefff2e48e8a71e" heads an old legacy cache; "x: 38123456" is a headless cache.
    legacy = _LEGACY_HEADER.fullmatch(line)
    return "onnxruntime-cache" if name and not name.endswith(b":") and not legacy else "tensorrt"


def form_of_output(path: str | os.PathLike[str]) -> str:
    """The form that a file's ending asks for; ``.cache``, which both have, means TensorRT's.

    >>> form_of_output("m.json"), form_of_output("m.cache")
    ('onnxruntime-json', 'tensorrt')
    """
    return _SUFFIXES.get(Path(path).suffix.lower(), "tensorrt")


def read_cache_as(path: str | os.PathLike[str], form: str) -> ReadCache:
    """Reads a file of any form as a TensorRT cache.

    A table has no header: its cache is headed for TensorRT 8.6.0, and EntropyCalibration2 where the
    table names no method.

    Args:
        path: The file.
        form: One of ``CACHE_FORMS``.

    Raises:
        CacheError: The file cannot be read.
        UsageError: There is no such form.
        MissingExtraError: The FlatBuffers form without onnxruntime.
    """
    _check_form(form)
    if form == "tensorrt":
        return ReadCache(CalibrationCache.read(path))
    table = read_table(path, form)
    return ReadCache(
        CalibrationCache.from_ranges(table.ranges, table.algorithm or _ALGORITHM, _VERSION), table.notes
    )


def write_converted(
    cache: CalibrationCache,
    path: str | os.PathLike[str],
    form: str,
    source: str | os.PathLike[str],
    source_form: str,
) -> tuple[str, ...]:
    """Writes a cache in any form.

    Args:
        cache: The cache.
        path: The file.
        form: One of ``CACHE_FORMS``.
        source: What the cache was made from; its provenance is carried from cache to cache.
        source_form: The form of that.

    Returns:
        What is worth knowing about the writing, a line each.

    Raises:
        CacheError: A range is not finite.
        OutputError: The file cannot be written.
        UsageError: There is no such form.
        MissingExtraError: The FlatBuffers form without onnxruntime.
    """
    _check_form(form)
    if form == "tensorrt":
        return write_derived(cache, path, source if source_form == "tensorrt" else None)
    write_bytes(path, render_table(cache, form))
    inexact = inexact_tensors(cache)
    if not inexact:
        return ()
    lose = counted(
        len(inexact), "scale[ is|s are] no float32 range divided by 127 and lose[s its| their] last bit"
    )
    return (f"{lose}: {first_names(inexact)}",)


def _check_form(form: str) -> None:
    if form not in CACHE_FORMS:
        raise UsageError(f"Form must be one of {', '.join(CACHE_FORMS)}, got {form!r}.")
