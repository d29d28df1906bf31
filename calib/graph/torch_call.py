"""How a network's ``forward`` is called with a model's inputs, and what it returns under which name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calib.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["CallForm", "call_form"]

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class CallForm:
    """How ``forward`` is called.

    Attributes:
        names: Names of the inputs, in the order in which they are passed.
        by_keyword: Whether they are keyword arguments.
        variadic: Whether they all go to one ``*args``.
    """

    names: tuple[str, ...]
    by_keyword: bool
    variadic: bool = False

    def arguments(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments.

        Args:
            values: One for each input, by name.
        """
        ordered = {name: values[name] for name in self.names}
        return ((), ordered) if self.by_keyword else (tuple(ordered.values()), {})


def call_form(module: nn.Module, names: Sequence[str], name: str) -> CallForm:
    """Finds out which argument of ``forward`` each input is.

    Where every name is a parameter of ``forward``, inputs are passed by keyword; otherwise in their order.
    An input without a name takes its parameter's.

    Args:
        module: The network.
        names: Names of the inputs; empty ones are found.
        name: The network's name, for messages.

    Returns:
        The form; its names are in the order of ``forward`` where they are keywords, otherwise as given.

    Raises:
        UsageError: ``forward`` takes more inputs, or fewer.
    """
    signature = inspect.signature(module.forward)
    known = [key for key, item in signature.parameters.items() if item.kind not in _VARIADIC]
    if all(item in known for item in names):
        form = CallForm(tuple(sorted(names, key=known.index)), by_keyword=True)
    else:
        defaults = [*known, *(f"input_{number}" for number in range(len(known), len(names)))]
        called = tuple(given or default for given, default in zip(names, defaults, strict=False))
        kinds = [item.kind for item in signature.parameters.values()]
        form = CallForm(called, False, inspect.Parameter.VAR_POSITIONAL in kinds and not known)
    try:
        positional, keyword = form.arguments(dict.fromkeys(form.names))
        signature.bind(*positional, **keyword)
    except TypeError as error:
        raise UsageError(
            f"The inputs {', '.join(form.names)} do not fit forward{signature} of {name}: {error}. "
            "Give one input for each argument, in order or by its name."
        ) from error
    return form
