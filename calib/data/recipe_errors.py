"""Says what is wrong in a recipe: file, line, key, and what would be right."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from calib.data.document import Document
from calib.errors import DatasetError
from calib.wording import suggestion

__all__ = ["explain"]

_SHOWN = 5
_NAME = re.compile(r"'([^']*)'")


def explain(
    error: ValidationError, document: Document, models: Mapping[str, type[BaseModel]]
) -> DatasetError:
    """Turns what pydantic found into one message, a line for each wrong key.

    Args:
        error: What pydantic raised.
        document: The recipe's file.
        models: The model that each key or source kind holds, by name, and that of each kind of task as
            ``task.KIND``; ``""`` is the recipe itself.
    """
    items = _one_a_place(error.errors(include_url=False), document)
    lines = [_explain(item, document, models) for item in items[:_SHOWN]]
    if len(items) > _SHOWN:
        lines.append(f"and {len(items) - _SHOWN} more.")
    return DatasetError("\n".join(lines))


def _one_a_place(items: Sequence[Any], document: Document) -> list[Any]:
    """Of several errors at one place one: a place that takes several forms has an error of each of them.

    Names that are expected are put together. Where a part of the value is wrong, that alone is said.
    """
    found: dict[tuple[str, str], Any] = {}
    for item in items:
        key = (_key_of(item, document), str(item["loc"][-1]) if item["type"] == "missing" else "")
        known = found.setdefault(key, item)
        if known is not item and known["type"] == item["type"] == "literal_error":
            names = f"{known['ctx']['expected']} or {item['ctx']['expected']}"
            found[key] = {**known, "ctx": {"expected": names.replace(" or ", ", ", names.count(" or ") - 1)}}
    places = [place for place, _ in found]
    return [
        item
        for (place, missing), item in found.items()
        if missing or not _has_parts(item) or not any(other.startswith(f"{place}.") for other in places)
    ]


def _key_of(item: Any, document: Document) -> str:
    return document.where(item["loc"]).partition(", key ")[2]


def _has_parts(item: Any) -> bool:
    """Whether a value is a mapping or list, of which a part can be wrong."""
    return isinstance(item["input"], (Mapping, list)) and item["type"] != "value_error"


def _explain(item: Any, document: Document, models: Mapping[str, type[BaseModel]]) -> str:
    loc, kind, context = item["loc"], item["type"], item.get("ctx", {})
    where = document.where(loc)
    if kind == "extra_forbidden":
        keys = _keys(loc[:-1], models)
        close = suggestion(str(loc[-1]), keys)
        return f"{where}: unknown key {loc[-1]!r}.{close} Allowed keys: {', '.join(keys)}."
    if kind == "missing":
        return f"{where}: key {loc[-1]!r} is missing."
    if kind == "union_tag_not_found":
        return f"{where}: key 'kind' is missing. Allowed kinds: {', '.join(_kinds(loc, models))}."
    if kind == "union_tag_invalid":
        kinds = _kinds(loc, models)
        return (
            f"{document.where((*loc, 'kind'))}: unknown kind {context['tag']!r}."
            f"{suggestion(str(context['tag']), kinds)} Allowed kinds: {', '.join(kinds)}."
        )
    if kind == "value_error":
        return f"{where}: {context['error']}."
    if kind == "literal_error":
        close = suggestion(str(item["input"]), _NAME.findall(context["expected"]))
        return f"{where}: expected {context['expected']}, got {reprlib.repr(item['input'])}.{close}"
    found = reprlib.repr(item["input"])
    message = item["msg"]
    for theirs, ours in (("Input", "value"), ("Field", "key"), ("tuple", "list"), ("string", "text")):
        message = message.replace(theirs, ours)
    return f"{where}: {message}, got {found}."


def _kinds(loc: Sequence[str | int], models: Mapping[str, type[BaseModel]]) -> list[str]:
    """The kinds that a place takes: those of tasks, or those of sources."""
    prefix = "task." if loc[:1] == ("task",) else ""
    return [
        name.removeprefix("task.")
        for name, model in models.items()
        if "kind" in model.model_fields and name.startswith("task.") == bool(prefix)
    ]


def _keys(loc: Sequence[str | int], models: Mapping[str, type[BaseModel]]) -> list[str]:
    """The keys that the model at a place has, as the file spells them."""
    model, prefix = models[""], "task." if loc[:1] == ("task",) else ""
    for part in loc:
        model = models.get(f"{prefix}{part}", model)
    return [field.alias or name for name, field in model.model_fields.items()]
