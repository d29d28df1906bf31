"""Results made of judged answers, without any model."""

from __future__ import annotations

from dataclasses import replace

from test_report import report_results as made

from calib.validation import Results
from calib.validation.comparison import Comparison


def as_results(comparison: Comparison) -> Results:
    """FP32 and INT8 as a validation run would have recorded their answers."""
    base = made.classifier()
    assert comparison.task is not None
    judgements = comparison.judgements
    runs = tuple(
        replace(
            run,
            metrics=judgement.metrics,
            predictions=None,
            outcomes=found.outcomes(),
            draws=judgement.draws,
            class_metric=judgement.class_metric,
            classes=judgement.classes,
            confusions=judgement.confusions,
        )
        for run, found, judgement in zip(
            (base.runs[0], base.runs[2]), comparison.findings, judgements, strict=True
        )
    )
    count = max(metric.count for judgement in judgements for metric in judgement.metrics)
    return replace(
        base,
        task=comparison.task.kind,
        main_metric=comparison.task.main,
        runs=runs,
        labels=None,
        sample_ids=tuple(f"s{index}" for index in range(count)),
        worst=(),
    )
