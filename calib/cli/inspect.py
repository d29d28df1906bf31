"""``calib inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calib.engine import EngineLayer, EngineSummary

__all__ = ["inspect_command"]


def inspect_command(
    source: Annotated[
        Path,
        typer.Argument(
            help="An engine (needs its GPU), or the JSON of TensorRT's inspector (.json, .json.gz; trtexec "
            "--exportLayerInfo), which needs none.",
            metavar="ENGINE|LAYERS.json",
        ),
    ],
    model: Annotated[Path | None, typer.Option(help="The ONNX model it was built from, for reasons.")] = None,
    cache: Annotated[Path | None, typer.Option(help="The calibration cache it was built with.")] = None,
    times: Annotated[
        Path | None, typer.Option(help="Layer → milliseconds as JSON (trtexec --exportProfile works too).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List an engine's layers: precision, formats, what was fused, and why a layer is not INT8."""
    from calib.calibrators import CalibrationCache
    from calib.engine import read_layers, read_times, summarize_layers
    from calib.graph import load_model

    layers = read_layers(source)
    measured = None if times is None else read_times(times)
    summary = summarize_layers(
        layers,
        measured,
        None if model is None else load_model(model),
        None if cache is None else CalibrationCache.read(cache),
    )
    if as_json:
        typer.echo(_json(layers, summary))
        return
    _print(layers, summary)


def _json(layers: Sequence[EngineLayer], summary: EngineSummary) -> str:
    import json
    from dataclasses import asdict

    head = {**asdict(summary), "by_precision": dict(summary.by_precision), "reasons": summary.reasons}
    head["fusion"] = {**asdict(summary.fusion), "sentences": summary.fusion.sentences()}
    return json.dumps({**head, "layer_list": [asdict(layer) for layer in layers]}, indent=1)


def _print(layers: Sequence[EngineLayer], summary: EngineSummary) -> None:
    from rich.console import Console
    from rich.table import Table

    reasons = {layer.layer: layer.reason for layer in summary.float_layers}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("layer", "precision", "reads → writes", "why not INT8"):
        table.add_column(heading, overflow="fold")
    for layer in layers:
        kind = "copy" if layer.copies else layer.precision
        table.add_row(layer.name, kind, _types(layer), reasons.get(layer.name, ""))
    Console(soft_wrap=False).print(table)
    for line in _lines(summary):
        typer.echo(line)


def _types(layer: EngineLayer) -> str:
    read, written = (
        "/".join(dict.fromkeys(tensor.datatype or "?" for tensor in side))
        for side in (layer.inputs, layer.outputs)
    )
    return f"{read} → {written}" if read or written else ""


def _lines(summary: EngineSummary) -> list[str]:
    lines = [f"{summary.int8_layers} of {summary.layers} layers compute in INT8; {summary.copies} copies."]
    if summary.int8_time_share is not None:
        lines.append(
            f"INT8 layers take {summary.int8_time_share:.1%} of the time, copies "
            f"{summary.copy_time_share or 0:.1%}."
        )
    lines += summary.fusion.sentences()
    lines += [f"not INT8: {count} x {reason}" for reason, count in summary.reasons.items()]
    lines += [f"slowest: {share:.1%} {precision} {name}" for name, precision, share in summary.slowest]
    return lines
