"""Finds what is wrong with a recipe's data, without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from calib.data.checks_files import FileFacts, check_files, file_facts
from calib.data.checks_labels import check_choice, check_labels_between, check_notes
from calib.data.checks_values import (
    Reading,
    check_against,
    check_duplicates,
    check_repeats,
    check_values,
    read_samples,
)
from calib.data.dataset import Dataset
from calib.data.findings import Finding
from calib.data.overview import spread
from calib.data.recipe import Recipe, Use

__all__ = ["check_datasets", "check_image_files", "same_files"]

_MOST_FILES = 5000
_OF_SOURCES = ("source", "files-left-out", "boxes-beyond")


def check_datasets(
    calibration: Dataset,
    validation: Dataset | None,
    samples: int | None = 256,
    known_copies: Mapping[str, str] | None = None,
) -> tuple[list[Finding], tuple[Reading, ...]]:
    """Everything that can be said of two datasets without a model.

    Args:
        calibration: What is calibrated on.
        validation: What is validated on; None where there is nothing.
        samples: Samples of each to read, spread evenly; None for all.
        known_copies: Validation sample → calibration sample of the same content, where that is known.

    Returns:
        The findings, and what was read of each.

    >>> import numpy as np
    >>> from calib.data import from_arrays
    >>> grey = np.random.default_rng(0).random((4, 1, 8, 8))
    >>> findings, _ = check_datasets(from_arrays("a", {"x": 255 * grey}), from_arrays("b", {"x": grey}))
    >>> [(finding.code, finding.severity) for finding in findings]
    [('ranges-differ', 'error')]
    """
    uses = {"calibration": calibration}
    if validation is not None:
        uses["validation"] = validation
    found: list[Finding] = []
    readings = []
    for use, dataset in uses.items():
        reading = read_samples(dataset, use, samples)
        readings.append(reading)
        found += [*check_notes(dataset, use), *check_choice(dataset, use), *check_values(reading)]
    found += [finding for reading in readings for finding in check_repeats(reading)]
    if validation is not None:
        found += check_labels_between(calibration, validation)
        found += check_against(readings[0], readings[1])
        found += check_duplicates(readings[0], readings[1], known_copies)
    return _merged(found), tuple(readings)


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """The source's notes once where both uses have the same source."""
    kept: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        words = finding.message
        if finding.code in _OF_SOURCES:
            words = words.partition(": ")[2]
            finding = Finding(finding.code, finding.severity, words, finding.where, finding.advice)
        kept.setdefault((finding.code, words), finding)
    return list(kept.values())


def check_image_files(recipe: Recipe, datasets: dict[Use, Dataset]) -> list[Finding]:
    """Looks at the heads of the image files of both uses, up to 5,000 of each.

    Args:
        recipe: Where they lie.
        datasets: The samples of each use.
    """
    files: dict[str, FileFacts] = {}
    found: list[Finding] = []
    for use, dataset in datasets.items():
        if not recipe.source_of(use).images:
            continue
        if len(dataset) > _MOST_FILES:
            message = f"{use}: the heads of {_MOST_FILES} of {len(dataset)} files were looked at."
            found.append(Finding("some-files", "note", message))
        for index in spread(len(dataset), _MOST_FILES):
            name = dataset.ids[index]
            path = recipe.data_root / name
            facts = file_facts(name, path) if name not in files and path.is_file() else None
            if facts is not None:
                files[name] = facts
    return [*found, *check_files(tuple(files.values()))]


def same_files(calibration: Dataset, validation: Dataset, root: Path) -> dict[str, str]:
    """Validation sample → calibration sample whose file has the same content, of up to 5,000 of each.

    Samples that are parts of a larger file, such as those of MNIST, are no files of their own.

    Args:
        calibration: What is calibrated on.
        validation: What is validated on.
        root: The folder that ids are relative to.
    """
    known = {content: name for name, content in _contents(calibration, root)}
    return {name: known[content] for name, content in _contents(validation, root) if content in known}


def _contents(dataset: Dataset, root: Path) -> Iterator[tuple[str, str]]:
    """Id and content of the samples that have a file of their own."""
    if dataset.content is None:
        return
    for index in spread(len(dataset), _MOST_FILES):
        if (root / dataset.ids[index]).is_file():
            yield dataset.ids[index], dataset.content(index)
