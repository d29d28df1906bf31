"""CIFAR-10 and CIFAR-100 as they are distributed: binary files, or those for Python."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from calib.data.dataset import Array, Dataset
from calib.data.fingerprint import file_identity
from calib.data.sources.base import Opening, RelativePath
from calib.data.sources.kept import Kept
from calib.data.sources.pictures import ImageFilesSource
from calib.data.sources.pixel_arrays import pixel_dataset
from calib.errors import DatasetError
from calib.files import read_bounded

__all__ = ["CifarSource"]

_PIXELS = 3 * 32 * 32
_MOST = 512 << 20
_MOST_NAMES = 1 << 20
_TEN = {
    "train": [f"data_batch_{number}" for number in range(1, 6)],
    "test": ["test_batch"],
}


class CifarSource(ImageFilesSource):
    """60,000 colour images of 32 × 32 pixels in 10 or 100 classes.

    The files for Python are pickles, which can run any code; they are read by a reader that knows numpy
    arrays, lists, texts and numbers only, and refuses everything else.

    Attributes:
        kind: ``cifar``.
        path: The folder that was unpacked: ``cifar-10-batches-bin``, ``cifar-100-binary``,
            ``cifar-10-batches-py`` or ``cifar-100-python``.
        split: ``train`` or ``test``.
        labels: For CIFAR-100: ``fine`` for the 100 classes, ``coarse`` for the 20 they are parts of.
        input: Name of the model's input.
    """

    kind: Literal["cifar"]
    path: RelativePath
    split: Literal["train", "test"] = "test"
    labels: Literal["fine", "coarse"] = "fine"

    def open(self, opening: Opening) -> Dataset:
        """Reads the files of the split."""
        folder, kind = opening.inside(self.path, "path"), self.labels
        parts = _parts(folder, self.split)
        kept = {part: Kept(partial(_read, part, kind)) for part in parts}
        identities = {part: Kept(partial(file_identity, part.file)) for part in parts}
        read = [found() for found in kept.values()]
        places = [
            (part, row) for part, found in zip(parts, read, strict=True) for row in range(len(found.labels))
        ]
        ids = [f"{self.path}/{part.file.name}#{row}" for part, row in places]
        names = _class_names(folder, parts[0].classes, self.labels)
        return pixel_dataset(
            self,
            opening,
            ids,
            lambda index: kept[places[index][0]]().pixels[places[index][1]],
            [label for found in read for label in found.labels],
            content=lambda index: identities[places[index][0]](),
            class_names=names,
        )


class _Part(NamedTuple):
    """A file, its number of classes, and whether it is for Python."""

    file: Path
    classes: Literal[10, 100]
    python: bool


class _Content(NamedTuple):
    pixels: Array
    labels: Sequence[int]


def _parts(folder: Path, split: str) -> list[_Part]:
    for names, classes, python in (
        ([f"{name}.bin" for name in _TEN[split]], 10, False),
        ([f"{split}.bin"], 100, False),
        (_TEN[split], 10, True),
        ([split], 100, True),
    ):
        if all((folder / name).is_file() for name in names):
            kind: Literal[10, 100] = 10 if classes == 10 else 100
            return [_Part(folder / name, kind, python) for name in names]
    raise DatasetError(
        f"{folder} holds no {split} files of CIFAR: expected {', '.join(_TEN[split])} or {split}, each with "
        "or without .bin. Give the folder that was unpacked."
    )


def _read(part: _Part, kind: str) -> _Content:
    """The pixels of a file, (count, 32, 32, 3), and its labels."""
    raw = read_bounded(part.file, "file of CIFAR", DatasetError, limit=_MOST)
    pixels, labels = (_of_python if part.python else _of_binary)(raw, part, kind)
    if not len(labels) or pixels.shape != (len(labels), _PIXELS) or pixels.dtype != np.uint8:
        raise DatasetError(
            f"{part.file} is not whole: {pixels.dtype} {pixels.shape} for {len(labels)} labels. "
            "Unpack it anew."
        )
    if max(labels) >= part.classes or min(labels) < 0:
        raise DatasetError(f"{part.file} has a label {max(labels)}: expected 0 to {part.classes - 1}.")
    return _Content(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels)


def _of_binary(raw: bytes, part: _Part, kind: str) -> tuple[Array, list[int]]:
    heads = 1 if part.classes == 10 else 2
    if len(raw) % (heads + _PIXELS):
        raise DatasetError(
            f"{part.file} has {len(raw)} bytes, no multiple of {heads + _PIXELS}: it is cut "
            "short. Unpack it anew."
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, heads + _PIXELS)
    # CIFAR-100 has the coarse label first.
    column = 1 if heads == 2 and kind == "fine" else 0
    return rows[:, heads:], rows[:, column].tolist()


def _of_python(raw: bytes, part: _Part, kind: str) -> tuple[Array, list[int]]:
    content = _unpickle(raw, part.file)
    key = b"labels" if part.classes == 10 else f"{kind}_labels".encode()
    pixels, labels = content.get(b"data"), content.get(key)
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
        raise DatasetError(f"{part.file} has no 'data' and {key.decode()!r}: it is no file of CIFAR.")
    if not all(type(label) is int for label in labels):
        raise DatasetError(f"{part.file} has labels that are no whole numbers.")
    return pixels, labels


class _Plain(pickle.Unpickler):
    """Unpickles numpy arrays and Python's plain types; any other class or function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """The few names that an array of numbers consists of."""
        place = module.replace("numpy._core", "numpy.core")
        if (place, name) == ("numpy.core.multiarray", "_reconstruct"):
            return _reconstruct
        if (place, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (place, name) == ("_codecs", "encode"):
            return _encode
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no plain data")


def _reconstruct(kind: Any, shape: Any, dtype: Any) -> Array:
    """What numpy's own function of that name does, for arrays alone."""
    if kind is not np.ndarray or shape != (0,):
        raise pickle.UnpicklingError("an array of another kind")
    empty: Array = np.ndarray.__new__(np.ndarray, (0,), dtype)
    return empty


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("bytes in another encoding")
    return text.encode("latin1")


def _unpickle(raw: bytes, file: Path) -> Mapping[bytes, Any]:
    try:
        content = _Plain(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a pickle can make its reader raise anything
        raise DatasetError(
            f"{file} is not read: {error}. It is damaged, or no file of CIFAR; use the binary version."
        ) from error
    if not isinstance(content, dict):
        raise DatasetError(f"{file} holds a {type(content).__name__}: it is no file of CIFAR.")
    return {key.encode() if isinstance(key, str) else key: value for key, value in content.items()}


def _class_names(folder: Path, classes: int, kind: str) -> list[str] | None:
    """Names of the classes; None where the file of names is not there."""
    if classes == 10:
        text, pickled, key = folder / "batches.meta.txt", folder / "batches.meta", b"label_names"
    else:
        text, pickled, key = (
            folder / f"{kind}_label_names.txt",
            folder / "meta",
            f"{kind}_label_names".encode(),
        )
    if text.is_file():
        content = read_bounded(text, "list of class names", DatasetError, limit=_MOST_NAMES)
        return content.decode("utf-8", "replace").split()
    if pickled.is_file():
        content = read_bounded(pickled, "file of CIFAR", DatasetError, limit=_MOST_NAMES)
        names = _unpickle(content, pickled).get(key)
        if isinstance(names, list):
            return [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    return None
