"""Two results files of one model: what changed between the versions that made them, and how sure that is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from calib.errors import UsageError, ValidationError
from calib.validation.alignment import Pair, align, pair_runs
from calib.validation.baseline import Baseline, make_baseline
from calib.validation.changes import calmed
from calib.validation.circumstances import find_circumstances
from calib.validation.corrections import Correction
from calib.validation.engine_shifts import engine_shifts, latency_shifts
from calib.validation.flips import find_flips
from calib.validation.gate_case import Case, fitted
from calib.validation.gate_rules import Rule, make_rules
from calib.validation.gate_shares import judge_drop
from calib.validation.integrity import check_integrity
from calib.validation.noise import Noise, as_builds, known_noise
from calib.validation.qualification import Circumstance, Qualification, Shift
from calib.validation.results import PrecisionRun, Results, read_results
from calib.validation.shifts import find_shifts, output_shifts
from calib.validation.verdicts import GateOutcome, corrected
from calib.wording import as_several

__all__ = ["compare"]

_Path = str | os.PathLike[str]


def compare(
    old: Results | _Path,
    new: Results | _Path,
    *,
    margin: float | str | None = None,
    metrics: Sequence[str] = (),
    noise: Sequence[Results | _Path] = (),
    alpha: float = 0.05,
    correction: Correction = "holm",
    allow_undecided: bool = False,
    anyway: bool = False,
) -> Qualification:
    """Compares two results of one model: of two TensorRT versions, two machines, or two commits.

    Every figure has the interval of its difference from answers to the same samples, and a test that is
    corrected over all figures. What else is not the same in both is listed first.

    Args:
        old: What a validation run found before, or the path of its results.json.
        new: What it finds now.
        margin: Largest drop of each new run against the old one, a share: 0.005 or "0.5%", or a number in the
            unit of a figure that is no share. Each run is then judged by a non-inferiority test; without it
            nothing is judged.
        metrics: Figures that the margin is of; by default the one that speaks for the results' task.
        noise: Results of two or more builds of the model, or of one run that made several.
        alpha: Chance of calling anything changed that is not, and of a wrong verdict on each side.
        correction: "holm", "bonferroni" or "none", for several figures and gates.
        allow_undecided: Whether undecided gates pass.
        anyway: Compare although the data, labels or preprocessing differ.

    Returns:
        Everything that changed.

    Raises:
        UsageError: An option cannot be meant.
        ValidationError: Results cannot be read, are of other samples, hold nothing, or are not of the same
            data and ``anyway`` is not given.
    """
    if not 0 < alpha < 0.5:
        raise UsageError(f"Alpha lies between 0 and 0.5, such as 0.05; got {alpha}.")
    if correction not in get_args(Correction):
        known = ", ".join(get_args(Correction))
        raise UsageError(f"Unknown correction {correction!r}. Choose from {known}.")
    before = old if isinstance(old, Results) else read_results(old)
    after = new if isinstance(new, Results) else read_results(new)
    _check_usable(before, "old")
    _check_usable(after, "new")
    after = align(after, before.sample_ids)
    pairs, only_old, only_new = pair_runs(before, after)
    if not any(pair.new.role != "baseline" for pair in pairs):
        raise ValidationError(_nothing_common(before, after))
    circumstances = find_circumstances(before, after, pairs)
    if not anyway:
        _refuse(circumstances)
    builds = [one if isinstance(one, Results) else read_results(one) for one in as_builds(noise)]
    known_builds = known_noise(builds, before, after)
    shifts = find_shifts(before, after, pairs, known_builds.spreads, alpha, correction)
    faults = _faults(before, after, shifts, only_old)
    gates = () if margin is None else _gates(before, after, pairs, margin, metrics, alpha, known_builds)
    judged = (calmed(one) for one in corrected(gates, correction, alpha))
    return Qualification(
        old=_named(old),
        new=_named(new),
        model=after.model.name,
        dataset=after.dataset.name,
        samples=len(after.sample_ids),
        circumstances=circumstances,
        shifts=shifts,
        flips=find_flips(after, pairs),
        outputs=output_shifts(pairs),
        latencies=latency_shifts(before, after, pairs, known_builds.latency),
        engines=engine_shifts(pairs),
        only_old=tuple(run.label for run in only_old),
        only_new=tuple(run.label for run in only_new),
        faults=tuple(reason for _, reason in faults),
        gates=_with_faults(tuple(replace(one, against="old results") for one in judged), faults),
        builds=known_builds.builds,
        alpha=alpha,
        correction=correction,
        allow_undecided=allow_undecided,
    )


def _named(source: Results | _Path) -> str:
    if isinstance(source, Results):
        return f"{source.model.name} on {source.dataset.name}, {source.created}"
    return os.fspath(source)


def _check_usable(results: Results, which: str) -> None:
    """Refuses results that hold nothing to compare; values that are not finite are shown as such."""
    faults = [one.reason for one in check_integrity(results) if one.verdict != "pass" and not one.run]
    if faults:
        raise ValidationError(f"The {which} results cannot be compared: {'; '.join(faults)}.")


def _faults(
    old: Results, new: Results, shifts: Sequence[Shift], only_old: Sequence[PrecisionRun]
) -> tuple[tuple[str, str], ...]:
    """What keeps the two from being compared whole: label of the run, empty for old ones, and the reason."""
    found = [
        ("", f"old {one.run}: {one.reason}")
        for one in check_integrity(old)
        if one.run and one.verdict != "pass"
    ]
    found += [
        (one.run, f"{one.run}: {one.reason}")
        for one in check_integrity(new)
        if one.run and one.verdict != "pass"
    ]
    found += [
        (one.run, f"{one.run} {one.figure} was measured before and is not now")
        for one in shifts
        if one.status == "missing"
    ]
    found += [(run.label, f"{run.label} was run before and is not now") for run in only_old]
    return tuple(found)


def _with_faults(
    gates: tuple[GateOutcome, ...], faults: Sequence[tuple[str, str]]
) -> tuple[GateOutcome, ...]:
    """The gates, and where there are any a failure for each fault of the new results."""
    if not gates:
        return ()
    failed = (GateOutcome("integrity", run, "values", "", "fail", reason) for run, reason in faults if run)
    return (*failed, *gates)


def _nothing_common(old: Results, new: Results) -> str:
    labels = [
        ", ".join(run.label for run in results.runs if run.role != "baseline") or "none"
        for results in (old, new)
    ]
    return (
        f"The results have no run in common: {labels[0]} before, {labels[1]} now. Validate the same "
        "precisions with the same runner, or see them side by side with calib report."
    )


def _refuse(circumstances: Sequence[Circumstance]) -> None:
    unfair = [one for one in circumstances if one.weight == "unfair"]
    if not unfair:
        return
    listed = "; ".join(
        f"{one.what}: {one.before} → {one.after}" + (f" ({one.note})" if one.note else "") for one in unfair
    )
    raise ValidationError(
        f"The comparison would be unfair: {listed}. Validate both with the same data and preprocessing, or "
        "compare them with --anyway (anyway=True), which says so in the report."
    )


def _gates(
    old: Results,
    new: Results,
    pairs: Sequence[Pair],
    margin: float | str,
    metrics: Sequence[str],
    alpha: float,
    noise: Noise,
) -> tuple[GateOutcome, ...]:
    """Non-inferiority of each new candidate against the same run of the old results."""
    chosen = as_several(metrics) or _default_metric(new, pairs)
    made = make_rules(max_drop=margin, metrics=chosen, against="baseline")
    rules = [fitted(rule, new) for rule in made]
    stored = make_baseline(old, noise.spreads, noise.latency, noise.builds)
    found = []
    for pair in pairs:
        if pair.new.role == "baseline":
            continue
        own = replace(stored, runs={pair.new.label: stored.runs[pair.old.label]})
        found += [_gate(new, pair, rule, own, alpha) for rule in rules]
    return tuple(found)


def _gate(new: Results, pair: Pair, rule: Rule, stored: Baseline, alpha: float) -> GateOutcome:
    return judge_drop(Case(new, pair.new, rule, stored, alpha))


def _default_metric(results: Results, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The figure that speaks for the task, else the first one that is compared with FP32's."""
    names = [
        metric.name
        for pair in pairs
        if pair.new.role != "baseline"
        for metric in pair.new.metrics
        if metric.drop is not None
    ]
    if not names:
        raise UsageError(
            "A margin is of a figure of accuracy, and the results have none: validate with labels and a task."
        )
    return (results.judged_by,) if results.judged_by in names else (names[0],)
