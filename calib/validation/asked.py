"""What a run was asked for, as text: model, data and caches by the names that repeat it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calib.data import Dataset, Recipe

if TYPE_CHECKING:
    from calib.graph import OnnxModel

__all__ = ["cache_paths", "name_of_data", "name_of_model"]


def cache_paths(
    cache: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
) -> tuple[str, ...]:
    """The calibration caches, of which there may be none, one or several."""
    if cache is None:
        return ()
    paths = (cache,) if isinstance(cache, (str, os.PathLike)) else cache
    return tuple(os.fspath(path) for path in paths)


def name_of_model(model: str | os.PathLike[str] | OnnxModel) -> str:
    """The model's path."""
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else str(model.path)


def name_of_data(data: str | os.PathLike[str] | Recipe | Dataset) -> str:
    """The recipe, or the name of a dataset that was made in Python."""
    if isinstance(data, (str, os.PathLike)):
        return os.fspath(data)
    if isinstance(data, Recipe) and data.path.is_file():
        return str(data.path)
    return data.name
