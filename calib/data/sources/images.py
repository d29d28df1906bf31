"""Images in class folders, in a folder without labels, or named in a list."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt

from calib.data.dataset import Dataset
from calib.data.sources.base import Opening, RelativePath, listed, natural, printable
from calib.data.sources.findings import Findings
from calib.data.sources.folders import below, hidden
from calib.data.sources.image_lists import open_list
from calib.data.sources.labels import ClassNames, number_classes, read_class_names
from calib.data.sources.lists import Columns
from calib.data.sources.pictures import ENDINGS, ImageFilesSource, image_dataset, is_text, usable_images
from calib.errors import DatasetError
from calib.wording import counted

__all__ = ["ENDINGS", "ImagesSource"]


class ImagesSource(ImageFilesSource):
    """Image files, labelled by the folder they lie in or by a list.

    Without a list files are found by ending, in small or capital letters, in sub-folders too. Hidden
    entries (a name that begins with a dot, or ``__MACOSX``) are passed over. Before anything is computed
    all files are looked at; a damaged one is left out and noted, or is an error if the recipe is strict.

    Attributes:
        kind: ``images``.
        path: The folder.
        classes: ``folders``: each sub-folder is a class. Folders named with whole numbers are those
            class numbers, others are sorted as text and numbered from 0. ``none``: no labels.
            ``auto``: folders if images lie in sub-folders only, none if they lie directly in the folder
            only.
        class_names: The classes in the order of their numbers, where the rule above is not the model's;
            or a text file with one a line, by its path from the data root.
        list: A list of the files to use, by its path from the data root, with or without labels:
            ImageNet's ``val.txt``, a calibration list of MLPerf, or a CSV or TSV file, see ``columns``.
            Names are relative to ``path``. Labels that are whole numbers are class numbers, others are
            names of classes; for the tasks regression and text they are values and text.
        columns: Columns of a CSV or TSV list: ``{path: file, label: class}``, by heading or number.
        label_offset: Added to the numbers of a list: -1 where it counts classes from 1.
        input: Name of the model's input.
    """

    kind: Literal["images"]
    path: RelativePath
    classes: Literal["auto", "folders", "none"] = "auto"
    class_names: ClassNames | None = None
    list: RelativePath | None = None
    columns: Annotated[Columns, Field(default_factory=Columns)]
    label_offset: StrictInt = 0

    def open(self, opening: Opening) -> Dataset:
        """Lists the images and looks at each."""
        folder = opening.inside(self.path, "path")
        if not folder.is_dir():
            raise DatasetError(f"{opening.where('path')}: {folder} is a file, expected a folder.")
        if self.list is not None:
            return open_list(self, opening)
        for key in ("columns", "label_offset"):
            if key in self.model_fields_set:
                raise DatasetError(f"{opening.where(key)}: only with a list. Give list, or leave it out.")
        listing = _list(folder)
        classes = self._classes(listing, folder, opening)
        files = [f for f in listing.images if classes is None or len(PurePosixPath(f).parts) > 1]
        places = {str(PurePosixPath(self.path) / file): folder / file for file in files}
        findings = Findings(opening, str(folder))
        kept = {image_id: places[image_id] for image_id in usable_images(places, findings)}
        if not kept:
            findings.settle()
            raise findings.no_samples(f"{folder} holds no readable images ({listing.others_found()})")
        whole = [file for file, image_id in zip(files, places, strict=True) if image_id in kept]
        notes = [*_class_notes(classes, self, whole), *listing.notes()]
        if stray := len(listing.images) - len(files):
            lie = counted(stray, "image[ that lies|s that lie]")
            notes.append(f"Passed over {lie} in no class folder.")
        return image_dataset(
            self,
            opening,
            kept,
            None if classes is None else [classes[file.split("/")[0]] for file in whole],
            findings=findings,
            class_names=_names(classes),
            notes=notes,
            facts={"class_numbers": classes},
        )

    def description(
        self, opening: Opening, *, images: bool = False, facts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Without the defaults of a list's options where there is no list: they are no part of a folder."""
        found = super().description(opening, images=images, facts=facts)
        unused = () if self.list is not None else ("columns", "label_offset")
        return {**found, "source": {k: v for k, v in found["source"].items() if k not in unused}}

    def _classes(self, listing: _Listing, folder: Path, opening: Opening) -> dict[str, int] | None:
        nested = [file for file in listing.images if "/" in file]
        if self.classes == "auto" and nested and len(nested) < len(listing.images):
            raise DatasetError(
                f"{opening.where('path')}: {folder} holds {len(listing.images) - len(nested)} images "
                f"directly and {len(nested)} in sub-folders. Set classes: folders or classes: none."
            )
        if self.classes == "none" or (self.classes == "auto" and not nested):
            return None
        found = sorted({*listing.folders, *(file.split("/")[0] for file in nested)})
        for name in itertools.filterfalse(is_text, found):
            raise DatasetError(f"Class folder {printable(name)} of {folder}: name is not UTF-8.")
        if self.class_names is None:
            return number_classes(found, str(folder))
        names = read_class_names(self.class_names, opening)
        numbers = {name: number for number, name in enumerate(names)}
        unknown = [name for name in found if name not in numbers]
        if unknown or len(numbers) < len(names):
            raise DatasetError(
                f"{opening.where('class_names')}: must name each class folder of {folder} once. "
                f"Not named: {listed(unknown) or 'none'}."
            )
        return numbers


@dataclass
class _Listing:
    """Entries of a folder, as paths from it with ``/``."""

    images: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def add(self, above: PurePosixPath, folders: Sequence[str], files: Sequence[str]) -> None:
        self.hidden += [str(above / name) for name in (*folders, *files) if hidden(name)]
        if above == PurePosixPath():
            self.folders = sorted(name for name in folders if not hidden(name))
        for name in files:
            if not hidden(name):
                is_image = PurePosixPath(name).suffix.lower() in ENDINGS
                (self.images if is_image else self.others).append(str(above / name))

    def others_found(self) -> str:
        """What the folder holds beside images, and what was looked for."""
        others = counted(len(self.others), "other file[s]")
        hidden = counted(len(self.hidden), "hidden entr[y|ies]")
        return f"{others}, {hidden}; endings looked for: {' '.join(ENDINGS)}"

    def notes(self) -> list[str]:
        notes = [f"Images by ending: {_by_ending(self.images)}."]
        if self.hidden:
            entries = counted(len(self.hidden), "hidden entr[y|ies]")
            notes.append(f"Passed over {entries}: {listed(self.hidden)}.")
        if self.others:
            files = counted(
                len(self.others), "file[ that is no image by its|s that are no images by their] ending"
            )
            notes.append(f"Passed over {files} ({_by_ending(self.others)}): {listed(self.others)}.")
        return notes


def _by_ending(files: Iterable[str]) -> str:
    counts = Counter(PurePosixPath(file).suffix or "no ending" for file in files)
    return ", ".join(f"{ending} {count}" for ending, count in sorted(counts.items()))


def _list(folder: Path) -> _Listing:
    """Walks a folder, following links but never in a circle."""
    listing = _Listing()
    chains: dict[Path, tuple[Path, ...]] = {folder: (folder.resolve(),)}

    def fail(error: OSError) -> None:
        raise DatasetError(f"Cannot read {error.filename}: {error.strerror}.") from error

    for place, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        listing.add(PurePosixPath(Path(place).relative_to(folder)), folders, files)
        folders[:] = below(Path(place), folders, chains)
    for entries in (listing.images, listing.hidden, listing.others):
        entries.sort(key=lambda entry: [natural(part) for part in entry.split("/")])
    return listing


def _names(classes: dict[str, int] | None) -> tuple[str, ...] | None:
    """Class names by number; numbered folders have no other name than their number."""
    if classes is None or list(classes.values()) != list(range(len(classes))):
        return None
    return tuple(classes)


def _class_notes(classes: dict[str, int] | None, source: ImagesSource, files: Sequence[str]) -> list[str]:
    if classes is None:
        return []
    rule = "sorted as text and numbered from 0"
    if source.class_names is not None:
        rule = "numbered by the recipe's class_names"
    elif all(name.isascii() and name.isdigit() for name in classes):
        rule = "whole numbers, taken as class numbers"
    shown = listed([f"{name} = {number}" for name, number in classes.items()])
    notes = [f"Class folders are {rule}: {shown}."]
    empty = sorted(set(classes) - {file.split("/")[0] for file in files}, key=natural)
    if empty:
        notes.append(f"{counted(len(empty), 'class[ has|es have] no images')}: {listed(empty)}.")
    return notes
