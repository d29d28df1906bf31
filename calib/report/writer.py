"""Writing a report: the only function of this stage that touches files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from calib.errors import require
from calib.files import check_writable, write_text
from calib.report.blocks import Document
from calib.report.document import build_document
from calib.report.html import to_html
from calib.report.markdown import to_markdown
from calib.report.merge import Merged, merge
from calib.report.svg import standalone_svg
from calib.report.tabular import engines_csv, latency_csv, latency_parts_csv, outputs_csv
from calib.validation.results import Results, write_results

__all__ = ["ReportFiles", "write_report"]


@dataclass(frozen=True)
class ReportFiles:
    """What a report consists of.

    Attributes:
        html: The page; opens offline and needs no other file.
        markdown: The same for GitHub; shows the charts beside it.
        json: The results it was drawn from: ``results.json``, or ``results-1.json``, ….
        csv: ``outputs.csv`` and ``latency.csv``, unrounded; where runs were on a GPU also
            ``latency_parts.csv`` and ``engines.csv``.
        charts: The SVG files that the Markdown shows.
    """

    html: Path
    markdown: Path
    json: tuple[Path, ...]
    csv: tuple[Path, ...]
    charts: tuple[Path, ...]


def write_report(
    results: Sequence[Results], out_dir: str | os.PathLike[str], *, title: str | None = None
) -> ReportFiles:
    """Writes HTML, Markdown, JSON and CSV from saved results.

    Several results are shown in one table, a row a run. They may come from different machines, runners and
    days, but must be of the same model and the same validation dataset.

    Args:
        results: One or more.
        out_dir: Folder for the files, created if needed. Files of an earlier report are replaced.
        title: The heading; by default made from the model's name.

    Returns:
        The files.

    Raises:
        UsageError: There are no results.
        ValidationError: The results are of different models or validation datasets.
        OutputError: The folder cannot be written.
        MissingExtraError: altair, vl-convert or jinja2 is not installed.
    """
    for module in ("altair", "vl_convert", "jinja2"):
        require(module, "report", "Writing a report")
    folder = Path(out_dir)
    check_writable(folder / "report.html")
    merged = merge(results)
    return _write(merged, build_document(merged, title), folder)


def _write(merged: Merged, document: Document, folder: Path) -> ReportFiles:
    """Makes every text before the first file is written, and writes the page last."""
    page, text = to_html(document), to_markdown(document)
    charts = [
        (folder / f"{figure.name}.svg", standalone_svg(figure.wide, figure.caption, figure.alt))
        for figure in document.figures
    ]
    return ReportFiles(
        json=_write_json(merged, folder),
        csv=tuple(write_text(folder / f"{name}.csv", text) for name, text in _tabular(merged)),
        charts=tuple(write_text(*chart) for chart in charts),
        markdown=write_text(folder / "report.md", text),
        html=write_text(folder / "report.html", page),
    )


def _tabular(merged: Merged) -> Iterator[tuple[str, str]]:
    yield "outputs", outputs_csv(merged)
    yield "latency", latency_csv(merged)
    if any(row.run.latency and row.run.latency.parts for row in merged.rows):
        yield "latency_parts", latency_parts_csv(merged)
    if any(row.run.engine is not None for row in merged.rows):
        yield "engines", engines_csv(merged)


def _write_json(merged: Merged, folder: Path) -> tuple[Path, ...]:
    if len(merged.sources) == 1:
        return (write_results(merged.first, folder / "results.json"),)
    return tuple(
        write_results(source.results, folder / f"results-{number}.json")
        for number, source in enumerate(merged.sources, start=1)
    )
