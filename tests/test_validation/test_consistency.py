"""Results and baselines that were edited by hand: figures that their own answers contradict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_judging import judged, numbered
from task_results import as_results
from test_report import report_results as made

from calib.errors import ValidationError
from calib.validation import Results, check, compare, make_baseline, update_baseline
from calib.validation.consistency import baseline_problems, figure_problems
from calib.validation.outcomes import pack_hits, pack_powers
from calib.validation.results import PrecisionRun

RANDOM = np.random.default_rng(5)
LABELS = tuple(RANDOM.integers(0, 4, 120).tolist())


def classified() -> Results:
    """Answers of four classes, with packed answers, recalls, macro F1 and its resamples."""
    scores = np.eye(4, dtype=np.float32)[list(LABELS)] + RANDOM.normal(0, 0.4, (120, 4)).astype(np.float32)
    outputs = {"y": scores}, {"y": scores + RANDOM.normal(0, 0.3, scores.shape).astype(np.float32)}
    found = judged("classification", numbered(LABELS), *outputs, batch=50)
    results = as_results(found)
    runs = tuple(
        replace(run, predictions=tuple(finding.judge.predictions or ()), outputs=finding.judged_outputs()[:k])
        for k, (run, finding) in enumerate(zip(results.runs, found.findings, strict=True))
        if finding.judge is not None
    )
    return replace(results, runs=runs, labels=LABELS)


def regressed() -> Results:
    labels = [float(value) for value in RANDOM.normal(size=80)]
    fp32 = (np.array(labels) + RANDOM.normal(0, 0.1, 80)).astype(np.float32)[:, None]
    return as_results(judged("regression", numbered(labels), {"y": fp32}, {"y": fp32 + np.float32(0.05)}))


def edited(results: Results, **changes: Any) -> Results:
    return replace(results, runs=(results.runs[0], replace(results.runs[1], **changes)))


def stated(run: PrecisionRun, name: str, **changes: Any) -> tuple[Any, ...]:
    """The metrics with another figure of that name."""
    assert any(one.name == name for one in run.metrics)
    return tuple(replace(one, **changes) if one.name == name else one for one in run.metrics)


def reason(results: Results) -> str:
    """Why integrity fails, and that nothing else is needed for that."""
    report = check(results, min_cosine=0.0)
    (found,) = [one for one in report.outcomes if one.gate == "integrity" and one.verdict == "fail"]
    assert report.exit_code == 1
    assert "edited" in found.reason
    return found.reason


@pytest.mark.parametrize("make", [classified, regressed, made.classifier, made.two_calibrations, made.gpu])
def test_what_was_measured_is_consistent(make: Callable[[], Results]) -> None:
    results = make()
    assert [problem for run in results.runs for problem in figure_problems(results, run)] == []
    assert baseline_problems(make_baseline(results)) == ()


class TestShares:
    def test_a_better_top1(self) -> None:
        results = classified()
        run = results.runs[1]
        right = run.metrics[0].successes or 0
        better = stated(run, "top1", value=119 / 120, successes=119)
        assert (
            f"top1 is stated as 0.991667 (119 of 120), and the answers to each sample give {right / 120:.6g} "
            f"({right} of 120)"
        ) in reason(edited(results, metrics=better))

    def test_a_value_that_is_not_its_own_count(self) -> None:
        results = classified()
        found = reason(edited(results, metrics=stated(results.runs[1], "top1", value=0.999)))
        assert "top1 is stated as 0.999, and " in found

    def test_better_packed_answers(self) -> None:
        results = classified()
        run = results.runs[1]
        wrong = 120 - (run.metrics[0].successes or 0)
        metrics = stated(
            run, "top1", value=1.0, successes=120, drop=(results.runs[0].metrics[0].value or 0) - 1
        )
        found = edited(results, metrics=metrics, outcomes={"top1": pack_hits([True] * 120)})
        assert f"top1: {wrong} packed answers are not what labels and predictions say" in reason(found)

    def test_agreement_with_fp32(self) -> None:
        results = classified()
        metrics = stated(results.runs[1], "top1_agreement", value=1.0, successes=120)
        assert "top1_agreement is stated as 1 (120 of 120)" in reason(edited(results, metrics=metrics))

    def test_a_drop_that_is_not_the_difference(self) -> None:
        results = classified()
        metrics = stated(results.runs[1], "top1", drop=0.0)
        assert "top1 is stated to drop by 0, and goes from" in reason(edited(results, metrics=metrics))

    def test_labels_that_were_removed(self) -> None:
        found = reason(replace(classified(), labels=None))
        assert found.startswith("FP32, INT8 state a top1 and there are no labels")

    def test_labels_that_were_made_the_answers(self) -> None:
        results = classified()
        found = replace(results, labels=results.runs[1].predictions)
        report = check(found, max_drop="50%", precisions=["int8"])
        assert [one.run for one in report.outcomes if one.verdict == "fail"][:2] == ["FP32", "INT8"]

    def test_answers_of_no_figure(self) -> None:
        results = classified()
        metrics = tuple(one for one in results.runs[1].metrics if one.name != "top1")
        assert "no figure of that name" in reason(edited(results, metrics=metrics))


class TestOthers:
    def test_macro_f1(self) -> None:
        results = classified()
        value = results.runs[1].metrics[1].value or 0
        metrics = stated(results.runs[1], "macro_f1", value=value + 0.001, drop=None)
        assert "labels and predictions give" in reason(edited(results, metrics=metrics))

    def test_a_figure_beyond_its_resamples(self) -> None:
        results = regressed()
        metrics = stated(results.runs[1], "MAE", value=0.001, drop=None)
        assert "MAE is stated as 0.001, and its 1999 resamples lie between" in reason(
            edited(results, metrics=metrics)
        )

    def test_an_interval_beyond_its_resamples(self) -> None:
        results = regressed()
        metrics = stated(results.runs[1], "MAE", high=9.0)
        assert "the interval of MAE reaches beyond all" in reason(edited(results, metrics=metrics))

    def test_the_recall_of_a_class(self) -> None:
        results = classified()
        first, *others = results.runs[1].classes
        classes = (replace(first, value=1.0, drop=None), *others)
        assert "the recall of class 0 is stated as 1.0" in reason(edited(results, classes=classes))

    def test_a_better_output(self) -> None:
        results = classified()
        (output,) = results.runs[1].outputs
        assert output.sqnr_db is not None
        better = replace(output, sqnr_db=output.sqnr_db + 10)
        found = reason(edited(results, outputs=(better,)))
        assert f"and the errors of each sample give {output.sqnr_db:.4g} dB" in found
        silent = replace(output, powers=pack_powers(np.full((2, 120), 1e-36)))
        assert check(edited(results, outputs=(silent,)), max_drop="50%").passed  # too small to tell

    def test_answers_that_cannot_be_read(self) -> None:
        results = classified()
        assert "do not fit 120 samples" in reason(edited(results, outcomes={"top1": pack_hits([True] * 9)}))


def test_nothing_edited_becomes_a_baseline_or_passes_a_margin(tmp_path: Path) -> None:
    results = classified()
    better = edited(results, metrics=stated(results.runs[1], "top1", value=1.0, successes=120))
    with pytest.raises(ValidationError, match=r"cannot be a baseline.*the results file was edited"):
        update_baseline(better, tmp_path / "base.json")
    assert not (tmp_path / "base.json").exists()
    found = compare(results, better, margin="50%")
    assert found.verdict == "fail"
    assert found.faults[0].startswith("INT8: the results file was edited")


def test_a_baseline_that_was_edited(tmp_path: Path) -> None:
    results = classified()
    baseline = make_baseline(results)
    run = baseline.runs["INT8"]
    lower = replace(run, metrics={**run.metrics, "top1": replace(run.metrics["top1"], value=0.5)})
    report = check(results, baseline=replace(baseline, runs={**baseline.runs, "INT8": lower}), max_drop="50%")
    (found,) = [one for one in report.outcomes if one.verdict == "fail"]
    assert (found.subject, found.against) == ("baseline", "baseline")
    assert "INT8: top1 is stated as 0.5, and its answers give" in found.reason
