"""Every figure of some results against a stored baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from calib.validation.baseline import Baseline, BaselineFigure, BaselineRun, is_sqnr, sqnr_name
from calib.validation.outcomes import hits_of, unpack_hits
from calib.validation.paired import PairedTable, difference_interval
from calib.validation.resampling import paired_draws
from calib.validation.results import PrecisionRun, Results
from calib.validation.verdicts import Change, GateOutcome

__all__ = ["ROUNDING", "calmed", "circumstances_since", "compare_with_baseline", "figures_of", "is_same"]

ROUNDING = 1e-5
"""Baselines keep six digits: what differs less is the same."""


def is_same(before: float, after: float, unit: str) -> bool:
    """Whether two values of a figure differ by no more than baselines round.

    Shares and decibels count in their fifth decimal; a figure with a unit of its own may be small altogether.

    >>> is_same(0.0, 5e-6, "share"), is_same(2e-7, 6e-7, "m"), is_same(2e-7, 2e-7 * (1 + 1e-6), "m")
    (True, False, True)
    """
    least = 1.0 if unit in ("share", "dB") else 0.0
    return abs(after - before) <= ROUNDING * max(least, abs(before))


def figures_of(run: PrecisionRun) -> dict[str, float | None]:
    """Every figure of accuracy of a run: its metrics, and the SQNR of its outputs in dB."""
    metrics = {metric.name: metric.value for metric in run.metrics}
    return {**metrics, **{sqnr_name(output.output): output.sqnr_db for output in run.outputs}}


def compare_with_baseline(
    results: Results, baseline: Baseline, noise: Mapping[tuple[str, str], float] | None = None
) -> tuple[Change, ...]:
    """Puts every figure of results beside the baseline's.

    A change whose interval reaches to both sides of none is "not significant".

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
        before = {} if stored is None else _stored_figures(stored)
        after = figures_of(run)
        for name in dict.fromkeys((*after, *before)):
            spread = (noise or {}).get((run.label, name))
            figure = before.get(name)
            if spread is None and figure is not None:
                spread = figure.noise
            change = _exact(_change(run, name, figure, after.get(name), spread), run, figure)
            if stored is not None:
                change = _with_interval(change, results, run, stored, baseline.samples)
            found.append(change)
    return tuple(found)


def _stored_figures(stored: BaselineRun) -> dict[str, BaselineFigure]:
    return {**stored.metrics, **{sqnr_name(name): one for name, one in stored.sqnr_db.items()}}


_NO_ERROR = "no error at all"


def _exact(change: Change, run: PrecisionRun, before: BaselineFigure | None) -> Change:
    """An SQNR that is not measured since there is no error says so."""
    if change.status not in ("new", "missing", "not measured") or change.unit != "dB":
        return change
    notes = {sqnr_name(one.output): one.note for one in run.outputs if one.verdict == "equal"}
    now = notes.get(change.figure, "").startswith(_NO_ERROR)
    then = before is not None and before.note.startswith(_NO_ERROR)
    if not now and not then:
        return change
    return replace(change, status="same" if now and then else "no error now" if now else "no error before")


def circumstances_since(results: Results, baseline: Baseline) -> tuple[str, ...]:
    """What else is not as it was when a baseline was made: caches, TensorRT, GPU.

    Args:
        results: Of the same model and samples as the baseline.
        baseline: What they are compared with.
    """
    found = [
        f"calibration {one.name!r} is not the cache that the baseline was made with: what INT8 changed may "
        "come from it"
        for one in results.calibrations
        if baseline.calibrations.get(one.name, one.sha256) != one.sha256
    ]
    now = {"TensorRT": results.environment.tensorrt, "GPU": results.environment.gpu}
    before = {"TensorRT": baseline.environment.get("tensorrt"), "GPU": baseline.environment.get("gpu")}
    found += [
        f"another {name} than the baseline's: {before[name] or 'none'} → {value or 'none'}"
        for name, value in now.items()
        if value != before[name]
    ]
    return tuple(found)


def _unit(run: PrecisionRun, name: str, figure: BaselineFigure | None) -> str:
    """The unit of a figure, which a run that the baseline has not knows by itself."""
    if is_sqnr(name):
        return "dB"
    return next(
        (one.unit for one in run.metrics if one.name == name), "share" if figure is None else figure.unit
    )


def _change(
    run: PrecisionRun, name: str, figure: BaselineFigure | None, after: float | None, noise: float | None
) -> Change:
    before = None if figure is None else figure.value
    unit = _unit(run, name, figure)
    higher = figure is None or figure.higher_is_better
    if before is None or after is None:
        both = before is None and after is None
        status = "not measured" if both else "new" if before is None else "missing"
        return Change(run.label, name, before, after, status, noise=noise, unit=unit)
    if is_same(before, after, unit):
        status = "same"
    elif noise is not None and abs(after - before) <= noise * (1 + ROUNDING):
        status = "within noise"
    else:
        status = "better" if (after > before) is higher else "worse"
    return Change(run.label, name, before, after, status, noise=noise, unit=unit)


def _with_interval(
    change: Change, results: Results, run: PrecisionRun, stored: BaselineRun, samples: int
) -> Change:
    drawn = paired_draws(stored.draws.get(change.figure), run.draws.get(change.figure), run.label)
    if drawn is not None and change.before is not None and change.after is not None:
        low, high = np.percentile(drawn[0] - drawn[1], (2.5, 97.5)).tolist()
        return _doubted(replace(change, low=low, high=high))
    packed = stored.outcomes.get(change.figure)
    ours = hits_of(results, run, change.figure) if packed is not None else None
    if packed is None or ours is None or len(ours) != samples:
        return change
    theirs = unpack_hits(packed, samples, f"baseline {run.label} {change.figure}")
    interval = difference_interval(PairedTable.from_hits(theirs, ours))
    return _doubted(replace(change, low=interval.low, high=interval.high))


def _doubted(change: Change) -> Change:
    if change.status not in ("better", "worse") or change.low is None or change.high is None:
        return change
    return replace(change, status="not significant") if change.low <= 0 <= change.high else change


def calmed(outcome: GateOutcome) -> GateOutcome:
    """A gate against a stored baseline, with the rebuild noise taken into account.

    A change that is not larger than what builds of one model differ by is called that; it does not fail.
    """
    value, noise = outcome.value, outcome.noise
    if noise is None or value is None or outcome.against != "baseline":
        return outcome
    most = noise * (1 + ROUNDING)
    if outcome.gate == "max_latency_ratio":
        within, size = max(value, 1 / value) <= most, f"{noise:.4g} times"
    elif outcome.gate == "max_drop":
        within = 0 < abs(value) <= most
        size = f"{100 * noise:.4g} points" if outcome.unit == "share" else f"{noise:.4g}"
    else:
        return outcome
    if not within:
        return outcome
    builds = f" of {outcome.builds} builds" if outcome.builds else ""
    said = f"within the noise{builds}, which differ by up to {size}"
    note = f"{outcome.note}; {said}" if outcome.note else said
    verdict = "undecided" if outcome.verdict == "fail" else outcome.verdict
    return replace(outcome, verdict=verdict, note=note)
