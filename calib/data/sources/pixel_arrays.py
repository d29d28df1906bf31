"""Datasets of images that lie as plain pixels in larger files, not each in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from calib.data.dataset import Array, Dataset, Sample
from calib.data.pixels import prepare_pixels
from calib.data.sources.base import Opening
from calib.data.sources.pictures import ImageFilesSource

__all__ = ["pixel_dataset"]


def pixel_dataset(
    source: ImageFilesSource,
    opening: Opening,
    ids: Sequence[str],
    read: Callable[[int], Array],
    labels: Sequence[Any] | None,
    *,
    content: Callable[[int], str],
    class_names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> Dataset:
    """A dataset of images in memory or in parts of files.

    Args:
        source: Its options go into the description.
        opening: The recipe's options.
        ids: Every sample's id.
        read: Reads the pixels of the sample at an index: uint8, (height, width, 3) or (height, width).
        labels: One a sample, or None.
        content: Identifies what is stored for the sample at an index.
        class_names: Name of each class number.
        notes: What is worth knowing.
    """
    preprocess, names = opening.preprocess, tuple(ids)
    known = None if labels is None else tuple(labels)

    def load(index: int) -> Sample:
        origin = f"{opening.root}/{names[index]}"
        prepared = prepare_pixels(read(index), preprocess, origin)
        label = None if known is None else known[index]
        return Sample(names[index], {source.input: prepared.values}, label, origin, prepared.geometry)

    return Dataset(
        name=opening.name,
        ids=names,
        load=load,
        labels=known,
        class_names=None if class_names is None else tuple(class_names),
        notes=tuple(notes),
        description=source.description(opening, images=True),
        content=content,
    )
