"""Objects of the user's own code, named as ``module:object``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from calib.data.reader_sources import failed
from calib.errors import DatasetError
from calib.wording import suggestion

__all__ = ["load_object", "looks_like_object"]

_FILE_ENDINGS = (".yaml", ".yml", ".json", ".npz", ".npy", ".onnx", ".cache")


def looks_like_object(text: str) -> bool:
    r"""Whether a text means an object, ``module:object``, rather than a file or a shipped recipe.

    Nothing is imported. A file of that name comes first, so that no code runs where a file was meant.

    Args:
        text: What was given on a command line.

    Returns:
        True for dotted names on both sides of one colon, such as ``my.readers:load_data``.

    >>> looks_like_object("readers:load_data"), looks_like_object("digits"), looks_like_object(r"C:\data")
    (True, False, False)
    """
    module, colon, name = text.partition(":")
    if not colon or not (_dotted(module) and _dotted(name)):
        return False
    return not text.lower().endswith(_FILE_ENDINGS) and not Path(text).exists()


def _dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def load_object(text: str) -> Any:
    """Imports a module and takes an object from it.

    This runs the module's code. It is done for this explicit form alone, never for a file name. Modules
    are looked for in the current folder first, which is put on ``sys.path`` and stays there, since the
    object may import more when it is used.

    Args:
        text: ``module:object``; both may have dots, such as ``my.readers:Reader.for_calibration``.

    Returns:
        The object; it is not called.

    Raises:
        DatasetError: The form is wrong, there is no such module or object, or the module fails.
    """
    name, _, attribute = text.partition(":")
    if not (_dotted(name) and _dotted(attribute)):
        raise DatasetError(f"Expected module:object, such as readers:load_data, got {text!r}.")
    if name.endswith(".py"):
        right = f"{name.removesuffix('.py')}:{attribute}"
        raise DatasetError(f"{text!r}: give the module, not its file: {right}.")
    found = _imported(name, text)
    place = f"module {name!r}"
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            close = suggestion(part, [known for known in dir(found) if not known.startswith("_")])
            raise DatasetError(f"{text!r}: {place} has no {part!r}.{close}") from error
        place = f"{part!r}"
    return found


def _imported(name: str, text: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        with failed(f"{text!r}: importing {name!r}"):
            return importlib.import_module(name)
    except DatasetError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{name}.".startswith(f"{cause.name}."):
            raise DatasetError(_no_module(name, text, folder)) from cause
        raise


def _no_module(name: str, text: str, folder: str) -> str:
    close = suggestion(name, sorted(file.stem for file in Path(folder).glob("*.py")))
    return f"{text!r}: there is no module {name!r}, neither in {folder} nor installed.{close}"
