"""``calib quantize``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calib.graph import QuantizedModel

__all__ = ["quantize_command"]


def quantize_command(
    model: Annotated[Path, typer.Argument(help="The float ONNX model.", metavar="MODEL.onnx")],
    cache: Annotated[Path, typer.Option(help="The calibration cache.")],
    out: Annotated[
        Path | None, typer.Option(help="The Q/DQ model; MODEL.int8.onnx beside the model by default.")
    ] = None,
    keep_float: Annotated[
        list[str] | None,
        typer.Option(help="Regular expression of nodes, or of their outputs, that stay in float."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a cache that does not fit the model whole.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write the scales of a calibration cache into a model as Q/DQ nodes."""
    from calib.graph import quantize

    target = out or model.with_suffix(".int8.onnx")
    result = quantize(model, cache, out=target, keep_float=keep_float or (), strict=strict)
    typer.echo(_json(result, target) if as_json else _text(result, target))


def _text(result: QuantizedModel, out: Path) -> str:
    activations = len(result.activations)
    lines = [f"{activations} activations and {len(result.pairs) - activations} weights quantized."]
    lines += [f"left in float: {left.op} {left.node}: {left.reason}" for left in result.left_float]
    lines += [f"note: {note}" for note in result.notes]
    return "\n".join([*lines, f"Q/DQ model: {out}"])


def _json(result: QuantizedModel, out: Path) -> str:
    import json
    from dataclasses import asdict

    return json.dumps(
        {
            "model": str(out),
            "opset": result.model.opset,
            "pairs": [asdict(pair) for pair in result.pairs],
            "left_float": [asdict(left) for left in result.left_float],
            "notes": result.notes,
        },
        indent=1,
    )
