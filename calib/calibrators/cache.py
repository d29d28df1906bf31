"""TensorRT's calibration cache: read and written bit for bit.

The file is text: ``TRT-<version>-<algorithm>``, then a line ``<tensor name>: <hex>`` a tensor, where
hex is the bits of the float32 scale without leading zeros (zero is written ``0``). Names may hold
colons, so a line is split at its last ``": "``.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from calib.calibrators.cache_text import decode_text
from calib.calibrators.ranges import RangeTable, refuse_ranges
from calib.calibrators.trt_version import decode_version, encode_version
from calib.errors import CacheError, UsageError
from calib.files import read_bounded, write_bytes
from calib.wording import counted

__all__ = ["CalibrationCache", "unusable_reason"]

_HEADER = re.compile(r"TRT-([0-9A-Za-z.]+)-(\w+)")
_LEGACY_HEADER = re.compile(r"\d+ [0-9a-f]{16} [0-9a-f]{16}")
_HEX = re.compile(r"[0-9A-Fa-f]{1,8}")
_RUNTIME_TABLE = re.compile(r".*[^\s:] [-+]?([0-9.]+(e[-+]?[0-9]+)?|inf|nan)", re.IGNORECASE)
_SMALLEST_NORMAL = 2.0**-126
_MAX_BYTES = 64 << 20


class CalibrationCache(Mapping[str, float]):
    """Tensor name → INT8 scale, with the header that says which TensorRT and algorithm it is for.

    Args:
        scales: Scale of each tensor; rounded to float32.
        algorithm: "EntropyCalibration2", "MinMaxCalibration", "EntropyCalibration" or "LegacyCalibration".
        version: TensorRT's version, such as "8.6.0".

    Attributes:
        header: The first line.
        algorithm: Name of the algorithm in it.
        version: TensorRT's version in it; None where it is a placeholder.

    Raises:
        CacheError: A scale is not finite or negative.
        UsageError: The version is no version, the algorithm is not one word, or ranges were given.

    >>> cache = CalibrationCache({"input:0": 1 / 127}, version="10.3.0")
    >>> print(cache.to_text(), end="")
    TRT-100300-EntropyCalibration2
    input:0: 3c010204
    """

    header: str
    algorithm: str
    version: str | None

    def __init__(
        self,
        scales: Mapping[str, float],
        algorithm: str = "EntropyCalibration2",
        version: str = "8.6.0",
    ) -> None:
        self._bits = _checked_bits(scales)
        self._set_header(_header(encode_version(version), algorithm))

    def _set_header(self, header: str) -> None:
        match = _HEADER.fullmatch(header)
        self.header = header
        self.algorithm = match[2] if match else "LegacyCalibration"
        self.version = decode_version(match[1]) if match else None

    @property
    def legacy_settings(self) -> tuple[float, float] | None:
        r"""Quantile and regression cutoff in the header of a cache of TensorRT's legacy calibrator.

        Such a header names no version: "0", then the two as 64-bit floats in hexadecimal, the cutoff first.
        None for other caches.

        >>> CalibrationCache.parse(b"0 3ff0000000000000 3fefff2e48e8a71e\nx: 3c010204\n").legacy_settings
        (0.9999, 1.0)
        """
        if not _LEGACY_HEADER.fullmatch(self.header):
            return None
        cutoff, quantile = (struct.unpack(">d", bytes.fromhex(part))[0] for part in self.header.split()[1:])
        return float(quantile), float(cutoff)

    def replaced(
        self,
        scales: Mapping[str, float] | None = None,
        *,
        version: str | None = None,
        algorithm: str | None = None,
    ) -> CalibrationCache:
        r"""A copy with other entries or another header.

        Args:
            scales: Scale of each tensor; None for the same entries.
            version: TensorRT's version; None for what stands in the header, even a placeholder.
            algorithm: As in the constructor; None for the same.

        Raises:
            CacheError: As the constructor.
            UsageError: As the constructor; or the header names no version that could be kept.

        >>> cache = CalibrationCache.parse(b"TRT-8XXX-MinMaxCalibration\nx: 3c010204\n")
        >>> cache.replaced(algorithm="EntropyCalibration2").header
        'TRT-8XXX-EntropyCalibration2'
        """
        copy = type(self).__new__(type(self))
        copy._bits = _checked_bits(self if scales is None else scales)
        header = self.header
        if version is not None or algorithm is not None:
            match = _HEADER.fullmatch(header)
            if version is None and match is None:
                raise UsageError(f"Header {header!r} names no version of TensorRT. Give one.")
            digits = encode_version(version) if version is not None else match[1] if match else ""
            header = _header(digits, self.algorithm if algorithm is None else algorithm)
        copy._set_header(header)
        return copy

    @classmethod
    def from_ranges(cls, ranges: RangeTable, algorithm: str, version: str) -> CalibrationCache:
        """The cache of a range table."""
        return cls(ranges.scales, algorithm, version)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> CalibrationCache:
        """Reads a cache file.

        Args:
            path: The file, as TensorRT or this class wrote it; line ends, trailing blanks and a byte order
                mark that an editor left are forgiven.

        Raises:
            CacheError: No such file, another format, a damaged line (with its number), no entries.
        """
        advice = "Make one with: calib calibrate MODEL.onnx --data RECIPE --out MODEL.cache"
        content = read_bounded(path, "calibration cache", CacheError, limit=_MAX_BYTES, advice=advice)
        return cls.parse(content, os.fspath(path))

    @classmethod
    def parse(cls, content: bytes, source: str = "calibration cache") -> CalibrationCache:
        """Reads a cache's content; ``source`` is its name in messages.

        Raises:
            CacheError: As ``read``.
        """
        lines = decode_text(content, source, "a calibration cache").split("\n")
        header = lines[0].strip()
        _check_header(header, source)
        cache = cls.__new__(cls)
        cache._set_header(header)
        cache._bits = _parse_rows(lines, source)
        return cache

    def __getitem__(self, name: str) -> float:
        return _from_bits(self._bits[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._bits)

    def __len__(self) -> int:
        return len(self._bits)

    def __repr__(self) -> str:
        return f"<CalibrationCache {self.header}, {counted(len(self), 'tensor[s]')}>"

    def bits(self, name: str) -> str:
        """A scale as it stands in the file: hexadecimal float32 bits without leading zeros."""
        return f"{self._bits[name]:x}"

    @property
    def unusable(self) -> dict[str, str]:
        """Tensors whose scale TensorRT cannot use, each with the reason."""
        reasons = ((name, unusable_reason(scale)) for name, scale in self.items())
        return {name: reason for name, reason in reasons if reason}

    @property
    def ranges(self) -> RangeTable:
        """Tensor → amax = 127·scale, of the usable entries."""
        unusable = self.unusable
        return RangeTable({name: 127.0 * scale for name, scale in self.items() if name not in unusable})

    def to_text(self) -> str:
        """The file's content: a line a tensor, LF, a newline at the end."""
        return "\n".join([self.header, *(f"{name}: {bits:x}" for name, bits in self._bits.items())]) + "\n"

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes the file, whole or not at all.

        Raises:
            OutputError: It cannot be written.
        """
        return write_bytes(path, self.to_text().encode("utf-8"))


def unusable_reason(scale: float) -> str:
    """Why INT8 cannot use a scale, as a word; empty where it can.

    >>> unusable_reason(0.0), unusable_reason(float("inf")), unusable_reason(0.01)
    ('zero', 'infinite', '')
    """
    if math.isnan(scale):
        return "not a number"
    if math.isinf(scale):
        return "infinite"
    if scale == 0:
        return "zero"
    if scale < 0:
        return "negative"
    return "subnormal" if scale < _SMALLEST_NORMAL else ""


def _checked_bits(scales: Mapping[str, float]) -> dict[str, int]:
    refuse_ranges(scales)
    for name, scale in scales.items():
        if not math.isfinite(scale) or scale < 0:
            raise CacheError(f"Scale of tensor {name!r} must be finite and ≥ 0, got {scale}.")
        if "\n" in name or "\r" in name:
            raise CacheError(f"Tensor name {name!r} holds a line break, which no cache can hold.")
        if not name.isprintable() and any("\ud800" <= character <= "\udfff" for character in name):
            raise CacheError(f"Tensor name {name!r} holds half a surrogate pair, which no cache can hold.")
    return {name: _to_bits(name, scale) for name, scale in scales.items()}


def _header(digits: str, algorithm: str) -> str:
    header = f"TRT-{digits}-{algorithm}"
    if not _HEADER.fullmatch(header):
        raise UsageError(f"Algorithm must be one word such as EntropyCalibration2, got {algorithm!r}.")
    return header


def _to_bits(name: str, scale: float) -> int:
    try:
        packed = struct.pack(">f", scale + 0.0)
    except OverflowError as error:
        raise CacheError(f"Scale {scale} of tensor {name!r} is beyond float32's range.") from error
    return int.from_bytes(packed, "big")


def _from_bits(bits: int) -> float:
    return float(struct.unpack(">f", bits.to_bytes(4, "big"))[0])


def _check_header(header: str, source: str) -> None:
    if _HEADER.fullmatch(header) or _LEGACY_HEADER.fullmatch(header):
        return
    if not header:
        raise CacheError(f"{source} has no header: line 1 must read like TRT-8600-EntropyCalibration2.")
    if _RUNTIME_TABLE.fullmatch(header):
        raise CacheError(
            f"{source} is ONNX Runtime's table (name and absolute maximum, no header), not TensorRT's "
            "calibration cache. Its numbers are ranges, not scales. "
            f"Make a cache of it with: calib cache convert {source} OUT.cache"
        )
    raise CacheError(
        f"{source} is not a calibration cache: line 1 must read like TRT-8600-EntropyCalibration2, "
        f"got {header[:60]!r}. ONNX Runtime's tables and Q/DQ models: calib cache convert."
    )


def _parse_rows(lines: list[str], source: str) -> dict[str, int]:
    rows: dict[str, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        row = line.rstrip(" \t\r")
        if not row:
            continue
        name, separator, digits = row.rpartition(": ")
        # Only a finished line ends with LF: fewer digits on an unfinished one are a cut, not a small number.
        cut = number == len(lines) and len(digits) < 8 and digits != "0"
        if not separator or not _HEX.fullmatch(digits) or cut:
            raise CacheError(
                f"{source}, line {number}: expected 'tensor name: hexadecimal scale', got {row[:80]!r}. "
                "The file is damaged or cut off; make it again."
            )
        if name in rows:
            same = "the same scale" if rows[name] == int(digits, 16) else "another scale"
            raise CacheError(
                f"{source}, line {number}: tensor {name!r} is there twice, before with {same}. "
                "Delete one of the lines."
            )
        rows[name] = int(digits, 16)
    if not rows:
        raise CacheError(f"{source} has no entries, only a header. Make it again with calib calibrate.")
    return rows
