"""The state of a calibration that is not finished: what a shard or a killed run leaves behind.

The file is an npz without pickle: the calibrator's arrays, and one string of JSON about them.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from pydantic import TypeAdapter, ValidationError

from calib.calibrators.base import Calibrator
from calib.calibrators.provenance import Origin
from calib.calibrators.registry import make_calibrator
from calib.errors import CacheError, CalibrationError, UsageError
from calib.files import write_bytes

__all__ = ["Partial", "is_partial", "merge_partials", "read_partial"]

_SCHEMA = 1
_ABOUT = "calib_partial"
_MAX_BYTES = 4 << 30


@dataclass(frozen=True)
class Partial:
    """Statistics of some of the batches of a calibration.

    Attributes:
        origin: What decides which ranges come out.
        source_of: Every tensor that gets a range, in network order → the tensor it is taken from.
        start: Number of the first batch.
        stop: Number of the batch after the last one of this part.
        done: Number of the batch after the last one that was counted.
        batches: Number of batches of the whole calibration.
        calibrator: The statistics.
        tensorrt: The TensorRT version that shall read the cache.
        notes: What is worth knowing of the samples.
    """

    origin: Origin
    source_of: dict[str, str]
    start: int
    stop: int
    done: int
    batches: int
    calibrator: Calibrator[Any]
    tensorrt: str = "8.6.0"
    notes: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether all batches of this part were counted."""
        return self.done == self.stop

    def to_bytes(self) -> bytes:
        """The file's content."""
        about = {
            "schema": _SCHEMA,
            "origin": self.origin.model_dump(mode="json"),
            "source_of": self.source_of,
            "range": [self.start, self.stop, self.done, self.batches],
            "tensorrt": self.tensorrt,
            "notes": self.notes,
        }
        arrays: dict[str, Any] = {_ABOUT: np.array(json.dumps(about)), **self.calibrator.state()}
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        return stream.getvalue()

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes the file, whole or not at all.

        Raises:
            OutputError: It cannot be written.
        """
        return write_bytes(path, self.to_bytes())


def is_partial(path: str | os.PathLike[str]) -> bool:
    """Whether a file is such a state, by its first bytes and the name of its first array."""
    try:
        with Path(path).open("rb") as stream:
            return _ABOUT.encode() in stream.read(64)
    except OSError:
        return False


def read_partial(path: str | os.PathLike[str]) -> Partial:
    """Reads a state.

    Raises:
        CacheError: No such file, or not such a state.
        CalibrationError: The calibrator's arrays are damaged.
    """
    source = Path(path)
    try:
        if source.stat().st_size > _MAX_BYTES:
            raise CacheError(f"{source} is larger than {_MAX_BYTES >> 30} GiB: no partial calibration.")
        with source.open("rb") as stream, _opened(stream) as arrays:
            content = {name: arrays[name] for name in arrays.files}
        about = json.loads(str(content.pop(_ABOUT)))
        if about["schema"] != _SCHEMA:
            raise CacheError(f"{source} has schema {about['schema']}, this calib reads {_SCHEMA}.")
        origin = Origin.model_validate(about["origin"])
        start, stop, done, batches = _RANGE.validate_python(about["range"])
        source_of = _NAMES.validate_python(about["source_of"])
        notes = tuple(str(note) for note in about["notes"])
        tensorrt = str(about["tensorrt"])
    except FileNotFoundError as error:
        raise CacheError(f"No such partial calibration: {source}.") from error
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, ValidationError) as error:
        raise CacheError(f"{source} is no partial calibration, or is damaged: {error}.") from error
    calibrator = make_calibrator(origin.method, **origin.options)
    calibrator.load_state(content)
    return Partial(origin, source_of, start, stop, done, batches, calibrator, tensorrt, notes)


def _opened(stream: BinaryIO) -> np.lib.npyio.NpzFile:
    arrays = np.load(stream, allow_pickle=False)
    if not isinstance(arrays, np.lib.npyio.NpzFile):
        raise ValueError("it is an npy file")
    return arrays


_RANGE = TypeAdapter(tuple[int, int, int, int])
_NAMES = TypeAdapter(dict[str, str])


def merge_partials(parts: Sequence[tuple[str, Partial]]) -> Partial:
    """Merges the parts of one calibration, with the bits of one process that counted all batches.

    Args:
        parts: Name and state of each, in any order.

    Returns:
        The whole.

    Raises:
        CalibrationError: Parts are of different calibrations (what differs is said), overlap, are
            unfinished or missing, or were counted on different grids.
        UsageError: There are no parts.
    """
    ordered = sorted(parts, key=lambda part: part[1].start)
    if not ordered:
        raise UsageError("Merging needs at least one part of a calibration, got none.")
    first_name, first = ordered[0]
    merged = make_calibrator(first.origin.method, **first.origin.options)
    expected = 0
    for name, part in ordered:
        _check_same(first_name, first, name, part)
        if part.start != expected:
            raise CalibrationError(
                f"Batches do not join: expected a part that begins at batch {expected} of {first.batches}, "
                f"{name} begins at {part.start}. Give every part once."
            )
        if not part.finished:
            raise CalibrationError(
                f"{name} is not finished: {part.done - part.start} of {part.stop - part.start} batches. "
                "Run its command again; it goes on where it stopped."
            )
        try:
            merged.merge(part.calibrator)
        except CalibrationError as error:
            raise CalibrationError(
                f"Cannot merge {name} with the parts before it: {error} A tensor was all zero in the first "
                f"batch; count {name} again with --grids-of and the part before it."
            ) from error
        expected = part.stop
    if expected != first.batches:
        raise CalibrationError(
            f"Parts are missing: {ordered[-1][0]} ends at batch {expected} of {first.batches}."
        )
    return replace(first, start=0, stop=expected, done=expected, calibrator=merged)


def _check_same(first_name: str, first: Partial, name: str, part: Partial) -> None:
    differing = list(first.origin.differences(part.origin))
    if first.batches != part.batches:
        differing.append(f"number of batches ({first.batches} and {part.batches})")
    if differing:
        raise CalibrationError(
            f"{first_name} and {name} are parts of different calibrations: {', '.join(differing)}."
        )
