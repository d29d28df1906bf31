"""What ran on TensorRT: engines, their layers by precision, why not INT8, what fusion did, what is slow."""

from __future__ import annotations

from collections.abc import Callable

from calib.report import numbers
from calib.report.blocks import Block, Bullets, Cell, Column, Table
from calib.report.fields import Field, table_of_runs
from calib.report.merge import Merged, Row
from calib.report.numbers import MISSING
from calib.report.text import shorten, visible
from calib.validation.results import EngineRecord

__all__ = ["engine_blocks", "int8_sentence", "tells_precisions"]

_NAME_LIMIT = 96
_COPIES = "copies"
_UNTOLD = "unknown"


def engine_blocks(merged: Merged) -> tuple[Block | None, ...]:
    """The tables and lists of all runs that have an engine; nothing where no run has one."""
    rows = [row for row in merged.rows if row.run.engine is not None]
    if not rows:
        return ()
    return (_engines(rows), _reasons(rows), _sentences(rows), _slowest(rows))


def tells_precisions(engine: EngineRecord) -> bool:
    """Whether anything is known of what its layers compute in."""
    return any(name not in (_COPIES, _UNTOLD) for name in engine.by_precision)


def int8_sentence(engine: EngineRecord) -> str:
    """How much of an engine is INT8; empty where it does not tell.

    >>> int8_sentence(EngineRecord("8.6.0", "GPU", "implicit INT8", 3, 9.0, 1000, 15, 8, {"INT8": 8}, 0.61))
    "8 of 15 layers of the engine compute in INT8, 61.0% of the layers' time."
    """
    if not tells_precisions(engine):
        return ""
    share = numbers.percent(engine.int8_time_share)
    time = "" if share == MISSING else f", {share} of the layers' time"
    return f"{engine.int8_layers:,} of {engine.layers:,} layers of the engine compute in INT8{time}."


def _of(cell: Callable[[EngineRecord], Cell]) -> Callable[[Row], Cell]:
    def made(row: Row) -> Cell:
        return cell(row.run.engine) if row.run.engine is not None else Cell(MISSING)

    return made


def _engines(rows: list[Row]) -> Table:
    fields = [
        Field("Precision", lambda row: Cell(row.label), optional=False, numeric=False),
        Field("Route", _of(lambda engine: Cell(visible(engine.route))), numeric=False),
        Field("Built by", _of(_builder), numeric=False),
        Field("Level", _of(lambda engine: Cell("default" if engine.level is None else str(engine.level)))),
        Field("Layers", _of(lambda engine: Cell(numbers.whole(engine.layers)))),
        Field("INT8 layers", _of(_int8_layers), optional=False),
        Field("INT8 time", _of(lambda engine: Cell(numbers.percent(engine.int8_time_share)))),
        Field("Other layers", _of(_other_layers), numeric=False),
        Field("Reformats", _of(lambda engine: Cell(numbers.whole(engine.by_precision.get(_COPIES, 0))))),
        Field("Build", _of(_build_time)),
        Field("Engine size", _of(lambda engine: Cell(numbers.byte_size(engine.engine_bytes)))),
    ]
    caption = (
        "The TensorRT engines. An INT8 build is no proof of INT8 layers: this is what the inspector says."
    )
    return table_of_runs(caption, rows, fields, ("INT8 time: part of the layers' time, by the profiler.",))


def _builder(engine: EngineRecord) -> Cell:
    return Cell(f"TensorRT {visible(engine.tensorrt)}", visible(engine.device))


def _int8_layers(engine: EngineRecord) -> Cell:
    if not tells_precisions(engine) or not engine.layers:
        return Cell(MISSING)
    share = engine.int8_layers / engine.layers
    return Cell(numbers.whole(engine.int8_layers), numbers.percent(share), bar=min(1.0, share))


def _other_layers(engine: EngineRecord) -> Cell:
    counts = {name: n for name, n in engine.by_precision.items() if name not in ("INT8", _COPIES)}
    return Cell(", ".join(f"{number:,} {visible(name)}" for name, number in counts.items()) or "none")


def _build_time(engine: EngineRecord) -> Cell:
    return Cell("cached" if engine.build_seconds is None else numbers.seconds(engine.build_seconds))


def _reasons(rows: list[Row]) -> Table | None:
    found = [
        (Cell(row.label), Cell(visible(reason)), Cell(numbers.whole(count)))
        for row in rows
        if row.run.engine is not None
        for reason, count in row.run.engine.reasons.items()
    ]
    if not found:
        return None
    columns = (Column("Precision", False), Column("Why a layer is not INT8", False), Column("Layers"))
    return Table("Layers of INT8 engines that compute in something else.", columns, tuple(found))


def _sentences(rows: list[Row]) -> Bullets | None:
    """What fusion did, and what INT8's time goes to."""
    engines = [(row.label, row.run.engine) for row in rows if row.run.engine is not None]
    told = [(f"{label}, fusion", engine.fusion) for label, engine in engines]
    told += [(f"{label}, beside FP16", engine.costs) for label, engine in engines]
    items = tuple((lead, visible(" ".join(lines))) for lead, lines in told if lines)
    return Bullets(items) if items else None


def _slowest(rows: list[Row]) -> Table | None:
    found = [
        (
            Cell(row.label),
            Cell(shorten(visible(name), _NAME_LIMIT), code=True),
            Cell(visible(kind)),
            Cell(numbers.percent(share), bar=min(1.0, max(0.0, share))),
        )
        for row in rows
        if row.run.engine is not None
        for name, kind, share in row.run.engine.slowest
    ]
    if not found:
        return None
    columns = (
        Column("Precision", False),
        Column("Layer", False),
        Column("Runs in", False),
        Column("Of the time"),
    )
    return Table("The slowest layers of each engine, by the profiler.", columns, tuple(found))
