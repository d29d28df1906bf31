"""Text files of bounded size, as UTF-8."""

from __future__ import annotations

from pathlib import Path

from calib.errors import DatasetError

__all__ = ["LARGEST", "read_bytes", "read_text"]

LARGEST = 256 << 20
"""Bytes beyond which no list of labels or samples is read."""


def read_bytes(path: Path, noun: str, most: int = LARGEST) -> bytes:
    """Reads a file that is not larger than it can be.

    Args:
        path: The file.
        noun: What it is, for the message: "list of labels".
        most: The largest size in bytes.

    Raises:
        DatasetError: The file cannot be read, or is too large.
    """
    try:
        with path.open("rb") as stream:
            raw = stream.read(most + 1)
    except OSError as error:
        raise DatasetError(f"Cannot read {path}: {error.strerror or error}.") from error
    if len(raw) > most:
        raise DatasetError(f"{path} is larger than {most >> 20} MiB: that is no {noun}.")
    return raw


def read_text(path: Path, noun: str, most: int = LARGEST) -> str:
    """Reads a text file; a byte order mark is passed over.

    Raises:
        DatasetError: The file cannot be read, is too large or not UTF-8.
    """
    raw = read_bytes(path, noun, most)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DatasetError(f"{path}, line {line}: not UTF-8 text. Save it as UTF-8.") from error
