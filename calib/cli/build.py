"""``calib build``."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.cli.groups import beside

if TYPE_CHECKING:
    from calib.engine import Engine

__all__ = ["build_command"]


def build_command(
    model: Annotated[
        Path, typer.Argument(help="The ONNX model, float or with Q/DQ nodes.", metavar="MODEL.onnx")
    ],
    precision: Annotated[
        str,
        typer.Option(
            help="fp32, fp16, int8 (what does not run in INT8 runs in FP32) or best (INT8, and FP16 for the "
            "rest: as fast as it gets).",
        ),
    ] = "fp32",
    cache: Annotated[
        Path | None, typer.Option(help="Calibration cache, for int8 and best of a float model.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The engine; MODEL.engine beside the model by default.")
    ] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT:SHAPE",
            help="Range of a dynamic input: x:1x3x224x224, or smallest:usual:largest of these; may be "
            "repeated. A batch that is dynamic becomes 1:8:32 by default. Of an input that holds sizes: its "
            "values.",
        ),
    ] = None,
    level: Annotated[
        int | None, typer.Option(help="Builder optimization level, 0 (fastest build) to 5.")
    ] = None,
    workspace: Annotated[
        int | None,
        typer.Option(help="Largest scratch memory of a layer, in MiB; all of the GPU's by default."),
    ] = None,
    tf32: Annotated[
        bool, typer.Option("--tf32", help="Let FP32 layers compute in TF32, which is as coarse as FP16.")
    ] = False,
    route: Annotated[
        str,
        typer.Option(
            help="How INT8 gets its scales: implicit hands the cache to the builder (TensorRT up to 10), "
            "explicit writes Q/DQ nodes, auto is implicit where the builder can.",
        ),
    ] = "auto",
    keep_float: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Regular expression of nodes, or of their outputs, that do not become INT8; with fp16, that "
            "stay in FP32; may be repeated.",
        ),
    ] = None,
    conv_transpose: Annotated[
        str,
        typer.Option(
            help="Transposed convolutions of INT8 engines: int8, float, or auto: float before TensorRT 10, "
            "which builds no engine above level 0 where their output is INT8."
        ),
    ] = "auto",
    timing_cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder or file for timings, a file for each GPU and TensorRT: faster, equal builds."
        ),
    ] = None,
    engine_cache: Annotated[
        Path | None,
        typer.Option(help="Folder of engines: what was built once from the same is not built again."),
    ] = None,
    version_compatible: Annotated[
        bool, typer.Option("--version-compatible", help="Later releases of this major version can load it.")
    ] = False,
    hardware_compatible: Annotated[
        bool, typer.Option("--hardware-compatible", help="Other GPUs from Ampere on can load it.")
    ] = False,
    device: Annotated[int, typer.Option(help="Number of the GPU.")] = 0,
    rtx: Annotated[
        bool, typer.Option("--rtx", help="Build with TensorRT-RTX, which needs no GPU: a check of the model.")
    ] = False,
    compute_capability: Annotated[
        str | None, typer.Option(help="With --rtx: the GPU to build for, such as 8.9.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record of the build as JSON.")] = False,
) -> None:
    """Build a TensorRT engine, and write beside it what made it."""
    from calib.engine import build

    with _waiting(f"Building {model.name} ({precision})"):
        engine = build(
            model,
            precision=precision,
            cache=cache,
            out=out or beside(model, ".engine"),
            shapes=shapes or (),
            level=level,
            workspace_mib=workspace,
            tf32=tf32,
            route=route,
            timing_cache=timing_cache,
            engine_cache=engine_cache,
            version_compatible=version_compatible,
            hardware_compatible=hardware_compatible,
            keep_float=keep_float or (),
            conv_transpose=conv_transpose,
            flavour="tensorrt_rtx" if rtx else "tensorrt",
            device=device,
            compute_capability=_capability(compute_capability),
        )
    typer.echo(_json(engine) if as_json else _text(engine))


def _waiting(what: str) -> AbstractContextManager[object]:
    """Shows on a terminal that something goes on: a build takes seconds to minutes and tells nothing."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(what)


def _capability(text: str | None) -> tuple[int, int] | None:
    from calib.errors import UsageError

    if text is None:
        return None
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise UsageError(f"--compute-capability must look like 8.6, got {text!r}.")
    return int(major), int(minor)


def _text(engine: Engine) -> str:
    record = engine.record
    title = "TensorRT-RTX" if record.flavour == "tensorrt_rtx" else "TensorRT"
    took = "found in the engine cache" if record.from_cache else f"built in {record.build_seconds:.1f} s"
    lines = [
        f"{record.precision} engine ({record.route}) of {record.model}, {took} "
        f"with {title} {record.tensorrt} for {record.device}",
        *(f"shapes: {shapes}" for shapes in record.shapes),
        *(f"warning: {line}" for line in record.warnings),
        *(f"note: {note}" for note in record.notes),
        f"Engine of {record.plan_bytes / (1 << 20):.2f} MiB: {engine.path}",
    ]
    return "\n".join(lines)


def _json(engine: Engine) -> str:
    import json

    return json.dumps({"engine": str(engine.path), **engine.record.as_dict()}, indent=1)
