"""``calib check``: the gate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.errors import UsageError
from calib.files import check_apart, check_writable, write_text

if TYPE_CHECKING:
    from calib.validation import CheckReport

__all__ = ["check_command"]

_Text = str | None
_Texts = list[str] | None
_LIMIT = "[FIGURE=]LIMIT"


def _gate(help_text: str, metavar: str | None = None) -> Any:
    return typer.Option(help=help_text, metavar=metavar, show_default=False)


def check_command(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.json", help="Results of `calib validate`.")],
    baseline: Annotated[
        Path | None, _gate("Stored baseline, or results that serve as one; drops are judged against it.")
    ] = None,
    gates: Annotated[
        Path | None,
        _gate(
            "YAML file with gates, such as pytest collects; RESULTS.json are judged, the options below come "
            "on top."
        ),
    ] = None,
    max_drop: Annotated[
        _Texts,
        _gate("Largest drop: 0.01 or 1% is one percentage point; may be repeated.", _LIMIT),
    ] = None,
    max_relative_drop: Annotated[
        _Texts, _gate("Largest drop as a part of the reference's figure; may be repeated.", _LIMIT)
    ] = None,
    worst_class: Annotated[
        _Texts, _gate("Largest drop of the class that lost most; may be repeated.", _LIMIT)
    ] = None,
    min_agreement: Annotated[_Text, _gate("Smallest share of samples with FP32's answer.")] = None,
    min_sqnr: Annotated[_Text, _gate("Smallest SQNR of every output, in dB.")] = None,
    min_cosine: Annotated[_Text, _gate("Smallest cosine similarity of every output.")] = None,
    max_latency_ratio: Annotated[
        _Text, _gate("Largest p50 divided by FP32's; measured on a GPU, simulations are refused.")
    ] = None,
    min_int8_share: Annotated[_Text, _gate("Smallest part of the engine's layers in INT8.")] = None,
    max_engine_mb: Annotated[_Text, _gate("Largest engine, in MB of 10⁶ bytes.")] = None,
    metric: Annotated[
        _Texts,
        _gate(
            "What drops are judged of, where none is named; may be repeated. [default: the task's main one]",
            "FIGURE",
        ),
    ] = None,
    against: Annotated[
        str, _gate("fp32, baseline, or fp16 for latency. [default: the baseline if given]")
    ] = "",
    precision: Annotated[
        _Texts, _gate("Run to judge: int8, a label; may be repeated. [default: all]", "RUN")
    ] = None,
    noise: Annotated[
        list[Path] | None,
        _gate(
            "Results of builds of the model: two or more, or one made with `validate --rebuilds`.",
            "RESULTS.json",
        ),
    ] = None,
    alpha: Annotated[float | None, _gate("Chance of a wrong verdict on each side. [default: 0.05]")] = None,
    correction: Annotated[
        str | None, _gate("holm, bonferroni or none, for several gates. [default: holm]")
    ] = None,
    allow_undecided: Annotated[
        bool, typer.Option("--allow-undecided", help="Let the check pass where the samples do not decide.")
    ] = False,
    junit: Annotated[Path | None, _gate("Write JUnit XML.")] = None,
    markdown: Annotated[Path | None, _gate("Write a Markdown summary, for a pull request.")] = None,
    update_baseline: Annotated[
        bool,
        typer.Option("--update-baseline", help="Write the results to --baseline, if they pass against FP32."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Judge results by gates. Exit status 0: passed, 1: failed or undecided, 2: an error."""
    thresholds = {
        "max_drop": max_drop or None,
        "max_relative_drop": max_relative_drop or None,
        "worst_class": worst_class or None,
        "min_agreement": min_agreement,
        "min_sqnr": min_sqnr,
        "min_cosine": min_cosine,
        "max_latency_ratio": max_latency_ratio,
        "min_int8_share": min_int8_share,
        "max_engine_mb": max_engine_mb,
    }
    options: dict[str, Any] = {
        "gates": gates or (),
        "metrics": metric or (),
        "against": against,
        "precisions": precision or (),
        "alpha": alpha,
        "correction": correction,
        "allow_undecided": allow_undecided or None,
        **thresholds,
    }
    rebuilds = tuple(noise or ())
    _refuse_gate_file(results)
    _check_outputs(junit, markdown, {"results file": results, "baseline": baseline, "gates file": gates})
    if update_baseline:
        stated = gates is not None or any(value is not None for value in thresholds.values())
        report = _update(results, baseline, rebuilds, options if stated else None)
    else:
        from calib.validation import check

        report = check(results, baseline=baseline, noise=rebuilds, **options)
    if report is not None:
        _show(report, junit, markdown, as_json)
        raise typer.Exit(report.exit_code)


def _refuse_gate_file(results: Path) -> None:
    if results.suffix.lower() in (".yaml", ".yml"):
        file = quote(str(results))
        raise UsageError(
            f"{results} is a YAML file, and results are JSON: calib check RESULTS.json --gates {file} judges "
            f"results that are there; python -m pytest {file} judges those that the file names."
        )


def _check_outputs(junit: Path | None, markdown: Path | None, inputs: dict[str, Path | None]) -> None:
    for option, out in (("--junit", junit), ("--markdown", markdown)):
        if out is not None:
            check_writable(out)
            check_apart(out, inputs, option)
            # What the one wrote, the other would replace.
            inputs = {**inputs, f"file of {option}": out}


def _update(
    results: Path, baseline: Path | None, rebuilds: tuple[Path, ...], options: dict[str, Any] | None
) -> CheckReport | None:
    """Writes the baseline, unless gates are stated and the results do not pass them against FP32."""
    from calib.validation import check, update_baseline
    from calib.validation.gate_rules import read_gate_file

    if options is not None and options["gates"]:
        file = read_gate_file(options["gates"])
        baseline, rebuilds = baseline or file.baseline, rebuilds or file.noise
        # The old baseline is about to be replaced: it judges nothing, and need not be there yet.
        options["gates"] = replace(file, baseline=None, noise=())
    if baseline is None:
        raise UsageError("--update-baseline needs --baseline FILE, which is to be written.")
    report = None if options is None else check(results, **options)
    if report is not None and not report.passed:
        typer.echo(f"{baseline} was not written: the results do not pass.", err=True)
        return report
    update_baseline(results, baseline, noise=rebuilds)
    typer.echo(f"Baseline: {baseline}", err=True)
    return report


def _show(report: CheckReport, junit: Path | None, markdown: Path | None, as_json: bool) -> None:
    from calib.report.gates import check_markdown, check_text
    from calib.report.junit import check_junit

    if junit is not None:
        write_text(junit, check_junit(report))
    if markdown is not None:
        write_text(markdown, check_markdown(report))
    for warning in report.warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(report.to_json() if as_json else check_text(report), nl=not as_json)
