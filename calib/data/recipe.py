"""Recipes: which data are calibrated and validated on, and how they are prepared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    ValidationError,
)

from calib.data.dataset import Dataset
from calib.data.document import Document, read_document
from calib.data.feeding import ConstantOption, Constants, PaddingOption, Paddings, StateOption, States
from calib.data.preprocess import Letterbox, Pad, Preprocess
from calib.data.recipe_errors import explain
from calib.data.sources.base import Opening, SourceModel
from calib.data.sources.kinds import KINDS, Source
from calib.data.task_options import TASK_MODELS, TaskOptions
from calib.errors import DatasetError
from calib.wording import suggestion

__all__ = ["CalibrationUse", "Recipe", "Source", "Use", "ValidationUse", "load_recipe", "shipped_recipes"]

Use = Literal["calibration", "validation"]

_SEVERAL_INPUTS = ("arrays", "raw", "python")
_ENDINGS = (".yaml", ".yml")


def _some(count: int) -> int:
    if count < 1:
        raise ValueError(f"No samples: expected at least 1, got {count}")
    return count


SampleCount = Annotated[StrictInt, AfterValidator(_some)]
Seed = Annotated[StrictInt, Field(ge=0, lt=2**32)]


class CalibrationUse(BaseModel):
    """The samples to calibrate on.

    Attributes:
        samples: How many are chosen, stratified by label where there are labels.
        seed: Of the choice and its order, from 0 to 2³² - 1.
        source: Where they come from, if not from the recipe's common source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    samples: SampleCount = 512
    seed: Seed = 0
    source: Source | None = None


class ValidationUse(BaseModel):
    """The samples to validate on.

    Attributes:
        samples: How many are chosen, stratified by label; all that calibration leaves if omitted.
        seed: Of the choice and its order, from 0 to 2³² - 1.
        source: Where they come from, if not from the recipe's common source.
        allow_overlap: Whether samples that were calibrated on may be validated on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    samples: SampleCount | None = None
    seed: Seed = 0
    source: Source | None = None
    allow_overlap: StrictBool = False


class Recipe(BaseModel):
    """A recipe, as its YAML file has it; in the file ``schema_version`` is called ``schema``.

    Attributes:
        schema_version: Version of the format: 1.
        name: Names the dataset in reports.
        description: What the data are.
        task: What the model is for, and how its outputs are read; None where accuracy is not judged.
        root: Data root, relative to the recipe's folder, or absolute.
        source: Where samples come from; calibration and validation may each have their own.
        preprocessing: Steps for every sample of both uses (``preprocess`` in the file).
        calibration: The samples to calibrate on.
        validation: The samples to validate on.
        padding: How inputs of different lengths are filled up within a batch, by input name.
        constants: Model inputs that are the same for every sample, such as a sample rate.
        state: Model inputs that an output feeds for the next sample of a sequence: ``{state: stateN}``.
        workers: Processes that read and prepare samples while the model computes; 0 for none. The
            result is the same. Starting them takes half a second or more: they pay for many samples that
            are slow to read, on cores that the model leaves free.
        strict: Whether whatever would be left out or repaired is an error; else it is noted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_version: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: str = ""
    task: TaskOptions | None = None
    root: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")] = "."
    source: Source | None = None
    preprocessing: Preprocess = Field(alias="preprocess", default_factory=Preprocess)
    calibration: CalibrationUse = Field(default_factory=CalibrationUse)
    validation: ValidationUse = Field(default_factory=ValidationUse)
    padding: Paddings = Field(default_factory=dict)
    constants: Constants = Field(default_factory=dict)
    state: States = Field(default_factory=dict)
    workers: Annotated[StrictInt, Field(ge=0, le=256)] = 0
    strict: StrictBool = False

    _document: Document | None = PrivateAttr(default=None)
    _data_root: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path:
        """The file it was read from; ``.`` for a recipe made in Python."""
        return Path() if self._document is None else self._document.path

    @property
    def data_root(self) -> Path:
        """The folder that paths of sources are relative to."""
        return Path(self.root).absolute() if self._data_root is None else self._data_root

    @property
    def preprocess(self) -> dict[str, Any]:
        """Every step of the preprocessing with its value, for provenance and reports."""
        images = any(self.source_of(use).images for use in ("calibration", "validation"))
        return self.preprocessing.record(images=images)

    def source_of(self, use: Use) -> SourceModel:
        """The source that one use takes its samples from.

        Raises:
            DatasetError: Neither the use nor the recipe has a source.
        """
        own = getattr(self, use).source
        source: SourceModel | None = own or self.source
        if source is None:
            raise DatasetError(
                f"{self.where(use)}: no source for {use}. Give one at the top of the recipe, or in {use}."
            )
        return source

    def where(self, *key: str) -> str:
        """Names a key for messages, with the recipe's file and the line."""
        if self._document is None:
            return f"Recipe {self.name!r}, key {'.'.join(key)}"
        return self._document.where(key)

    def opening(self, use: Use) -> Opening:
        """What the source of one use needs to know."""
        key = ("source",) if getattr(self, use).source is None else (use, "source")
        return Opening(
            name=self.name,
            root=self.data_root,
            preprocess=self.preprocessing,
            where=lambda *rest: self.where(*key, *rest),
            strict=self.strict,
            task=None if self.task is None else self.task.kind,
        )

    def open(self, use: Use) -> Dataset:
        """Lists all samples of the source of one use.

        Raises:
            DatasetError: Data are missing, damaged or do not fit the recipe.
        """
        self.check()
        dataset = self.source_of(use).open(self.opening(use))
        if self.state and dataset.groups is None:
            # Without sequences of its own the source's order is one sequence.
            dataset = replace(dataset, groups=("",) * len(dataset))
        return replace(
            dataset,
            padding={**dataset.padding, **{name: option.padding() for name, option in self.padding.items()}},
            constants={name: option.array() for name, option in self.constants.items()},
            state={name: option.carried() for name, option in self.state.items()},
            workers=self.workers,
        )

    def check(self) -> None:
        """Refuses what each key alone does not show to be wrong.

        Raises:
            DatasetError: A use has no source, an input is given twice, or the preprocessing does not
                suit a source.
        """
        for name in self.constants.keys() & self.state.keys():
            raise DatasetError(
                f"{self.where('constants', name)}: input {name!r} is in state too. Keep one of them."
            )
        for use in ("calibration", "validation"):
            source = self.source_of(use)
            unfit = self.preprocessing.images_only()
            if unfit and not source.images:
                raise DatasetError(
                    f"{self.where('preprocess', unfit[0])}: {unfit[0]} is for images only, but {use} "
                    f"takes {source.kind}. Use a source of kind images, or leave it out."
                )
            if self.preprocessing.inputs is not None and source.kind not in _SEVERAL_INPUTS:
                raise DatasetError(
                    f"{self.where('preprocess', 'inputs')}: only for arrays, but {use} takes "
                    f"{source.kind}, which has one input. Leave it out."
                )


def load_recipe(path_or_name: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> Recipe:
    """Reads a recipe.

    Args:
        path_or_name: A YAML file, or the bare name of a shipped recipe, such as ``digits``.
        root: Data root, instead of the recipe's. The recipe's own is relative to the folder of its
            file; that of a shipped recipe found by name is relative to the current folder.

    Returns:
        The recipe, checked.

    Raises:
        DatasetError: No such recipe, or something in it is wrong: file, line and key are named.
    """
    # What calibrates is not restricted to recipes and datasets, so that readers come here too.
    if not isinstance(path_or_name, (str, os.PathLike)):
        raise DatasetError(
            f"{type(path_or_name).__name__} is neither a recipe nor a dataset: a reader is for calibration "
            "alone. calib.data.from_arrays makes a dataset of arrays."
        )
    path, base = _find(path_or_name)
    document, content = read_document(path)
    try:
        recipe = Recipe.model_validate(content)
    except ValidationError as error:
        raise explain(error, document, _MODELS) from error
    recipe._document = document
    recipe._data_root = (base / recipe.root if root is None else Path(root)).absolute()
    recipe.check()
    return recipe


_MODELS: Mapping[str, type[BaseModel]] = {
    "": Recipe,
    "preprocess": Preprocess,
    "pad": Pad,
    "letterbox": Letterbox,
    "calibration": CalibrationUse,
    "validation": ValidationUse,
    "padding": PaddingOption,
    "constants": ConstantOption,
    "state": StateOption,
    **KINDS,
    **{f"task.{kind}": model for kind, model in TASK_MODELS.items()},
}


def _find(path_or_name: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The recipe's file, and the folder that its root is relative to."""
    text = os.fspath(path_or_name)
    path, shipped = Path(text), shipped_recipes()
    if isinstance(path_or_name, str) and text in shipped:
        return shipped[text], Path()
    if path.exists():
        return path, path.parent
    names = ", ".join(shipped)
    raise DatasetError(
        f"No such recipe: {text!r} is neither a file nor a shipped recipe."
        f"{suggestion(path.stem, shipped)} Shipped recipes: {names}. "
        "For your own data give the path of a YAML file."
    )


def shipped_recipes() -> dict[str, Path]:
    """The recipes that come with calib, by name."""
    package = Path(__file__).resolve().parents[1]
    folders = (package / "recipes", package.parent / "datasets")
    folder = next((folder for folder in folders if folder.is_dir()), folders[0])
    files = sorted(file for file in folder.glob("*") if file.suffix in _ENDINGS)
    return {file.stem: file for file in files}
