"""``calib demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo_command"]


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for everything that is made.")] = Path("calib-demo"),
) -> None:
    """Run the whole job on shipped data, on a CPU: calibrate, quantize, validate, report."""
    from calib.cli.tables import print_results
    from calib.demo import run_demo

    files = run_demo(out)
    print_results(files.results)
    for method, cache in files.caches.items():
        typer.echo(f"Calibration cache ({method}): {cache}")
    typer.echo(f"Q/DQ model: {files.quantized}")
    typer.echo(f"Results:    {files.results_path}")
    typer.echo(f"Report:     {files.report.html}")
