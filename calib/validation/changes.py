"""Every figure of some results against a stored baseline, and how far rebuilds of one model differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calib.errors import ValidationError
from calib.validation.baseline import Baseline, BaselineFigure, BaselineRun, sqnr_name
from calib.validation.outcomes import hits_of, unpack_hits
from calib.validation.paired import PairedTable, difference_interval
from calib.validation.resampling import paired_draws
from calib.validation.results import PrecisionRun, Results
from calib.validation.verdicts import Change, GateOutcome

__all__ = ["calmed", "compare_with_baseline", "rebuild_noise"]

_ROUNDING = 1e-5
"""Baselines keep six digits: what differs less is the same."""


def rebuild_noise(rebuilds: Sequence[Results]) -> dict[tuple[str, str], float]:
    """How far the figures of one model differ when it is built and validated again.

    Args:
        rebuilds: Results of at least two rebuilds: the same model, samples and calibration.

    Returns:
        (label of the run, figure) → largest minus smallest value; figures as in ``Change``.

    Raises:
        ValidationError: There are fewer than two, or they are of different models, data or caches.
    """
    if len(rebuilds) < 2:
        raise ValidationError(
            f"Rebuild noise shows in two or more results of one model; got {len(rebuilds)}. "
            "Build and validate it again, and give each results.json with --noise."
        )
    first = rebuilds[0]
    for other in rebuilds[1:]:
        for what, mine, theirs in (
            ("models", first.model.sha256, other.model.sha256),
            ("data", first.dataset.fingerprint, other.dataset.fingerprint),
            ("calibrations", *({one.name: one.sha256 for one in r.calibrations} for r in (first, other))),
        ):
            if mine != theirs:
                raise ValidationError(f"Rebuild noise is of one model; these results are of other {what}.")
    values: dict[tuple[str, str], list[float]] = {}
    for results in rebuilds:
        for run in results.runs:
            for name, value in _figures(run).items():
                if value is not None and math.isfinite(value):
                    values.setdefault((run.label, name), []).append(value)
    return {key: max(found) - min(found) for key, found in values.items() if len(found) == len(rebuilds)}


def _figures(run: PrecisionRun) -> dict[str, float | None]:
    metrics = {metric.name: metric.value for metric in run.metrics}
    return {**metrics, **{sqnr_name(output.output): output.sqnr_db for output in run.outputs}}


def compare_with_baseline(
    results: Results, baseline: Baseline, noise: dict[tuple[str, str], float] | None = None
) -> tuple[Change, ...]:
    """Puts every figure of results beside the baseline's.

    Args:
        results: Of the same samples as the baseline.
        baseline: What they are compared with.
        noise: (label, figure) → rebuild noise; it takes the place of what the baseline holds.

    Returns:
        A row for each figure of each run, those that only one side has included. Shares have the interval
        of before − after where answers to the same samples are known.
    """
    found: list[Change] = []
    for run in results.runs:
        stored = baseline.find(run)
        if stored is None:
            found += [Change(run.label, name, None, value, "new") for name, value in _figures(run).items()]
            continue
        before = {**stored.metrics, **{sqnr_name(name): one for name, one in stored.sqnr_db.items()}}
        after = _figures(run)
        for name in dict.fromkeys((*after, *before)):
            spread = (noise or {}).get((run.label, name))
            figure = before.get(name)
            if spread is None and figure is not None:
                spread = figure.noise
            change = _change(run.label, name, figure, after.get(name), spread)
            found.append(_with_interval(change, results, run, stored, baseline.samples))
    return tuple(found)


def _change(
    run: str, name: str, figure: BaselineFigure | None, after: float | None, noise: float | None
) -> Change:
    before = None if figure is None else figure.value
    unit = "dB" if name.startswith("SQNR of ") else "share" if figure is None else figure.unit
    higher = figure is None or figure.higher_is_better
    if before is None or after is None:
        both = before is None and after is None
        status = "not measured" if both else "new" if before is None else "missing"
        return Change(run, name, before, after, status, noise=noise, unit=unit)
    distance = abs(after - before)
    if distance <= _ROUNDING * max(1.0, abs(before)):
        status = "same"
    elif noise is not None and distance <= noise * (1 + _ROUNDING):
        status = "within noise"
    else:
        status = "better" if (after > before) is higher else "worse"
    return Change(run, name, before, after, status, noise=noise, unit=unit)


def _with_interval(
    change: Change, results: Results, run: PrecisionRun, stored: BaselineRun, samples: int
) -> Change:
    drawn = paired_draws(stored.draws.get(change.figure), run.draws.get(change.figure), run.label)
    if drawn is not None and change.before is not None and change.after is not None:
        low, high = np.percentile(drawn[0] - drawn[1], (2.5, 97.5)).tolist()
        return replace(change, low=low, high=high)
    packed = stored.outcomes.get(change.figure)
    ours = hits_of(results, run, change.figure) if packed is not None else None
    if packed is None or ours is None or len(ours) != samples:
        return change
    theirs = unpack_hits(packed, samples, f"baseline {run.label} {change.figure}")
    interval = difference_interval(PairedTable.from_hits(theirs, ours))
    return replace(change, low=interval.low, high=interval.high)


def calmed(outcome: GateOutcome) -> GateOutcome:
    """A gate against a stored baseline, with the rebuild noise taken into account.

    A change that is not larger than what rebuilds of one model differ by is called that; it does not fail.
    """
    value, noise = outcome.value, outcome.noise
    if noise is None or value is None or outcome.gate != "max_drop" or outcome.against != "baseline":
        return outcome
    if not 0 < abs(value) <= noise:
        return outcome
    said = f"the change is not larger than the rebuild noise, {100 * noise:.4g} points"
    note = f"{outcome.note}; {said}" if outcome.note else said
    verdict = "undecided" if outcome.verdict == "fail" else outcome.verdict
    return replace(outcome, verdict=verdict, note=note)
