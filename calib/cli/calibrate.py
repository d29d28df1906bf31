"""``calib calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calib.graph import CalibrationResult

__all__ = ["calibrate_command"]


def calibrate_command(
    model: Annotated[Path, typer.Argument(help="The float ONNX model.", metavar="MODEL.onnx")],
    data: Annotated[str, typer.Option(help="Dataset recipe: a YAML file, or the name of a shipped one.")],
    method: Annotated[
        str,
        typer.Option(
            help="entropy: convolutional networks. minmax: box coordinates, regression, transformers."
        ),
    ] = "entropy",
    samples: Annotated[
        int | None, typer.Option(help="Calibration samples; by default what the recipe says.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples a batch. Entropy depends on it a little.")] = 32,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the selection; by default what the recipe says.")
    ] = None,
    tensorrt: Annotated[str, typer.Option(help="TensorRT version that shall read the cache.")] = "8.6.0",
    out: Annotated[
        Path | None, typer.Option(help="The calibration cache; MODEL.cache beside the model by default.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads inside an operator; one a core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Calibrate a model on sample data and write TensorRT's calibration cache."""
    from calib.graph import calibrate

    result = calibrate(
        model,
        data,
        method=method,
        samples=samples,
        batch_size=batch_size,
        seed=seed,
        tensorrt=tensorrt,
        out=out or model.with_suffix(".cache"),
        threads=threads,
    )
    typer.echo(_json(result) if as_json else _text(result, method))


def _text(result: CalibrationResult, method: str) -> str:
    from calib.calibrators import sidecar_path

    lines = [
        f"{len(result.cache)} tensors calibrated by {method} on {result.samples} samples "
        f"({result.batches_used} of {result.batches_asked} batches used)."
    ]
    lines += [f"note: {note}" for note in result.notes]
    if result.path is not None:
        lines.append(f"Calibration cache: {result.path} ({result.cache.header})")
        lines.append(f"Provenance:        {sidecar_path(result.path)}")
    return "\n".join(lines)


def _json(result: CalibrationResult) -> str:
    import json

    return json.dumps(
        {
            "cache": str(result.path),
            "header": result.cache.header,
            "tensors": len(result.cache),
            "samples": result.samples,
            "batches_asked": result.batches_asked,
            "batches_used": result.batches_used,
            "zero_tensors": result.zero_tensors,
            "notes": result.notes,
            "ranges": dict(result.ranges),
        },
        indent=1,
    )
