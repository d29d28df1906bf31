"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from calib.report import numbers
from calib.report.merge import Row, merge
from calib.report.methods import calibration_findings
from calib.report.metrics import interval_text, loss_interval_text, loss_text, value_text, wording
from calib.report.text import shorten, visible
from calib.validation.results import Results
from calib.wording import counted

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
    main = results.judged_by
    drawn = [(header, [cell(row) for row in rows]) for header, cell in _columns(results, main)]
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
    return Text(f"{names}, {counted(len(results.sample_ids), 'sample[s]')}", "bold")


def _caption(results: Results) -> Text | None:
    timed = [(run.label, run.latency) for run in results.runs if run.latency is not None]
    if not timed:
        return None
    batch = f"Latency of batches of {timed[0][1].batch_size}."
    simulated = [label for label, latency in timed if latency.simulated]
    scope = f"{', '.join(simulated)}: " if len(simulated) < len(timed) else ""
    return Text(f"{batch} {scope}{_SIMULATION}" if simulated else batch)


def _value(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        metric = row.metric(name)
        if metric is None or metric.value is None:
            return ""
        ends = interval_text(metric)
        return value_text(metric) if ends == numbers.MISSING else f"{value_text(metric)}\n{ends}"

    return cell


def _loss(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        metric = row.metric(name)
        if metric is None or metric.drop is None:
            return ""
        ends, figure = loss_interval_text(metric), loss_text(metric)
        return figure if ends == numbers.MISSING else f"{figure}\n{ends}"

    return cell


def _agreement(row: Row) -> str:
    metric = next((one for one in row.run.metrics if one.name.endswith("_agreement")), None)
    return "" if metric is None else value_text(metric)


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


def _columns(results: Results, main: str) -> Iterator[tuple[str, Callable[[Row], str]]]:
    """The columns: the figure that speaks for the task, its loss, agreement, then what every task has."""
    title = wording(main).title
    metric = next((one for run in results.runs for one in run.metrics if one.name == main), None)
    word = "Drop" if metric is None or metric.higher_is_better else "Rise"
    unit = "\npoints" if metric is None or metric.unit == "share" else ""
    yield "Precision", lambda row: row.label
    yield f"{title} and\n95% interval", _value(main)
    yield f"{word}{unit}", _loss(main)
    yield ("Top-1\nagree" if main == "top1" else "Agree-\nment"), _agreement
    yield from _COLUMNS


_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("SQNR", _sqnr),
    ("Latency\np50", _latency),
    ("Samples\nper s", _throughput),
    ("Model\nsize", lambda row: numbers.byte_size(row.run.model_bytes)),
)
