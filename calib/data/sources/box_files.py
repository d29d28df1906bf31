"""Datasets of image files whose labels are boxes, whatever form the annotations have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from calib.data.dataset import Dataset
from calib.data.sources.base import Opening
from calib.data.sources.boxes import beyond_notes
from calib.data.sources.findings import Findings
from calib.data.sources.pictures import ImageFilesSource, image_dataset
from calib.data.truth import Boxes
from calib.wording import counted

__all__ = ["box_dataset"]


def box_dataset(
    source: ImageFilesSource,
    opening: Opening,
    places: Mapping[str, Path],
    boxes: Mapping[str, Boxes],
    *,
    where: Path,
    findings: Findings,
    class_names: Sequence[str] | None = None,
    skipped: int = 0,
    notes: Sequence[str] = (),
    beyond: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
    stored: Callable[[str], str] | None = None,
) -> Dataset:
    """A dataset of images with the objects in them.

    Args:
        source: Its options go into the description.
        opening: The recipe's options.
        places: Id of each image → its file.
        boxes: Id of each image that is used → its objects, in the order of the samples.
        where: The file or folder that the annotations are of, for the notes.
        findings: What was left out or repaired.
        class_names: Name of each class number.
        skipped: Images that are not used since they have no objects.
        notes: What else is worth knowing.
        beyond: Boxes that reach beyond their images, as messages name them.
        facts: What the description says beside the source's options.
        stored: Identifies the annotations of a sample, by its id, where they have a file of their own.

    Raises:
        DatasetError: No samples are left, or something was found and the recipe is strict.
    """
    objects = sum(len(one.classes) for one in boxes.values())
    used = f"{counted(len(boxes), 'image[s]')} and {counted(objects, 'object[s]')}"
    told = [f"{where.name}: {used} are used."]
    if skipped:
        told.append(f"Passed over {counted(skipped, 'image[s]')} without objects (without_objects: skip).")
    return image_dataset(
        source,
        opening,
        {image_id: places[image_id] for image_id in boxes},
        list(boxes.values()),
        findings=findings,
        class_names=class_names,
        notes=(*told, *notes, *beyond_notes(beyond)),
        facts=facts,
        stored=stored,
    )
