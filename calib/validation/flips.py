"""Answers that are not the same in two results of the same samples, the worst first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calib.validation.alignment import Pair
from calib.validation.intervals import Floats
from calib.validation.outcomes import unpack_powers
from calib.validation.qualification import Flip, Flips
from calib.validation.results import PrecisionRun, Results

__all__ = ["find_flips"]

_LISTED = 20
_ORDER = ("became wrong", "became right", "changed")


def find_flips(new: Results, pairs: Sequence[Pair], most: int = _LISTED) -> tuple[Flips, ...]:
    """Finds the samples that each run answers differently than before.

    Args:
        new: The new results, with the labels.
        pairs: Old and new runs of the same samples in the same order.
        most: How many of each effect are listed.

    Returns:
        An entry for each run that answers with classes.
    """
    return tuple(found for pair in pairs if (found := _of_run(new, pair, most)) is not None)


def _of_run(new: Results, pair: Pair, most: int) -> Flips | None:
    before, after, ids = pair.old.predictions, pair.new.predictions, new.sample_ids
    if before is None or after is None or not len(before) == len(after) == len(ids):
        return None
    changed = [index for index in range(len(ids)) if before[index] != after[index]]
    levels = _levels(pair.new, len(ids))
    flips = []
    for index in changed:
        label = None if new.labels is None or new.labels[index] < 0 else new.labels[index]
        effect = _effect(label, before[index], after[index])
        flips.append(Flip(ids[index], label, before[index], after[index], effect, levels[index]))
    flips.sort(key=lambda one: (_ORDER.index(one.effect), math.inf if one.sqnr_db is None else one.sqnr_db))
    listed = tuple(one for effect in _ORDER for one in [f for f in flips if f.effect == effect][:most])
    counts = [sum(one.effect == effect for one in flips) for effect in _ORDER[:2]]
    wrong, right = counts if new.labels is not None else (None, None)
    return Flips(pair.new.label, len(ids), len(changed), wrong, right, listed)


def _effect(label: int | None, before: int, after: int) -> str:
    if label == before:
        return "became wrong"
    return "became right" if label == after else "changed"


def _levels(run: PrecisionRun, count: int) -> list[float | None]:
    """SQNR of all outputs of each sample, in dB; None without error, signal or knowledge."""
    packed = [output for output in run.outputs if output.powers]
    if not packed:
        return [None] * count
    total: Floats = np.zeros((2, count))
    for output in packed:
        total = total + unpack_powers(output.powers, count, f"{run.label} {output.output}")
    return [
        10 * math.log10(signal / noise) if signal > 0 and noise > 0 else None
        for signal, noise in total.T.tolist()
    ]
