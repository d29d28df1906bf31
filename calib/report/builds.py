"""What differs between builds of one engine, and between integer kernels and their simulation."""

from __future__ import annotations

from collections.abc import Iterator

from calib.report import numbers
from calib.report.blocks import Block, Cell, Column, Table
from calib.report.merge import Merged, Source
from calib.report.numbers import MISSING
from calib.report.text import visible
from calib.validation.baseline import is_sqnr
from calib.validation.peer_records import KernelDifference, RebuildRecord, SimulationDifference

__all__ = ["build_blocks", "kernels_table", "simulations_table"]


def build_blocks(merged: Merged) -> tuple[Block | None, ...]:
    """A table of the builds of each engine that was built several times; nothing where none was."""
    records = [(source, record) for source in merged.sources for record in source.results.rebuilds]
    if not records:
        return ()
    rows = tuple(row for source, record in records for row in _rows(source, record))
    columns = (
        Column("Precision", False),
        Column("Figure", False),
        Column("Of each build", False),
        Column("Differ by"),
    )
    caption = "Builds of one engine, made one after another without kept timings of kernels."
    note = "A change that is not larger than builds differ by is noise; calib check and calib compare say so."
    return (Table(caption, columns, rows, (note,)),)


def _rows(source: Source, record: RebuildRecord) -> Iterator[tuple[Cell, ...]]:
    label = _label(source, record.run)
    for name, values in record.figures.items():
        decibels = is_sqnr(name)
        known = [value for value in values if value is not None]
        shown = [numbers.decibels(v) if decibels else numbers.significant(v, 5) for v in values]
        spread = max(known) - min(known) if len(known) == len(values) else None
        unit = " dB" if decibels and spread is not None else ""
        yield _row(
            label, f"{visible(name)}{' (dB)' if decibels else ''}", shown, numbers.significant(spread) + unit
        )
    outputs = [one.output for one in record.between[0]] if record.between else []
    for index, output in enumerate(outputs):
        levels = [
            "equal" if build[index].verdict == "equal" else numbers.decibels(build[index].sqnr_db)
            for build in record.between
        ]
        yield _row(label, f"SQNR of {visible(output)} against the first build (dB)", ["–", *levels], MISSING)
    if record.changed_answers:
        counts = ["–", *map(str, record.changed_answers)]
        yield _row(label, "answers that are not the first build's", counts, str(max(record.changed_answers)))
    if record.median_ms:
        ratio = max(record.median_ms) / min(record.median_ms)
        shown = [numbers.milliseconds(value) for value in record.median_ms]
        yield _row(label, "latency p50 (ms)", shown, f"{numbers.significant(ratio, 4)} times")
    if record.int8_layers:
        spread_of_layers = max(record.int8_layers) - min(record.int8_layers)
        yield _row(label, "INT8 layers", list(map(str, record.int8_layers)), str(spread_of_layers))


def _label(source: Source, run: str) -> str:
    """A run, and which of several results it is of."""
    return f"{visible(run)} · {source.key}" if source.key else visible(run)


def _row(label: str, figure: str, values: list[str], spread: str) -> tuple[Cell, ...]:
    return Cell(label), Cell(figure), Cell(", ".join(values)), Cell(spread)


def kernels_table(merged: Merged) -> Table | None:
    """How far integer kernels are from the simulation; None where they were not run."""
    found = [(source, one) for source in merged.sources for one in source.results.kernels]
    if not found:
        return None
    titles = ("Largest difference", "In steps", "Mean, in steps", "SQNR (dB)")
    columns = (*(Column(title, False) for title in ("Precision", "Output")), *map(Column, titles))
    caption = (
        "ONNX Runtime's integer kernels against the simulation of the same Q/DQ model: a difference of the "
        "runtime, not of the calibration. TensorRT computes what the simulation does."
    )
    rows = tuple(_kernel_cells(*pair) for pair in found)
    return Table(caption, columns, rows, ("A step is the output's scale.",))


def _kernel_cells(source: Source, one: KernelDifference) -> tuple[Cell, ...]:
    return (
        Cell(_label(source, one.run)),
        Cell(visible(one.output), code=True),
        Cell(numbers.significant(one.max_abs)),
        Cell(numbers.significant(one.max_steps)),
        Cell(numbers.significant(one.mean_steps)),
        Cell("no error" if one.max_abs == 0 else numbers.decibels(one.sqnr_db)),
    )


def simulations_table(merged: Merged) -> Table | None:
    """INT8 engines beside the simulation of their arithmetic; None where there are none."""
    found = [(source, one) for source in merged.sources for one in source.results.simulations]
    if not found:
        return None
    titles = ("Engine (dB)", "Simulation (dB)", "Engine against simulation (dB)", "Same answers")
    columns = (*(Column(title, False) for title in ("Precision", "Output")), *map(Column, titles))
    caption = (
        "INT8 engines beside the simulation in float of the same scales: SQNR of either against FP32, and of "
        "the engine against the simulation."
    )
    note = (
        "An engine far below its simulation has a kernel that computes something else; one above it leaves "
        "layers in float."
    )
    return Table(caption, columns, tuple(_simulation_cells(*pair) for pair in found), (note,))


def _simulation_cells(source: Source, one: SimulationDifference) -> tuple[Cell, ...]:
    between = "no difference" if one.verdict == "equal" else numbers.decibels(one.between_db)
    same = MISSING if one.agreement is None else numbers.percent(one.agreement)
    levels = (Cell(numbers.decibels(one.engine_db)), Cell(numbers.decibels(one.simulation_db)), Cell(between))
    return (Cell(_label(source, one.run)), Cell(visible(one.output), code=True), *levels, Cell(same))
