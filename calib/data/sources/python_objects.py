"""Samples from the user's own code: Hugging Face datasets, torch datasets, or any sequence of samples."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field, StrictBool

from calib.data.dataset import Array, Dataset, Sample
from calib.data.geometry import Geometry
from calib.data.objects import load_object
from calib.data.pixels import prepare_pixels
from calib.data.preprocess import Preprocess
from calib.data.reader_forms import as_array
from calib.data.reader_sources import called, failed
from calib.data.sources.base import Opening, SourceModel, listed
from calib.data.sources.labels import check_labels
from calib.errors import DatasetError
from calib.wording import counted, suggestion

__all__ = ["PythonSource"]


def _object_name(value: str) -> str:
    if value.count(":") != 1 or not all(value.split(":")):
        raise ValueError(f"expected module:object, got {value!r}")
    return value


class PythonSource(SourceModel):
    """What ``module:object`` gives: it runs the code of that module.

    The object, or what it returns when called, has ``len()`` and is indexed from 0, as Hugging Face's
    ``datasets.Dataset`` and torch's datasets are. Any other iterable is read into memory whole, up to
    ``most`` samples. A sample is a mapping of columns, an array, or (array, label). For the fingerprint
    all samples are read, unless the object has one of its own, as Hugging Face's have.

    Attributes:
        kind: ``python``.
        object: ``module:object``. Modules are looked for in the current folder first.
        image: Column of an image, of Pillow or uint8 (height, width, channels): it is preprocessed as
            image files are. For samples without names: whether their array is one, by any name.
        inputs: Columns that are inputs as they are → names of the model's inputs. If neither ``image`` nor
            ``inputs`` is given, all columns but the label are.
        label: Column of the label; ``label`` or ``labels`` by default, where there is one.
        input: Name of the model's input, for the image or for samples without names.
        most: Samples that an iterable without length may have.
        labels_first: Read the label of every sample when the dataset is opened, so that samples can be
            chosen by class; false where a sample is slow to load. Columns of Hugging Face datasets are
            read without their images.
    """

    images: ClassVar[bool] = True

    kind: Literal["python"]
    object: Annotated[str, AfterValidator(_object_name)]
    image: str | None = None
    inputs: Annotated[dict[str, str], Field(min_length=1)] | None = None
    label: str | None = None
    input: Annotated[str, Field(min_length=1)] = "input"
    most: Annotated[int, Field(ge=1)] = 100_000
    labels_first: StrictBool = True

    def open(self, opening: Opening) -> Dataset:
        """Imports the module and makes the object."""
        made = _made(self.object)
        items, notes = _items(made, self.object, self.most)
        if not len(items):
            raise DatasetError(f"No samples: {self.object} is empty.")
        label_key = self._label_key(_item(items, 0, self.object))
        labels, class_names = self._labels(made, items, label_key, opening)
        samples = _PythonSamples(self, items, label_key, labels, opening.preprocess)
        own = _own_fingerprint(made)
        return Dataset(
            name=opening.name,
            ids=samples.ids,
            load=samples.load,
            labels=labels,
            class_names=class_names,
            notes=tuple(notes),
            description={**self.description(opening, images=self.image is not None), "content": own},
            content=samples.content if own is None else None,
        )

    def _label_key(self, first: Mapping[str, Any]) -> str | None:
        if self.label is not None:
            self._check(self.label, first, 0)
            return self.label
        return next((key for key in ("label", "labels") if key in first), None)

    def _check(self, key: str, parts: Mapping[str, Any], index: int) -> None:
        if key not in parts:
            raise DatasetError(f"{self.object}, sample {index} {_lacks(key, parts)}")

    def _part(self, items: Any, index: int, key: str) -> Any:
        parts = _item(items, index, self.object)
        self._check(key, parts, index)
        return parts[key]

    def _labels(
        self, made: Any, items: Sequence[Any], key: str | None, opening: Opening
    ) -> tuple[tuple[Any, ...] | None, tuple[str, ...] | None]:
        if key is None or not self.labels_first:
            return None, None
        with failed(f"Reading the labels of {self.object}"):
            if hasattr(made, "column_names") and key in made.column_names:
                column = list(made[key])
            else:
                column = [self._part(items, index, key) for index in range(len(items))]
        labels, names = check_labels([_plain(value) for value in column], opening.task, self.object)
        feature = getattr(made, "features", {}) or {}
        own = getattr(feature.get(key), "names", None) if isinstance(feature, Mapping) else None
        return labels, tuple(own) if own else names


class _PythonSamples:
    """Reads a sample: the columns of an item that are inputs."""

    def __init__(
        self,
        source: PythonSource,
        items: Any,
        label_key: str | None,
        labels: Sequence[Any] | None,
        preprocess: Preprocess,
    ) -> None:
        self._source = source
        self._items = items
        self._label_key = label_key
        self._labels = labels
        self._preprocess = preprocess
        self.ids = tuple(f"{source.object}#{index}" for index in range(len(items)))

    def load(self, index: int) -> Sample:
        """The sample at an index."""
        name, preprocess = self._source.object, self._preprocess
        origin = f"{name}, sample {index}"
        parts = _item(self._items, index, name)
        arrays: dict[str, Array] = {}
        geometry: Geometry | None = None
        for column, given in self._chosen(parts).items():
            if column not in parts:
                raise DatasetError(f"{origin} {_lacks(column, parts)}")
            if column == self._source.image:
                prepared = prepare_pixels(_pixels(parts[column]), preprocess, origin)
                arrays[given], geometry = prepared.values, prepared.geometry
            else:
                values = as_array(parts[column], f"{origin}: {column!r}")
                touched = preprocess.inputs is None or given in preprocess.inputs
                arrays[given] = preprocess.apply(values, origin) if touched else values
        return Sample(self.ids[index], arrays, self._label(parts, index), origin, geometry)

    def _chosen(self, parts: Mapping[str, Any]) -> dict[str, str]:
        """Column → model input."""
        source = self._source
        if source.image is not None or source.inputs is not None:
            image = {} if source.image is None else {source.image: source.input}
            return {**image, **(source.inputs or {})}
        columns = [key for key in parts if key != self._label_key]
        return {columns[0]: source.input} if columns == [_UNNAMED] else {key: key for key in columns}

    def _label(self, parts: Mapping[str, Any], index: int) -> Any:
        return _plain(parts.get(self._label_key or "")) if self._labels is None else self._labels[index]

    def content(self, index: int) -> str:
        """Of an object that says nothing of its content, the content itself of the sample at an index."""
        return _digest(self.load(index))


_UNNAMED = "sample"


def _lacks(column: str, parts: Mapping[str, Any]) -> str:
    return f"has no {column!r}.{suggestion(column, parts)} It has {listed(list(parts))}."


def _made(text: str) -> Any:
    found = load_object(text)
    ready = hasattr(found, "__getitem__") or hasattr(found, "__iter__")
    if isinstance(found, type) or (callable(found) and not ready):
        return called(found, text)
    return found


def _items(made: Any, name: str, most: int) -> tuple[Any, list[str]]:
    """Something with a length and an index."""
    no_samples = isinstance(made, (str, bytes, Mapping)) or made is None
    if not no_samples and hasattr(made, "__getitem__") and hasattr(made, "__len__"):
        return made, []
    if no_samples or not hasattr(made, "__iter__"):
        raise DatasetError(
            f"{name} is a {type(made).__name__}: expected a sequence or an iterable of samples."
        )
    read: list[Any] = []
    with failed(f"Reading {name}"):
        for item in made:
            if len(read) == most:
                raise DatasetError(
                    f"{name} gives more than {most} samples, which are all kept in memory. Raise most, or "
                    "give an object with len() that reads one sample at a time."
                )
            read.append(item)
    return read, [f"{name} has no length: its {counted(len(read), 'sample[s] [is|are]')} kept in memory."]


def _item(items: Any, index: int, name: str) -> Mapping[str, Any]:
    """The columns of a sample."""
    with failed(f"Reading sample {index} of {name}"):
        item = items[index]
    if isinstance(item, Mapping):
        return item
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return {_UNNAMED: item[0], "label": item[1]}
    if isinstance(item, (tuple, list)) and len(item) != 1:
        raise DatasetError(
            f"Sample {index} of {name} is a {type(item).__name__} of {len(item)}: expected a mapping of "
            "columns, an array, or (array, label)."
        )
    return {_UNNAMED: item[0] if isinstance(item, (tuple, list)) else item}


def _pixels(value: Any) -> Any:
    return value if hasattr(value, "convert") else np.asarray(value)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return value.item() if value.ndim == 0 else value
    return value


def _digest(sample: Sample) -> str:
    digest = hashlib.sha256()
    for name in sorted(sample.inputs):
        array = np.ascontiguousarray(sample.inputs[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _own_fingerprint(made: Any) -> str | None:
    """What Hugging Face's datasets say of their content; None where an object says nothing."""
    own = getattr(made, "_fingerprint", None)
    return own if isinstance(own, str) else None
