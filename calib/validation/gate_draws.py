"""Gates of figures that are no share of samples: by the bootstrap, on the resamples of both runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calib.validation.baseline import BaselineFigure
from calib.validation.changes import ROUNDING
from calib.validation.corrections import holm
from calib.validation.gate_case import Case
from calib.validation.intervals import Floats
from calib.validation.noninferiority import decide
from calib.validation.results import ClassFigure, Metric
from calib.validation.thresholds import plain
from calib.validation.verdicts import GateOutcome, Verdict
from calib.wording import counted, inflected

__all__ = ["judge_agreement_interval", "judge_class_figures", "judge_draws", "undecided_classes"]


def judge_draws(case: Case, now: Metric, before: BaselineFigure, draws: tuple[Floats, Floats]) -> GateOutcome:
    """Judges a drop by how many resamples show one at or beyond the threshold.

    p = (1 + resamples at or beyond the threshold) / (resamples + 1), and likewise on the other side. Where no
    resample differs from another, no sample moved: a drop of m, of a figure between 0 and 1, takes at least a
    share m of samples that move, and that none of n was among them has the chance (1 − m)ⁿ. Of other figures
    m is taken as a part of the figure itself. A relative drop of m is one of m times the reference.

    Args:
        case: The gate.
        now: The run's figure.
        before: The reference's.
        draws: The figure of reference and run on the same resamples.
    """
    assert now.value is not None
    assert before.value is not None
    sign, margin = (1.0 if now.higher_is_better else -1.0), case.rule.threshold.value
    relative = case.rule.gate == "max_relative_drop"
    if relative and (not before.value or not draws[0].all()):
        return case.outcome("fail", "the reference is 0: nothing to be relative to", subject=now.name)
    drops = sign * (draws[0] - draws[1]) / (np.abs(draws[0]) if relative else 1.0)
    value = sign * (before.value - now.value) / (abs(before.value) if relative else 1.0)
    if case.baseline is not None and abs(value) <= ROUNDING * max(1.0, abs(before.value)) and not drops.any():
        value = 0.0
    # What the whole figure is, in the unit of the threshold.
    whole = 1.0 if now.unit == "share" or not before.value else abs(before.value)
    whole = whole / abs(before.value) if relative else whole
    low, high = np.percentile(drops, [100 * case.alpha, 100 * (1 - case.alpha)]).tolist()
    if _unmoved(drops):
        p_value, p_worse = (1 - min(1.0, margin / whole)) ** now.count, 1.0
        high = whole * (1 - case.alpha ** (1 / now.count))
        note = _needed(margin / whole, now.count, case.alpha)
    else:
        p_value, p_worse, note = *_p_values(drops, margin), ""
    verdict = decide(p_value, p_worse, case.alpha)
    return case.outcome(
        verdict,
        _reason(now, before, value, ("at least", low) if verdict == "fail" else ("at most", high), case),
        subject=now.name,
        value=value,
        low=low,
        high=high,
        confidence=1 - case.alpha,
        method=f"paired bootstrap, {len(drops)} resamples",
        p_value=p_value,
        p_worse=p_worse,
        note="; ".join(part for part in (case.rule.threshold.warning, note) if part),
        noise=before.noise,
        builds=case.builds,
    )


def _unmoved(drops: Floats) -> bool:
    return bool((drops == drops[0]).all()) and abs(drops[0]) < 1e-12


def _p_values(drops: Floats, margin: float) -> tuple[float, float]:
    """Of "the threshold is not kept" and of "it is kept"."""
    total = len(drops) + 1
    return (1 + int((drops >= margin).sum())) / total, (1 + int((drops <= margin).sum())) / total


def _needed(margin: float, count: int, alpha: float) -> str:
    said = "no sample moved: judged by how many there are"
    if not 0 < margin < 1:
        return said
    needed = math.ceil(math.log(alpha) / math.log(1 - margin))
    return said if needed <= count else f"{said}; about {needed} would decide it"


def _reason(now: Metric, before: BaselineFigure, value: float, bound: tuple[str, float], case: Case) -> str:
    relative = case.rule.gate == "max_relative_drop"
    share = now.unit == "share" or relative
    scale, unit = (100.0, "%" if relative else " points") if share else (1.0, f" {now.unit}".rstrip())
    moved = "did not change"
    if abs(value) >= 1e-12:
        fell = (value > 0) is now.higher_is_better
        moved = f"{'fell' if fell else 'rose'} by {plain(scale * abs(value), 3)}{unit}"
    assert before.value is not None
    assert now.value is not None
    change = f"{now.name} {moved} ({plain(before.value)} → {plain(now.value)})"
    sure = f"{plain(100 * (1 - case.alpha))}% confidence"
    word, end = bound
    return f"{change}; a loss of {word} {plain(scale * end, 3)}{unit} at {sure}"


def judge_class_figures(case: Case) -> GateOutcome:
    """Judges the class that lost most by each class' own drop and its standard error.

    It passes where every class surely keeps the threshold, which needs no correction, and fails where one
    class surely does not, after Holm's correction over the classes. A class without a standard error is
    undecided by itself.

    Against a stored baseline the drop is before − now, and its standard error at most the sum of both runs'
    against FP32: sd(X − Y) ≤ sd(X) + sd(Y). That takes FP32's figure of the class to be what it was.
    """
    name, margin = f"{case.run.class_metric} of a class", case.rule.threshold.value
    missing = _no_classes(case)
    if missing:
        return case.outcome("fail", missing, subject=name)
    classes = case.run.classes if case.baseline is None else _since_baseline(case)
    known = [one for one in classes if one.drop is not None]
    if not known:
        return case.outcome("fail", "nothing was measured: no class has a figure on both sides", subject=name)
    p_values, p_worse = zip(*(_class_test(one, margin) for one in known), strict=True)
    worst = max(known, key=lambda one: (one.drop or 0.0, one.count))
    error = worst.drop_error
    verdict: Verdict = decide(max(p_values), min(holm(p_worse)), case.alpha)
    undecided = sum(not (p <= case.alpha or q <= case.alpha) for p, q in zip(p_values, p_worse, strict=True))
    drop = worst.drop or 0.0
    reach = None if error is None else 1.6448536269514722 * error
    title = f"class {worst.label}" + (f" ({worst.name})" if worst.name else "")
    return case.outcome(
        verdict,
        f"of {counted(len(known), 'class[es]')}, {title} lost most: its {case.run.class_metric} "
        f"{_moved(drop)}",
        subject=name,
        value=drop,
        low=None if reach is None else drop - reach,
        high=None if reach is None else drop + reach,
        confidence=0.95,
        method=_class_method(case),
        p_value=max(p_values),
        p_worse=min(holm(p_worse)),
        note=_class_note(case, known, undecided),
    )


def _no_classes(case: Case) -> str:
    """Why classes cannot be judged against the stored baseline; empty where they can."""
    if case.baseline is None:
        return ""
    if case.stored is None:
        return f"the baseline has no run {case.run.label} (its runs: {', '.join(case.baseline.runs)})"
    if case.stored.class_metric == case.run.class_metric:
        return ""
    kept = (
        f"{case.stored.class_metric} of each class" if case.stored.class_metric else "no figures of classes"
    )
    return f"the baseline keeps {kept}, not {case.run.class_metric}: make it again with --update-baseline"


def _class_method(case: Case) -> str:
    said = "normal approximation with the bootstrap's standard error of each class"
    return said if case.baseline is None else f"{said}, at most the sum of both runs' against FP32"


def undecided_classes(undecided: int, classes: int) -> str:
    """How many of the classes their own tests leave open, in words."""
    verb = inflected(undecided, "[is|are] undecided by [itself|themselves]")
    return f"{undecided} of {counted(classes, 'class[es]')} {verb}"


def _class_note(case: Case, known: Sequence[ClassFigure], undecided: int) -> str:
    notes = [case.rule.threshold.warning]
    if undecided:
        notes.append(undecided_classes(undecided, len(known)))
    if case.baseline is not None and any(one.drop_error is None for one in known):
        notes.append("of some classes FP32's own figure is not what it was, or no spread is known")
    return "; ".join(note for note in notes if note)


def _since_baseline(case: Case) -> tuple[ClassFigure, ...]:
    """Each class' drop since the baseline, with the most that its standard error can be."""
    stored, fp32 = case.stored, case.baseline.find(case.reference) if case.baseline else None
    assert stored is not None
    now = {one.label: one.value for one in case.reference.classes}
    before = {} if fp32 is None else fp32.class_values
    found = []
    for one in case.run.classes:
        old, error = stored.class_values.get(str(one.label)), stored.class_errors.get(str(one.label))
        drop = None if old is None or one.value is None else old - one.value
        if drop is not None and abs(drop) <= ROUNDING:
            drop = 0.0
        same = _same(now.get(one.label), before.get(str(one.label)))
        whole = None if not same or error is None or one.drop_error is None else error + one.drop_error
        found.append(replace(one, drop=drop, drop_error=whole))
    return tuple(found)


def _same(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and abs(first - second) <= ROUNDING


def _moved(drop: float) -> str:
    if abs(drop) < 1e-12:
        return "did not change"
    return f"{'fell' if drop > 0 else 'rose'} by {plain(100 * abs(drop), 3)} points"


def _class_test(one: ClassFigure, margin: float) -> tuple[float, float]:
    """p-values of "the class does not keep the threshold" and of "it does"."""
    from scipy.stats import norm

    if one.drop is None or one.drop_error is None:
        return 1.0, 1.0
    if not one.drop_error:
        return ((1 - min(1.0, margin)) ** one.count, 1.0) if not one.drop else (1.0, 1.0)
    z = (one.drop - margin) / one.drop_error
    return float(norm.cdf(z)), float(norm.sf(z))


def judge_agreement_interval(case: Case, metric: Metric, subject: str) -> GateOutcome:
    """Judges agreement that is no share of samples by its 95 % interval over the samples."""
    least, value = case.rule.threshold.value, metric.value
    assert value is not None
    shown = plain(value)
    if metric.low is None or metric.high is None or not math.isfinite(value):
        verdict: Verdict = "pass" if value >= least else "fail"
        return case.outcome(verdict, f"agreement {shown}, without an interval", subject=subject, value=value)
    return case.outcome(
        "pass" if metric.low >= least else "fail" if metric.high < least else "undecided",
        f"agreement {shown} (95% interval over samples: {plain(metric.low)} to {plain(metric.high)})",
        subject=subject,
        value=value,
        low=metric.low,
        high=metric.high,
        confidence=0.975,
        method=metric.interval,
    )
