"""Walking folders: links are followed, never in a circle; hidden entries are passed over."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from calib.data.sources.base import natural
from calib.errors import DatasetError

__all__ = ["below", "hidden", "walk"]


def walk(folder: Path) -> list[str]:
    """The files below a folder, as paths from it with ``/``, sorted as people do.

    Raises:
        DatasetError: A folder cannot be read.
    """
    found: list[str] = []
    chains: dict[Path, tuple[Path, ...]] = {folder: (folder.resolve(),)}

    def fail(error: OSError) -> None:
        raise DatasetError(f"Cannot read {error.filename}: {error.strerror}.") from error

    for place, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        above = PurePosixPath(Path(place).relative_to(folder))
        found += [str(above / name) for name in files if not hidden(name)]
        folders[:] = below(Path(place), folders, chains)
    return sorted(found, key=lambda entry: [natural(part) for part in entry.split("/")])


def below(place: Path, folders: list[str], chains: dict[Path, tuple[Path, ...]]) -> list[str]:
    """Folders to go into: not hidden ones, nor links back to a folder above.

    Args:
        place: The folder that holds them.
        folders: Their names.
        chains: Each folder that was gone into → itself and those above it, without links; grows.
    """
    kept = []
    for name in sorted(folders):
        real = (place / name).resolve()
        if not hidden(name) and real not in chains[place]:
            chains[place / name] = (*chains[place], real)
            kept.append(name)
    return kept


def hidden(name: str) -> bool:
    """Whether an entry is none of the data: ``.DS_Store``, ``.ipynb_checkpoints``, ``__MACOSX``."""
    return name.startswith(".") or name == "__MACOSX"
