"""Engines kept in a folder, found again by the hash of everything that made them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from calib.engine.engine_file import Engine
from calib.errors import EngineError

__all__ = ["EngineCache", "engine_key"]


def engine_key(made_of: Mapping[str, Any]) -> str:
    """SHA-256 of what made an engine.

    Args:
        made_of: Anything that JSON can hold; the order of the names does not count.

    >>> engine_key({"a": 1, "b": 2}) == engine_key({"b": 2, "a": 1})
    True
    """
    text = json.dumps(made_of, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class EngineCache:
    """A folder of engines.

    Args:
        folder: The folder; created with the first engine.

    Attributes:
        notes: What is to know of engines that were there and could not be used.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.notes: list[str] = []

    def find(self, key: str) -> Engine | None:
        """The engine of a key; None where there is none, or a damaged one, which is then built anew."""
        file = self._file(key)
        if not file.exists():
            return None
        try:
            engine = Engine.load(file)
        except EngineError as error:
            self.notes.append(f"built anew, since the engine that was kept is damaged: {error}")
            return None
        if engine.record.key != key:
            self.notes.append(f"built anew, since the record of {file} does not say what made it")
            return None
        return replace(engine, record=replace(engine.record, from_cache=True), path=None)

    def store(self, engine: Engine) -> Path:
        """Keeps an engine.

        Args:
            engine: The engine; its record holds the key.

        Raises:
            OutputError: It cannot be written.
        """
        file = self._file(engine.record.key)
        engine.save(file)
        return file

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.engine"
