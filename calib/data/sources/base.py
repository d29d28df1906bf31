"""What every source of samples has in common."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict

from calib.data.dataset import Dataset
from calib.data.preprocess import Preprocess
from calib.errors import DatasetError
from calib.wording import suggestion

__all__ = ["Opening", "RelativePath", "SourceModel", "listed", "natural", "printable"]


def _relative(value: str) -> str:
    path = PurePosixPath(value)
    if not value or "\0" in value:
        raise ValueError(f"expected a path, got {value!r}")
    if path.is_absolute():
        raise ValueError(f"expected a path relative to the data root, got {value!r}. Set root instead")
    if ".." in path.parts:
        raise ValueError(f"must stay inside the data root, got {value!r}. Set root instead")
    return str(path)


RelativePath = Annotated[str, AfterValidator(_relative)]


@dataclass(frozen=True)
class Opening:
    """What a source needs to know of the recipe it belongs to.

    Attributes:
        name: The recipe's name.
        root: Data root: the folder that paths of sources are relative to.
        preprocess: Preprocessing of every sample.
        where: Names a key of the source for messages, with file and line.
        strict: Whether a damaged file is an error.
        task: The recipe's task.
    """

    name: str
    root: Path
    preprocess: Preprocess
    where: Callable[..., str]
    strict: bool = False
    task: str | None = None

    def inside(self, path: str, *key: str) -> Path:
        """The place of a source's path, which must exist inside the data root.

        Args:
            path: Relative to the data root.
            key: The key of the source that gives it.

        Raises:
            DatasetError: There is nothing, or links lead out of the data root.
        """
        place = self.root / path
        try:
            real, root = place.resolve(strict=True), self.root.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            missing = self.root if not self.root.exists() else place
            raise DatasetError(
                f"{self.where(*key)}: no such file or folder: {missing}. Paths are relative to the data "
                f"root, {self.root}. Put the data there, or set the recipe's root."
            ) from error
        if not real.is_relative_to(root):
            raise DatasetError(
                f"{self.where(*key)}: {place} links to {real}, outside the data root {root}. "
                "Set the recipe's root to a folder that holds both."
            )
        return place

    def touched(self, inputs: Iterable[str]) -> frozenset[str]:
        """The inputs that preprocessing is for: those that the recipe names, or all.

        Args:
            inputs: Names of all inputs.

        Raises:
            DatasetError: The recipe names one that there is not.
        """
        names = list(inputs)
        touched = frozenset(self.preprocess.inputs or names)
        for name in sorted(touched.difference(names)):
            raise DatasetError(
                f"Recipe {self.name!r}, preprocess.inputs: no input {name!r}.{suggestion(name, names)} "
                f"There are: {listed(names)}."
            )
        return touched


class SourceModel(BaseModel, ABC):
    """Base of the sources: frozen options, and how to open them.

    Attributes:
        kind: Which source it is, in the recipe.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: ClassVar[bool] = False

    kind: str

    def description(
        self, opening: Opening, *, images: bool = False, facts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """What makes the samples what they are: the options that are given, and the preprocessing.

        Args:
            opening: The recipe's options.
            images: Whether image files or pixels are prepared.
            facts: What else there is to say of the source: class numbers and the like.
        """
        source = self.model_dump(mode="json", exclude_none=True)
        return {"source": {**source, **(facts or {})}, "preprocess": opening.preprocess.record(images=images)}

    @abstractmethod
    def open(self, opening: Opening) -> Dataset:
        """Lists the samples, in an order that does not depend on the machine.

        Raises:
            DatasetError: Data are missing, damaged or do not fit the options.
        """


def natural(name: str) -> tuple[list[int | str], str]:
    """Sorts names as people do: ``2.npy`` before ``10.npy``.

    >>> sorted(["b10", "b9", "a"], key=natural)
    ['a', 'b9', 'b10']
    """
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)], name


def listed(names: list[str], limit: int = 10) -> str:
    """Names separated by commas, the first few of many."""
    shown = ", ".join(map(printable, names[:limit]))
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def printable(name: str) -> str:
    """A file's name with everything escaped that would spoil a line of text.

    >>> print(printable("été" + chr(10) + "1.jpg") == "été" + chr(92) + "n1.jpg")
    True
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
