"""What must hold before any gate is believed: something was measured, finite, and of the same things."""

from __future__ import annotations

import math
from collections.abc import Iterator

from calib.validation.baseline import Baseline, ids_digest
from calib.validation.consistency import baseline_problems, figure_problems, missing_labels
from calib.validation.provenance import differing_keys
from calib.validation.results import Metric, OutputError, PrecisionRun, Results
from calib.validation.verdicts import GateOutcome, Verdict
from calib.wording import counted

__all__ = ["check_identity", "check_integrity"]

_SHOWN = 3
_SOUND = "all values are finite and fit the answers"


def _outcome(subject: str, problem: str, good: str, *, run: str = "", against: str = "") -> GateOutcome:
    verdict: Verdict = "fail" if problem else "pass"
    return GateOutcome("integrity", run, subject, against, verdict, problem or good)


def check_integrity(results: Results) -> tuple[GateOutcome, ...]:
    """Checks that results hold samples, a baseline, candidates, and finite figures that fit their answers.

    Args:
        results: What a validation run found.

    Returns:
        An outcome for the samples, one for the runs, and one for the values of each run.
    """
    broken = _sample_problem(results)
    return (
        _outcome("samples", broken, counted(len(results.sample_ids), "sample[s]")),
        _outcome(
            "runs", _run_problem(results), f"{counted(len(results.runs), 'run[s]')} with an FP32 reference"
        ),
        *(
            _outcome(
                "values",
                _values_text(run, None if broken else results),
                _SOUND,
                run=run.label,
            )
            for run in results.runs
        ),
    )


def _sample_problem(results: Results) -> str:
    count = len(results.sample_ids)
    if not count:
        return "nothing was measured: the results hold no samples"
    if len(set(results.sample_ids)) != count:
        return f"{count - len(set(results.sample_ids))} sample ids occur more than once"
    for name, values in (
        ("labels", results.labels),
        *((f"answers of {run.label}", run.predictions) for run in results.runs),
    ):
        if values is not None and len(values) != count:
            return f"{len(values)} {name} for {count} samples: the results file was cut or edited"
    return missing_labels(results)


def _run_problem(results: Results) -> str:
    roles = [run.role for run in results.runs]
    if not roles:
        return "nothing was measured: the results hold no runs"
    if "baseline" not in roles:
        return "there is no FP32 reference among the runs: nothing to compare with"
    if "candidate" not in roles:
        return "there is only the FP32 reference: validate other precisions to judge them"
    return ""


def _values_text(run: PrecisionRun, results: Results | None) -> str:
    """What is wrong with a run's values; without results their answers are not counted again."""
    found = _value_problems(run)
    if found or results is None:
        return "; ".join(_first(found))
    edited = _first([*figure_problems(results, run)])
    return f"the results file was edited, so validate again: {'; '.join(edited)}" if edited else ""


def _value_problems(run: PrecisionRun) -> list[str]:
    found = [problem for output in run.outputs if (problem := _output_problem(output))]
    found += [
        f"{metric.name} is not finite"
        for metric in run.metrics
        if not all(map(math.isfinite, _numbers(metric)))
    ]
    return found


def _first(found: list[str]) -> list[str]:
    return [*found[:_SHOWN], f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else found


def _numbers(metric: Metric) -> Iterator[float]:
    figures = (metric.value, metric.low, metric.high, metric.drop, metric.drop_low, metric.drop_high)
    return (figure for figure in figures if figure is not None)


def _output_problem(output: OutputError) -> str:
    name = f"output {output.output!r}"
    if output.verdict == "candidate not finite" or output.non_finite > output.both_non_finite:
        count = output.non_finite - output.both_non_finite
        return f"{name}: {count} of {output.elements} values are NaN or infinite, the reference's are not"
    if output.reference_non_finite:
        count = output.reference_non_finite
        return (
            f"{name}: {counted(count, 'value[s] [is|are]')} NaN or infinite in FP32 already: the "
            "model or the data is broken"
        )
    figures = (output.sqnr_db, output.cosine, output.max_abs, output.mean_abs)
    if any(figure is not None and not math.isfinite(figure) for figure in figures):
        return f"{name}: its error is not finite"
    return ""


def check_identity(results: Results, baseline: Baseline, *, partial: bool = False) -> tuple[GateOutcome, ...]:
    """Checks that results are of the model, data, preprocessing and samples of a stored baseline.

    Args:
        results: What a validation run found.
        baseline: What they are compared with.
        partial: Whether runs of the baseline may be missing now.

    Returns:
        An outcome for the model, one for the data and one for the runs; one for the baseline's figures where
        they do not fit its own answers.
    """
    edited = baseline_problems(baseline)
    missing = "" if partial else _missing_runs(results, baseline)
    return (
        _outcome("model", _model_problem(results, baseline), "the same model", against="baseline"),
        _outcome("data", _data_problem(results, baseline), "the same data", against="baseline"),
        _outcome("runs", missing, "all of the baseline's runs are there", against="baseline"),
        *(
            _outcome(
                "baseline", f"{problem}: the baseline was edited, so make it again", "", against="baseline"
            )
            for problem in edited[:_SHOWN]
        ),
    )


def _model_problem(results: Results, baseline: Baseline) -> str:
    now, before = results.model.sha256, baseline.model_sha256
    if now == before:
        return ""
    return (
        f"another model: {results.model.name} ({now[:12]}…) now, {baseline.model} ({before[:12]}…) in the "
        "baseline. If it was meant to change, make the baseline again with --update-baseline and review it"
    )


def _missing_runs(results: Results, baseline: Baseline) -> str:
    found = [baseline.find(run) for run in results.runs]
    missing = [label for label, run in baseline.runs.items() if not any(run is one for one in found)]
    if not missing:
        return ""
    return (
        f"{', '.join(missing)} of the baseline was not measured now. Validate it too, or choose what is "
        "judged with --precision"
    )


def _data_problem(results: Results, baseline: Baseline) -> str:
    if len(results.sample_ids) != baseline.samples:
        return (
            f"other samples: {len(results.sample_ids)} now, {baseline.samples} in the baseline; "
            "answers can only be compared on the same samples"
        )
    if ids_digest(results.sample_ids) != baseline.sample_ids_sha256:
        return "other sample ids than in the baseline, or another order"
    keys = differing_keys(baseline.preprocess, results.dataset.preprocess)
    if keys:
        return f"preprocessing changed: {'; '.join(keys)}"
    if results.dataset.fingerprint != baseline.fingerprint:
        return (
            "the fingerprint of the dataset changed: a file, a label or the source is not what it was "
            f"({baseline.fingerprint[:12]}… → {results.dataset.fingerprint[:12]}…)"
        )
    return ""
