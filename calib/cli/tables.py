"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from calib.report import numbers
from calib.report.merge import Row, merge
from calib.report.methods import calibration_findings
from calib.report.text import shorten, visible
from calib.validation.results import Results

__all__ = ["print_results", "results_table"]

_SIMULATION = "CPU simulation: latency and throughput say nothing of TensorRT's speed."
_LOG_WIDTH = 120


def print_results(results: Results) -> None:
    """Prints the table of results on standard output, and which calibration is better."""
    console = Console(highlight=False)
    if not console.is_terminal:
        # A pipe or a log has no width of its own: names of outputs need more than the usual 80.
        console.width = max(console.width, _LOG_WIDTH)
    console.print(results_table(results))
    for methods, finding in calibration_findings(merge([results])):
        console.print(Text(f"{methods}: {finding}"))


def results_table(results: Results) -> Table:
    """The precisions side by side, a row each, drawn from results only.

    Columns of figures that no precision has are left out.

    Args:
        results: What a validation run found.
    """
    table = Table(
        title=_title(results),
        caption=_caption(results),
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.title_justify = table.caption_justify = "left"
    rows = merge([results]).rows
    drawn = [(header, [cell(row) for row in rows]) for header, cell in _COLUMNS]
    columns = [(header, cells) for header, cells in drawn if any(cells)]
    for header, cells in columns:
        _add_column(table, header, cells)
    for index in range(len(rows)):
        table.add_row(*(Text(cells[index] or numbers.MISSING) for _, cells in columns))
    return table


def _add_column(table: Table, header: str, cells: list[str]) -> None:
    """Adds a column whose figures are never cut, however narrow the terminal."""
    widest = max(len(line) for text in (header, *cells) for line in text.split("\n"))
    justify: JustifyMethod = "right" if table.columns else "left"
    table.add_column(header, justify=justify, min_width=widest, overflow="fold")


def _title(results: Results) -> Text:
    names = f"{visible(results.model.name)} on {visible(results.dataset.name)}"
    return Text(f"{names}, {len(results.sample_ids)} samples", "bold")


def _caption(results: Results) -> Text | None:
    timed = [(run.label, run.latency) for run in results.runs if run.latency is not None]
    if not timed:
        return None
    batch = f"Latency of batches of {timed[0][1].batch_size}."
    simulated = [label for label, latency in timed if latency.simulated]
    scope = f"{', '.join(simulated)}: " if len(simulated) < len(timed) else ""
    return Text(f"{batch} {scope}{_SIMULATION}" if simulated else batch)


def _share(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        metric = row.metric(name)
        if metric is None or metric.value is None:
            return ""
        ends = numbers.interval(metric.low, metric.high, metric.count)
        return f"{numbers.percent(metric.value, metric.count)}\n{ends}"

    return cell


def _drop(row: Row) -> str:
    metric = row.metric("top1")
    if metric is None or metric.drop is None:
        return ""
    ends = numbers.points_interval(metric.drop_low, metric.drop_high, metric.count)
    figure = numbers.points(metric.drop, metric.count)
    return figure if ends == numbers.MISSING else f"{figure}\n{ends}"


def _agreement(row: Row) -> str:
    metric = row.metric("top1_agreement")
    return "" if metric is None else numbers.percent(metric.value, metric.count)


def _sqnr(row: Row) -> str:
    if row.fault or row.exact:
        return row.fault or "no error"
    worst = row.worst_output
    if worst is None:
        return "none" if row.run.outputs else ""
    figure = f"{numbers.decibels(worst.sqnr_db)} dB"
    several = len(row.run.outputs) > 1
    return f"{figure}\n{shorten(visible(worst.output), 16)}" if several else figure


def _latency(row: Row) -> str:
    return "" if row.median_ms is None else f"{numbers.milliseconds(row.median_ms)} ms"


def _throughput(row: Row) -> str:
    return "" if row.run.latency is None else numbers.significant(row.run.latency.throughput_per_s)


_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("Precision", lambda row: row.label),
    ("Top-1 and\n95% interval", _share("top1")),
    ("Drop\npoints", _drop),
    ("Top-1\nagree", _agreement),
    ("SQNR", _sqnr),
    ("Latency\np50", _latency),
    ("Samples\nper s", _throughput),
    ("Model\nsize", lambda row: numbers.byte_size(row.run.model_bytes)),
)
