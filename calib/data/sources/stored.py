"""Arrays in npy and npz files, of which one row is read at a time."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from calib.data.dataset import Array
from calib.errors import DatasetError

__all__ = ["StoredArray", "open_npy", "open_stored"]

_MAX_UNPACKED = 4 << 30
_LOCAL_HEADER = 30
_DAMAGED = (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, zlib.error)


@dataclass(frozen=True)
class StoredArray:
    """An array in a file.

    Attributes:
        path: The npy or npz file.
        key: Name of the array in an npz file; empty for an npy file.
        shape: Its whole shape.
        dtype: Its stored type.
        offset: Byte of the file where row after row begins; None where only the whole can be read,
            because it is compressed or stored by columns. Then it stays in memory after the first read.
    """

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None

    @property
    def name(self) -> str:
        """The file, and the array in it."""
        return f"{self.path}: {self.key}" if self.key else str(self.path)

    def row(self, index: int) -> Array:
        """Reads the array at an index of the first axis.

        Raises:
            DatasetError: The file is damaged, or was changed since it was opened.
        """
        if self.offset is None:
            return np.asarray(self._kept[index])
        shape = self.shape[1:]
        count = math.prod(shape)
        place = self.offset + index * count * self.dtype.itemsize
        return self._read(place, count).reshape(shape)

    @cached_property
    def _kept(self) -> Array:
        return self.whole()

    def whole(self) -> Array:
        """Reads the whole array.

        Raises:
            DatasetError: The file is damaged, or was changed since it was opened.
        """
        if self.offset is not None:
            return self._read(self.offset, math.prod(self.shape)).reshape(self.shape)
        try:
            content = np.load(self.path, allow_pickle=False)
            if not self.key:
                return np.asarray(content)
            with content:
                return np.asarray(content[self.key])
        except (*_DAMAGED, KeyError, zipfile.BadZipFile) as error:
            raise DatasetError(f"{self.name}: damaged: {error}. Write the file anew.") from error

    def _read(self, place: int, count: int) -> Array:
        try:
            values = np.fromfile(self.path, self.dtype, count, offset=place)
        except OSError as error:
            raise DatasetError(f"{self.name}: cannot be read: {error.strerror or error}.") from error
        if values.size != count:
            raise DatasetError(f"{self.name}: became shorter since it was opened.")
        return values


def open_stored(path: Path) -> Mapping[str, StoredArray]:
    """Opens an npz or npy file, whatever its name ends with, without reading the arrays.

    Returns:
        The arrays by key, in the file's order; that of an npy file has the key ``""``.

    Raises:
        DatasetError: Neither npz nor npy, empty, cut short, or arrays of Python objects.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(4)
    except OSError as error:
        raise DatasetError(f"Cannot read {path}: {error.strerror or error}.") from error
    if not start:
        raise DatasetError(f"{path} is empty (0 bytes): expected an npz or npy file.")
    if start == npy_format.MAGIC_PREFIX[:4]:
        return {"": open_npy(path)}
    if not start.startswith(b"PK"):
        raise DatasetError(
            f"{path} is neither an npz nor an npy file: it begins with {start!r}. "
            "Write it with numpy.savez or numpy.save."
        )
    return _open_npz(path)


def open_npy(path: Path) -> StoredArray:
    """Opens an npy file: reads its header and checks that its values are all there.

    Raises:
        DatasetError: Not an npy file, empty, cut short, or an array of Python objects.
    """
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            return _array(stream, path, "", size, 0)
    except OSError as error:
        raise DatasetError(f"Cannot read {path}: {error.strerror or error}.") from error


def _open_npz(path: Path) -> Mapping[str, StoredArray]:
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
            for member in archive.infolist():
                if not member.filename.endswith(".npy"):
                    continue
                key = member.filename.removesuffix(".npy")
                with archive.open(member) as stream:
                    place = _place(raw, member)
                    arrays[key] = _array(stream, path, key, member.file_size, place)
    except (*_DAMAGED, zipfile.BadZipFile) as error:
        raise DatasetError(
            f"{path} is not a whole npz file: {error}. It may have been cut short; copy it anew."
        ) from error
    if not arrays:
        raise DatasetError(f"{path} holds no arrays. Write it with numpy.savez(file, input=array).")
    return arrays


def _place(raw: IO[bytes], member: zipfile.ZipInfo) -> int | None:
    """Where the bytes of an uncompressed member begin: its local header has its own lengths."""
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    raw.seek(member.header_offset)
    header = raw.read(_LOCAL_HEADER)
    name, extra = header[26:28], header[28:30]
    lengths = int.from_bytes(name, "little") + int.from_bytes(extra, "little")
    return member.header_offset + _LOCAL_HEADER + lengths


def _array(stream: IO[bytes], path: Path, key: str, size: int, place: int | None) -> StoredArray:
    """Reads an npy header; ``size`` is that of header and values, ``place`` that of the header."""
    name = f"{path}: {key}" if key else str(path)
    if not size:
        raise DatasetError(f"{name} is empty (0 bytes): expected an npy file.")
    shape, by_columns, dtype = _header(stream, name)
    if dtype.hasobject or dtype.names is not None:
        raise DatasetError(
            f"{name} holds Python objects or records ({dtype}), expected plain numbers. Such files are "
            "not opened, since they can run code. Save numeric arrays: numpy.save(file, array)."
        )
    start = stream.tell()
    needed, found = math.prod(shape) * dtype.itemsize, size - start
    if needed != found:
        short = "is cut short" if found < needed else "is damaged"
        raise DatasetError(
            f"{name} {short}: shape {shape} of {dtype} needs {needed} bytes, found {found}. "
            "Write the file anew."
        )
    if place is None and needed > _MAX_UNPACKED:
        raise DatasetError(
            f"{name} is compressed and needs {needed / 2**30:.1f} GiB of memory. Write it with "
            "numpy.savez, whose arrays are read row by row."
        )
    rows = place is not None and len(shape) > 0 and not by_columns
    return StoredArray(path, key, shape, dtype, place + start if rows and place is not None else None)


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy_format.read_magic(stream)
        read = {
            (1, 0): npy_format.read_array_header_1_0,
            (2, 0): npy_format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ValueError(f"version {version} of the format is for records")
        shape, by_columns, dtype = read(stream)
    except (ValueError, EOFError) as error:
        raise DatasetError(f"{name} is not a whole npy file: {error}.") from error
    return tuple(shape), bool(by_columns), dtype
