"""What stand-ins for runners have in common."""

from __future__ import annotations

from types import TracebackType

from typing_extensions import Self


class PlainRunner:
    """A context manager that has nothing to open or free."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None
