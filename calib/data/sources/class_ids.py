"""Maps from the class numbers of annotations to those of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import yaml
from pydantic import Field, StrictInt

from calib.data.sources.base import Opening, RelativePath
from calib.errors import DatasetError
from calib.files import read_bounded_text

__all__ = ["ClassIds", "IdMap", "read_id_map"]

IdMap = dict[StrictInt, StrictInt | None] | RelativePath
"""Number in the annotations → the model's number, or null to leave it out; or a YAML or JSON file of it."""

ClassIds = Literal["contiguous", "as_is"] | Annotated[IdMap, Field()]

_MOST = 1 << 20


def read_id_map(given: Mapping[int, int | None] | str, opening: Opening, key: str) -> dict[int, int | None]:
    """A map of class numbers, from the recipe or from a file.

    A file is YAML or JSON: ``{1: 0, 2: 1}``; JSON's keys may be text.

    Args:
        given: The map, or the file's path from the data root.
        opening: The recipe's options.
        key: The key of the source that gives it.

    Raises:
        DatasetError: The file cannot be read, or is no map of whole numbers; or a number is negative.
    """
    if isinstance(given, str):
        path = opening.inside(given, key)
        text = read_bounded_text(path, "map of class numbers", DatasetError, limit=_MOST)
        where, content = str(path), _loaded(text, str(path))
    else:
        where, content = opening.where(key), given
    if not isinstance(content, Mapping) or not content:
        raise DatasetError(f"{where}: expected a map of class numbers, such as {{1: 0, 2: 1}}.")
    found = {
        _number(old, where, -1): None if new is None else _number(new, where) for old, new in content.items()
    }
    if len(found) < len(content):
        raise DatasetError(f"{where}: a class number stands there twice.")
    return found


def _loaded(text: str, where: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DatasetError(f"{where}: not a YAML or JSON map of class numbers: {error}.") from error


def _number(value: object, where: str, least: int = 0) -> int:
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None or number < least:
        raise DatasetError(f"{where}: expected class numbers from {least}, got {value!r}.")
    return number
