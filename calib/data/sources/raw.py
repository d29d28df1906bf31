"""Tensors in files without a header: their type and shape are given in the recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator
from typing_extensions import Self

from calib.data.dataset import Array, Dataset, Sample
from calib.data.fingerprint import file_identity
from calib.data.preprocess import Layout, Preprocess
from calib.data.sources.base import Opening, RelativePath, SourceModel, natural
from calib.data.sources.labels import labels_beside
from calib.errors import DatasetError
from calib.wording import counted

__all__ = ["RawSource", "RawTensor"]

Dtype = Literal["float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "int64", "bool"]
Side = Annotated[StrictInt, Field(ge=1)]


class RawTensor(BaseModel):
    """How one input lies on the disk.

    Attributes:
        path: A file with one sample after another, or a folder of files with one sample each, sorted
            naturally: 2.bin before 10.bin.
        dtype: Type of the numbers.
        shape: Shape of one sample, without a batch axis; ``[]`` for a single number.
        byte_order: ``little`` or ``big``.
        header_bytes: Bytes at the start of each file that are passed over.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: RelativePath
    dtype: Dtype = "float32"
    shape: tuple[Side, ...]
    byte_order: Literal["little", "big"] = "little"
    header_bytes: Annotated[StrictInt, Field(ge=0, le=1 << 20)] = 0

    @property
    def stored(self) -> np.dtype[np.generic]:
        """The stored type."""
        kind: np.dtype[np.generic] = np.dtype(self.dtype)
        ordered: np.dtype[np.generic] = kind.newbyteorder("<" if self.byte_order == "little" else ">")
        return ordered

    @property
    def nbytes(self) -> int:
        """Bytes of one sample."""
        return math.prod(self.shape) * self.stored.itemsize


class RawSource(SourceModel):
    """Raw tensors, such as the .bin files that TensorRT's samples and other tools write.

    Attributes:
        kind: ``raw``.
        path: For one input: its file or folder, see `RawTensor`.
        dtype: For one input: type of the numbers.
        shape: For one input: shape of one sample, without a batch axis.
        byte_order: For one input: ``little`` or ``big``.
        header_bytes: For one input: bytes at the start of each file that are passed over.
        input: For one input: name of the model's input.
        inputs: For several inputs: name of the model's input → ``{path, dtype, shape, …}``. All must
            have the same number of samples.
        labels: An npy or CSV file of labels: one a line, or ``file,label``.
        layout: Order of the stored axes of images; if omitted, that of preprocess.layout.
    """

    kind: Literal["raw"]
    path: RelativePath | None = None
    dtype: Dtype = "float32"
    shape: tuple[Side, ...] | None = None
    byte_order: Literal["little", "big"] = "little"
    header_bytes: Annotated[StrictInt, Field(ge=0, le=1 << 20)] = 0
    input: Annotated[str, Field(min_length=1)] = "input"
    inputs: Annotated[dict[str, RawTensor], Field(min_length=1)] | None = None
    labels: RelativePath | None = None
    layout: Layout | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.inputs is None) == (self.path is None):
            raise ValueError("expected either path, dtype and shape, or inputs with these for each input")
        if self.path is not None and self.shape is None:
            raise ValueError("key 'shape' is missing: the shape of one sample, without a batch axis")
        return self

    def open(self, opening: Opening) -> Dataset:
        """Finds the files and checks their sizes."""
        tensors = self._tensors()
        places = {name: _places(tensor, opening, self._key(name)) for name, tensor in tensors.items()}
        counts = {name: len(found) for name, found in places.items()}
        if len(set(counts.values())) > 1:
            raise DatasetError(
                f"{opening.where('inputs')}: inputs differ in their number of samples: {counts}."
            )
        ids = tuple(place.id for place in next(iter(places.values())))
        labels, names = labels_beside(self.labels, [PurePosixPath(one).name for one in ids], opening)
        samples = _RawSamples(
            tensors, places, labels, opening.preprocess, opening.touched(tensors), self.layout
        )
        return Dataset(
            name=opening.name,
            ids=ids,
            load=samples.load,
            labels=labels,
            class_names=names,
            description=self.description(opening),
            content=samples.content,
        )

    def _tensors(self) -> dict[str, RawTensor]:
        if self.inputs is not None:
            return self.inputs
        assert self.path is not None
        assert self.shape is not None
        tensor = RawTensor(
            path=self.path,
            dtype=self.dtype,
            shape=self.shape,
            byte_order=self.byte_order,
            header_bytes=self.header_bytes,
        )
        return {self.input: tensor}

    def _key(self, name: str) -> tuple[str, ...]:
        return ("path",) if self.inputs is None else ("inputs", name, "path")


@dataclass(frozen=True)
class _Place:
    """Where one sample lies: a file, and the byte in it."""

    id: str
    file: Path
    offset: int


@dataclass(frozen=True)
class _RawSamples:
    """Reads a sample: the same place of every input."""

    tensors: Mapping[str, RawTensor]
    places: Mapping[str, list[_Place]]
    labels: Sequence[Any] | None
    preprocess: Preprocess
    touched: frozenset[str]
    layout: Layout | None
    identities: dict[Path, str] = field(default_factory=dict)

    def load(self, index: int) -> Sample:
        """The sample at an index."""
        first = next(iter(self.places.values()))[index]
        label = None if self.labels is None else self.labels[index]
        return Sample(
            first.id, {name: self._input(name, index) for name in self.tensors}, label, str(first.file)
        )

    def _input(self, name: str, index: int) -> Array:
        place = self.places[name][index]
        values = _read(self.tensors[name], place)
        if name in self.touched:
            return self.preprocess.apply(values, str(place.file), self.layout)
        return np.ascontiguousarray(values, values.dtype.newbyteorder("="))

    def content(self, index: int) -> str:
        """Identifies what is stored for the sample at an index."""
        files = [places[index].file for places in self.places.values()]
        for file in files:
            if file not in self.identities:
                self.identities[file] = file_identity(file)
        return " ".join(self.identities[file] for file in files)


def _places(tensor: RawTensor, opening: Opening, key: tuple[str, ...]) -> list[_Place]:
    place = opening.inside(tensor.path, *key)
    if not place.is_dir():
        count = _samples(tensor, place)
        start = tensor.header_bytes
        return [_Place(f"{tensor.path}#{i}", place, start + i * tensor.nbytes) for i in range(count)]
    files = [entry for entry in place.iterdir() if entry.is_file() and not entry.name.startswith(".")]
    files = [file for file in files if file.suffix.lower() not in (".csv", ".txt", ".json", ".md", ".npy")]
    files.sort(key=lambda file: natural(file.name))
    if not files:
        raise DatasetError(f"No samples: {place} holds no files of tensors.")
    for file in files:
        count = _samples(tensor, file)
        if count != 1:
            raise DatasetError(
                f"{file} holds {counted(count, 'sample[s]')} of {tensor.nbytes} bytes: in a folder "
                "each file is one "
                "sample. Correct shape or dtype, or give the file itself as path."
            )
    return [_Place(str(PurePosixPath(tensor.path) / file.name), file, tensor.header_bytes) for file in files]


def _samples(tensor: RawTensor, file: Path) -> int:
    try:
        size = file.stat().st_size - tensor.header_bytes
    except OSError as error:
        raise DatasetError(f"Cannot read {file}: {error.strerror or error}.") from error
    if size <= 0 or size % tensor.nbytes:
        raise DatasetError(
            f"{file} has {size + tensor.header_bytes} bytes, which is no whole number of samples: "
            f"{tensor.dtype} {list(tensor.shape)} takes {tensor.nbytes} bytes"
            f"{f' after {tensor.header_bytes}' if tensor.header_bytes else ''}. Correct dtype or shape."
        )
    return size // tensor.nbytes


def _read(tensor: RawTensor, place: _Place) -> Array:
    try:
        values = np.fromfile(place.file, tensor.stored, math.prod(tensor.shape), offset=place.offset)
    except OSError as error:
        raise DatasetError(f"{place.file} cannot be read: {error.strerror or error}.") from error
    if values.size != math.prod(tensor.shape):
        raise DatasetError(f"{place.file}: became shorter since it was opened.")
    return values.reshape(tensor.shape)
