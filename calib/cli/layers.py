"""The layer table of ``calib doctor --model``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from calib.graph.capabilities import LayerRow, LayerTable

__all__ = ["show_layers"]

_WORDS = {
    "int8": "INT8",
    "pairs": "pairs",
    "float": "float",
    "apart": "-",
    "none": "none",
    "plug-in": "plug-in",
    "unknown": "?",
}
_LEGEND = (
    "TRT: INT8: by a cache, or by Q/DQ on its inputs; pairs: by Q/DQ on both of its sides alone; float: no "
    "INT8; -: nothing to compute; none: not parsed; ?: not documented. From NVIDIA's parser tables of 8.5 "
    "and 10.15 and its release notes.",
    "calib quantize, given every scale: pairs: on so many of the nodes; moves: a pair moves through it; "
    "fuses: into the convolution before it; float: stays in float.",
    "Nodes: in the main graph + inside subgraphs, all of which stay in float.",
)


def show_layers(path: Path, target: str | None, as_json: bool) -> None:
    """Prints what TensorRT and calib quantize do with each operator of a model.

    Args:
        path: The model.
        target: The TensorRT release to look at; None for all.
        as_json: Print JSON instead of a table.
    """
    import json

    from calib.graph import load_model
    from calib.graph.capabilities import layer_table

    table = layer_table(load_model(path), target)
    if as_json:
        typer.echo(json.dumps(table.as_dict(), indent=1))
    else:
        _draw(table)


def _draw(table: LayerTable) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from calib.report.text import visible

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    drawn.add_column("Operator", overflow="fold", max_width=30)
    drawn.add_column("Nodes", justify="right", no_wrap=True)
    for release in table.releases:
        drawn.add_column(f"TRT {release}", no_wrap=True)
    drawn.add_column("calib", no_wrap=True)
    drawn.add_column("Why", overflow="fold", ratio=1)
    for row in table.rows:
        answers = (_WORDS[row.tensorrt[release]] for release in table.releases)
        cells = (visible(_name(row)), _count(row), *answers, _doing(row), visible(_why(row)))
        drawn.add_row(*map(Text, cells))
    console.print(Text(f"{table.model}, opset {table.opset}", "bold"))
    console.print(drawn)
    for line in _LEGEND:
        console.print(Text(line, "dim"))
    for note in table.notes:
        console.print(Text(f"note: {note}"))


def _name(row: LayerRow) -> str:
    return f"{row.domain}::{row.op}" if row.domain else row.op


def _count(row: LayerRow) -> str:
    return f"{row.count}+{row.inside}" if row.inside else str(row.count)


def _doing(row: LayerRow) -> str:
    if row.doing == "float" and row.tensorrt_is("apart"):
        return _WORDS["apart"]
    return f"pairs {row.quantized}/{row.count}" if row.doing == "pairs" else row.doing


def _why(row: LayerRow) -> str:
    """TensorRT's reason, then calib's where it says more."""
    parts = [row.why] if row.why else []
    if row.doing == "pairs":
        parts += [f"rest: {reason}" for reason in row.left]
    elif row.doing == "float" and not (row.why or row.tensorrt_is("apart")):
        parts += row.left
    if row.restriction:
        parts.append(f"parser: {row.restriction}")
    return "; ".join(parts)
