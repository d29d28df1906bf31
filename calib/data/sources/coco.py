"""Object detection in COCO's form: one JSON file of annotations and a folder of images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from calib.data.dataset import Dataset
from calib.data.sources.base import Opening, RelativePath, printable
from calib.data.sources.box_files import box_dataset
from calib.data.sources.boxes import BoxList, faulty, reaches_beyond
from calib.data.sources.class_ids import ClassIds, read_id_map
from calib.data.sources.findings import Findings
from calib.data.sources.lists import inside_folder
from calib.data.sources.pictures import ImageFilesSource, same_size, usable_images
from calib.errors import DatasetError
from calib.files import read_bounded

__all__ = ["CocoSource"]

_MOST = 2 << 30


class CocoSource(ImageFilesSource):
    """Images with the boxes of a COCO file of instances, in the file's order of images.

    Labels are `Boxes`: ``[left, top, width, height]`` becomes left, top, right, bottom in pixels of the
    image. Crowds are kept and marked. Annotations without a box of positive size, or with one that lies
    outside of the image altogether, are left out and noted.

    Attributes:
        kind: ``coco``.
        annotations: The JSON file, such as ``annotations/instances_val2017.json``; at most 2 GiB.
        path: The folder of the images, such as ``val2017``.
        class_ids: What class numbers mean to the model. ``contiguous``: the categories in the order of
            their ids, numbered from 0 (80 for COCO). ``as_is``: the ids themselves (1 to 90, as
            torchvision's detectors have them). A map ``{1: 0, 3: 1, 4: null}``, or a YAML or JSON file
            of one: every category that occurs must be in it, null leaves it out.
        without_objects: Whether images without annotations are used (``keep``) or not (``skip``).
        input: Name of the model's input.
    """

    kind: Literal["coco"]
    annotations: RelativePath
    path: RelativePath
    class_ids: ClassIds = "contiguous"
    without_objects: Literal["keep", "skip"] = "keep"

    def open(self, opening: Opening) -> Dataset:
        """Reads the annotations and looks at each image."""
        file, folder = opening.inside(self.annotations, "annotations"), opening.inside(self.path, "path")
        content = _read(file)
        findings = Findings(opening, str(file))
        images, categories = _images(content, file), _categories(content, file)
        numbers = self._numbers(categories, opening)
        beyond: list[str] = []
        objects = _objects(content, file, images, numbers, findings, beyond)
        chosen = {
            str(PurePosixPath(self.path) / name): image_id
            for image_id, (name, _) in images.items()
            if objects[image_id].classes or self.without_objects == "keep"
        }
        places = {sample: folder / images[image_id][0] for sample, image_id in chosen.items()}
        boxes = {}
        for sample in usable_images(places, findings):
            size = images[chosen[sample]][1]
            if same_size(sample, places[sample], size, findings):
                boxes[sample] = objects[chosen[sample]].boxes(size, areas=True)
        return box_dataset(
            self,
            opening,
            places,
            boxes,
            where=file,
            findings=findings,
            class_names=_class_names(categories, numbers),
            skipped=len(images) - len(chosen),
            beyond=beyond,
            facts={"class_numbers": {f"{k} {categories[k]}": v for k, v in numbers.items()}},
        )

    def _numbers(self, categories: Mapping[int, str], opening: Opening) -> dict[int, int | None]:
        if self.class_ids == "contiguous":
            return {category: number for number, category in enumerate(sorted(categories))}
        if self.class_ids == "as_is":
            return {category: category for category in sorted(categories)}
        given = read_id_map(self.class_ids, opening, "class_ids")
        unknown = sorted(set(given) - set(categories))
        if unknown:
            raise DatasetError(
                f"{opening.where('class_ids')}: {self.annotations} has no category {unknown[0]}. "
                f"It has {len(categories)}, from {min(categories)} to {max(categories)}."
            )
        return given


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content: Any = json.loads(read_bounded(file, "file of annotations", DatasetError, limit=_MOST))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{file} is not JSON, or cut short: {error}. Copy it anew.") from error
    wanted = ("images", "annotations", "categories")
    lacking = [
        key for key in wanted if not isinstance(content, dict) or not isinstance(content.get(key), list)
    ]
    if lacking:
        raise DatasetError(
            f"{file} has no list {', '.join(map(repr, lacking))}: expected COCO's instances, with "
            "'images', 'annotations' and 'categories'."
        )
    entries: Mapping[str, Any] = content
    return entries


def _entries(content: Mapping[str, Any], key: str, needed: Mapping[str, type], file: Path) -> Iterator[Any]:
    for number, entry in enumerate(content[key]):
        for name, kind in needed.items():
            value = entry.get(name) if isinstance(entry, dict) else None
            if not isinstance(value, kind) or isinstance(value, bool):
                raise DatasetError(
                    f"{file}, {key}[{number}]: {name!r} must be {'text' if kind is str else kind.__name__}, "
                    f"got {value!r:.80}."
                )
        yield entry


def _images(content: Mapping[str, Any], file: Path) -> dict[int, tuple[str, tuple[int, int] | None]]:
    """Id of each image → its file's name and its size."""
    found: dict[int, tuple[str, tuple[int, int] | None]] = {}
    for entry in _entries(content, "images", {"id": int, "file_name": str}, file):
        if inside_folder(entry["file_name"]) is None:
            raise DatasetError(f"{file}: image {printable(entry['file_name'])} lies outside of the folder.")
        if entry["id"] in found:
            raise DatasetError(f"{file}: two images have the id {entry['id']}.")
        size = (entry.get("height"), entry.get("width"))
        found[entry["id"]] = (entry["file_name"], size if all(type(side) is int for side in size) else None)
    if not found:
        raise DatasetError(f"No samples: {file} lists no images.")
    names = [name for name, _ in found.values()]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise DatasetError(f"{file}: two images have the file name {printable(repeated)}.")
    return found


def _categories(content: Mapping[str, Any], file: Path) -> dict[int, str]:
    return {
        entry["id"]: entry["name"]
        for entry in _entries(content, "categories", {"id": int, "name": str}, file)
    }


def _objects(
    content: Mapping[str, Any],
    file: Path,
    images: Mapping[int, Any],
    numbers: Mapping[int, int | None],
    findings: Findings,
    beyond: list[str],
) -> dict[int, BoxList]:
    found = {image_id: BoxList() for image_id in images}
    needed = {"image_id": int, "category_id": int, "bbox": list}
    for entry in _entries(content, "annotations", needed, file):
        name = f"annotation {entry.get('id')}"
        category = entry["category_id"]
        if category not in numbers:
            raise DatasetError(
                f"{file}, {name}: category {category} is not in class_ids, nor is it said to be left out. "
                f"Add it: {category}: NUMBER, or {category}: null."
            )
        if entry["image_id"] not in found:
            findings.leave_out("annotation[ of an image|s of images] that [is|are] not listed", name)
            continue
        size = images[entry["image_id"]][1]
        corners, reason = _corners(entry["bbox"], size)
        if reason is not None:
            findings.leave_out("annotation[s] without a box", f"{name} ({reason})")
            continue
        number = numbers[category]
        if reaches_beyond(corners, size):
            beyond.append(name)
        if number is not None:
            area = entry.get("area")
            found[entry["image_id"]].add(
                corners,
                number,
                crowd=bool(entry.get("iscrowd", 0)),
                area=float(area) if isinstance(area, (int, float)) else None,
            )
    return found


def _corners(
    bbox: list[Any], size: tuple[int, int] | None
) -> tuple[tuple[float, float, float, float], str | None]:
    if len(bbox) != 4 or not all(isinstance(value, (int, float)) for value in bbox):
        return (0, 0, 0, 0), f"bbox {bbox!r:.60}"
    left, top, width, height = map(float, bbox)
    corners = (left, top, left + width, top + height)
    return corners, faulty(corners, size)


def _class_names(categories: Mapping[int, str], numbers: Mapping[int, int | None]) -> list[str] | None:
    """Name of each class number; None where numbers leave gaps or several categories are one class."""
    names: dict[int, str] = {}
    for category, number in numbers.items():
        if number is not None and names.setdefault(number, categories[category]) != categories[category]:
            return None
    return [names[number] for number in sorted(names)] if sorted(names) == list(range(len(names))) else None
