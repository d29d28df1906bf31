"""Masks of class numbers in image files, beside the images they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calib.data.dataset import Array, Dataset, Sample
from calib.data.fingerprint import file_identity
from calib.data.pixels import damage, place_mask
from calib.data.sources.base import Opening
from calib.data.sources.findings import Findings
from calib.data.sources.pictures import ImageFilesSource, image_dataset
from calib.data.truth import IGNORED
from calib.errors import DatasetError, require

__all__ = ["mask_dataset", "read_mask"]


def read_mask(path: Path) -> Array:
    """Reads the class number of every pixel: grey values, or the indices of a palette, not its colours.

    Args:
        path: A grey (8 or 16 bits), black-and-white or palette image.

    Returns:
        Shape (height, width), int32; black and white are 0 and 1.

    Raises:
        DatasetError: The file cannot be decoded, or has colours.
    """
    pillow = require("PIL.Image", "images", "Reading masks")
    try:
        with pillow.open(path) as image:
            mode, values = image.mode, np.asarray(image)
    except Exception as error:  # whatever a decoder raises on damaged data; the file must be named
        reason = str(error) or type(error).__name__
        raise DatasetError(f"Cannot decode mask {path}: {reason}. Replace the file.") from error
    if mode not in ("1", "L", "P", "I", "I;16", "I;16B"):
        raise DatasetError(
            f"Mask {path} is a {mode} image: expected class numbers, as a grey or palette image. Colours "
            "must be turned into class numbers first."
        )
    numbers: Array = values.astype(np.int32)
    return numbers


def mask_dataset(
    source: ImageFilesSource,
    opening: Opening,
    places: Mapping[str, Path],
    masks: Mapping[str, Path],
    *,
    findings: Findings,
    class_names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    id_map: Mapping[int, int | None] | None = None,
    complete: bool = True,
) -> Dataset:
    """A dataset of images whose labels are masks in pixels of the model's input.

    Args:
        source: Its options go into the description.
        opening: The recipe's options.
        places: Id of each image → its file.
        masks: Id of each image that may be used → its mask.
        findings: Takes images whose mask is missing or damaged.
        class_names: Name of each class number.
        notes: What else is worth knowing.
        id_map: Number in the mask → the model's number, or None for pixels that are not judged. None takes
            the numbers as they are.
        complete: Whether a number that is not in ``id_map`` is an error, but for 255; else its pixels are
            not judged.

    Raises:
        DatasetError: No samples are left, or something was found and the recipe is strict.
    """
    whole: dict[str, Path] = {}
    for image_id, path in masks.items():
        if not path.exists():
            findings.leave_out("image[s] without a mask", image_id)
        elif reason := damage(path):
            findings.leave_out("damaged mask[s]", f"{path.name} ({reason})")
        else:
            whole[image_id] = path
    numbers = None if id_map is None else _table(id_map)
    dataset = image_dataset(
        source,
        opening,
        {image_id: places[image_id] for image_id in whole},
        None,
        findings=findings,
        class_names=class_names,
        notes=notes,
        facts=None if id_map is None else {"id_map": {str(k): v for k, v in id_map.items()}},
        stored=lambda image_id: file_identity(whole[image_id]),
    )
    load, preprocess, ids = dataset.load, opening.preprocess, dataset.ids

    def load_with_mask(index: int) -> Sample:
        sample = load(index)
        path = whole[ids[index]]
        stored = read_mask(path)
        if id_map is not None and complete:
            _check_known(stored, id_map, path)
        mask = _mapped(stored, numbers)
        assert sample.geometry is not None
        if mask.shape != sample.geometry.source:
            raise DatasetError(
                f"Mask {path} has {mask.shape[0]} × {mask.shape[1]} pixels (height × width), but its image "
                f"{sample.origin} has {sample.geometry.source[0]} × {sample.geometry.source[1]}."
            )
        return replace(sample, label=place_mask(mask, sample.geometry, preprocess))

    return replace(dataset, load=load_with_mask)


def _check_known(mask: Array, id_map: Mapping[int, int | None], path: Path) -> None:
    """Refuses a number that nobody said what it is: its pixels would silently not be judged."""
    unknown = sorted(set(np.unique(mask).tolist()) - set(id_map) - {IGNORED})
    if unknown:
        raise DatasetError(
            f"Mask {path}: number {unknown[0]} is not in id_map, nor is it said to be left out. Add it: "
            f"{unknown[0]}: NUMBER, or {unknown[0]}: null."
        )


def _table(id_map: Mapping[int, int | None]) -> Array:
    """Number in the mask → the model's, for every number of 16 bits."""
    table = np.full(1 << 16, IGNORED, np.int32)
    for old, new in id_map.items():
        if new is not None and 0 <= old < len(table):
            table[old] = new
    return table


def _mapped(mask: Array, numbers: Array | None) -> Array:
    if numbers is None:
        return mask
    known = (mask >= 0) & (mask < len(numbers))
    mapped: Any = np.where(known, numbers[np.where(known, mask, 0)], IGNORED)
    return np.asarray(mapped, np.int32)
