"""Object detection in the form of YOLO: a text file of normalised boxes beside each image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from calib.data.dataset import Dataset
from calib.data.fingerprint import file_identity
from calib.data.pixels import read_size
from calib.data.sources.base import Opening, RelativePath, listed
from calib.data.sources.box_files import box_dataset
from calib.data.sources.boxes import BoxList, Corners, reaches_beyond
from calib.data.sources.findings import Findings
from calib.data.sources.folders import walk
from calib.data.sources.labels import ClassNames, read_class_names
from calib.data.sources.pictures import ENDINGS, ImageFilesSource, usable_images
from calib.data.sources.yolo_yaml import YoloSplit, read_split
from calib.data.truth import Boxes
from calib.errors import DatasetError
from calib.files import read_bounded_text
from calib.wording import counted, inflected

__all__ = ["YoloSource"]

_MOST = 16 << 20
_SLACK = 1e-3
"""How far outside the image a normalised coordinate may lie by rounding."""


class YoloSource(ImageFilesSource):
    """Images with a text file each: ``class centre_x centre_y width height``, from 0 to 1.

    Labels are `Boxes` in pixels of the image. Lines of a polygon (``class x y x y x y …``) become the
    box around it. An image without a text file has no objects. A line that is no box is left out, and
    noted with file and line. A box whose edges reach beyond the image is used as it is, as in YOLO's own
    validation.

    Attributes:
        kind: ``yolo``.
        data: The ``data.yaml`` of the set: its names, path and the images of ``split``; by its path from
            the data root. In its place ``path``, ``labels`` and ``class_names`` may be given.
        split: Key of ``data`` that names the images.
        path: The folder of the images.
        labels: The folder of the text files; by default that of the images with its last part
            ``images`` replaced by ``labels``, as YOLO's own tools have it.
        class_names: The classes in the order of their numbers, or a text file with one a line.
        without_objects: Whether images without objects are used (``keep``) or not (``skip``).
        input: Name of the model's input.
    """

    kind: Literal["yolo"]
    data: RelativePath | None = None
    split: Annotated[str, Field(min_length=1)] = "val"
    path: RelativePath | None = None
    labels: RelativePath | None = None
    class_names: ClassNames | None = None
    without_objects: Literal["keep", "skip"] = "keep"

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.data is None) == (self.path is None):
            raise ValueError("expected either data (a data.yaml) or path (the folder of the images)")
        return self

    def open(self, opening: Opening) -> Dataset:
        """Lists the images, looks at each and reads its text file."""
        split = self._split(opening)
        names = split.names
        if self.class_names is not None:
            names = read_class_names(self.class_names, opening)
        if self.labels is not None:
            opening.inside(self.labels, "labels")
        findings = Findings(opening, ", ".join(map(str, split.images)) or str(split.where))
        places = self._places(split, opening)
        files = {i: _label_file(i, self.labels, opening, self.path) for i in usable_images(places, findings)}
        reader = _LabelReader(names, findings)
        boxes = {i: reader.read(file, read_size(places[i])) for i, file in files.items()}
        used = {i: one for i, one in boxes.items() if len(one.classes) or self.without_objects == "keep"}
        return box_dataset(
            self,
            opening,
            places,
            used,
            where=split.where,
            findings=findings,
            class_names=names,
            skipped=len(boxes) - len(used),
            notes=_notes(files, reader.polygons),
            beyond=reader.beyond,
            facts={"class_numbers": None if names is None else {n: i for i, n in enumerate(names)}},
            stored=lambda image_id: _stored(files[image_id]),
        )

    def _split(self, opening: Opening) -> YoloSplit:
        if self.data is not None:
            return read_split(opening.inside(self.data, "data"), self.split, opening)
        assert self.path is not None
        folder = opening.inside(self.path, "path")
        return YoloSplit(folder, (folder,), (), None)

    def _places(self, split: YoloSplit, opening: Opening) -> dict[str, Path]:
        """Id of each image → its file."""
        found = [*split.files]
        for folder in split.images:
            found += [folder / name for name in walk(folder) if name.lower().endswith(ENDINGS)]
        if not found:
            raise DatasetError(
                f"No samples: {listed([str(folder) for folder in split.images])} holds no images. "
                f"Endings looked for: {' '.join(ENDINGS)}."
            )
        root = opening.root
        return {str(PurePosixPath(path.relative_to(root))): path for path in dict.fromkeys(found)}


def _label_file(image_id: str, labels: str | None, opening: Opening, images: str | None) -> Path:
    """The text file of an image."""
    name = PurePosixPath(image_id).with_suffix(".txt")
    if labels is not None:
        below = name.relative_to(images) if images is not None else PurePosixPath(name.name)
        return opening.root / labels / below
    parts = list(name.parts)
    for place in reversed(range(len(parts) - 1)):
        if parts[place] == "images":
            parts[place] = "labels"
            break
    return opening.root.joinpath(*parts)


def _stored(path: Path) -> str:
    return file_identity(path) if path.is_file() else "no label file"


def _notes(files: Mapping[str, Path], polygons: int) -> list[str]:
    without = [image_id for image_id, file in files.items() if not file.is_file()]
    notes = []
    if without and len(without) == len(files):
        raise DatasetError(
            f"None of {counted(len(files), 'image[s]')} has a label file: {files[without[0]]} was looked "
            "for, for example. Give the folder of the text files as labels."
        )
    if without:
        has_none = counted(len(without), "image[s] [has|have] no label file and so no objects")
        notes.append(f"{has_none}: {listed(without)}.")
    if polygons:
        are = counted(polygons, "object[ is a polygon|s are polygons]")
        notes.append(f"{are}: the box around {inflected(polygons, '[it|each]')} is used.")
    return notes


class _LabelReader:
    """Reads the text files of images.

    Attributes:
        polygons: Objects so far that are polygons.
        beyond: Boxes so far that reach beyond their images, as messages name them.
    """

    def __init__(self, names: tuple[str, ...] | None, findings: Findings) -> None:
        self.polygons = 0
        self.beyond: list[str] = []
        self._names = names
        self._findings = findings

    def read(self, path: Path, size: tuple[int, int]) -> Boxes:
        """The objects, in pixels of an image of a height and width; none where there is no file."""
        objects = BoxList()
        if path.is_file():
            text = read_bounded_text(path, "label file", DatasetError, limit=_MOST)
            for number, line in enumerate(text.split("\n"), start=1):
                if line.strip():
                    self._add(objects, line.split(), path, number, size)
        return objects.boxes(size)

    def _add(
        self, objects: BoxList, cells: list[str], path: Path, number: int, size: tuple[int, int]
    ) -> None:
        try:
            values = [float(cell) for cell in cells]
            box = _box(values[1:])
            kind = values[0]
            if not kind.is_integer() or kind < 0:
                raise ValueError(f"class {cells[0]!r}")
        except (ValueError, OverflowError) as error:
            self._findings.leave_out("line[s] that [is|are] no box", f"{path.name}, line {number} ({error})")
            return
        if self._names is not None and kind >= len(self._names):
            raise DatasetError(
                f"{path}, line {number}: class {int(kind)}, but there are {len(self._names)} class "
                "names, numbered from 0. Correct the names, or the labels."
            )
        self.polygons += len(values) != 5
        height, width = size
        left, top, right, bottom = box
        corners = (left * width, top * height, right * width, bottom * height)
        if reaches_beyond(corners, size):
            self.beyond.append(f"{path.name}, line {number}")
        objects.add(corners, int(kind))


def _box(values: list[float]) -> Corners:
    """Left, top, right, bottom of a normalised box or polygon.

    >>> _box([0.5, 0.5, 0.5, 1.0]), _box([0.25, 0, 1, 0.5, 0.5, 1])
    ((0.25, 0.0, 0.75, 1.0), (0.25, 0, 1, 1))
    """
    if len(values) == 4:
        x, y, width, height = values
        corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    elif len(values) >= 6 and len(values) % 2 == 0:
        corners = (min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2]))
    else:
        raise ValueError(f"{len(values) + 1} values, expected 5")
    if not all(map(math.isfinite, corners)):
        raise ValueError("not finite")
    if corners[2] <= corners[0] or corners[3] <= corners[1]:
        raise ValueError("no area")
    # Of a box its centre and size, as YOLO's own tools check: at a border its corners may lie outside.
    if min(values) < -_SLACK or max(values) > 1 + _SLACK:
        raise ValueError("outside of the image: coordinates are shares of its width and height")
    return corners
