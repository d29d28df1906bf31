"""Whether stated figures are those of the answers that lie beside them.

Gates, reports and baselines take some figures as they are stated and work out others from each sample's
answer. Where both are in the file they must be the same: a figure that was edited by hand says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from calib.errors import ValidationError
from calib.validation.baseline import Baseline, BaselineRun
from calib.validation.outcomes import answer_hits, unpack_hits, unpack_powers
from calib.validation.resampling import unpack_draws
from calib.validation.results import ClassFigure, Metric, OutputError, PrecisionRun, Results

__all__ = ["baseline_problems", "figure_problems", "missing_labels"]

_AGREEMENT = "_agreement"
_EXACT = 1e-9
_SIX_DIGITS = 1e-5
"""Baselines keep six digits of a figure."""

_DECIBELS = 1e-3
_LEAST_POWER = 1e-30
"""Powers are kept as float32, which holds nothing of smaller ones."""

Hits = npt.NDArray[np.bool_]


def missing_labels(results: Results) -> str:
    """What to say where a top-1 is stated and the labels that it comes from are not there; empty where not.

    Args:
        results: What a validation run found.
    """
    if results.labels is not None:
        return ""
    stated = [run.label for run in results.runs for one in run.metrics if one.name == "top1" and one.count]
    if not stated:
        return ""
    return f"{', '.join(stated)} state a top1 and there are no labels: the results file was cut or edited"


def figure_problems(results: Results, run: PrecisionRun) -> tuple[str, ...]:
    """What a run states that its own answers, errors or resamples contradict.

    Shares are counted again from the packed answers and the classes of each sample, agreement with FP32 from
    the classes, recalls from labels, SQNRs from each sample's powers, drops from both figures. A resampled
    figure must lie where its resamples do. What the file holds no answers of cannot be told: agreement of
    boxes, masks and values, cosine, latency.

    Args:
        results: The results that hold the run.
        run: One of its runs.
    """
    try:
        found = [*_answer_problems(results, run), *_metric_problems(results, run)]
        found += [problem for output in run.outputs if (problem := _power_problem(results, run, output))]
    except ValidationError as error:
        return (str(error),)
    return (*found, *_class_problems(results, run))


def _answer_problems(results: Results, run: PrecisionRun) -> Iterator[str]:
    """Packed answers without a figure, or other ones than the classes of each sample tell."""
    stated = {one.name for one in run.metrics}
    for name in run.outcomes:
        if name not in stated:
            yield f"there are answers to each sample for {name}, and no figure of that name"
    by_class = {"top1": answer_hits(results, run), f"top1{_AGREEMENT}": _agreement(results, run)}
    for name, hits in by_class.items():
        if hits is None or name not in run.outcomes:
            continue
        packed = _packed(results, run, name)
        if not np.array_equal(packed, hits):
            count = int((packed != hits).sum())
            yield f"{name}: {count} packed answers are not what labels and predictions say"


def _agreement(results: Results, run: PrecisionRun) -> Hits | None:
    """Whether a run's class is FP32's of the same results."""
    reference = results.baseline
    if reference is None or run.predictions is None or reference.predictions is None:
        return None
    ours, theirs = np.asarray(run.predictions), np.asarray(reference.predictions)
    same: Hits = (ours == theirs) & (ours >= 0)
    return same


def _packed(results: Results, run: PrecisionRun, name: str) -> Hits:
    return unpack_hits(run.outcomes[name], len(results.sample_ids), f"{run.label} {name}")


def _metric_problems(results: Results, run: PrecisionRun) -> Iterator[str]:
    reference = results.baseline
    before = {} if reference is None else {one.name: one.value for one in reference.metrics}
    for metric in run.metrics:
        if metric.value is None or not math.isfinite(metric.value):
            continue
        yield from _share_problems(metric, _hits(results, run, metric.name))
        if metric.name in run.outcomes or metric.successes is not None:
            continue
        yield from _draw_problems(metric, run)
        if metric.name == "macro_f1":
            yield from _f1_problems(results, run, metric)
    for metric in run.metrics:
        yield from _drop_problems(metric.name, metric, before.get(metric.name))


def _close(first: float, second: float, tolerance: float) -> bool:
    return abs(first - second) <= tolerance * max(1.0, abs(first), abs(second))


def _hits(results: Results, run: PrecisionRun, name: str) -> Hits | None:
    """The samples that a share counts, as far as the file tells."""
    if name in run.outcomes:
        return _packed(results, run, name)
    if name == "top1":
        return answer_hits(results, run)
    return _agreement(results, run) if name == f"top1{_AGREEMENT}" else None


def _share_problems(metric: Metric, hits: Hits | None) -> Iterator[str]:
    value, right = metric.value, metric.successes
    assert value is not None
    if right is not None and metric.count and not _close(value, right / metric.count, _EXACT):
        yield f"{metric.name} is stated as {value:.6g}, and {right} of {metric.count} are right"
    if hits is None:
        return
    counted = int(hits.sum())
    if metric.count != len(hits) or not _close(value, counted / len(hits), _EXACT) or right != counted:
        stated = f"{value:.6g}" + ("" if right is None else f" ({right} of {metric.count})")
        yield (
            f"{metric.name} is stated as {stated}, and the answers to each sample give "
            f"{counted / len(hits):.6g} ({counted} of {len(hits)})"
        )


def _draw_problems(metric: Metric, run: PrecisionRun) -> Iterator[str]:
    """A figure beyond all of its resamples by more than they are apart, or an interval that is not theirs."""
    draws = run.draws.get(metric.name)
    if draws is None:
        return
    assert metric.value is not None
    values = unpack_draws(draws.values, f"{run.label} {metric.name}")
    if not len(values):
        return
    least, most, spread = float(values.min()), float(values.max()), float(values.std())
    # float32 keeps seven digits.
    slack = spread + 1e-6 * max(1.0, abs(least), abs(most))
    if not least - slack <= metric.value <= most + slack:
        yield (
            f"{metric.name} is stated as {metric.value:.6g}, and its {len(values)} resamples lie between "
            f"{least:.6g} and {most:.6g}"
        )
    ends = [end for end in (metric.low, metric.high) if end is not None]
    if any(not least - slack <= end <= most + slack for end in ends):
        yield f"the interval of {metric.name} reaches beyond all of its resamples"


def _f1_problems(results: Results, run: PrecisionRun, metric: Metric) -> Iterator[str]:
    from calib.validation.tasks.classification import MacroF1

    if results.labels is None or run.predictions is None:
        return
    labels, answers = (np.asarray(part, np.int64) for part in (results.labels, run.predictions))
    if (labels < 0).any():
        return
    found = float(MacroF1(labels, answers)(np.ones((1, len(labels))))[0, 0])
    assert metric.value is not None
    if not _close(metric.value, found, _EXACT):
        yield f"macro_f1 is stated as {metric.value:.6g}, and labels and predictions give {found:.6g}"


def _power_problem(results: Results, run: PrecisionRun, output: OutputError) -> str:
    if output.sqnr_db is None or not output.powers:
        return ""
    count = len(results.sample_ids)
    signal, noise = unpack_powers(output.powers, count, f"{run.label} {output.output}").sum(axis=1).tolist()
    if min(signal, noise) < _LEAST_POWER or not math.isfinite(output.sqnr_db):
        return ""
    found = 10 * math.log10(signal / noise)
    if abs(found - output.sqnr_db) <= _DECIBELS:
        return ""
    return (
        f"the SQNR of {output.output} is stated as {output.sqnr_db:.4g} dB, and the errors of each sample "
        f"give {found:.4g} dB"
    )


def _drop_problems(what: str, figure: Metric | ClassFigure, before: float | None) -> Iterator[str]:
    """Whether a stated drop is what the baseline's value and this one differ by."""
    drop, value = figure.drop, figure.value
    if drop is None or value is None or before is None:
        return
    if not _close(drop, before - value, _EXACT):
        yield f"{what} is stated to drop by {drop:.6g}, and goes from {before:.6g} to {value:.6g}"


def _class_problems(results: Results, run: PrecisionRun) -> Iterator[str]:
    reference = results.baseline
    before = {} if reference is None else {one.label: one.value for one in reference.classes}
    for one in run.classes:
        what = f"the {run.class_metric} of class {one.label}"
        yield from _drop_problems(what, one, before.get(one.label))
    right = answer_hits(results, run) if run.class_metric == "recall" else None
    if right is not None:
        yield from _recall_problems(run.classes, np.asarray(results.labels, np.int64), right)


def _recall_problems(
    classes: Sequence[ClassFigure], labels: npt.NDArray[np.int64], right: Hits
) -> Iterator[str]:
    known = labels >= 0
    counts = np.bincount(labels[known])
    hits = np.bincount(labels[known], weights=right[known], minlength=len(counts))
    for one in classes:
        count = int(counts[one.label]) if 0 <= one.label < len(counts) else 0
        found = float(hits[one.label]) / count if count else None
        if count != one.count or (
            one.value is not None and (found is None or not _close(one.value, found, _EXACT))
        ):
            said = "no samples" if found is None else f"{found:.6g} of {count} samples"
            yield (
                f"the recall of class {one.label} is stated as {one.value} of {one.count} samples, and "
                f"labels and predictions give {said}"
            )


def baseline_problems(baseline: Baseline) -> tuple[str, ...]:
    """What a stored baseline states that its own packed answers contradict.

    Args:
        baseline: The baseline.
    """
    try:
        return tuple(
            problem
            for label, run in baseline.runs.items()
            for problem in _stored_problems(label, run, baseline.samples)
        )
    except ValidationError as error:
        return (str(error),)


def _stored_problems(label: str, run: BaselineRun, samples: int) -> Iterator[str]:
    for name, packed in run.outcomes.items():
        figure = run.metrics.get(name)
        share = float(unpack_hits(packed, samples, f"baseline {label} {name}").mean()) if samples else 0.0
        if figure is None or figure.value is None:
            yield f"{label}: there are answers to each sample for {name}, and no figure of that name"
        elif not _close(figure.value, share, _SIX_DIGITS):
            yield f"{label}: {name} is stated as {figure.value:.6g}, and its answers give {share:.6g}"
