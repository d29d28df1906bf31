"""``calib calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.groups import beside
from calib.wording import counted

if TYPE_CHECKING:
    from calib.graph import CalibrationResult, Counted

__all__ = ["calibrate_command", "result_json", "result_text"]


_METHOD = (
    "entropy: activations of convolutional networks. minmax: box coordinates and other regression outputs, "
    "transformers. percentile: transformers and networks with rare outliers. mse: where the squared error of "
    "the activations matters; the same for every order of the data."
)


def calibrate_command(
    model: Annotated[Path, typer.Argument(help="The float ONNX model.", metavar="MODEL.onnx")],
    data: Annotated[
        str,
        typer.Option(
            help="Dataset recipe: a YAML file, or the name of a shipped one. Or module:object, a reader of "
            "yours: CalibrationDataReader, load_data, DataLoader, any iterable of dicts or arrays."
        ),
    ],
    method: Annotated[str, typer.Option(help=_METHOD)] = "entropy",
    percentile: Annotated[
        float | None, typer.Option(help="Percentage of values to keep, for percentile; 99.99 by default.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Calibration samples; by default what the recipe says.")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Samples a batch; 32, or a reader's own batches, by default. Entropy depends on it a little."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the selection; by default what the recipe says.")
    ] = None,
    tensorrt: Annotated[
        str | None, typer.Option(help="TensorRT version that shall read the cache; 8.6.0 by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The calibration cache; MODEL.cache beside the model by default.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads inside an operator; one a core.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that read samples; by default what the recipe says.")
    ] = None,
    shards: Annotated[int, typer.Option(help="Processes to share the work; the bits are those of one.")] = 1,
    shard: Annotated[
        str | None,
        typer.Option(help="Count one shard only, such as 2/4, into a partial file for calib cache merge."),
    ] = None,
    grids_of: Annotated[
        Path | None, typer.Option(help="With --shard: a partial file whose grids to count on.")
    ] = None,
    assess: Annotated[
        bool, typer.Option("--assess", help="Judge whether there were enough samples.")
    ] = False,
    native: Annotated[
        bool,
        typer.Option(
            "--native",
            help="Let TensorRT 8 to 10 calibrate on the GPU, for comparison; --method entropy, minmax, "
            "entropy1 or legacy.",
        ),
    ] = False,
    device: Annotated[int, typer.Option(help="With --native: number of the GPU.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Calibrate a model on sample data and write TensorRT's calibration cache.

    A killed run goes on where it stopped when the same command is given again.
    """
    from calib.errors import UsageError
    from calib.graph import calibrate, calibrate_shard

    options: Any = {
        "method": method,
        "percentile": percentile,
        "samples": samples,
        "batch_size": batch_size,
        "seed": seed,
        "threads": threads,
        "workers": workers,
    }
    if native:
        from calib.cli.native import run_natively

        options |= {"tensorrt": tensorrt, "shard": shard, "grids_of": grids_of, "assess": assess or None}
        options["shards"] = None if shards == 1 else shards
        target = out or beside(model, ".cache")
        typer.echo(run_natively(model, data, target, device, options, as_json=as_json))
        return
    if device:
        raise UsageError("--device goes with --native.")
    options["tensorrt"] = tensorrt or "8.6.0"
    if shard is not None:
        if shards != 1:
            raise UsageError("Give --shards to run all shards here, or --shard to run one; not both.")
        if assess:
            raise UsageError("--assess and --shard cannot be combined: one shard does not tell of all.")
        target = out or beside(model, f".shard-{shard.replace('/', 'of')}.npz")
        counted = calibrate_shard(model, data, shard, target, grids_of=grids_of, **options)
        typer.echo(_shard_text(counted, target, as_json))
        return
    if grids_of is not None:
        raise UsageError("--grids-of goes with --shard.")
    target = out or beside(model, ".cache")
    result = calibrate(model, data, out=target, shards=shards, assess=assess, **options)
    typer.echo(result_json(result) if as_json else result_text(result))


def _shard_text(counted: Counted, out: Path, as_json: bool) -> str:
    import json

    part = counted.partial
    found = {"out": str(out), "batches": [part.start, part.stop], "of": part.batches, "notes": counted.notes}
    if as_json:
        return json.dumps(found, indent=1)
    lines = [f"Batches {part.start} to {part.stop - 1} of {part.batches} counted by {part.origin.method}."]
    lines += [f"note: {note}" for note in counted.notes]
    lines += [
        f"Partial calibration: {out}",
        "Merge all parts with: calib cache merge PART ... --out MODEL.cache",
    ]
    return "\n".join(lines)


def result_text(result: CalibrationResult) -> str:
    """What a calibration made, for a terminal."""
    from calib.calibrators import sidecar_path

    lines = [
        f"{counted(len(result.cache), 'tensor[s]')} calibrated by {result.method} on "
        f"{counted(result.samples, 'sample[s]')} "
        f"({result.batches_used} of {result.batches_asked} batches used)."
    ]
    lines += [f"note: {note}" for note in result.notes]
    if result.adequacy is not None:
        lines.append(result.adequacy.text())
    if result.path is not None:
        lines.append(f"Calibration cache: {result.path} ({result.cache.header})")
        lines.append(f"Provenance:        {sidecar_path(result.path)}")
    return "\n".join(lines)


def result_json(result: CalibrationResult) -> str:
    """What a calibration made, for programs."""
    import json
    from dataclasses import asdict

    return json.dumps(
        {
            "cache": str(result.path),
            "header": result.cache.header,
            "method": result.method,
            "tensors": len(result.cache),
            "samples": result.samples,
            "batches_asked": result.batches_asked,
            "batches_used": result.batches_used,
            "zero_tensors": result.zero_tensors,
            "notes": result.notes,
            "ranges": dict(result.ranges),
            "adequacy": None if result.adequacy is None else asdict(result.adequacy),
        },
        indent=1,
    )
