"""The data.yaml of a YOLO set: where the images of a split lie, and what the classes are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib.data.document import read_document
from calib.data.sources.base import Opening
from calib.data.sources.lists import Columns, read_list
from calib.errors import DatasetError
from calib.wording import counted

__all__ = ["YoloSplit", "read_split"]


@dataclass(frozen=True)
class YoloSplit:
    """The images of one split.

    Attributes:
        where: What named them, for messages.
        images: Folders of images.
        files: Single images, named by a list.
        names: The classes in the order of their numbers; None where they are not given.
    """

    where: Path
    images: tuple[Path, ...]
    files: tuple[Path, ...]
    names: tuple[str, ...] | None


def read_split(path: Path, split: str, opening: Opening) -> YoloSplit:
    """Reads a data.yaml.

    Folders are looked for below its ``path``, then beside the file, since the sets that tools export
    often name a ``path`` of another machine.

    Args:
        path: The file.
        split: Its key that names the images: a folder, a text file of images, or a list of these.
        opening: The recipe's options.

    Raises:
        DatasetError: The file cannot be read, or does not name what is wanted.
    """
    document, content = read_document(path, "YOLO set")
    given = content.get(split)
    entries = [given] if isinstance(given, str) else given
    if not isinstance(entries, list) or not entries or not all(isinstance(e, str) for e in entries):
        keys = ", ".join(key for key in content if key in ("train", "val", "test"))
        raise DatasetError(
            f"{document.where((split,))}: expected the folder of the images as {split!r}, got {given!r}. "
            f"The file has {keys or 'no split'}. Set split in the recipe."
        )
    folders: list[Path] = []
    files: list[Path] = []
    for entry in entries:
        place = _place(path, content.get("path"), entry, opening)
        if place.suffix == ".txt":
            files += _listed(place, opening)
        else:
            folders.append(place)
    return YoloSplit(path, tuple(folders), tuple(files), _names(content, document.where(("names",))))


def _place(path: Path, base: Any, entry: str, opening: Opening) -> Path:
    """Where a folder or list lies; it must be inside the data root."""
    root = opening.root.resolve()
    # Exported sets name ../train/images where train/images is meant.
    beside = [path.parent / entry, path.parent / entry.removeprefix("../")]
    tried = ([path.parent / base / entry] if isinstance(base, str) else []) + beside
    for place in tried:
        if place.exists() and place.resolve().is_relative_to(root):
            return opening.root / place.resolve().relative_to(root)
    shown = ", ".join(dict.fromkeys(map(str, tried)))
    raise DatasetError(
        f"{path}: {entry!r} is not inside the data root {opening.root}; looked for {shown}. Correct path "
        "in the file, set the recipe's root, or give path and labels in place of data."
    )


def _listed(place: Path, opening: Opening) -> list[Path]:
    root = opening.root.resolve()
    found = []
    for row in read_list(place, Columns(), (), "list of images"):
        beside, below = place.parent / row.name, opening.root / row.name
        file = below if below.exists() and not beside.exists() else beside
        if not file.resolve().is_relative_to(root):
            raise DatasetError(f"{place}, line {row.line}: {row.name!r} lies outside the data root {root}.")
        found.append(opening.root / file.resolve().relative_to(root))
    return found


def _names(content: Mapping[str, Any], where: str) -> tuple[str, ...] | None:
    given = content.get("names")
    if given is None:
        return None
    if isinstance(given, Mapping):
        numbers = sorted(key for key in given if isinstance(key, int))
        if numbers != list(range(len(given))):
            raise DatasetError(f"{where}: class numbers must be 0 to {len(given) - 1}, each once.")
        given = [given[number] for number in numbers]
    if not isinstance(given, list) or not given or not all(isinstance(name, (str, int)) for name in given):
        raise DatasetError(f"{where}: expected a list of names, or number: name, got {given!r:.80}.")
    count = content.get("nc")
    if isinstance(count, int) and count != len(given):
        raise DatasetError(
            f"{where}: {counted(len(given), 'name[s]')}, but nc says {counted(count, 'class[es]')}."
        )
    return tuple(map(str, given))
