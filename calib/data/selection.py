"""Which samples are calibrated on, and which are validated on."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calib.data.dataset import Dataset
from calib.data.findings import Doubt
from calib.data.recipe import Recipe
from calib.data.truth import Pair
from calib.errors import DatasetError, UsageError
from calib.wording import counted, inflected

__all__ = ["choose", "open_calibration", "open_validation", "pick", "without"]

_FEW_SAMPLES = 32


def _check_seed(seed: int) -> None:
    """Refuses a seed that numpy's generator does not take.

    Raises:
        UsageError: It is none.
    """
    if not 0 <= seed < 2**32:
        raise UsageError(f"Seed must be from 0 to 4294967295, got {seed}.")


def choose(
    count: int, samples: int, seed: int, labels: Sequence[Any] | None = None, *, cover: bool = False
) -> list[int]:
    """Chooses samples at random, each class in proportion.

    With labels the choice is stratified (sklearn.utils.resample without replacement): each class gets
    its share rounded up or down, also where a class has one sample or classes outnumber the choice.
    Covering comes before that share. The result is in random order, and the same everywhere for the
    same arguments.

    Args:
        count: Samples to choose from.
        samples: Samples to choose, from 1 to ``count``.
        seed: From 0 to 2³² - 1.
        labels: One a sample; None for a plain random choice.
        cover: Take one sample of each class first, or of as many classes as ``samples`` allows.

    Returns:
        Indices below ``count``, none twice.

    Raises:
        UsageError: The seed is out of these bounds.

    >>> sorted(choose(6, 2, seed=0, labels="aaabbb"))[1] >= 3
    True
    """
    from sklearn.utils import resample, shuffle

    _check_seed(seed)
    random = np.random.RandomState(seed)
    codes = _codes(count, labels)
    first: list[int] = []
    if cover:
        order = random.permutation(count)
        one_each = order[np.unique(codes[order], return_index=True)[1]]
        first = [int(index) for index in random.permutation(one_each)[:samples]]
    rest = np.setdiff1d(np.arange(count), first)
    more = samples - len(first)
    if more:
        drawn = resample(rest, replace=False, n_samples=more, random_state=random, stratify=codes[rest])
        first += [int(index) for index in drawn]
    return [int(index) for index in shuffle(first, random_state=random)]


def pick(dataset: Dataset, samples: int, seed: int, *, cover: bool = False) -> list[int]:
    """Chooses samples of a dataset: by class where labels are classes, and groups together.

    Groups come in random order, one of each class first if the choice shall cover them; within a group
    the order stays. The last one is cut at the number wanted, which leaves the start of a sequence; the
    two of a pair are never parted, so that there may be one sample less.

    Args:
        dataset: What to choose from.
        samples: Samples to choose, from 1 to all.
        seed: From 0 to 2³² - 1.
        cover: Take one sample, or group, of each class first.

    Returns:
        Indices, none twice.
    """
    if dataset.groups is None:
        return choose(len(dataset), samples, seed, dataset.labels, cover=cover)
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(dataset.groups):
        members.setdefault(group, []).append(index)
    chosen: list[int] = []
    whole = dataset.labels is not None and isinstance(dataset.labels[0], Pair)
    for found in _ordered(list(members.values()), dataset.labels, seed, cover):
        left = samples - len(chosen)
        if len(found) <= left or not chosen or not whole:
            chosen += found if whole else found[:left]
        if len(chosen) >= samples:
            break
    return chosen


def _ordered(
    groups: list[list[int]], labels: Sequence[Any] | None, seed: int, cover: bool
) -> list[list[int]]:
    """Groups in random order; one of each class first, where classes are to be covered."""
    order = [groups[index] for index in choose(len(groups), len(groups), seed)]
    if not cover or labels is None:
        return order
    codes = _codes(len(order), [labels[group[0]] for group in order])
    first = set(np.unique(codes, return_index=True)[1].tolist())
    return [order[place] for place in sorted(range(len(order)), key=lambda place: place not in first)]


def without(dataset: Dataset, ids: Collection[str]) -> list[int]:
    """Indices of the samples that are not among some ids, nor in a group with one that is."""
    if dataset.groups is None:
        return [index for index, sample_id in enumerate(dataset.ids) if sample_id not in ids]
    touched = {g for g, sample_id in zip(dataset.groups, dataset.ids, strict=True) if sample_id in ids}
    return [index for index, group in enumerate(dataset.groups) if group not in touched]


def _are_classes(labels: Sequence[Any]) -> bool:
    """Whether labels are class numbers, or names that recur.

    Measured values, boxes and pairs are no classes, nor are the texts of a text recognition.
    """
    if all(isinstance(label, (int, np.integer)) for label in labels):
        return True
    named = all(isinstance(label, (int, str, np.integer)) for label in labels)
    return named and 2 * len(set(labels)) <= len(labels)


def _codes(count: int, labels: Sequence[Any] | None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Class of each sample as a number; one class where there are no labels to tell them apart."""
    if labels is None or not _are_classes(labels):
        return np.zeros(count, np.int64)
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64)


def open_calibration(recipe: Recipe, *, samples: int | None = None, seed: int | None = None) -> Dataset:
    """Opens the calibration dataset: the chosen samples alone, in the order of the choice.

    The choice covers every class if there are enough samples, and is otherwise in proportion. The order is
    part of it, since the entropy calibrator depends on the order.

    Args:
        recipe: What to open.
        samples: How many, instead of the recipe's number.
        seed: Instead of the recipe's seed.

    Returns:
        The dataset; ``notes`` warn of few samples and of one class alone.

    Raises:
        UsageError: ``samples`` or ``seed`` cannot be meant.
        DatasetError: The data cannot be read, or are fewer than the samples wanted.
    """
    if seed is not None:
        _check_seed(seed)
    if samples is not None and samples < 1:
        raise UsageError(f"No samples: expected at least 1 calibration sample, got {samples}.")
    return _calibration(recipe, recipe.open("calibration"), samples, seed)


def _calibration(recipe: Recipe, dataset: Dataset, samples: int | None, seed: int | None) -> Dataset:
    wanted = recipe.calibration.samples if samples is None else samples
    if wanted > len(dataset):
        message = f"{wanted} calibration samples are wanted, but dataset {dataset.name!r} has {len(dataset)}."
        if samples is not None:
            raise UsageError(f"{message} Ask for fewer samples (--samples), or add data.")
        where = recipe.where("calibration", "samples")
        advice = "Lower it, give --samples, or add data."
        if "samples" not in recipe.calibration.model_fields_set:
            advice = f"That is the default: set calibration: {{samples: …}} to fewer than {len(dataset)}."
        raise DatasetError(f"{where}: {message} {advice}")
    used_seed = recipe.calibration.seed if seed is None else seed
    of_classes = _of_classes(recipe, dataset)
    chosen = pick(of_classes, wanted, used_seed, cover=True)
    return dataset.subset(chosen).with_notes(*_doubts(of_classes.subset(chosen), of_classes))


def _of_classes(recipe: Recipe, dataset: Dataset) -> Dataset:
    """The dataset as the choice looks at it: what lines of text say is no class."""
    kind = None if recipe.task is None else recipe.task.kind
    texts = kind == "custom" and any(isinstance(label, str) for label in dataset.labels or ())
    return replace(dataset, labels=None) if kind == "text" or texts else dataset


def _doubts(chosen: Dataset, dataset: Dataset) -> list[Doubt]:
    found = []
    if len(chosen) < _FEW_SAMPLES:
        few = counted(len(chosen), "calibration sample[s]")
        text = f"Only {few}: ranges found on fewer than {_FEW_SAMPLES} are often too narrow."
        found.append(Doubt(text, "choice"))
    if dataset.labels is not None and chosen.labels is not None:
        before = _classes(dataset.labels)
        after = len(set(chosen.labels)) if before else 0
        if after == 1:
            text = f"All calibration samples are of one class, {chosen.labels[0]!r}."
            found.append(Doubt(text, "one-class"))
        elif after < before:
            found.append(Doubt(f"Calibration samples cover {after} of {before} classes.", "choice"))
    return found


def _classes(labels: Sequence[Any]) -> int:
    """How many classes there are, 0 where labels are not such that classes can be told apart."""
    return len(set(labels)) if _are_classes(labels) else 0


def open_validation(
    recipe: Recipe,
    *,
    samples: int | None = None,
    exclude: Collection[str] = (),
    allow_overlap: bool = False,
) -> Dataset:
    """Opens the validation dataset: no sample of it was calibrated on.

    Left out are the samples that the recipe's own calibration section chooses and those in ``exclude``,
    by id. Of the rest all are taken, in the source's order, or a stratified choice in proportion.

    Args:
        recipe: What to open.
        samples: How many, instead of the recipe's number.
        exclude: Ids that were calibrated on, such as those in a calibration cache's sidecar.
        allow_overlap: Leave nothing out; so does ``allow_overlap: true`` in the recipe.

    Returns:
        The dataset; ``notes`` count what was left out.

    Raises:
        UsageError: ``samples`` cannot be meant.
        DatasetError: The data cannot be read, nothing is left, or less than the samples wanted.
    """
    if samples is not None and samples < 1:
        raise UsageError(f"No samples: expected at least 1 validation sample, got {samples}.")
    dataset = recipe.open("validation")
    if allow_overlap or recipe.validation.allow_overlap:
        rest = dataset.with_notes("Overlap is allowed: samples may have been calibrated on.")
    else:
        rest = _without(dataset, {*exclude, *_own_calibration_ids(recipe, dataset)})
    return _validation(recipe, rest, samples)


def _own_calibration_ids(recipe: Recipe, validation: Dataset) -> tuple[str, ...]:
    """Ids of the recipe's own choice; a common source was opened already."""
    common = recipe.source_of("calibration") == recipe.source_of("validation")
    source = validation if common else recipe.open("calibration")
    return _calibration(recipe, source, None, None).ids


def _without(dataset: Dataset, ids: Collection[str]) -> Dataset:
    rest = without(dataset, ids)
    if not rest:
        raise DatasetError(
            f"No samples: all {len(dataset)} of dataset {dataset.name!r} are used for calibration, none "
            "is left to validate on. Calibrate on fewer, give validation a source of its own, or set "
            "validation.allow_overlap: true."
        )
    left_out = len(dataset) - len(rest)
    if not left_out:
        return dataset
    return dataset.subset(rest).with_notes(
        f"Left out {left_out} of {counted(len(dataset), 'sample[s]')}: "
        f"{inflected(left_out, '[it is|they are]')} used for calibration."
    )


def _validation(recipe: Recipe, rest: Dataset, samples: int | None) -> Dataset:
    wanted = recipe.validation.samples if samples is None else samples
    if wanted is None:
        return rest
    if wanted > len(rest):
        message = (
            f"{wanted} validation samples are wanted, but dataset {rest.name!r} has {len(rest)} that "
            "are not calibrated on."
        )
        if samples is not None:
            raise UsageError(f"{message} Ask for fewer samples (--samples), or add data.")
        raise DatasetError(f"{recipe.where('validation', 'samples')}: {message} Lower it, or add data.")
    return rest.subset(pick(_of_classes(recipe, rest), wanted, recipe.validation.seed))
