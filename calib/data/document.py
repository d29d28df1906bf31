"""YAML files whose keys are found again by line, for error messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from calib.errors import DatasetError
from calib.files import read_bounded_text

__all__ = ["Document", "read_document"]

_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Document:
    """A YAML file that was read.

    Attributes:
        path: The file.
        node: Its node tree, which knows the lines.
        noun: What it is, for messages.
    """

    path: Path
    node: yaml.Node = field(repr=False, compare=False)
    noun: str = "Recipe"

    def where(self, key: Sequence[str | int]) -> str:
        """Names a place: ``Recipe FILE, line N, key A.B``.

        Args:
            key: Path of keys and list indices. Parts that the file does not have, such as the name of
                an alternative, are left out; then the line is that of the nearest part above.
        """
        found, line = self.locate(key)
        named = f", key {'.'.join(map(str, found))}" if found else ""
        return f"{self.noun} {self.path}, line {line}{named}"

    def locate(self, key: Sequence[str | int]) -> tuple[list[str | int], int]:
        """The parts of a key path that the file has, and the line of the last of them, from 1."""
        node, line, found = self.node, self.node.start_mark.line + 1, []
        for part in key:
            step = _child(node, part)
            if step is not None:
                node, line = step
                found.append(part)
        return found, line


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == part:
                return value, name.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        value = node.value[part]
        return value, value.start_mark.line + 1
    return None


def read_document(path: Path, noun: str = "Recipe") -> tuple[Document, Mapping[str, Any]]:
    """Reads a YAML file that holds one mapping.

    Args:
        path: The file, at most 1 MiB.
        noun: What it is, for messages.

    Returns:
        The document, and its content as plain Python values.

    Raises:
        DatasetError: The file cannot be read, is not UTF-8, not YAML, not a mapping, or has a key twice.
    """
    text = _read_text(path, noun)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DatasetError(f"{noun} {path}{_explain(error)}") from error
    except (RecursionError, ValueError) as error:
        raise DatasetError(f"{noun} {path} is not usable YAML: {error}.") from error
    if node is None or not isinstance(content, dict):
        found = "nothing" if node is None else f"a {type(content).__name__}"
        raise DatasetError(f"{noun} {path}: expected 'key: value' lines, found {found}.")
    document = Document(path, node, noun)
    for line in _repeats(node):
        raise DatasetError(f"{noun} {path}, {line}. Keep one of them.")
    return document, content


def _read_text(path: Path, noun: str) -> str:
    if path.is_dir():
        raise DatasetError(f"{noun} {path} is a folder: expected the path of a YAML file.")
    what = noun[0].lower() + noun[1:]
    return read_bounded_text(path, what, DatasetError, limit=_MAX_BYTES, advice="Give a YAML file.")


def _explain(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f", line {error.problem_mark.line + 1}: not valid YAML: {error.problem}."
    return f": not valid YAML: {error}."


def _repeats(root: yaml.Node) -> Iterator[str]:
    """Names each repeated key; YAML's reader would silently take the last one."""
    pending, seen = [root], {id(root)}
    while pending:
        node = pending.pop()
        children = list(node.value) if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for name, value in node.value:
                line = name.start_mark.line + 1
                if name.value in lines:
                    yield f"line {line}: key {name.value!r} is on line {lines[name.value]} already"
                lines[str(name.value)] = line
                children.append(value)
        fresh = [child for child in children if id(child) not in seen]
        seen.update(map(id, fresh))
        pending.extend(fresh)
