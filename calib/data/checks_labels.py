"""What is wrong with labels and with the choice of samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from calib.data.dataset import Dataset
from calib.data.findings import Doubt, Finding, Severity
from calib.wording import counted

__all__ = ["check_choice", "check_labels_between", "check_notes"]

_UNEVEN = 20


def check_notes(dataset: Dataset, use: str) -> list[Finding]:
    """What the source said while it listed the samples, doubts as warnings."""
    found = []
    numbered = _class_numbers(dataset) is not None
    for note in dataset.notes:
        if not isinstance(note, Doubt):
            found.append(Finding("source", "note", f"{use}: {note}"))
        elif not (numbered and note.code == "one-class"):  # check_choice says so, and what to do
            found.append(Finding(note.code, "warning", f"{use}: {note}", advice=note.advice))
    return found


def check_choice(dataset: Dataset, use: str) -> list[Finding]:
    """Labels of one use by themselves: sorted lists that were cut off, classes that are missing."""
    labels = _class_numbers(dataset)
    if labels is None:
        return []
    counts = Counter(labels)
    found = []
    in_order = len(labels) > 1 and all(a <= b for a, b in pairwise(labels))
    known = len(dataset.class_names) if dataset.class_names is not None else max(counts) + 1
    absent = known - len(counts)
    if len(counts) == 1 and len(labels) > 1:
        message = f"All {len(labels)} {use} samples are of one class, {labels[0]}."
        advice = "A list sorted by class and cut off? Take samples of all classes."
        found.append(Finding("one-class", "warning", message, advice=advice))
    elif in_order and absent and max(counts) < known - 1:
        message = (
            f"The {use} samples are sorted by class and end at class {max(counts)} of {known}: a sorted list "
            "that was cut off?"
        )
        advice = "Choose samples at random (validation.samples and seed), not the first of a sorted list."
        found.append(Finding("class-sorted", "warning", message, advice=advice))
    elif absent > 0 and dataset.class_names is not None and use == "validation":
        names = tuple(n for i, n in enumerate(dataset.class_names) if i not in counts)
        message = f"{absent} of {known} classes have no {use} sample."
        found.append(Finding("classes-missing", "note", message, names))
    found += _uneven(counts, use)
    return found


def _uneven(counts: Counter[int], use: str) -> list[Finding]:
    most, least = max(counts.values()), min(counts.values())
    if len(counts) < 2 or most < _UNEVEN * least or most < 2 * _UNEVEN:
        return []
    message = (
        f"Classes are uneven among the {use} samples: {counted(most, 'sample[s]')} of class "
        f"{counts.most_common(1)[0][0]}, "
        f"{least} of class {counts.most_common()[-1][0]}."
    )
    return [Finding("uneven-classes", "note", message, advice="Top-1 says little of the rare classes.")]


def check_labels_between(calibration: Dataset, validation: Dataset) -> list[Finding]:
    """Classes that are validated on but were not calibrated on."""
    ours, theirs = _class_numbers(calibration), _class_numbers(validation)
    if ours is None or theirs is None:
        return []
    absent = sorted(set(theirs) - set(ours))
    if not absent:
        return []
    share = len(absent) / len(set(theirs))
    message = f"{len(absent)} of {len(set(theirs))} validation classes have no calibration sample."
    where = tuple(map(str, absent))
    severity: Severity = "warning" if share > 0.5 else "note"
    advice = "Ranges may be too narrow for them: calibrate on more samples, or on samples of all classes."
    return [Finding("classes-not-calibrated", severity, message, where, advice)]


def _class_numbers(dataset: Dataset) -> Sequence[int] | None:
    labels = dataset.labels
    if not labels or not all(isinstance(label, (int, np.integer)) for label in labels):
        return None
    return [int(label) for label in labels]
