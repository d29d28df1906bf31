"""Values that are computed when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Kept"]

T = TypeVar("T")


class Kept(Generic[T]):
    """A value that is computed once, when it is asked for.

    Sent to another process it goes without the value, which is computed there anew.

    Args:
        make: Computes it.

    >>> shown = Kept(lambda: print("computed") or 7)
    >>> shown() + shown()
    computed
    14
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: list[T] = []

    def __call__(self) -> T:
        """The value."""
        if not self._value:
            self._value.append(self._make())
        return self._value[0]

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make, "_value": []}
