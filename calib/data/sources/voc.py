"""Pascal VOC as it is unpacked: detection with its XML files, or segmentation with its palette masks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal
from xml.etree.ElementTree import Element

from pydantic import Field

from calib.data.dataset import Dataset
from calib.data.fingerprint import file_identity
from calib.data.sources.base import Opening, RelativePath, listed
from calib.data.sources.box_files import box_dataset
from calib.data.sources.boxes import BoxList, faulty, reaches_beyond
from calib.data.sources.findings import Findings
from calib.data.sources.labels import ClassNames, read_class_names
from calib.data.sources.lists import Columns, inside_folder, read_list
from calib.data.sources.mask_files import mask_dataset
from calib.data.sources.pictures import ImageFilesSource, same_size, usable_images
from calib.data.sources.xml_safe import read_xml
from calib.data.truth import Boxes
from calib.errors import DatasetError

__all__ = ["VOC_CLASSES", "VocSource"]

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
)


class VocSource(ImageFilesSource):
    """One year of Pascal VOC: the folder that holds JPEGImages, Annotations and ImageSets.

    Attributes:
        kind: ``voc``.
        path: The year's folder, such as ``VOCdevkit/VOC2012``.
        truth: ``boxes``: labels are `Boxes` of the objects in Annotations, classes from 0, difficult ones
            marked. ``masks``: labels are the masks of SegmentationClass, in pixels of the model's input;
            0 is the background, 1 to 20 the classes, 255 is not judged.
        split: Name of the list in ImageSets/Main, or ImageSets/Segmentation for masks.
        class_names: The classes in the order of their numbers, without the background; the 20 of Pascal
            VOC by default. Or a text file with one a line.
        first_pixel: 1 if pixels are counted from 1 and boxes end with their last pixel, as Pascal VOC
            does: 1 is taken off left and top. 0 for tools that write corners counted from 0.
        input: Name of the model's input.
    """

    kind: Literal["voc"]
    path: RelativePath
    truth: Literal["boxes", "masks"] = "boxes"
    split: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = "val"
    class_names: ClassNames = VOC_CLASSES
    first_pixel: Literal[0, 1] = 1

    def open(self, opening: Opening) -> Dataset:
        """Reads the list of the split and every annotation, and looks at each image."""
        folder = opening.inside(self.path, "path")
        names = read_class_names(self.class_names, opening)
        group = "Main" if self.truth == "boxes" else "Segmentation"
        file = opening.inside(f"{self.path}/ImageSets/{group}/{self.split}.txt", "split")
        findings = Findings(opening, str(file))
        stems = {f"{self.path}/JPEGImages/{stem}.jpg": stem for stem in _stems(file, findings)}
        places = {image_id: folder / "JPEGImages" / f"{stem}.jpg" for image_id, stem in stems.items()}
        kept = usable_images(places, findings)
        if self.truth == "masks":
            masks = {i: folder / "SegmentationClass" / f"{stems[i]}.png" for i in kept}
            class_names = ("background", *names)
            return mask_dataset(self, opening, places, masks, findings=findings, class_names=class_names)
        annotations = {i: folder / "Annotations" / f"{stems[i]}.xml" for i in kept}
        beyond: list[str] = []
        boxes = {}
        for image_id, annotation in annotations.items():
            if not annotation.is_file():
                findings.leave_out("image[s] without an annotation file", image_id)
                continue
            found = self._boxes(annotation, names, findings, beyond)
            if same_size(image_id, places[image_id], found.size, findings):
                boxes[image_id] = found
        return box_dataset(
            self,
            opening,
            places,
            boxes,
            where=file,
            findings=findings,
            class_names=names,
            beyond=beyond,
            stored=lambda image_id: file_identity(annotations[image_id]),
        )

    def _boxes(self, path: Path, names: tuple[str, ...], findings: Findings, beyond: list[str]) -> Boxes:
        root, objects = read_xml(path), BoxList()
        size = _size(root)
        for number, element in enumerate(root.findall("object"), start=1):
            name = (element.findtext("name") or "").strip()
            if name not in names:
                raise DatasetError(
                    f"{path}, object {number}: {name!r} is none of the {len(names)} class_names "
                    f"({listed(list(names), 5)}). Give the data's own class_names."
                )
            corners = _corners(element.find("bndbox"), self.first_pixel)
            reason = "no box" if corners is None else faulty(corners, size)
            if corners is None or reason:
                findings.leave_out("object[s] without a box", f"{path.name}, object {number} ({reason})")
                continue
            if reaches_beyond(corners, size):
                beyond.append(f"{path.name}, object {number}")
            difficult = (element.findtext("difficult") or "0").strip() == "1"
            objects.add(corners, names.index(name), difficult=difficult)
        return objects.boxes(size)


def _stems(file: Path, findings: Findings) -> list[str]:
    """The images of a split; the third column of the lists of one class does not count."""
    seen: dict[str, int] = {}
    for row in read_list(file, Columns(), (), "list of images"):
        if inside_folder(row.name) is None:
            raise DatasetError(f"{file}, line {row.line}: {row.name!r} lies outside of JPEGImages.")
        if seen.setdefault(row.name, row.line) != row.line:
            findings.leave_out("repeat[s] in the list", f"{row.name} (list line {row.line})")
    return list(seen)


def _corners(box: Element | None, first: int) -> tuple[float, float, float, float] | None:
    if box is None:
        return None
    texts = [box.findtext(name) or "" for name in ("xmin", "ymin", "xmax", "ymax")]
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        return None
    return left - first, top - first, right, bottom


def _size(root: Element) -> tuple[int, int] | None:
    """Height and width, where the annotation says them."""
    try:
        sides = [float(root.findtext(f"size/{name}") or 0) for name in ("height", "width")]
    except ValueError:
        return None
    good = all(math.isfinite(side) and side >= 1 for side in sides)
    return (int(sides[0]), int(sides[1])) if good else None
