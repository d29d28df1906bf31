"""Arrays in files: an npz or npy file, or a folder of npy files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field

from calib.data.dataset import Array, Dataset, Sample
from calib.data.fingerprint import file_identity
from calib.data.memory import check_lengths
from calib.data.preprocess import Layout, Preprocess
from calib.data.sources.base import Opening, RelativePath, SourceModel, listed, natural
from calib.data.sources.kept import Kept
from calib.data.sources.labels import check_labels, label_values, read_label_file
from calib.data.sources.stored import StoredArray, open_npy, open_stored
from calib.errors import DatasetError
from calib.wording import counted, suggestion

__all__ = ["ArraysSource"]

_LABELS = "labels"
Name = Annotated[str, Field(min_length=1)]


class ArraysSource(SourceModel):
    """Samples along the first axis of the arrays in a file, or one sample a file in a folder.

    Arrays are read row by row; compressed ones are read whole, once, when first needed.

    Attributes:
        kind: ``arrays``.
        path: An npz or npy file, or a folder whose npy files each hold one sample without a batch
            axis. Files are sorted naturally: 2.npy before 10.npy.
        inputs: For an npz file: array key → name of the model's input. If omitted, every array but
            the labels is an input of its own name.
        input: For npy files: name of the model's input.
        labels: For an npz file: key of the labels. For npy files: an npy or CSV file of labels, by its
            path from the data root. If omitted: the key ``labels``, or labels.npy or labels.csv in the
            folder, where there is one.
        layout: Order of the stored axes of images; if omitted, that of preprocess.layout.
    """

    kind: Literal["arrays"]
    path: RelativePath
    inputs: Annotated[dict[Name, Name], Field(min_length=1)] | None = None
    input: Name | None = None
    labels: RelativePath | None = None
    layout: Layout | None = None

    def open(self, opening: Opening) -> Dataset:
        """Reads headers and labels, and checks that lengths agree."""
        place = opening.inside(self.path, "path")
        if place.is_dir():
            return self._dataset(self._folder(place, opening), opening)
        stored = open_stored(place)
        if "" in stored:
            return self._dataset(self._npy(place, stored[""], opening), opening)
        return self._dataset(self._npz(place, stored, opening), opening)

    def _npz(self, path: Path, stored: Mapping[str, StoredArray], opening: Opening) -> _Found:
        self._refuse("input", "inputs: {array key: model input}", opening)
        label_key = self.labels or (_LABELS if _LABELS in stored else None)
        if label_key is not None:
            _check_key(label_key, stored, path, opening.where("labels"))
        chosen = self.inputs or {key: key for key in stored if key != label_key}
        if not chosen:
            raise DatasetError(f"{path} has no arrays but the labels {label_key!r}: no input to run.")
        for key in chosen:
            _check_key(key, stored, path, opening.where("inputs", key))
        if len(set(chosen.values())) < len(chosen):
            raise DatasetError(f"{opening.where('inputs')}: two arrays for one input: {chosen}.")
        used = [*chosen, *([] if label_key is None else [label_key])]
        count = check_lengths(str(path), {key: stored[key].shape for key in used})
        labels = None if label_key is None else label_values(stored[label_key].whole())
        origin = f"{path}: {label_key}"
        arrays = {name: stored[key] for key, name in chosen.items()}
        found = _rows(self.path, arrays, count, labels, origin)
        spare = [key for key in stored if key not in used]
        return replace(found, notes=(f"Arrays not used: {listed(spare)}.",)) if spare else found

    def _npy(self, path: Path, stored: StoredArray, opening: Opening) -> _Found:
        self._refuse("inputs", "input: NAME", opening)
        count = check_lengths(str(path), {path.name: stored.shape})
        labels, label_file = None, path
        if self.labels is not None:
            label_file = opening.inside(self.labels, "labels")
            labels = read_label_file(label_file, [f"{path.name}#{i}" for i in range(count)], opening.task)
        arrays = {self.input or "input": stored}
        return _rows(self.path, arrays, count, labels, str(label_file))

    def _folder(self, folder: Path, opening: Opening) -> _Found:
        self._refuse("inputs", "input: NAME", opening)
        label_file = _label_file(folder) if self.labels is None else None
        if self.labels is not None:
            label_file = opening.inside(self.labels, "labels")
        files, notes = _npy_files(folder, label_file)
        arrays = [open_npy(file) for file in files]
        labels = None
        if label_file is not None:
            labels = read_label_file(label_file, [file.name for file in files], opening.task)
        name = self.input or "input"
        return _Found(
            ids=tuple(str(PurePosixPath(self.path) / file.name) for file in files),
            read=lambda index: ({name: arrays[index].whole()}, str(files[index])),
            arrays=tuple((name, array) for array in arrays),
            labels=labels,
            label_origin=str(label_file),
            content=lambda index: file_identity(files[index]),
            notes=notes,
        )

    def _refuse(self, key: str, instead: str, opening: Opening) -> None:
        if getattr(self, key) is not None:
            raise DatasetError(
                f"{opening.where(key)}: not for this kind of file, {self.path}. Give {instead}."
            )

    def _dataset(self, found: _Found, opening: Opening) -> Dataset:
        preprocess = opening.preprocess
        touched = opening.touched(dict(found.arrays))
        labels, class_names = None, None
        if found.labels is not None:
            labels, class_names = check_labels(found.labels, opening.task, found.label_origin)

        def load(index: int) -> Sample:
            rows, origin = found.read(index)
            for name in touched:
                rows[name] = preprocess.apply(rows[name], origin, self.layout)
            return Sample(found.ids[index], rows, None if labels is None else labels[index], origin)

        return Dataset(
            name=opening.name,
            ids=found.ids,
            load=load,
            labels=labels,
            class_names=class_names,
            notes=(*found.notes, *_casts(found.arrays, preprocess, touched)),
            description=self.description(opening),
            content=found.content,
        )


@dataclass(frozen=True)
class _Found:
    """Samples as they are stored, and how to read one: its arrays, and its origin."""

    ids: tuple[str, ...]
    read: Callable[[int], tuple[dict[str, Array], str]]
    arrays: tuple[tuple[str, StoredArray], ...]
    labels: Sequence[Any] | None
    label_origin: str
    content: Callable[[int], str]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for _, array in self.arrays:
            if array.dtype.kind not in "biuf":
                raise DatasetError(f"{array.name} holds {array.dtype}, expected numbers.")


def _rows(
    path: str,
    arrays: Mapping[str, StoredArray],
    count: int,
    labels: Sequence[Any] | None,
    label_origin: str,
) -> _Found:
    file = next(iter(arrays.values())).path
    identity = Kept(lambda: file_identity(file))

    def read(index: int) -> tuple[dict[str, Array], str]:
        places = ", ".join(f"{array.key}[{index}]" for array in arrays.values())
        rows = {name: array.row(index) for name, array in arrays.items()}
        return rows, f"{file}: {places}"

    return _Found(
        ids=tuple(f"{path}#{index}" for index in range(count)),
        read=read,
        arrays=tuple(arrays.items()),
        labels=labels,
        label_origin=label_origin,
        content=lambda index: identity(),
    )


def _npy_files(folder: Path, label_file: Path | None) -> tuple[list[Path], tuple[str, ...]]:
    try:
        entries = [entry for entry in folder.iterdir() if entry != label_file]
    except OSError as error:
        raise DatasetError(f"Cannot read {folder}: {error.strerror or error}.") from error
    files = [e for e in entries if e.suffix.lower() == ".npy" and not e.name.startswith(".")]
    files.sort(key=lambda file: natural(file.name))
    spare = sorted(entry.name for entry in set(entries).difference(files))
    if not files:
        raise DatasetError(
            f"No samples: {folder} holds no .npy files ({counted(len(spare), 'other entr[y|ies]')})."
        )
    notes = (
        (f"Passed over {counted(len(spare), 'entr[y|ies]')} of {folder.name}: {listed(spare)}.",)
        if spare
        else ()
    )
    return files, notes


def _label_file(folder: Path) -> Path | None:
    names = (f"{_LABELS}.npy", f"{_LABELS}.csv")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _check_key(key: str, stored: Mapping[str, StoredArray], path: Path, where: str) -> None:
    if key not in stored:
        close = suggestion(key, stored)
        raise DatasetError(f"{where}: {path} has no array {key!r}.{close} There are: {listed(list(stored))}.")


def _casts(
    arrays: Iterable[tuple[str, StoredArray]], preprocess: Preprocess, touched: Collection[str]
) -> list[str]:
    notes: dict[str, None] = {}
    for name, array in arrays:
        target = preprocess.target(array.dtype)
        same = array.dtype.newbyteorder("=") == target
        if name in touched and not same and not preprocess.changes_values():
            notes[f"Input {name!r} is stored as {array.dtype} and cast to {target}."] = None
    return list(notes)
