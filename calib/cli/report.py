"""``calib report``: results files to HTML, Markdown, JSON and CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report_command"]


def report_command(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS.json",
            help="Results of `calib validate`; several are merged, also of different machines.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for the report. [default: `report` beside the first results file]",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", help="Heading of the report.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the paths as JSON.")] = False,
) -> None:
    """Draw a report from saved results: one HTML page, Markdown, JSON and CSV."""
    import json

    from calib.report import write_report
    from calib.validation.results import read_results

    folder = out if out is not None else results[0].parent / "report"
    files = write_report([read_results(path) for path in results], folder, title=title)
    groups = {
        "html": [files.html],
        "markdown": [files.markdown],
        "charts": files.charts,
        "json": files.json,
        "csv": files.csv,
    }
    if as_json:
        typer.echo(json.dumps({kind: [str(path) for path in paths] for kind, paths in groups.items()}))
        return
    for kind, paths in groups.items():
        for path in paths:
            typer.echo(f"{kind:<10}{path}")
