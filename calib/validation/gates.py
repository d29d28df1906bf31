"""The check: results, rules and perhaps a stored baseline → a verdict for each gate, and one for all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from calib.errors import UsageError, ValidationError
from calib.files import check_apart
from calib.validation.baseline import Baseline, make_baseline, read_reference, write_baseline
from calib.validation.changes import calmed, circumstances_since, compare_with_baseline
from calib.validation.corrections import Correction
from calib.validation.gate_case import Case, fitted, has_two_sides
from calib.validation.gate_figures import judge_engine_size, judge_int8_share, judge_latency, judge_outputs
from calib.validation.gate_rules import GATES, GateFile, Limit, Rule, make_rules, read_gate_file
from calib.validation.gate_shares import judge_agreement, judge_drop, judge_worst_class
from calib.validation.integrity import check_identity, check_integrity
from calib.validation.latency_ratios import is_candidate
from calib.validation.noise import Noise, as_builds, known_noise
from calib.validation.results import PrecisionRun, Results, read_results
from calib.validation.verdicts import CheckReport, GateOutcome, corrected

__all__ = ["check", "update_baseline"]

_Path = str | os.PathLike[str]

_JUDGES: dict[str, Callable[[Case], GateOutcome]] = {
    "max_drop": judge_drop,
    "max_relative_drop": judge_drop,
    "worst_class": judge_worst_class,
    "min_agreement": judge_agreement,
    "max_latency_ratio": judge_latency,
    "min_int8_share": judge_int8_share,
    "max_engine_mb": judge_engine_size,
}


def check(
    results: Results | _Path,
    *,
    baseline: Baseline | Results | _Path | None = None,
    gates: _Path | GateFile | Sequence[Rule] = (),
    max_drop: Limit | None = None,
    max_relative_drop: Limit | None = None,
    worst_class: Limit | None = None,
    min_agreement: float | str | None = None,
    min_sqnr: float | str | None = None,
    min_cosine: float | str | None = None,
    max_latency_ratio: float | str | None = None,
    min_int8_share: float | str | None = None,
    max_engine_mb: float | str | None = None,
    metrics: Sequence[str] = (),
    against: str = "",
    precisions: Sequence[str] = (),
    noise: Sequence[Results | _Path] = (),
    alpha: float | None = None,
    correction: Correction | None = None,
    allow_undecided: bool | None = None,
) -> CheckReport:
    """Judges results of a validation by gates: is the quantized model good enough, and how sure is that?

    Drops are judged by non-inferiority tests on the answers to the same samples: "pass" where they are surely
    within the threshold, "fail" where they are surely beyond, else "undecided".

    Args:
        results: What a validation run found, or the path of its results.json.
        baseline: A stored baseline, or results that serve as one. Drops are then judged against it.
        gates: A YAML file with gates, its content, or rules; the thresholds below come on top. The baseline
            and the noise that a file names count where none are given here; of a file for pytest, which says
            too what pytest judges, ``results`` are judged.
        max_drop: Largest drop of each figure, a share: 0.01 or "1%"; or of a named one: "mAP=0.01", "MAE=3",
            and several of them. Where lower is better, a rise is the drop.
        max_relative_drop: Largest drop as a part of the reference's figure.
        worst_class: Largest drop of the class that lost most.
        min_agreement: Smallest share of samples with FP32's answer.
        min_sqnr: Smallest SQNR of each output, in dB.
        min_cosine: Smallest cosine similarity of each output.
        max_latency_ratio: Largest p50 divided by that of FP32; measured on a GPU, simulations are refused.
        min_int8_share: Smallest part of the engine's layers that compute in INT8.
        max_engine_mb: Largest engine, in megabytes of 10⁶ bytes.
        metrics: Figures that drops are judged of where none is named: "top1", "mAP"; by default the one that
            speaks for the results' task.
        against: "fp32", "fp16" (latency) or "baseline"; by default the baseline where one is given.
        precisions: Runs to judge, by precision or label; by default all but FP32.
        noise: Results of two or more builds of one model, or of one run that made several. A change against
            the baseline that is not larger than they differ is called noise. What ``results`` hold of builds
            of their own counts too.
        alpha: Chance of a wrong verdict on each side, of all gates together; 0.05 by default.
        correction: "holm" (default), "bonferroni" or "none", for several judgements.
        allow_undecided: Whether undecided gates let the check pass; by default they do not.

    Returns:
        Every gate's verdict; ``passed`` and ``exit_code`` tell the whole.

    Raises:
        UsageError: There is no gate, or a threshold or option cannot be meant.
        ValidationError: Results or baseline cannot be read.
    """
    file = _gate_file(gates)
    rules = file.rules + make_rules(
        metrics=metrics,
        against=against,
        precisions=precisions,
        max_drop=max_drop,
        max_relative_drop=max_relative_drop,
        worst_class=worst_class,
        min_agreement=min_agreement,
        min_sqnr=min_sqnr,
        min_cosine=min_cosine,
        max_latency_ratio=max_latency_ratio,
        min_int8_share=min_int8_share,
        max_engine_mb=max_engine_mb,
    )
    baseline = file.baseline if baseline is None else baseline
    settings = CheckReport(
        results=_named(results),
        baseline=_named(baseline),
        outcomes=(),
        allow_undecided=bool(file.allow_undecided) if allow_undecided is None else allow_undecided,
        alpha=alpha if alpha is not None else file.alpha if file.alpha is not None else 0.05,
        correction=correction or file.correction or "holm",
        warnings=tuple(dict.fromkeys(rule.threshold.warning for rule in rules if rule.threshold.warning)),
    )
    _check_settings(rules, settings)
    stored = _stored(baseline)
    found = _read(results)
    settings = replace(settings, warnings=(*found.doubts, *settings.warnings))
    known = known_noise([_read(one) for one in as_builds(noise) or file.noise], found)
    return _judge(settings, found, stored, rules, known)


def _gate_file(gates: _Path | GateFile | Sequence[Rule]) -> GateFile:
    if isinstance(gates, GateFile):
        return gates
    if isinstance(gates, (str, os.PathLike)):
        return read_gate_file(gates)
    return GateFile(tuple(gates))


def _read(results: Results | _Path) -> Results:
    return results if isinstance(results, Results) else read_results(results)


def _stored(baseline: Baseline | Results | _Path | None) -> Baseline | None:
    if baseline is None or isinstance(baseline, Baseline):
        return baseline
    return make_baseline(baseline) if isinstance(baseline, Results) else read_reference(baseline)


def _named(source: Results | Baseline | _Path | None) -> str:
    if source is None:
        return ""
    if isinstance(source, Results):
        return f"{source.model.name} on {source.dataset.name}, {source.created}"
    if isinstance(source, Baseline):
        return f"{source.model} on {source.dataset}, {source.created}"
    return str(Path(source))


def _check_settings(rules: Sequence[Rule], settings: CheckReport) -> None:
    alpha, correction = settings.alpha, settings.correction
    if not rules:
        raise UsageError(
            "Nothing to check: a check without a gate would always pass. Give --max-drop 1%, for instance, "
            f"or a file with --gates. Gates: {', '.join('--' + gate.replace('_', '-') for gate in GATES)}."
        )
    if not 0 < alpha < 0.5:
        raise UsageError(f"Alpha lies between 0 and 0.5, such as 0.05; got {alpha}.")
    if correction not in get_args(Correction):
        known = ", ".join(get_args(Correction))
        raise UsageError(f"Unknown correction {correction!r}. Choose from {known}.")


def _judge(
    report: CheckReport,
    results: Results,
    baseline: Baseline | None,
    rules: Sequence[Rule],
    noise: Noise,
) -> CheckReport:
    integrity = check_integrity(results)
    if not all(one.verdict == "pass" for one in integrity if not one.run):
        return replace(report, outcomes=integrity)
    identity: tuple[GateOutcome, ...] = ()
    if baseline is not None:
        partial = all(rule.precisions for rule in rules)
        identity = check_identity(results, baseline, partial=partial)
    same = all(one.verdict == "pass" for one in identity)
    outcomes = _outcomes(results, baseline if same else None, rules, report.alpha, baseline is not None)
    noisy = tuple(_with_noise(one, noise) for one in outcomes)
    judged = tuple(map(calmed, corrected(noisy, report.correction, report.alpha)))
    changes = compare_with_baseline(results, baseline, noise.spreads) if baseline is not None and same else ()
    since = circumstances_since(results, baseline) if baseline is not None and same else ()
    warnings = (*report.warnings, *since)
    return replace(report, outcomes=(*integrity, *identity, *judged), changes=changes, warnings=warnings)


def _with_noise(outcome: GateOutcome, noise: Noise) -> GateOutcome:
    if outcome.gate == "max_latency_ratio":
        spread = noise.latency.get(outcome.run)
    else:
        spread = noise.spreads.get((outcome.run, outcome.subject)) if outcome.gate == "max_drop" else None
    return outcome if spread is None else replace(outcome, noise=spread, builds=noise.builds)


def _outcomes(
    results: Results,
    baseline: Baseline | None,
    rules: Sequence[Rule],
    alpha: float,
    wanted: bool,
) -> tuple[GateOutcome, ...]:
    """Judges every rule on every run that it is about; none against a baseline of other things."""
    found: list[GateOutcome] = []
    for rule in (fitted(one, results) for one in rules):
        if rule.against == "baseline" and not wanted:
            raise UsageError(f"{rule.gate} is against the baseline, and none was given. Add --baseline.")
        stored = rule.against == "baseline" or (wanted and has_two_sides(rule) and not rule.against)
        if stored and baseline is None:
            continue
        runs = _runs(results, rule)
        if not runs:
            found.append(_nobody(rule))
        for run in runs:
            case = Case(results, run, rule, baseline if stored else None, alpha)
            judged = judge_outputs(case) if rule.gate not in _JUDGES else (_JUDGES[rule.gate](case),)
            found.extend(judged)
    return tuple(found)


def _nobody(rule: Rule) -> GateOutcome:
    reason = "nothing was measured: the results hold no run that this gate is about"
    return GateOutcome(rule.gate, "", rule.output or rule.metric, "", "fail", reason, rule.limit)


def _runs(results: Results, rule: Rule) -> list[PrecisionRun]:
    candidates = [run for run in results.runs if run.role != "baseline"]
    if rule.precisions:
        named = {name.lower() for name in rule.precisions}
        known = {name for run in candidates for name in (run.precision, run.label.lower())}
        if named - known:
            raise UsageError(
                f"The results have no {', '.join(sorted(named - known))} to judge. Their candidates: "
                f"{', '.join(run.label for run in candidates) or 'none'}."
            )
        candidates = [run for run in candidates if named & {run.precision, run.label.lower()}]
    elif rule.gate == "min_int8_share":
        candidates = [run for run in candidates if run.precision in ("int8", "best")]
    elif rule.gate == "max_latency_ratio" and rule.against != "baseline":
        # FP32 on the candidates' runner is there to be divided by, not to be judged.
        candidates = [run for run in candidates if is_candidate(run.precision, rule.against or "fp32")]
    if rule.gate == "max_latency_ratio":
        candidates = [run for run in candidates if run.precision != rule.against]
    return candidates


def update_baseline(
    results: Results | _Path, path: _Path, *, noise: Sequence[Results | _Path] = ()
) -> Baseline:
    """Writes results as the baseline that later ones are checked against.

    Args:
        results: What a validation run found, or the path of its results.json.
        path: The baseline file; an older one is replaced.
        noise: Results of two or more builds of the model, or of one run that made several; the baseline keeps
            how far they differ.

    Raises:
        UsageError: The baseline is one of the results files.
        ValidationError: Nothing was measured, or values are not finite: no measure for others.
        OutputError: The file cannot be written.
    """
    builds = as_builds(noise)
    for one in (results, *builds):
        if not isinstance(one, Results):
            check_apart(path, {"results file": one}, "--baseline")
    found = _read(results)
    faults = [f"{one.name}: {one.reason}" for one in check_integrity(found) if one.verdict != "pass"]
    if faults:
        raise ValidationError(f"These results cannot be a baseline. {'; '.join(faults)}.")
    known = known_noise([_read(one) for one in builds], found)
    baseline = make_baseline(found, known.spreads, known.latency, known.builds)
    write_baseline(baseline, path)
    return baseline
