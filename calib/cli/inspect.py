"""``calib inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from calib.engine import EngineLayer, EngineSummary
    from calib.engine.inspector import EngineTensor

__all__ = ["inspect_command"]

_LOG_WIDTH = 140
_PROFILED_RUNS = 50


def inspect_command(
    source: Annotated[
        Path,
        typer.Argument(
            help="An engine (needs its GPU), or the JSON of TensorRT's inspector (also gzipped; trtexec "
            "--exportLayerInfo), which needs none.",
            metavar="ENGINE|LAYERS.json",
        ),
    ],
    model: Annotated[Path | None, typer.Option(help="The ONNX model it was built from, for reasons.")] = None,
    cache: Annotated[Path | None, typer.Option(help="The calibration cache it was built with.")] = None,
    times: Annotated[
        Path | None, typer.Option(help="Layer → milliseconds as JSON (trtexec --exportProfile works too).")
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Time each layer of an engine on this GPU, on noise of the usual shapes."
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Layers of the FP16 engine: say why this one is no faster. Needs both times, or engines "
            "and --profile."
        ),
    ] = None,
    against_times: Annotated[Path | None, typer.Option(help="The times of its layers.")] = None,
    host_code: Annotated[
        bool,
        typer.Option(
            "--host-code",
            help="Let a version-compatible engine run the code that it holds; for engines that you trust.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List an engine's layers: precision, formats, what was fused, and why a layer is not INT8."""
    from calib.calibrators import CalibrationCache
    from calib.engine import explain_slower, summarize_layers
    from calib.graph import load_model

    _check_times(times, profile, against, against_times)
    layers, measured = _timed(source, times, profile, host_code)
    summary = summarize_layers(
        layers,
        measured,
        None if model is None else load_model(model),
        None if cache is None else CalibrationCache.read(cache),
    )
    slower: tuple[str, ...] = ()
    if against is not None:
        slower = explain_slower((layers, measured), _timed(against, against_times, profile, host_code))
    if as_json:
        typer.echo(_json(layers, summary, measured, slower))
        return
    _print(layers, summary, measured, slower)


def _check_times(times: Path | None, profile: bool, against: Path | None, against_times: Path | None) -> None:
    from calib.errors import UsageError

    if profile and (times is not None or against_times is not None):
        raise UsageError("--profile measures the times that --times and --against-times give. Pass either.")
    given = profile or (times is not None and against_times is not None)
    if (against is not None and not given) or (against is None and against_times is not None):
        raise UsageError(
            "--against needs --times and --against-times, or --profile: reasons are told by where time goes."
        )


def _timed(
    source: Path, times: Path | None, profile: bool, host_code: bool
) -> tuple[tuple[EngineLayer, ...], dict[str, float]]:
    """The layers, and layer → milliseconds as far as that is known."""
    from calib.engine import read_layers, read_times

    if profile:
        return _profiled(source, host_code)
    return read_layers(source, host_code=host_code), {} if times is None else read_times(times)


def _profiled(source: Path, host_code: bool) -> tuple[tuple[EngineLayer, ...], dict[str, float]]:
    """The same of an engine, by running it."""
    from calib.engine import Engine
    from calib.engine.build_request import PRECISIONS
    from calib.engine.layer_files import is_engine
    from calib.errors import UsageError
    from calib.runners import TensorRTRunner

    if not is_engine(source):
        raise UsageError(
            f"{source} is what TensorRT's inspector said of an engine: --profile needs the engine itself."
        )
    engine = Engine.load(source)
    # It counts in messages alone, and an engine without a record does not tell.
    precision = engine.record.precision if engine.record.precision in PRECISIONS else "best"
    with TensorRTRunner(engine, precision, flavour=engine.record.flavour, host_code=host_code) as runner:
        feeds = runner.usual_feeds()
        times = runner.profile(feeds, _PROFILED_RUNS)
        return runner.layers(feeds), times


def _json(
    layers: Sequence[EngineLayer],
    summary: EngineSummary,
    times: Mapping[str, float],
    slower: Sequence[str],
) -> str:
    import json
    from dataclasses import asdict, replace

    head = {**asdict(summary), "int8_share": summary.int8_share, "reasons": summary.reasons}
    head["float_layers"] = [{**asdict(one), "reason": one.reason} for one in summary.float_layers]
    head["fusion"] = {**asdict(summary.fusion), "sentences": summary.fusion.sentences()}
    bare = [asdict(replace(layer, raw={})) for layer in layers]
    rows = [
        {**{key: value for key, value in row.items() if key != "raw"}, "copies": layer.copies}
        | {"ms": times.get(layer.name)}
        for row, layer in zip(bare, layers, strict=True)
    ]
    return json.dumps({**head, "slower": list(slower), "layer_list": rows}, indent=1, ensure_ascii=False)


def _print(
    layers: Sequence[EngineLayer],
    summary: EngineSummary,
    times: Mapping[str, float],
    slower: Sequence[str],
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from calib.report.text import visible

    reasons = {layer.layer: layer.reason for layer in summary.float_layers}
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("layer", overflow="fold", ratio=3)
    for heading in ("precision", "reads → writes", *(["ms"] if times else [])):
        table.add_column(heading, overflow="fold", justify="right" if heading == "ms" else "left")
    if reasons:
        table.add_column("why not INT8", overflow="fold", ratio=2)
    for layer in layers:
        cells = [visible(layer.name), _kind(layer), _formats(layer)]
        cells += [_time(times, layer.name)] if times else []
        cells += [reasons.get(layer.name, "")] if reasons else []
        table.add_row(*(Text(cell) for cell in cells))
    console = Console(highlight=False)
    if not console.is_terminal:
        # A pipe or a log has no width of its own.
        console.width = max(console.width, _LOG_WIDTH)
    console.print(table)
    for line in _lines(summary, slower):
        typer.echo(line)


def _kind(layer: EngineLayer) -> str:
    if not layer.copies:
        return layer.precision
    return "no-op" if layer.free else "copy"


def _time(times: Mapping[str, float], name: str) -> str:
    return f"{times[name]:.4f}" if name in times else ""


def _formats(layer: EngineLayer) -> str:
    from calib.engine.layer_types import tensor_type

    read, written = _side(layer.inputs), _side(layer.outputs)
    if layer.writes and not (read or written):
        # Without shapes TensorRT tells no formats; the kernel's name tells the types.
        return f"{tensor_type(layer.precision)} → {layer.writes}"
    return f"{read or '?'} → {written or '?'}" if read or written else ""


def _side(tensors: Sequence[EngineTensor]) -> str:
    from calib.engine.layer_names import short_format

    words = (f"{tensor.datatype} {short_format(tensor.format)}".strip() for tensor in tensors)
    return ", ".join(dict.fromkeys(word for word in words if word))


def _lines(summary: EngineSummary, slower: Sequence[str]) -> list[str]:
    from calib.report.text import visible

    others = ", ".join(f"{count} in {name}" for name, count in summary.by_precision.items() if name != "INT8")
    rest = f", {others}" if others else ""
    lines = ["", f"{summary.int8_layers} of {summary.layers} layers compute in INT8{rest}."]
    if summary.int8_time_share is not None:
        lines.append(
            f"INT8 layers take {summary.int8_time_share:.1%} of the time, reformats "
            f"{summary.copy_time_share or 0:.1%}."
        )
    lines += summary.fusion.sentences()
    lines += [f"not INT8: {count} × {reason}" for reason, count in summary.reasons.items()]
    lines += [f"slowest: {share:.1%} {kind} {visible(name)}" for name, kind, share in summary.slowest]
    lines += [f"no faster: {sentence}" for sentence in slower]
    return [*lines, *(f"note: {note}" for note in summary.notes)]
