"""Files that say which tensor shall get which name: JSON or YAML, ``old: new`` a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from calib.errors import UsageError
from calib.files import read_bounded_text

__all__ = ["read_name_map"]

_MAX_BYTES = 16 << 20


def read_name_map(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads a map of names.

    Args:
        path: A ``.json`` file, or YAML. Every key and value counts as text, also numbers.

    Returns:
        Old name → new name.

    Raises:
        UsageError: The file cannot be read, is no flat mapping, or has a name twice.
    """
    source = Path(path)
    text = read_bounded_text(source, "map of names", UsageError, limit=_MAX_BYTES)
    pairs = _json_pairs(text, source) if source.suffix.lower() == ".json" else _yaml_pairs(text, source)
    names: dict[str, str] = {}
    for old, new in pairs:
        if old in names:
            raise UsageError(f"{source}: {old!r} is there twice. Keep one.")
        names[old] = new
    return names


def _wrong(source: Path, found: str) -> UsageError:
    return UsageError(f"{source}: expected a mapping of old names to new names, {found}.")


def _json_pairs(text: str, source: Path) -> list[tuple[str, str]]:
    try:
        pairs: Any = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not valid JSON: {error}.") from error
    if not isinstance(pairs, tuple):
        raise _wrong(source, f"got a {type(pairs).__name__}")
    for old, new in pairs:
        if not isinstance(new, str):
            raise _wrong(source, f"got {json.dumps(new)[:60]} for {old!r}")
    return list(pairs)


def _yaml_pairs(text: str, source: Path) -> list[tuple[str, str]]:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{source} is not valid YAML: {error}.") from error
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(source, "got something else")
    pairs = []
    for old, new in node.value:
        if not (isinstance(old, yaml.ScalarNode) and isinstance(new, yaml.ScalarNode)):
            raise _wrong(source, f"got a list or mapping in line {old.start_mark.line + 1}")
        pairs.append((old.value, new.value))
    return pairs
