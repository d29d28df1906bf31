"""``calib export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.wording import counted

if TYPE_CHECKING:
    from calib.graph import ExportedModel, OutputCheck

__all__ = ["export_command"]

_Arguments = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="NAME=VALUE", help="Argument of the factory; may be repeated."),
]
_Dynamic = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SIZES", help="Sizes that may vary: batch, or images:0=batch,2=height; may be repeated."
    ),
]
_Inputs = Annotated[
    list[str],
    typer.Option(
        "--input", metavar="[NAME:]SIZES[:TYPE]", help="1x3x224x224, ids:2x16:int64; may be repeated."
    ),
]
_OutputNames = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Name of an output, in order; may be repeated, or several joined by commas."
    ),
]
_Source = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FACTORY",
        help="A torch module, or what makes one: torchvision.models:resnet18, net.py:Net.",
    ),
]
_Target = Annotated[
    str,
    typer.Option(help="Runtime that shall read it: tensorrt-8.6, tensorrt-10, tensorrt-11, onnxruntime."),
]


def export_command(
    source: _Source,
    inputs: _Inputs,
    out: Annotated[Path | None, typer.Option(help="The ONNX model; FACTORY.onnx by default.")] = None,
    target: _Target = "tensorrt-8.6",
    opset: Annotated[
        int | None, typer.Option(help="Operator set, 17 to 23; the target's by default.")
    ] = None,
    dynamic: _Dynamic = None,
    weights: Annotated[
        Path | None, typer.Option(help="State dict for the network, read without running code.")
    ] = None,
    arguments: _Arguments = None,
    output_names: _OutputNames = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not compare the model's outputs with PyTorch's.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Export a PyTorch network to ONNX, in the opset of a target, and check it against PyTorch."""
    from calib.graph import export
    from calib.graph.torch_module import module_name, parse_arguments

    result = export(
        source,
        inputs=inputs,
        out=out or Path(f"{module_name(source)}.onnx"),
        target=target,
        opset=opset,
        dynamic=dynamic,
        weights=weights,
        arguments=parse_arguments(arguments or ()),
        output_names=[name for text in output_names or () for name in text.split(",")] or None,
        check=not no_check,
    )
    typer.echo(_json(result) if as_json else _text(result))


def _text(result: ExportedModel) -> str:
    model = result.model
    lines = [
        *(f"input {spec.name}: {spec}" for spec in model.inputs),
        *(f"output {spec.name}: {spec}" for spec in model.outputs),
        *map(_check_line, result.checks),
        *(f"note: {note}" for note in result.notes),
    ]
    if not result.checks:
        lines.append("not checked against PyTorch")
    size = f"{model.byte_size / 1e6:.1f} MB"
    made = (
        f"opset {model.opset}, {counted(len(model.proto.graph.node), 'node[s]')}, {size}, by torch "
        f"{result.torch}"
    )
    return "\n".join([*lines, f"ONNX model for {result.target} ({made}): {result.files[-1]}"])


def _check_line(check: OutputCheck) -> str:
    sizes = "x".join(map(str, check.shape))
    return (
        f"checked: {check.output} {sizes} is PyTorch's within {check.max_abs:.2g} "
        f"(values up to {check.reference_amax:.3g}, allowed {check.limit:.2g})"
    )


def _json(result: ExportedModel) -> str:
    import json
    from dataclasses import asdict

    model = result.model
    record = {
        "model": str(model.path),
        "files": [str(file) for file in result.files],
        "sha256": model.sha256,
        "target": result.target,
        "opset": model.opset,
        "ir_version": model.proto.ir_version,
        "nodes": len(model.proto.graph.node),
        "bytes": model.byte_size,
        "torch": result.torch,
        "inputs": {spec.name: str(spec) for spec in model.inputs},
        "outputs": {spec.name: str(spec) for spec in model.outputs},
        "checks": [asdict(check) for check in result.checks],
        "notes": result.notes,
    }
    return json.dumps(record, indent=1)
