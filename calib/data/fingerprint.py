"""One number that says whether two datasets are the same."""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calib.data.dataset import Dataset
from calib.errors import DatasetError

__all__ = ["file_identity", "fingerprint"]

_WHOLE_BYTES = 1 << 20
_END_BYTES = 64 << 10


def fingerprint(dataset: Dataset) -> str:
    """The SHA-256 of what a dataset is, the same on every machine.

    Covered: the description (source with all its options, class numbers, hashes of the tokenizer and
    other files that the samples are made with, preprocessing), padding, constants, carried state, every
    sample's id, label or annotations and group in their order, and what is stored for each sample: for
    files ``file_identity``, for arrays in memory all their bytes. Not covered: the dataset's name, notes,
    absolute paths, time stamps and worker processes.

    Args:
        dataset: Any dataset. Its samples are not decoded, but their files are read in part.

    Returns:
        64 hexadecimal digits.

    Raises:
        DatasetError: A sample's file cannot be read.
    """
    head = {"fingerprint": 1, "description": dataset.description, **_feeding(dataset)}
    digest = hashlib.sha256(_line(head))
    for index, sample_id in enumerate(dataset.ids):
        label = None if dataset.labels is None else dataset.labels[index]
        stored = None if dataset.content is None else dataset.content(index)
        group = [] if dataset.groups is None else [dataset.groups[index]]
        digest.update(_line([sample_id, label, stored, *group]))
    return digest.hexdigest()


def _feeding(dataset: Dataset) -> Mapping[str, Any]:
    """What is done to samples when they are fed; nothing of it, for most datasets."""
    parts = {"padding": dataset.padding, "constants": dataset.constants, "state": dataset.state}
    return {name: dict(part) for name, part in parts.items() if part}


def _line(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_encode)
    return text.encode("ascii") + b"\n"


def _encode(value: Any) -> Any:
    """Labels may be numbers of numpy, or whole arrays."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(value.tobytes()).hexdigest()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "sha256": content}
    if is_dataclass(value) and not isinstance(value, type):
        # Not asdict: it would copy the arrays.
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise DatasetError(
        f"Cannot fingerprint {reprlib.repr(value)}: labels and descriptions must be numbers, text, "
        "arrays, or lists and mappings of them."
    )


def file_identity(path: Path) -> str:
    """Identifies a file's content at little cost: its size and the SHA-256 of its bytes.

    Up to 1 MiB all bytes are hashed, beyond that the first and last 64 KiB. An npz file ends with the
    checksums of all its arrays, so that any change in one shows; a change in the middle of a larger
    image or npy file which keeps its size does not.

    Raises:
        DatasetError: The file cannot be read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            if size <= _WHOLE_BYTES:
                ends = stream.read()
            else:
                ends = stream.read(_END_BYTES)
                stream.seek(-_END_BYTES, 2)
                ends += stream.read()
    except OSError as error:
        raise DatasetError(f"Cannot read {path}: {error.strerror or error}.") from error
    return f"{size}:{hashlib.sha256(ends).hexdigest()}"
