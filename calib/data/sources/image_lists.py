"""Images that a list names, with labels or without."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from calib.data.dataset import Dataset
from calib.data.sources.base import Opening, printable
from calib.data.sources.findings import Findings
from calib.data.sources.labels import labels_of_texts, read_class_names
from calib.data.sources.lists import ListRow, inside_folder, read_list
from calib.data.sources.pictures import ENDINGS, image_dataset, usable_images
from calib.errors import DatasetError
from calib.wording import counted

if TYPE_CHECKING:
    from calib.data.sources.images import ImagesSource

__all__ = ["open_list"]


def open_list(source: ImagesSource, opening: Opening) -> Dataset:
    """Lists the images that a list names, and looks at each.

    Args:
        source: Its ``list`` is given.
        opening: The recipe's options.

    Raises:
        DatasetError: The list or the images cannot be used.
    """
    assert source.list is not None
    folder, path = opening.inside(source.path, "path"), opening.inside(source.list, "list")
    rows = read_list(path, source.columns, ENDINGS, "list of images")
    findings = Findings(opening, str(path))
    entries = _entries(rows, folder, path, source.path, findings)
    places = {image_id: folder / Path(image_id).relative_to(source.path) for image_id in entries}
    kept = usable_images(places, findings)
    labels, names = None, None
    if rows[0].label is not None:
        given = None if source.class_names is None else read_class_names(source.class_names, opening)
        # Of all rows, so that a class number does not depend on which files are there.
        texts = {f"line {row.line}": row.label or "" for row in rows}
        numbers, names = labels_of_texts(
            texts, opening.task, offset=source.label_offset, class_names=given, what=str(path)
        )
        by_line = dict(zip((row.line for row in rows), numbers, strict=True))
        labels = [by_line[entries[image_id].line] for image_id in kept]
    facts = None if names is None else {"class_numbers": {name: i for i, name in enumerate(names)}}
    return image_dataset(
        source,
        opening,
        {image_id: places[image_id] for image_id in kept},
        labels,
        findings=findings,
        class_names=names,
        notes=[f"{path.name} names {counted(len(rows), 'image[s]')}; {counted(len(kept), '[is|are]')} used."],
        facts=facts,
    )


def _entries(
    rows: list[ListRow], folder: Path, path: Path, prefix: str, findings: Findings
) -> dict[str, ListRow]:
    """Id of each image → its row of the list; what is missing or named twice goes to findings."""
    entries: dict[str, ListRow] = {}
    for row in rows:
        name = _found(row, folder, path, findings)
        if name is None:
            continue
        image_id = str(PurePosixPath(prefix) / name)
        first = entries.setdefault(image_id, row)
        if first is row:
            continue
        if first.label != row.label:
            raise DatasetError(
                f"{path}, line {row.line}: a second label for {printable(row.name)}: {row.label!r}, but "
                f"{first.label!r} on line {first.line}."
            )
        findings.leave_out("repeat[s] in the list", f"{row.name} (list line {row.line})")
    return entries


def _found(row: ListRow, folder: Path, path: Path, findings: Findings) -> PurePosixPath | None:
    """Where the image lies below the folder; None if it is not there."""
    name = inside_folder(_below(row.name, folder))
    if name is None:
        raise DatasetError(
            f"{path}, line {row.line}: {printable(row.name)} lies outside of {folder}. Names are relative to "
            "the source's path, which is a folder inside the data root."
        )
    if _exists(folder / name):
        return name
    turned = PurePosixPath(row.name.replace("\\", "/"))
    if turned != name and inside_folder(str(turned)) and _exists(folder / turned):
        findings.repair("name[s] written with backslashes", f"{row.name} (list line {row.line})")
        return turned
    findings.leave_out("missing image[s]", f"{row.name} (list line {row.line})")
    return None


def _below(name: str, folder: Path) -> str:
    """An absolute name as one below the folder, where it is."""
    for root in (folder, folder.resolve()):
        if name.startswith(f"{root}/"):
            return name.removeprefix(f"{root}/")
    return name


def _exists(path: Path) -> bool:
    try:
        return path.is_file() or path.is_symlink()
    except OSError:  # a name too long for the file system
        return False
