"""What a source leaves out or repairs: counted, listed, and an error where the recipe is strict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calib.data.findings import Doubt
from calib.data.sources.base import Opening, listed
from calib.errors import DatasetError
from calib.wording import counted

__all__ = ["Findings"]

_ADVICE = "Replace the files; strict: true makes an error of each."


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
            kind: What it is, for one and for several, as ``counted`` takes it: "damaged image[s]".
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
        notes: list[str] = [
            Doubt(f"Left out {text}.", "files-left-out", _ADVICE) for text in _told(self._left_out)
        ]
        notes += [f"Repaired {text}." for text in _told(self._repaired)]
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
        reasons = "; ".join((*_told(self._left_out), *_told(self._repaired)))
        return DatasetError(f"No samples: {what}{f' ({reasons})' if reasons else ''}.")


def _told(found: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{counted(len(items), kind)}: {listed(list(items))}" for kind, items in found.items()]
