"""What is wrong with a file that should be results or a baseline, in words."""

from __future__ import annotations

import json

from pydantic import ValidationError as _PydanticError

from calib.errors import ValidationError
from calib.wording import counted

__all__ = ["explain_faults", "refuse_schema", "stated_schema"]


def explain_faults(error: _PydanticError, source: str, what: str) -> str:
    """Where a file differs from what it should be: the first fault, and how many there are.

    Args:
        error: What pydantic found.
        source: The file.
        what: What it should be: "results file".
    """
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole file"
    return (
        f"{source} is not a calib {what}: {place}: {first['msg']} "
        f"({counted(error.error_count(), 'fault[s]')})."
    )


def stated_schema(text: str | bytes, key: str) -> int | None:
    """The schema that a file states, whatever else it holds; None where it states none, or is no JSON."""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    found = document.get(key) if isinstance(document, dict) else None
    return found if type(found) is int else None


def refuse_schema(found: int | None, known: int, source: str, what: str, advice: str) -> None:
    """Refuses a file of another schema; one that states none is left to other checks.

    Args:
        found: The schema that it states.
        known: The one that this calib reads.
        source: The file.
        what: What it holds: "results".
        advice: What to do.

    Raises:
        ValidationError: It is of another schema.
    """
    if found not in (None, known):
        raise ValidationError(
            f"{source} has {what} schema {found}, this calib reads {known}. "
            f"{advice}, or use the calib version that wrote it."
        )
