"""The validation dataset, opened without the samples that were calibrated on, and cut into batches."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calib.data import Batch, Dataset, Recipe, fingerprint, load_recipe, open_validation, shipped_recipes
from calib.data.selection import pick, without
from calib.data.task_options import TaskOptions, parse_task
from calib.errors import DatasetError, UsageError
from calib.validation.results import DatasetRecord
from calib.validation.tasks import Context
from calib.wording import counted, inflected

__all__ = ["Subject", "batches", "data_name", "latency_batch", "open_subject", "size_of_batches"]


@dataclass(frozen=True)
class Subject:
    """The samples to validate on.

    Attributes:
        dataset: The validation dataset.
        recipe: Where it came from; None for a dataset from Python.
        task: What the model is for; None judges outputs alone.
    """

    dataset: Dataset
    recipe: Recipe | None
    task: TaskOptions | None = None

    def context(self, metadata: Mapping[str, str]) -> Context:
        """What the task may know beside its options.

        Args:
            metadata: The model's metadata.
        """
        return Context(self.dataset, metadata, self._file)

    def _file(self, path: str, option: str) -> Path:
        """A file that the task names: inside the recipe's data root, or as it is where there is none."""
        recipe = self.recipe
        if recipe is None:
            return Path(path)
        opening = replace(recipe.opening("validation"), where=lambda *key: recipe.where("task", *key))
        return opening.inside(path, option)

    def record(self, overlap: int, notes: tuple[str, ...]) -> DatasetRecord:
        """The dataset as results keep it.

        Args:
            overlap: Number of its samples that were calibrated on.
            notes: What was left out or converted, beside the dataset's own notes.
        """
        preprocess: dict[str, Any] = dict(
            self.dataset.description if self.recipe is None else self.recipe.preprocess
        )
        return DatasetRecord(
            name=self.dataset.name,
            recipe="" if self.recipe is None else _recipe_name(self.recipe),
            fingerprint=fingerprint(self.dataset),
            samples=len(self.dataset),
            preprocess=preprocess,
            overlap_with_calibration=overlap,
            notes=(*self.dataset.notes, *notes),
        )


def _recipe_name(recipe: Recipe) -> str:
    """The path of a recipe, or the name of a shipped one: where calib is installed tells nothing."""
    names = {path: name for name, path in shipped_recipes().items()}
    return names.get(recipe.path, str(recipe.path))


def open_subject(
    data: str | os.PathLike[str] | Recipe | Dataset,
    *,
    samples: int | None = None,
    seed: int | None = None,
    exclude: Collection[str] = (),
    allow_overlap: bool = False,
    task: str | Mapping[str, Any] | TaskOptions | None = None,
) -> Subject:
    """Opens the validation data.

    Args:
        data: A recipe, its path or shipped name, or a dataset.
        samples: Number of samples; None for all.
        seed: Seed of the choice of samples from a dataset.
        exclude: Ids of the calibration samples.
        allow_overlap: Whether those may be validated on.
        task: What the model is for, where the recipe does not say it: as in recipes, or their options.

    Raises:
        DatasetError: The data cannot be read, or nothing is left of it.
        UsageError: There are fewer samples, samples or seed cannot be meant, a seed was given for a recipe,
            or the task cannot be meant.
    """
    stated = None if task is None else parse_task(task)
    if isinstance(data, Dataset):
        left_out = () if allow_overlap else exclude
        return Subject(_chosen(data, samples, seed, frozenset(left_out)), None, stated)
    if seed is not None:
        raise UsageError(
            "A recipe has its own seed (validation.seed): seed= is for datasets made in Python. Leave it out."
        )
    recipe = data if isinstance(data, Recipe) else load_recipe(data)
    dataset = open_validation(recipe, samples=samples, exclude=exclude, allow_overlap=allow_overlap)
    return Subject(dataset, recipe, stated or recipe.task)


def _chosen(dataset: Dataset, samples: int | None, seed: int | None, exclude: frozenset[str]) -> Dataset:
    kept = without(dataset, exclude)
    if not kept:
        raise DatasetError(
            f"No samples: the calibration names all {len(dataset)} ids of dataset {dataset.name!r}. "
            "If these are other samples, give the dataset another name; if they are the same, give other "
            "validation data or allow the overlap."
        )
    rest = dataset if len(kept) == len(dataset) else dataset.subset(kept)
    if len(kept) < len(dataset):
        left_out = len(dataset) - len(kept)
        rest = rest.with_notes(
            f"Left out {left_out} of {counted(len(dataset), 'sample[s]')}: "
            f"{inflected(left_out, '[it was|they were]')} calibrated on."
        )
    if samples is None:
        return rest
    if samples < 1:
        raise UsageError(f"Samples must be at least 1, got {samples}.")
    if samples > len(rest):
        raise UsageError(
            f"{samples} validation samples are wanted, but dataset {dataset.name!r} has {len(rest)} that "
            "were not calibrated on. Ask for fewer samples, or add data."
        )
    return rest.subset(sorted(pick(rest, samples, seed or 0)))


def latency_batch(dataset: Dataset, size: int) -> Batch:
    """The first samples as one batch, repeated in order where there are fewer."""
    return dataset.batch([index % len(dataset) for index in range(size)])


def batches(dataset: Dataset, size: int, fixed: int | None) -> Iterator[tuple[Batch, Batch]]:
    """Batches of samples, each with the batch that is fed.

    Args:
        dataset: The samples.
        size: Samples a batch.
        fixed: The batch size that the model insists on; None where any goes.
    """
    for batch in dataset.batches(size_of_batches(dataset, size, fixed)):
        yield batch, batch.filled(fixed or 0)


def size_of_batches(dataset: Dataset, size: int, fixed: int | None) -> int:
    """Samples a batch: 1 where state is carried, what the model insists on, or what was asked for.

    Raises:
        UsageError: State is carried, but the model insists on larger batches.
    """
    if not dataset.state:
        return fixed or size
    if fixed not in (None, 1):
        raise UsageError(
            f"Dataset {dataset.name!r} carries state, which goes one sample at a time, but the model insists "
            f"on batches of {fixed}. Export it with batch size 1 or a dynamic batch."
        )
    return 1


def data_name(data: str | os.PathLike[str] | Recipe | Dataset) -> str:
    """The path or name of the data, for commands and messages."""
    if isinstance(data, (str, os.PathLike)):
        return os.fspath(data)
    if isinstance(data, Recipe) and data.path.is_file():
        return str(data.path)
    # What is none of these is refused where it is opened.
    return str(getattr(data, "name", type(data).__name__))
