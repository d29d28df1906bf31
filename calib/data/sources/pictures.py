"""What sources of image files have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from calib.data.dataset import Dataset, Sample
from calib.data.fingerprint import file_identity
from calib.data.pixels import damage, prepare_image, read_size
from calib.data.sources.base import Opening, SourceModel, printable
from calib.data.sources.findings import Findings
from calib.progress import track

__all__ = ["ENDINGS", "ImageFilesSource", "image_dataset", "is_text", "same_size", "usable_images"]

_MANY_FILES = 2000
"""Fewer files than this are looked at without a word of progress."""


ENDINGS = (
    *(".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"),
    *(".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)


class ImageFilesSource(SourceModel):
    """Base of the sources whose samples are image files.

    Attributes:
        input: Name of the model's input.
    """

    images: ClassVar[bool] = True

    input: Annotated[str, Field(min_length=1)] = "input"


def usable_images(places: Mapping[str, Path], findings: Findings) -> list[str]:
    """The images that exist, have a name that is text, and look whole; findings get the others.

    Args:
        places: Id of each image → its file.
        findings: Takes what is missing or damaged.

    Returns:
        Ids, in the given order.
    """
    kept = []
    for image_id, path in track(places.items(), len(places), "Looking at images", least=_MANY_FILES):
        if not image_id.isprintable() and not is_text(image_id):
            findings.leave_out("image[s] whose name is not UTF-8", printable(image_id))
        elif not path.exists() and not path.is_symlink():
            findings.leave_out("missing image[s]", image_id)
        elif reason := damage(path):
            findings.leave_out("damaged image[s]", f"{image_id} ({reason})")
        else:
            kept.append(image_id)
    return kept


def same_size(image_id: str, path: Path, annotated: tuple[int, int] | None, findings: Findings) -> bool:
    """Whether an image has the size that its annotations are for; findings get it otherwise.

    Boxes of an image that was resized later, or that is turned upright by its EXIF tag and was annotated as
    it is stored, lie elsewhere.

    Args:
        image_id: The image's id.
        path: Its file.
        annotated: Height and width by the annotations; None where they do not say.
        findings: Takes an image of another size.
    """
    size = read_size(path)
    if annotated is None or annotated == size:
        return True
    shown = f"{size[0]} × {size[1]}, annotated {annotated[0]} × {annotated[1]}"
    findings.leave_out("image[s] of another size than annotated (height × width)", f"{image_id} ({shown})")
    return False


def is_text(name: str) -> bool:
    """Whether a file's name is UTF-8; ids go into JSON files, which hold nothing else."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def image_dataset(
    source: ImageFilesSource,
    opening: Opening,
    places: Mapping[str, Path],
    labels: Sequence[Any] | None,
    *,
    findings: Findings,
    class_names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
    stored: Callable[[str], str] | None = None,
) -> Dataset:
    """A dataset of image files.

    Args:
        source: Its options go into the description.
        opening: The recipe's options.
        places: Id of each sample → its file; nothing else is left to check.
        labels: One a sample, or None.
        findings: What was left out or repaired.
        class_names: Name of each class number.
        notes: What else is worth knowing.
        facts: What the description says beside the source's options: class numbers and the like.
        stored: Identifies what else is stored for a sample, by its id: its annotations or its mask.

    Raises:
        DatasetError: No samples are left, or something was found and the recipe is strict.
    """
    found = findings.settle()
    if not places:
        raise findings.no_samples(f"{opening.where()} gives no usable image")
    preprocess, ids, paths = opening.preprocess, tuple(places), tuple(places.values())

    def load(index: int) -> Sample:
        prepared = prepare_image(paths[index], preprocess)
        label = None if labels is None else labels[index]
        inputs = {source.input: prepared.values}
        return Sample(ids[index], inputs, label, str(paths[index]), prepared.geometry)

    def content(index: int) -> str:
        identity = file_identity(paths[index])
        return identity if stored is None else f"{identity} {stored(ids[index])}"

    return Dataset(
        name=opening.name,
        ids=ids,
        load=load,
        labels=None if labels is None else tuple(labels),
        class_names=None if class_names is None else tuple(class_names),
        notes=(*notes, *found),
        description=source.description(opening, images=True, facts=facts),
        content=content,
    )
