"""Files of MNIST's format, idx: MNIST, Fashion-MNIST, KMNIST, packed with gzip or not."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import IO, Literal, cast

import numpy as np

from calib.data.dataset import Array, Dataset
from calib.data.fingerprint import file_identity
from calib.data.sources.base import Opening, RelativePath
from calib.data.sources.kept import Kept
from calib.data.sources.labels import ClassNames, read_class_names
from calib.data.sources.pictures import ImageFilesSource
from calib.data.sources.pixel_arrays import pixel_dataset
from calib.errors import DatasetError

__all__ = ["IdxSource", "read_idx"]

_UNSIGNED_BYTES = 8
_MOST = 4 << 30
_PREFIX = {"train": "train", "test": "t10k"}
_FORMS = (
    "{0}-{1}-idx{2}-ubyte",
    "{0}-{1}-idx{2}-ubyte.gz",
    "{0}-{1}.idx{2}-ubyte",
    "{0}-{1}.idx{2}-ubyte.gz",
)


class IdxSource(ImageFilesSource):
    """Grey images and their labels in idx files.

    Such as Debian's ``/usr/share/datasets/fashion-mnist`` (package dataset-fashion-mnist). The images are
    prepared as image files are: three equal channels, unless ``color: gray``.

    Attributes:
        kind: ``idx``.
        path: A folder with files of MNIST's names, ``t10k-images-idx3-ubyte.gz`` and so on; or a file of
            images.
        split: ``train`` or ``test`` (t10k), for a folder.
        labels: The file of labels, where ``path`` is a file; none if omitted.
        class_names: The classes in the order of their numbers, or a text file with one a line.
        input: Name of the model's input.
    """

    kind: Literal["idx"]
    path: RelativePath
    split: Literal["train", "test"] = "test"
    labels: RelativePath | None = None
    class_names: ClassNames | None = None

    def open(self, opening: Opening) -> Dataset:
        """Reads the headers and the labels."""
        images, label_file = self._files(opening)
        shape = _header(images)
        if len(shape) != 3 or not all(shape):
            raise DatasetError(f"{images} has shape {shape}: expected images, (count, height, width).")
        labels = None if label_file is None else read_idx(label_file)
        if labels is not None and labels.shape != shape[:1]:
            raise DatasetError(
                f"{label_file} has shape {labels.shape}, but {images} holds {shape[0]} images."
            )
        names = None if self.class_names is None else read_class_names(self.class_names, opening)
        if labels is not None and names is not None and labels.max() >= len(names):
            raise DatasetError(
                f"{label_file} has the class {labels.max()}, but there are {len(names)} class_names."
            )
        where = images.relative_to(opening.root)
        identity, pixels = Kept(lambda: file_identity(images)), Kept(lambda: read_idx(images))
        return pixel_dataset(
            self,
            opening,
            [f"{where}#{index}" for index in range(shape[0])],
            lambda index: np.asarray(pixels()[index]),
            None if labels is None else labels.tolist(),
            content=lambda index: identity(),
            class_names=names,
        )

    def _files(self, opening: Opening) -> tuple[Path, Path | None]:
        place = opening.inside(self.path, "path")
        if place.is_file():
            return place, None if self.labels is None else opening.inside(self.labels, "labels")
        return _named(place, self.split, "images", 3), _named(place, self.split, "labels", 1)


def _named(folder: Path, split: str, what: str, axes: int) -> Path:
    names = [form.format(_PREFIX[split], what, axes) for form in _FORMS]
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise DatasetError(f"{folder} holds no {what} of split {split}: looked for {', '.join(names)}.")
    return found


def _opened(path: Path) -> IO[bytes]:
    packed = path.name.endswith(".gz")
    return cast(IO[bytes], gzip.open(path, "rb")) if packed else path.open("rb")


def _header(path: Path) -> tuple[int, ...]:
    try:
        with _opened(path) as stream:
            return _shape(stream, path)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"Cannot read {path}: {error}.") from error


def _shape(stream: IO[bytes], path: Path) -> tuple[int, ...]:
    magic = stream.read(4)
    if len(magic) != 4 or magic[:2] != b"\0\0" or magic[2] != _UNSIGNED_BYTES or not magic[3]:
        raise DatasetError(f"{path} is no idx file of bytes: it begins with {magic!r}.")
    sides = stream.read(4 * magic[3])
    if len(sides) != 4 * magic[3]:
        raise DatasetError(f"{path} is cut short in its header. Copy it anew.")
    shape = tuple(int(side) for side in np.frombuffer(sides, ">u4"))
    if math.prod(shape) > _MOST:
        raise DatasetError(f"{path} says it holds {math.prod(shape)} bytes, more than {_MOST}.")
    return shape


def read_idx(path: Path) -> Array:
    """Reads an idx file whole.

    Raises:
        DatasetError: It cannot be read, is no idx file of unsigned bytes, or is not whole.
    """
    try:
        with _opened(path) as stream:
            shape = _shape(stream, path)
            content = stream.read(math.prod(shape) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read, or is cut short: {error}. Copy it anew.") from error
    if len(content) != math.prod(shape):
        short = "cut short" if len(content) < math.prod(shape) else "longer than it says"
        raise DatasetError(f"{path} is {short}: shape {shape} needs {math.prod(shape)} bytes. Copy it anew.")
    values: Array = np.frombuffer(content, np.uint8).reshape(shape)
    return values
