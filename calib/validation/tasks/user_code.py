"""Functions of the user's own, called so that their mistakes are told in one message."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calib.errors import CalibError, ValidationError

__all__ = ["called"]

_OURS = str(Path(__file__).resolve().parents[2])


def called(what: str, where: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of the user.

    Args:
        what: What it is: "Decoder 'mine:decode'".
        where: What it is called on: "sample a.jpg".
        function: The function.
        *arguments: What it gets.

    Raises:
        ValidationError: It raised something: function, sample, and the user's own last line are named.
    """
    try:
        return function(*arguments)
    except CalibError:
        raise
    except Exception as error:
        raise ValidationError(f"{what} failed on {where}: {_told(error)}.") from error


def _told(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".rstrip(".: ")
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    local = [frame for frame in theirs if "site-packages" not in frame.filename]
    if not theirs:
        return text
    last = (local or theirs)[-1]
    line = f": {last.line}" if last.line else ""
    return f"{text} ({last.filename}, line {last.lineno}{line})"
