"""``calib compare``: one model under two versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["compare_command"]


def _option(help_text: str, metavar: str | None = None) -> Any:
    return typer.Option(help=help_text, metavar=metavar, show_default=False)


def compare_command(
    old: Annotated[Path, typer.Argument(metavar="OLD.json", help="Results of `calib validate` before.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="Results of `calib validate` now.")],
    out: Annotated[Path | None, _option("Folder for compare.html, compare.md and compare.json.")] = None,
    margin: Annotated[
        str | None,
        _option(
            "Largest drop against OLD, 0.005 or 0.5%, or in a figure's own unit; each run is then judged. "
            "Exit status 1 if not kept."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        _option("What the margin is of; may be repeated. [default: the task's main one]", "FIGURE"),
    ] = None,
    noise: Annotated[
        list[Path] | None,
        _option(
            "Results of builds of the model: two or more, or one made with `validate --rebuilds`.",
            "RESULTS.json",
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Chance of calling anything changed that is not.")] = 0.05,
    correction: Annotated[str, typer.Option(help="holm, bonferroni or none, for several figures.")] = "holm",
    allow_undecided: Annotated[
        bool, typer.Option("--allow-undecided", help="Let a margin pass where the samples do not decide.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare although data, labels or preprocessing differ.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Say what changed between two results of one model: two TensorRT versions, machines or commits."""
    from calib.report.qualification import write_qualification
    from calib.report.qualification_text import qualification_text
    from calib.validation import compare

    found = compare(
        old,
        new,
        margin=margin,
        metrics=metric or (),
        noise=noise or (),
        alpha=alpha,
        correction=correction,  # type: ignore[arg-type]
        allow_undecided=allow_undecided,
        anyway=anyway,
    )
    files = None if out is None else write_qualification(found, out)
    typer.echo(found.to_json() if as_json else qualification_text(found), nl=not as_json)
    if files is not None:
        typer.echo(f"Comparison: {files.html}", err=as_json)
    raise typer.Exit(found.exit_code)
