"""``calib quantize``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.cli.groups import beside
from calib.wording import counted

if TYPE_CHECKING:
    from calib.graph import QuantizedModel

__all__ = ["quantize_command"]

# Nodes left in float that are listed without --explain.
_LISTED = 10


def quantize_command(
    model: Annotated[Path, typer.Argument(help="The float ONNX model.", metavar="MODEL.onnx")],
    cache: Annotated[Path, typer.Option(help="The calibration cache.")],
    out: Annotated[
        Path | None, typer.Option(help="The Q/DQ model; MODEL.int8.onnx beside the model by default.")
    ] = None,
    keep_float: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Regular expression of nodes, or of their outputs, that stay in float; may be repeated.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a cache that does not fit the model whole.")
    ] = False,
    target: Annotated[
        str,
        typer.Option(help="Runtime that shall read it: tensorrt-8.6, tensorrt-10, tensorrt-11, onnxruntime."),
    ] = "tensorrt-8.6",
    share_scales: Annotated[
        bool,
        typer.Option(
            "--shared-scales",
            help="One scale for all tensors that Concat, MaxPool, Reshape and the like join, up to 16 times "
            "apart; by default for those alone that several branches read, up to twice apart.",
        ),
    ] = False,
    float_type: Annotated[
        str,
        typer.Option(
            help="fp32 or fp16: type of what is not INT8, scales included. fp16 is TensorRT's best "
            "precision, typed; tensorrt-8.6 makes it itself."
        ),
    ] = "fp32",
    attention: Annotated[
        str,
        typer.Option(
            help="MatMul and Gemm of a network with attention: int8, float, or auto: float for tensorrt-8.6, "
            "which runs them faster in FP16."
        ),
    ] = "auto",
    conv_transpose: Annotated[
        str,
        typer.Option(
            help="Transposed convolutions: int8, float, or auto: float for tensorrt-8.6, which builds no "
            "engine above level 0 where their output is INT8."
        ),
    ] = "auto",
    explain: Annotated[
        bool,
        typer.Option("--explain", help="List every pair, and every node left in float, with the reason."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write the scales of a calibration cache into a model as Q/DQ nodes."""
    from calib.graph import quantize

    written = out or beside(model, ".int8.onnx")
    result = quantize(
        model,
        cache,
        out=written,
        keep_float=keep_float or (),
        strict=strict,
        target=target,
        share_scales=share_scales,
        float_type=float_type,  # type: ignore[arg-type]  # checked there, with a message
        attention=attention,  # type: ignore[arg-type]  # likewise
        conv_transpose=conv_transpose,  # type: ignore[arg-type]  # likewise
    )
    if as_json:
        typer.echo(_json(result, written, explain))
        return
    if explain:
        from calib.cli.explain import print_explanation, print_kept

        print_explanation(result.explanation)
        print_kept(result.kept_float32)
    typer.echo(_text(result, written, explain))


def _text(result: QuantizedModel, out: Path, explained: bool) -> str:
    activations = len(result.activations)
    lines = [
        f"{counted(activations, 'activation[s]')} and "
        f"{counted(len(result.pairs) - activations, 'weight[s]')} quantized."
    ]
    if not explained:
        left_float = result.left_float
        lines += [f"left in float: {left.op} {left.node}: {left.reason}" for left in left_float[:_LISTED]]
        if more := len(left_float[_LISTED:]):
            lines.append(f"left in float: {counted(more, 'more node[s]')}; --explain lists every one")
        lines += [f"kept in float32: {left.op} {left.node}: {left.reason}" for left in result.kept_float32]
    lines += [f"note: {note}" for note in result.notes]
    return "\n".join([*lines, f"Q/DQ model for {result.target}: {out}"])


def _json(result: QuantizedModel, out: Path, explain: bool) -> str:
    import json
    from dataclasses import asdict

    explanation = result.explanation.as_dict()
    if not explain:
        explanation = {key: explanation[key] for key in ("pairs", "left_float")}
    head = {"model": str(out), "target": result.target, "opset": result.model.opset}
    kept = [asdict(left) for left in result.kept_float32]
    return json.dumps({**head, **explanation, "kept_float32": kept, "notes": result.notes}, indent=1)
