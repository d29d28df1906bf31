"""``calib fp16``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.cli.groups import beside
from calib.wording import counted

if TYPE_CHECKING:
    from calib.graph import HalfModel

__all__ = ["fp16_command"]


def fp16_command(
    model: Annotated[Path, typer.Argument(help="The float32 ONNX model.", metavar="MODEL.onnx")],
    ranges: Annotated[
        Path | None,
        typer.Option(help="Calibration cache that says how large values are; min-max ones say it exactly."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="As of calib calibrate: measure ranges on samples of it, and run both forms."),
    ] = None,
    samples: Annotated[int, typer.Option(help="Samples of --data to run.", min=1)] = 32,
    out: Annotated[
        Path | None, typer.Option(help="The FP16 model; MODEL.fp16.onnx beside the model by default.")
    ] = None,
    keep_float: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Regular expression of nodes, or of their outputs, that stay in float32; may be repeated.",
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option(help="How many times as large as known the values may become.", min=1.0)
    ] = 2.0,
    half_io: Annotated[
        bool, typer.Option("--half-io", help="Make inputs and outputs float16 too, where they can be.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="List every node that stays in float32, with the reason.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Convert a model to float16, but for what leaves its range: typed ONNX, as TensorRT 11 needs it."""
    from calib.files import check_apart
    from calib.graph import convert_float16, load_model, sample_feeds

    written = out or beside(model, ".fp16.onnx")
    if data is not None and Path(data).is_file():
        check_apart(written, {"recipe": data})
    network = load_model(model)
    result = convert_float16(
        network,
        ranges=ranges,
        check=() if data is None else sample_feeds(network, data, samples),
        out=written,
        keep_float=keep_float or (),
        margin=margin,
        keep_io=not half_io,
    )
    if as_json:
        typer.echo(_json(result, written))
        return
    if explain:
        from calib.cli.explain import print_kept

        print_kept(result.kept)
    typer.echo(_text(result, written, explain))


def _text(result: HalfModel, out: Path, explained: bool) -> str:
    counts = (
        f"{counted(result.converted, 'node[s]')} in float16, {len(result.kept)} in float32, "
        f"{counted(result.casts, 'cast[s]')} added."
    )
    lines = [counts]
    if not explained:
        lines += _grouped(result)
    lines += [f"note: {note}" for note in result.notes]
    if result.error is not None:
        lines += [f"SQNR of {name}: {sqnr:.1f} dB" for name, sqnr in result.error.sqnr_db.items()]
    return "\n".join([*lines, f"FP16 model: {out}"])


def _grouped(result: HalfModel) -> list[str]:
    """A line for each operator and kind of reason, with the first node of it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for left in result.kept:
        # Reasons that name a tensor differ from node to node: the first of an operator stands for them.
        kind = "" if "'" in left.reason else left.reason
        groups.setdefault((left.op, kind), []).append(f"{left.node}: {left.reason}")
    return [
        f"kept in float32: {len(nodes)} {op}: {kind}"
        if kind
        else f"kept in float32: {len(nodes)} {op}, {nodes[0]}"
        for (op, kind), nodes in groups.items()
    ]


def _json(result: HalfModel, out: Path) -> str:
    import json
    import math
    from dataclasses import asdict

    document = {
        "model": str(out),
        "converted": result.converted,
        "casts": result.casts,
        "kept": [asdict(left) for left in result.kept],
        "notes": result.notes,
    }
    if result.error is not None:
        document["sqnr_db"] = {
            name: value if math.isfinite(value) else None for name, value in result.error.sqnr_db.items()
        }
    return json.dumps(document, indent=1)
