"""What a source leaves out or repairs: counted, listed, and an error where the recipe is strict."""

from __future__ import annotations

from calib.data.sources.base import Opening, listed
from calib.errors import DatasetError

__all__ = ["Findings"]


class Findings:
    """Collects what is wrong with a source's files.

    Args:
        opening: The recipe's options.
        where: What is opened, for messages: a folder or file.
    """

    def __init__(self, opening: Opening, where: str) -> None:
        self._strict = opening.strict
        self._where = where
        self._left_out: dict[str, list[str]] = {}
        self._repaired: dict[str, list[str]] = {}

    def leave_out(self, kind: str, item: str) -> None:
        """Records something that is not used.

        Args:
            kind: What it is, in the plural: "damaged images".
            item: Its name, with a reason where it has one.
        """
        self._left_out.setdefault(kind, []).append(item)

    def repair(self, kind: str, item: str) -> None:
        """Records something that is used in another form than it has."""
        self._repaired.setdefault(kind, []).append(item)

    def settle(self) -> list[str]:
        """The notes of everything that was recorded.

        Raises:
            DatasetError: There is something, and the recipe is strict.
        """
        notes = [f"Left out {len(items)} {kind}: {listed(items)}." for kind, items in self._left_out.items()]
        notes += [f"Repaired {len(items)} {kind}: {listed(items)}." for kind, items in self._repaired.items()]
        if notes and self._strict:
            raise DatasetError(
                f"{self._where}, which must be faultless (strict: true): {' '.join(notes)} "
                "Mend them, or set strict: false."
            )
        return notes

    def no_samples(self, what: str) -> DatasetError:
        """The error that nothing is left, with everything that was recorded.

        Args:
            what: What is empty, and of what: "images gives no usable image".
        """
        reasons = "; ".join(
            f"{len(items)} {kind}: {listed(items)}"
            for found in (self._left_out, self._repaired)
            for kind, items in found.items()
        )
        return DatasetError(f"No samples: {what}{f' ({reasons})' if reasons else ''}.")
