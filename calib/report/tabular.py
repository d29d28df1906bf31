"""The figures as CSV, unrounded, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

from calib.report.merge import Merged

__all__ = ["latency_csv", "outputs_csv"]

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
