"""The figures as CSV, unrounded, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence

from calib.report.merge import Merged
from calib.report.timing import parts_of
from calib.validation.results import EngineRecord

__all__ = ["engines_csv", "latency_csv", "latency_parts_csv", "outputs_csv"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def outputs_csv(merged: Merged) -> str:
    """Errors of each output against the baseline, a row for each run and output."""
    heads = (
        "run", "precision", "calibration", "runner", "output", "elements", "sqnr_db", "cosine", "max_abs",
        "mean_abs", "reference_amax", "non_finite", "reference_non_finite", "note",
    )  # fmt: skip
    rows = (
        (
            row.label, row.run.precision, row.run.calibration, row.run.runner, output.output, output.elements,
            output.sqnr_db, output.cosine, output.max_abs, output.mean_abs, output.reference_amax,
            output.non_finite, output.reference_non_finite, output.note,
        )
        for row in merged.rows
        for output in row.run.outputs
    )  # fmt: skip
    return _csv(heads, rows)


def latency_csv(merged: Merged) -> str:
    """Every timed batch in order, in milliseconds."""
    heads = ("run", "precision", "calibration", "runner", "simulated", "batch_size", "batch", "latency_ms")
    rows = (
        (
            row.label, row.run.precision, row.run.calibration, row.run.runner, row.simulated_latency,
            row.run.latency.batch_size, batch, time,
        )
        for row in merged.rows
        if row.run.latency
        for batch, time in enumerate(row.run.latency.times_ms)
    )  # fmt: skip
    return _csv(heads, rows)


def latency_parts_csv(merged: Merged) -> str:
    """The times that make up a batch on a GPU, in milliseconds, a row for each run and part."""
    heads = (
        "run", "precision", "calibration", "runner", "batch_size", "cuda_graph", "part",
        "median_ms", "p90_ms", "p99_ms",
    )  # fmt: skip
    rows = (
        (
            row.label, row.run.precision, row.run.calibration, row.run.runner, row.run.latency.batch_size,
            row.run.latency.cuda_graph, part.name, part.median_ms, part.p90_ms, part.p99_ms,
        )
        for row in merged.rows
        if row.run.latency
        for part in parts_of(row.run.latency)
    )  # fmt: skip
    return _csv(heads, rows)


def engines_csv(merged: Merged) -> str:
    """The TensorRT engines, a row for each figure: each engine has its own precisions and reasons."""
    heads = ("run", "precision", "calibration", "runner", "kind", "name", "value")
    rows = (
        (row.label, row.run.precision, row.run.calibration, row.run.runner, *figure)
        for row in merged.rows
        if row.run.engine is not None
        for figure in _figures(row.run.engine)
    )
    return _csv(heads, rows)


def _figures(engine: EngineRecord) -> Iterator[tuple[str, str, object]]:
    """Kind, name and value of everything that is known of an engine."""
    for name in ("tensorrt", "device", "route", "level", "build_seconds", "engine_bytes", "layers"):
        yield "engine", name, getattr(engine, name)
    yield "engine", "int8_layers", engine.int8_layers
    yield "engine", "int8_time_share", engine.int8_time_share
    for precision, count in engine.by_precision.items():
        yield "layers", precision, count
    for reason, count in engine.reasons.items():
        yield "not INT8", reason, count
    for name, kind, share in engine.slowest:
        yield f"share of time, {kind}", name, share


def _csv(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_plain(value) for value in row] for row in rows)
    return stream.getvalue()


def _plain(value: object) -> object:
    """Empty for what was not measured; text that a spreadsheet would run as a formula is quoted."""
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode("utf-8")
        return "'" + text if text.startswith(_FORMULA) else text
    return value
