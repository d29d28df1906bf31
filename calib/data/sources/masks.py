"""Semantic segmentation: a folder of images and a folder of masks."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field

from calib.data.dataset import Dataset
from calib.data.sources.base import Opening, RelativePath, listed
from calib.data.sources.class_ids import IdMap, read_id_map
from calib.data.sources.findings import Findings
from calib.data.sources.folders import walk
from calib.data.sources.labels import ClassNames, read_class_names
from calib.data.sources.mask_files import mask_dataset
from calib.data.sources.pictures import ENDINGS, ImageFilesSource, usable_images
from calib.errors import DatasetError
from calib.wording import counted

__all__ = ["CITYSCAPES", "MasksSource"]

CITYSCAPES = {
    **{7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10, 24: 11, 25: 12},
    **{26: 13, 27: 14, 28: 15, 31: 16, 32: 17, 33: 18},
}
"""labelIds → trainIds, as in the data's own cityscapesscripts; every other id is not judged."""

Suffix = Annotated[str, Field(min_length=1, pattern=r"^[^/\x00]+$")]


class MasksSource(ImageFilesSource):
    """Images, each with a mask that lies at the same place below another folder.

    The mask of ``images/a/b.jpg`` is ``masks/a/b.png``; where names end differently, the suffixes say so:
    ``image_suffix: _leftImg8bit.png`` and ``mask_suffix: _gtFine_labelIds.png`` for Cityscapes. Labels
    are masks in pixels of the model's input: moved as the image is, with the nearest pixel; 255 is not
    judged, nor is what lies outside the image. A photo that its EXIF tag turns needs a mask that is upright.

    Attributes:
        kind: ``masks``.
        path: The folder of the images; sub-folders count.
        masks: The folder of the masks: grey or palette images whose values are class numbers.
        image_suffix: End of the images' names that the masks' names have not; only such files are used.
            If omitted, all image files, and the ending is dropped.
        mask_suffix: What the masks' names end with instead.
        id_map: Number in the mask → the model's, null for what is not judged, as 255 is; every number that
            occurs must be in it. Or a YAML or JSON file of it, or ``cityscapes`` for its 19 classes, where
            all others are not judged. If omitted, numbers are as they are.
        class_names: The classes in the order of their numbers, or a text file with one a line.
        input: Name of the model's input.
    """

    kind: Literal["masks"]
    path: RelativePath
    masks: RelativePath
    image_suffix: Suffix | None = None
    mask_suffix: Suffix = ".png"
    id_map: Literal["cityscapes"] | IdMap | None = None
    class_names: ClassNames | None = None

    def open(self, opening: Opening) -> Dataset:
        """Lists the images and looks at each and at its mask."""
        folder, masks = opening.inside(self.path, "path"), opening.inside(self.masks, "masks")
        findings = Findings(opening, str(folder))
        files, others = self._files(folder)
        places = {str(PurePosixPath(self.path) / name): folder / name for name in files}
        kept = usable_images(places, findings)
        beside = dict(zip(places, files, strict=True))
        names = None if self.class_names is None else read_class_names(self.class_names, opening)
        return mask_dataset(
            self,
            opening,
            places,
            {image_id: masks / self._mask_of(beside[image_id]) for image_id in kept},
            findings=findings,
            class_names=names,
            notes=[f"Passed over {counted(len(others), 'other file[s]')}: {listed(others)}."]
            if others
            else [],
            id_map=self._id_map(opening),
            complete=self.id_map != "cityscapes",
        )

    def _files(self, folder: Path) -> tuple[list[str], list[str]]:
        entries = walk(folder)
        wanted = (self.image_suffix,) if self.image_suffix else ENDINGS
        files = [
            name
            for name in entries
            if name.endswith(wanted) or (not self.image_suffix and name.lower().endswith(wanted))
        ]
        if not files:
            raise DatasetError(
                f"No samples: {folder} holds no images whose names end with {' '.join(wanted)} "
                f"({counted(len(entries), 'other file[s]')})."
            )
        return files, [name for name in entries if name not in set(files)]

    def _mask_of(self, name: str) -> str:
        stem = (
            name.removesuffix(self.image_suffix)
            if self.image_suffix
            else str(PurePosixPath(name).with_suffix(""))
        )
        return stem + self.mask_suffix

    def _id_map(self, opening: Opening) -> dict[int, int | None] | None:
        if self.id_map is None:
            return None
        return (
            dict(CITYSCAPES) if self.id_map == "cityscapes" else read_id_map(self.id_map, opening, "id_map")
        )
