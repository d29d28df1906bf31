"""Gates of accuracy: absolute and relative drop, worst class, agreement with FP32."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calib.errors import UsageError
from calib.validation.baseline import BaselineFigure
from calib.validation.changes import is_same
from calib.validation.corrections import holm
from calib.validation.drops import ClassDrop, class_drops
from calib.validation.gate_case import Case
from calib.validation.gate_draws import (
    judge_agreement_interval,
    judge_class_figures,
    judge_draws,
    undecided_classes,
)
from calib.validation.intervals import share_interval
from calib.validation.noninferiority import (
    NonInferiority,
    decide,
    relative_non_inferiority,
    share_non_inferiority,
)
from calib.validation.paired import PairedTable
from calib.validation.planning import required_samples
from calib.validation.results import Metric
from calib.validation.thresholds import plain
from calib.validation.verdicts import GateOutcome, Verdict
from calib.wording import counted

__all__ = ["judge_agreement", "judge_drop", "judge_worst_class"]


def judge_drop(case: Case) -> GateOutcome:
    """Judges "max_drop" and "max_relative_drop" of one figure.

    Where right and wrong answers to the same samples are known, or the figure on the same resamples, by a
    non-inferiority test; else by the interval that the results give the drop; else by the figure alone, which
    cannot pass.
    """
    name = case.rule.metric
    now, before = case.metric(name), case.reference_figure(name)
    settled = _unmeasured(case, now, before)
    if settled is not None or now is None or before is None:
        return settled or case.outcome("fail", "nothing was measured", subject=name)
    pair = case.hits(name)
    if pair is None:
        draws = case.draws(name)
        return _by_figures(case, now, before) if draws is None else judge_draws(case, now, before, draws)
    table = PairedTable.from_hits(*pair)
    relative = case.rule.gate == "max_relative_drop"
    test = (relative_non_inferiority if relative else share_non_inferiority)(
        table, case.rule.threshold.value, case.alpha
    )
    if test.drop is None:
        return case.outcome("fail", test.note, subject=name)
    return case.outcome(
        test.verdict,
        _reason(name, table, test, relative),
        subject=name,
        **_figures(test),
        note=_advice(case, table, test),
        noise=before.noise,
        builds=case.builds,
    )


def _figures(test: NonInferiority) -> dict[str, object]:
    return {
        "value": test.drop,
        "low": test.low,
        "high": test.high,
        "confidence": 1 - test.alpha,
        "method": test.method,
        "p_value": test.p_value,
        "p_worse": test.p_worse,
    }


def _unmeasured(case: Case, now: Metric | None, before: BaselineFigure | None) -> GateOutcome | None:
    """What there is to say where a figure is missing on either side; None where both are numbers."""
    name = case.rule.metric
    if case.baseline is not None and case.stored is None:
        labels = ", ".join(case.baseline.runs) or "none"
        return case.outcome(
            "fail", f"the baseline has no run {case.run.label} (its runs: {labels})", subject=name
        )
    if now is None and (before is None or case.baseline is None):
        known = ", ".join(one.name for one in case.run.metrics) or "none"
        return case.outcome("fail", f"the results have no figure {name!r} (they have: {known})", subject=name)
    old, new = _number(before), _number(now)
    if old is not None and new is not None:
        return None
    why = f": {now.note}" if now is not None and now.note else ""
    if case.baseline is None:
        return case.outcome("fail", f"nothing was measured{why}", subject=name)
    if new is not None:
        reason = f"null in the baseline, {plain(new)} now: new"
        return case.outcome("new", reason, subject=name, value=None)
    if old is not None:
        return case.outcome("fail", f"{plain(old)} in the baseline, not measured now{why}", subject=name)
    return case.outcome("not measured", "null in the baseline and now: not measured", subject=name)


def _number(figure: Metric | BaselineFigure | None) -> float | None:
    value = None if figure is None else figure.value
    return value if value is not None and math.isfinite(value) else None


def _by_figures(case: Case, now: Metric, before: BaselineFigure) -> GateOutcome:
    """A figure of which neither answers to each sample nor resamples are known."""
    assert now.value is not None
    assert before.value is not None
    sign = 1.0 if now.higher_is_better else -1.0
    scale = 1.0
    if case.rule.gate == "max_relative_drop":
        if not before.value:
            return case.outcome("fail", "the reference is 0: nothing to be relative to", subject=now.name)
        scale = abs(before.value)
    drop = sign * (before.value - now.value) / scale
    if case.baseline is not None and is_same(before.value, now.value, now.unit):
        drop = 0.0
    change = f"{now.name}: {plain(before.value)} → {plain(now.value)}"
    limit = case.rule.threshold.value
    low, high = now.drop_low, now.drop_high
    if case.baseline is not None or low is None or high is None or scale != 1.0:
        verdict: Verdict = "fail" if drop > limit else "undecided"
        reason = f"{change}; no answers to each sample are known, so there is no interval"
        return case.outcome(
            verdict, reason, subject=now.name, value=drop, noise=before.noise, builds=case.builds
        )
    low, high = sorted((sign * low, sign * high))
    verdict = "pass" if high <= limit else "fail" if low > limit else "undecided"
    confidence = (1 + now.confidence) / 2
    method = now.drop_method or ""
    return case.outcome(
        verdict,
        change,
        subject=now.name,
        value=drop,
        low=low,
        high=high,
        confidence=confidence,
        method=method,
    )


def _moved(drop: float) -> str:
    if abs(drop) < 1e-12:
        return "did not change"
    return f"{'fell' if drop > 0 else 'rose'} by {plain(100 * abs(drop), 3)}"


def _reason(name: str, table: PairedTable, test: NonInferiority, relative: bool) -> str:
    """What happened, and what the samples tell of it."""
    assert test.drop is not None
    unit = "%" if relative else " points"
    moved = _moved(test.drop)
    fall = moved if abs(test.drop) < 1e-12 else f"{moved}{unit}"
    counts = (
        f"{table.only_baseline} became wrong, {table.only_candidate} became right, of "
        f"{counted(table.count, 'sample[s]')}"
    )
    word, end = ("at least", test.low) if test.verdict == "fail" else ("at most", test.high)
    bound = "" if end is None else f"; a drop of {word} {plain(100 * end, 3)}{unit} at {_sure(test.alpha)}"
    return f"{name} {fall} ({counts}){bound}"


def _sure(alpha: float) -> str:
    return f"{plain(100 * (1 - alpha))}% confidence"


def _advice(case: Case, table: PairedTable, test: NonInferiority) -> str:
    """How many samples would decide, where these do not."""
    notes = [case.rule.threshold.warning] if case.rule.threshold.warning else []
    if test.verdict == "undecided":
        margin = case.rule.threshold.value
        if case.rule.gate == "max_relative_drop":
            margin *= (table.both + table.only_baseline) / table.count
        # One disagreement more than were seen: none seen does not mean none to come.
        rate = (table.disagreements + 1) / (table.count + 1)
        try:
            needed = required_samples(margin, rate, alpha=case.alpha)
            notes.append(f"about {counted(needed, 'sample[s]')} would decide it where the true drop is 0")
        except UsageError:
            notes.append("no number of samples can show that nothing at all was lost: allow a small drop")
    return "; ".join(notes)


def judge_worst_class(case: Case) -> GateOutcome:
    """Judges the class that lost most: each class is tested by itself.

    It passes where every class surely keeps the threshold, which needs no correction, and fails where one
    class surely does not, after Holm's correction over the classes.
    """
    name = case.rule.metric
    pair = case.hits(name)
    if pair is None and case.run.classes:
        return judge_class_figures(case)
    if pair is None or case.results.labels is None:
        return case.outcome("fail", _no_classes(case), subject=name)
    drops = class_drops(case.results.labels, *pair, confidence=1 - 2 * case.alpha)
    if not drops:
        return case.outcome("fail", "nothing was measured: no sample has a label", subject=name)
    margin = case.rule.threshold.value
    tests = [share_non_inferiority(one.table, margin, case.alpha) for one in drops]
    p_value, p_worse = max(test.p_value for test in tests), min(holm([test.p_worse for test in tests]))
    worst = drops[0]
    return case.outcome(
        decide(p_value, p_worse, case.alpha),
        _class_reason(worst, len(drops)),
        subject=name,
        value=worst.drop,
        low=worst.interval.low,
        high=worst.interval.high,
        confidence=1 - case.alpha,
        method=f"{worst.interval.method} of each class",
        p_value=p_value,
        p_worse=p_worse,
        note=_class_note(drops, [test.verdict for test in tests], case),
    )


def _no_classes(case: Case) -> str:
    task = case.results.task
    if task is not None and task != "classification":
        return f"{task} gives no figure of each class: there is none to judge"
    name = case.rule.metric
    return f"no labels, or no {name} answers, on both sides: classes cannot be judged"


def _class_reason(worst: ClassDrop, classes: int) -> str:
    table = worst.table
    moved = _moved(worst.drop)
    points = moved if abs(worst.drop) < 1e-12 else f"{moved} points"
    return (
        f"of {counted(classes, 'class[es]')}, class {worst.label} lost most: it {points} "
        f"({table.only_baseline} became wrong, {table.only_candidate} became right, of its "
        f"{counted(table.count, 'sample[s]')})"
    )


def _class_note(drops: Sequence[ClassDrop], verdicts: Sequence[str], case: Case) -> str:
    notes = [case.rule.threshold.warning] if case.rule.threshold.warning else []
    open_ones = [one for one, verdict in zip(drops, verdicts, strict=True) if verdict == "undecided"]
    if open_ones:
        counts = [one.table.count for one in open_ones]
        few, most = min(counts), max(counts)
        size = counted(few, "sample[s]") if few == most else f"{few} to {most} samples"
        each = " each" if len(open_ones) > 1 else ""
        notes.append(f"{undecided_classes(len(open_ones), len(drops))}, with {size}{each}")
    return "; ".join(notes)


def judge_agreement(case: Case) -> GateOutcome:
    """Judges how far a run gives FP32's answers: a share of samples by the exact binomial test."""
    from scipy.stats import binomtest

    metric = next((one for one in case.run.metrics if one.name.endswith("_agreement")), None)
    subject = "top1" if metric is None else metric.name.removesuffix("_agreement")
    if metric is not None and metric.successes is None and metric.value is not None:
        return judge_agreement_interval(case, metric, subject)
    if metric is None or not metric.count or metric.successes is None:
        return case.outcome("fail", "nothing was measured: no agreement with FP32", subject=subject)
    least = case.rule.threshold.value
    interval = share_interval(metric.successes, metric.count, 1 - 2 * case.alpha)
    p_value, p_worse = (
        float(binomtest(metric.successes, metric.count, least, alternative=side).pvalue)
        for side in ("greater", "less")
    )
    differing = metric.count - metric.successes
    verdict = decide(p_value, p_worse, case.alpha)
    return case.outcome(
        verdict,
        f"{differing} of {metric.count} answers differ from FP32's",
        subject=subject,
        value=metric.successes / metric.count,
        low=interval.low,
        high=interval.high,
        confidence=1 - case.alpha,
        method=f"exact binomial test; bounds: {interval.method}",
        p_value=p_value,
        p_worse=p_worse,
        note=_agreement_note(least, differing, case.alpha) if verdict == "undecided" else "",
    )


def _agreement_note(least: float, differing: int, alpha: float) -> str:
    """What would decide: of n samples that all agree, the chance of that at a share of m is mⁿ."""
    if least >= 1:
        return "no number of samples can show that no answer at all differs: allow a few"
    if differing or least <= 0:
        return ""
    needed = math.ceil(math.log(alpha) / math.log(least))
    return f"about {counted(needed, 'sample[s]')} would decide it where no answer differs"
