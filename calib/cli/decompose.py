"""``calib decompose``: where an INT8 loss comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calib.validation import Decomposition

__all__ = ["decompose_command"]


def decompose_command(
    model: Annotated[Path, typer.Argument(help="The FP32 ONNX model.", metavar="MODEL.onnx")],
    data: Annotated[str, typer.Option(help="Dataset recipe: a YAML file, or the name of a shipped one.")],
    cache: Annotated[Path, typer.Option(help="The calibration cache.")],
    samples: Annotated[int | None, typer.Option(help="Validation samples; all by default.")] = None,
    batch_size: Annotated[int, typer.Option(help="Samples a batch.")] = 32,
    keep_float: Annotated[
        list[str] | None,
        typer.Option(metavar="REGEX", help="Nodes that stay in float in INT8; may be repeated."),
    ] = None,
    scores: Annotated[
        str | None, typer.Option(help="The output that holds class scores, if several could.")
    ] = None,
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Use calibration samples too.")
    ] = False,
    threads: Annotated[int | None, typer.Option(help="Threads inside an operator; one a core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Divide an INT8 loss into weights and activations, clipping and rounding."""
    from calib.validation import decompose

    found = decompose(
        model,
        cache,
        data,
        samples=samples,
        batch_size=batch_size,
        keep_float=keep_float or (),
        scores=scores,
        allow_overlap=allow_overlap,
        threads=threads,
    )
    if as_json:
        typer.echo(found.to_json(), nl=False)
        return
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    _show(found)


def _show(found: Decomposition) -> None:
    from rich.console import Console
    from rich.text import Text

    from calib.report.decomposition import decomposition_lines

    console = Console(highlight=False, soft_wrap=True)
    for line in decomposition_lines(found):
        console.print(Text(line))
