"""Latency on a GPU in its parts, the runs against each other, and the GPU meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from calib.report import numbers
from calib.report.blocks import Cell, Column, Table
from calib.report.fields import Field, table_of_runs
from calib.report.merge import Merged, Row, Source
from calib.report.numbers import MISSING
from calib.report.text import visible
from calib.validation.results import Latency, LatencyPart, LatencyRatio

__all__ = ["parts_of", "parts_table", "ratios_table"]

_COMPUTE = "GPU compute"
_WITH_TRANSFERS = "with transfers"
_ORDER = ("host to device", _COMPUTE, "device to host", _WITH_TRANSFERS, "end to end", "enqueue")
_MEANINGS = (
    "With transfers: host to device + GPU compute + device to host. End to end: by the host's clock, from "
    "handing over a batch to having its outputs. Enqueue: the host's time to hand the work to the GPU."
)


def parts_of(latency: Latency) -> tuple[LatencyPart, ...]:
    """All times of a batch, the one that counts as its latency among them; none on a CPU."""
    if not latency.parts:
        return ()
    given = {part.name: part for part in latency.parts}
    # Of these two the one that is missing is the latency itself.
    name = _WITH_TRANSFERS if _COMPUTE in given else _COMPUTE
    own = LatencyPart(name, latency.median_ms, latency.p90_ms, latency.p99_ms)
    every = {**given, name: own}
    known = [every[name] for name in _ORDER if name in every]
    return (*known, *(part for part in latency.parts if part.name not in _ORDER))


def parts_table(merged: Merged) -> Table | None:
    """The times that make up a batch; None where none were told apart."""
    rows = [row for row in merged.rows if row.run.latency and row.run.latency.parts]
    if not rows:
        return None
    names = dict.fromkeys(part.name for row in rows for part in _parts(row))
    ordered = sorted(names, key=lambda name: (*_ORDER, name).index(name))
    fields = [
        Field("Precision", lambda row: Cell(row.label), optional=False, numeric=False),
        *(_part_field(name) for name in ordered),
        Field("CUDA graph", _graph, optional=False, numeric=False),
    ]
    return table_of_runs(
        "Parts of the latency of one batch: p50 in milliseconds.", rows, fields, (_MEANINGS,)
    )


def _parts(row: Row) -> tuple[LatencyPart, ...]:
    return parts_of(row.run.latency) if row.run.latency else ()


def _part_field(name: str) -> Field:
    def cell(row: Row) -> Cell:
        part = next((part for part in _parts(row) if part.name == name), None)
        if part is None:
            return Cell(MISSING)
        p90, p99 = numbers.milliseconds(part.p90_ms), numbers.milliseconds(part.p99_ms)
        return Cell(numbers.milliseconds(part.median_ms), f"p90 {p90} · p99 {p99}")

    shown = visible(name)
    return Field(shown[:1].upper() + shown[1:], cell)


def _graph(row: Row) -> Cell:
    return Cell("yes" if row.run.latency and row.run.latency.cuda_graph else "no")


def ratios_table(merged: Merged) -> Table | None:
    """How the latencies compare, with intervals; None where they were not measured in turn on a GPU."""
    found = [(source, ratio) for source in merged.sources for ratio in source.results.ratios]
    if not found:
        return None
    confidence = {f"{ratio.confidence:.0%}" for _, ratio in found}
    title = f"{confidence.pop()} interval" if len(confidence) == 1 else "Interval"
    columns = (Column("Precision", False), Column("Against", False), Column("Latency ratio"), Column(title))
    rows = tuple(tuple(_ratio_cells(merged, source, ratio)) for source, ratio in found)
    methods = dict.fromkeys(visible(ratio.method) for _, ratio in found)
    notes = tuple(f"Intervals: {method}." for method in methods if method)
    caption = "Latencies against each other: ratio of the medians, below 1 is faster."
    return Table(caption, (*columns, Column("Verdict", False)), rows, notes)


def _ratio_cells(merged: Merged, source: Source, ratio: LatencyRatio) -> Iterator[Cell]:
    yield Cell(_label(merged, source, ratio.candidate))
    yield Cell(_label(merged, source, ratio.against))
    yield Cell(numbers.significant(ratio.ratio))
    low, high = numbers.significant(ratio.low), numbers.significant(ratio.high)
    if ratio.low is None or ratio.high is None or MISSING in (low, high):
        yield Cell(MISSING)
        yield Cell(MISSING)
        return
    yield Cell(f"{low}–{high}")
    if ratio.high < 1:
        yield Cell("faster", tone="good")
    elif ratio.low > 1:
        yield Cell("slower", tone="bad")
    else:
        yield Cell("no difference shown", tone="muted")


def _label(merged: Merged, source: Source, name: str) -> str:
    """The run's label in this report."""
    rows = (row for row in merged.rows if row.source is source and row.run.label == name)
    return next((row.label for row in rows), visible(name))
