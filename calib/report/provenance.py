"""Where the figures come from: model, dataset, calibration, machine, commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from calib.report import numbers
from calib.report.blocks import Block, Cell, Code, Column, Paragraph, Table
from calib.report.merge import Merged, Source
from calib.report.numbers import MISSING
from calib.report.text import shorten, visible
from calib.validation.results import CalibrationRecord, Environment

__all__ = [
    "calibration_blocks",
    "dataset_table",
    "environment_table",
    "model_table",
    "repeat_blocks",
    "sources_table",
    "telemetry_table",
]

_HEAD_LIMIT = 40

_T = TypeVar("_T")
_Fact = tuple[str, Callable[[_T], Cell]]


def _facts(
    caption: str,
    heads: Sequence[str],
    things: Sequence[_T],
    facts: Sequence[_Fact[_T]],
    notes: Sequence[str] = (),
) -> Table:
    """A row a fact, a column a thing; one column where all things agree."""
    cells = [(name, [cell(thing) for thing in things]) for name, cell in facts]
    agree = all(cell == row[0] for _, row in cells for cell in row)
    width = 1 if agree else len(things)
    known = [(name, row[:width]) for name, row in cells if not all(cell.missing for cell in row)]
    columns = (Column("What", False), *(Column(head, False) for head in (["Value"] if agree else heads)))
    rows = tuple((Cell(visible(name)), *row) for name, row in known)
    return Table(caption, columns, rows, tuple(dict.fromkeys(notes)))


def _by_source(
    caption: str, merged: Merged, facts: Sequence[_Fact[Source]], notes: Sequence[str] = ()
) -> Table:
    heads = [source.key for source in merged.sources]
    return _facts(caption, heads, merged.sources, facts, notes)


def _text(value: str | None, *, code: bool = False) -> Cell:
    return Cell(visible(value), code=code) if value else Cell(MISSING)


def _value(value: Any) -> str:
    """A recorded setting as it would be written in JSON, strings plain."""
    if isinstance(value, str):
        return visible(value)
    return visible(json.dumps(value, ensure_ascii=False, default=str))


def sources_table(merged: Merged) -> Table | None:
    """Which results the letters stand for; None where there is only one."""
    if len(merged.sources) == 1:
        return None
    titles = ("Source", "Hardware", "Runners", "Measured (UTC)", "calib")
    rows = tuple(
        (
            Cell(source.key),
            Cell(source.place or MISSING),
            Cell(visible(", ".join(dict.fromkeys(run.runner for run in source.results.runs)))),
            Cell(visible(source.results.created)),
            Cell(visible(source.results.calib_version)),
        )
        for source in merged.sources
    )
    columns = tuple(Column(title, False) for title in titles)
    return Table("The results that were merged.", columns, rows)


def model_table(merged: Merged) -> Table:
    """The model under test."""
    model = merged.first.model
    facts: list[_Fact[Source]] = [
        ("Model", lambda _: _text(model.name)),
        ("File", lambda source: _text(source.results.model.path, code=True)),
        ("SHA-256", lambda _: _text(model.sha256, code=True)),
        ("ONNX opset", lambda _: Cell(str(model.opset))),
        ("Inputs", lambda _: _text(_shapes(model.inputs), code=True)),
        ("Outputs", lambda _: _text(_shapes(model.outputs), code=True)),
        ("Nodes", lambda _: Cell(numbers.whole(model.nodes))),
        ("Parameters", lambda _: Cell(numbers.whole(model.parameters))),
    ]
    return _by_source("The model.", merged, facts)


def _shapes(tensors: Mapping[str, str]) -> str:
    shown = [f"{name}: {shape}" for name, shape in list(tensors.items())[:12]]
    return ", ".join(shown) + (f", … ({len(tensors)} in all)" if len(tensors) > len(shown) else "")


def dataset_table(merged: Merged) -> Table:
    """The validation dataset and its preprocessing."""
    dataset = merged.first.dataset
    facts: list[_Fact[Source]] = [
        ("Validation dataset", lambda _: _text(dataset.name)),
        ("Recipe", lambda source: _text(source.results.dataset.recipe, code=True)),
        ("Samples", lambda _: Cell(numbers.whole(dataset.samples))),
        ("Shared with calibration", _overlap),
        ("Fingerprint", lambda _: _text(dataset.fingerprint, code=True)),
        *((f"Preprocessing: {key}", _setting(value)) for key, value in dataset.preprocess.items()),
    ]
    notes = [visible(note) for source in merged.sources for note in source.results.dataset.notes]
    return _by_source("The validation dataset; all precisions saw the same samples.", merged, facts, notes)


def _setting(value: Any) -> Callable[[Source], Cell]:
    return lambda _: Cell(_value(value), code=not isinstance(value, int | float | str))


def _overlap(source: Source) -> Cell:
    return _samples(source.results.dataset.overlap_with_calibration)


def _samples(overlap: int | None) -> Cell:
    if overlap is None:
        return Cell(MISSING)
    return Cell(numbers.counted(overlap, "sample[s]"), tone="bad" if overlap else "")


def calibration_blocks(merged: Merged) -> tuple[Block, ...]:
    """Where the INT8 ranges came from, a column a cache."""
    keys: dict[CalibrationRecord, list[str]] = {}
    for source in merged.sources:
        for record in source.results.calibrations:
            keys.setdefault(record, []).append(source.key)
    if not keys:
        return (Paragraph("No calibration cache was used in these runs."),)
    heads = [_head(record, sources) for record, sources in keys.items()]
    return (_facts("The INT8 calibration.", heads, list(keys), _CALIBRATION_FACTS),)


def _head(record: CalibrationRecord, sources: Sequence[str]) -> str:
    keys = ", ".join(key for key in sources if key)
    return shorten(visible(" · ".join(part for part in (record.name, keys) if part)), _HEAD_LIMIT)


_CALIBRATION_FACTS: tuple[_Fact[CalibrationRecord], ...] = (
    ("Calibration cache", lambda record: _text(record.cache, code=True)),
    ("Header", lambda record: _text(record.header, code=True)),
    ("Algorithm", lambda record: _text(record.algorithm)),
    ("Tensors with a scale", lambda record: Cell(numbers.whole(record.tensors))),
    ("Calibration dataset", lambda record: _text(record.dataset)),
    ("Calibration samples", lambda record: Cell(numbers.whole(record.samples))),
    ("Validated on too", lambda record: _samples(record.overlap)),
    ("Batch size", lambda record: Cell(numbers.whole(record.batch_size))),
    ("Seed", lambda record: Cell(MISSING if record.seed is None else str(record.seed))),
    ("SHA-256", lambda record: _text(record.sha256, code=True)),
)


def environment_table(merged: Merged) -> Table:
    """The machines and their software."""

    def fact(name: str, text: Callable[[Environment], str | None]) -> _Fact[Source]:
        return name, lambda source: _text(text(source.results.environment))

    def package(name: str) -> _Fact[Source]:
        return fact(name, lambda environment: environment.packages.get(name))

    def option(name: str) -> _Fact[Source]:
        return fact(f"Session option {name}", lambda environment: environment.session_options.get(name))

    environments = [source.results.environment for source in merged.sources]
    packages = dict.fromkeys(name for environment in environments for name in environment.packages)
    options = dict.fromkeys(name for environment in environments for name in environment.session_options)
    facts = [
        fact("GPU", lambda environment: environment.gpu),
        fact("Driver", lambda environment: environment.driver),
        fact("CUDA", lambda environment: environment.cuda),
        fact("TensorRT", lambda environment: environment.tensorrt),
        fact("Processor", lambda environment: environment.processor),
        fact("Logical cores", lambda environment: str(environment.logical_cores)),
        fact("Memory", lambda environment: f"{numbers.significant(environment.memory_gib)} GiB"),
        fact("Machine", lambda environment: environment.machine),
        fact("System", lambda environment: environment.system),
        fact("Python", lambda environment: environment.python),
        *(package(name) for name in packages),
        *(option(name) for name in options),
        ("calib", lambda source: _text(source.results.calib_version)),
        ("Measured (UTC)", lambda source: _text(source.results.created)),
    ]
    return _by_source("The environment.", merged, facts)


def repeat_blocks(merged: Merged) -> tuple[Block, ...]:
    """The commands that make these results again."""
    blocks: list[Block] = []
    for source in merged.sources:
        if source.key:
            blocks.append(Paragraph(f"{source.key}, {shorten(source.place, 80)}:"))
        command = visible(source.results.command, lines=True).strip()
        blocks.append(Code(command) if command else Paragraph("The command was not recorded."))
    return tuple(blocks)


def telemetry_table(merged: Merged) -> Table | None:
    """The GPU while latency was measured; None where nobody looked at one."""
    if not any(source.results.telemetry for source in merged.sources):
        return None
    facts: list[_Fact[Source]] = [
        ("Clock of the multiprocessors (MHz)", lambda source: _spread(source, "sm_clock_mhz", 4)),
        ("Clock of the memory (MHz)", lambda source: _spread(source, "memory_clock_mhz", 4)),
        ("Power (W)", lambda source: _spread(source, "power_w")),
        ("Temperature (°C)", lambda source: _spread(source, "temperature_c")),
        ("Clocks lowered by", _lowered),
        ("Readings", _readings),
    ]
    caption = "The GPU while latency was measured, by NVML: median, lowest and highest."
    return _by_source(caption, merged, facts)


def _spread(source: Source, name: str, digits: int = 3) -> Cell:
    telemetry = source.results.telemetry
    found: tuple[float, float, float] | None = getattr(telemetry, name) if telemetry else None
    if found is None:
        return Cell(MISSING)
    low, median, high = (numbers.significant(value, digits) for value in found)
    return Cell(median, "" if low == high else f"{low} to {high}")


def _lowered(source: Source) -> Cell:
    telemetry = source.results.telemetry
    if telemetry is None or not telemetry.samples:
        return Cell(MISSING)
    seen = ", ".join(visible(reason) for reason in telemetry.throttle_reasons)
    return Cell(seen, tone="bad") if seen else Cell("nothing")


def _readings(source: Source) -> Cell:
    telemetry = source.results.telemetry
    if telemetry is None:
        return Cell(MISSING)
    return Cell(numbers.whole(telemetry.samples), visible(telemetry.problem))
