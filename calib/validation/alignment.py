"""Two results of the same samples, brought into one order and their runs into pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calib.errors import ValidationError
from calib.validation.outcomes import pack_hits, pack_powers, unpack_hits, unpack_powers
from calib.validation.results import OutputError, PrecisionRun, Results

__all__ = ["Pair", "align", "pair_runs"]


class Pair(NamedTuple):
    """The same run in the old and the new results."""

    old: PrecisionRun
    new: PrecisionRun


def align(results: Results, ids: Sequence[str]) -> Results:
    """Brings everything that is kept of each sample into another order of the samples.

    Resamples say nothing of samples in another order, and are left out where the order changes.

    Args:
        results: Of the same samples, in any order.
        ids: The order that is wanted.

    Raises:
        ValidationError: The samples are not the same.
    """
    if tuple(results.sample_ids) == tuple(ids):
        return results
    places = {name: index for index, name in enumerate(results.sample_ids)}
    common = sum(name in places for name in ids)
    if common != len(ids) or len(ids) != len(results.sample_ids):
        raise ValidationError(
            f"The results are of other samples: {len(ids)} in the old ones, {len(results.sample_ids)} in the "
            f"new ones, {common} in both. Only answers to the same samples can be compared: validate both "
            "with the same recipe and number of samples."
        )
    order = [places[name] for name in ids]
    runs = tuple(_reordered(run, order) for run in results.runs)
    labels = None if results.labels is None else tuple(results.labels[index] for index in order)
    return replace(results, sample_ids=tuple(ids), labels=labels, runs=runs)


def _reordered(run: PrecisionRun, order: list[int]) -> PrecisionRun:
    count = len(order)
    predictions = None if run.predictions is None else tuple(run.predictions[index] for index in order)
    outcomes = {
        name: pack_hits(unpack_hits(lines, count, f"{run.label} {name}")[order])
        for name, lines in run.outcomes.items()
    }
    outputs = tuple(_reordered_output(output, order, run.label) for output in run.outputs)
    return replace(run, predictions=predictions, outcomes=outcomes, outputs=outputs, draws={})


def _reordered_output(output: OutputError, order: list[int], label: str) -> OutputError:
    if not output.powers:
        return output
    powers = unpack_powers(output.powers, len(order), f"{label} {output.output}")
    return replace(output, powers=pack_powers(powers[:, np.array(order)]))


def pair_runs(
    old: Results, new: Results
) -> tuple[tuple[Pair, ...], tuple[PrecisionRun, ...], tuple[PrecisionRun, ...]]:
    """Finds for each new run the old one that is the same: by label, else by what it is.

    Returns:
        The pairs in the order of the new results, and the runs that only the old and only the new have.
    """
    pairs: list[Pair] = []
    left = list(old.runs)
    for run in new.runs:
        partner = _partner(run, left, new.runs)
        if partner is not None:
            pairs.append(Pair(partner, run))
            left.remove(partner)
    paired = [pair.new for pair in pairs]
    return tuple(pairs), tuple(left), tuple(run for run in new.runs if not any(run is one for one in paired))


def _partner(
    run: PrecisionRun, candidates: Sequence[PrecisionRun], others: Sequence[PrecisionRun]
) -> PrecisionRun | None:
    labelled = [one for one in candidates if (one.label, one.runner) == (run.label, run.runner)]
    if labelled:
        return labelled[0]
    alike = [one for one in candidates if _kind(one) == _kind(run)]
    several = sum(_kind(one) == _kind(run) for one in others) > 1
    return alike[0] if len(alike) == 1 and not several else None


def _kind(run: PrecisionRun) -> tuple[str, str, str]:
    return run.precision, run.runner, run.calibration
