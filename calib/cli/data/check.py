"""``calib data check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from calib.data.findings import Finding
    from calib.validation.data_checks import DataCheck

__all__ = ["check_command"]

_SHOWN = 6
_PIPE_WIDTH = 160
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}

_Recipe = Annotated[
    str,
    typer.Argument(
        help="Recipe: a YAML file or a shipped name; or a reader, module:object.", metavar="RECIPE"
    ),
]
_Samples = Annotated[int, typer.Option(help="Samples of each use to read, spread evenly; 0 for all.")]
_Cache = Annotated[
    Path | None, typer.Option(help="Calibration cache: compares its ranges and recorded preprocessing.")
]
_Model = Annotated[Path | None, typer.Option(help="FP32 ONNX model that the data are for.")]


def check_command(
    recipe: _Recipe,
    model: _Model = None,
    cache: _Cache = None,
    samples: _Samples = 256,
    scores: Annotated[
        str | None, typer.Option(help="The output that holds class scores, if several could.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads inside an operator; one a core.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Find what is wrong with data and preprocessing. Exit status 1 for errors, --strict: warnings too."""
    from calib.cli.app import EXIT_FAILED_GATE
    from calib.validation.data_checks import check_data

    found = check_data(recipe, model, cache=cache, samples=samples or None, scores=scores, threads=threads)
    passed = found.passed(strict=strict)
    if as_json:
        from calib.cli.cache.output import to_json

        typer.echo(to_json({**found.as_dict(), "passed": passed, "strict": strict}))
    else:
        _draw(found, passed)
    if not passed:
        raise typer.Exit(EXIT_FAILED_GATE)


def _draw(found: DataCheck, passed: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    read = ", ".join(f"{count} {use} samples" for use, count in found.read.items())
    against = f" for {found.model}" if found.model else ""
    console.print(Text(f"{found.dataset}{against}: {read} read", "bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for finding in found.findings:
        style = _STYLES[finding.severity]
        table.add_row(Text(finding.severity, style), Text(finding.code), _words(finding))
    if found.findings:
        console.print(table)
    _draw_preparations(found, console)
    console.print(Text(_summary(found, passed), "bold"))


def _words(finding: Finding) -> Text:
    from rich.text import Text

    from calib.report.text import visible

    words = Text(visible(finding.message))
    if finding.where:
        more = (
            f" and {len(finding.where) - _SHOWN} more (--json has all)" if len(finding.where) > _SHOWN else ""
        )
        words.append(f"\n{visible(', '.join(finding.where[:_SHOWN]))}{more}", "cyan")
    if finding.advice:
        words.append(f"\n{visible(finding.advice)}", "italic")
    return words


def _draw_preparations(found: DataCheck, console: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    if len(found.preparations) < 2:
        return
    first = found.preparations[0]
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(f"The same {first.samples} samples", overflow="fold")
    labelled, normed = first.top1 is not None, first.distance is not None
    if labelled:
        table.add_column("FP32 top-1, 95% interval", justify="right", no_wrap=True)
    if normed:
        table.add_column("Distance from training", justify="right", no_wrap=True)
    for one in found.preparations:
        cells = [Text(one.name)]
        if labelled:
            cells.append(Text(_interval(one.top1, one.top1_low, one.top1_high, 100.0, "%")))
        if normed:
            cells.append(Text(_interval(one.distance, one.distance_low, one.distance_high, 1.0, "")))
        table.add_row(*cells)
    console.print()
    console.print(table)
    if normed:
        legend = "Distance from training: of what BatchNorms get from the means and variances that they hold."
        console.print(Text(legend, "dim"))
    console.print()


def _interval(value: float | None, low: float | None, high: float | None, factor: float, unit: str) -> str:
    if value is None:
        return ""
    digits = 1 if unit else 3
    ends = (
        "" if low is None or high is None else f" ({low * factor:.{digits}f} to {high * factor:.{digits}f})"
    )
    return f"{value * factor:.{digits}f}{unit}{ends}"


def _summary(found: DataCheck, passed: bool) -> str:
    from calib.data.findings import severity_counts

    return f"{'PASS' if passed else 'FAIL'}: {severity_counts(found.findings)}."
