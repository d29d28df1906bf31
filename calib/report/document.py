"""The report's content, section by section, before it is HTML or Markdown."""

from __future__ import annotations

from calib.report.blocks import Block, Bullets, Document, Paragraph, Section
from calib.report.builds import build_blocks, kernels_table, simulations_table
from calib.report.classes import classes_table, confusions_table
from calib.report.columns import columns_table
from calib.report.engines import engine_blocks
from calib.report.figures import accuracy_figures, latency_figures
from calib.report.merge import Merged
from calib.report.numbers import counted, whole
from calib.report.provenance import (
    calibration_blocks,
    dataset_table,
    environment_table,
    model_table,
    repeat_blocks,
    sources_table,
    telemetry_table,
)
from calib.report.summary import banner, headline, warnings
from calib.report.tables import (
    changes_table,
    latency_table,
    making_table,
    outputs_table,
    precisions_table,
    worst_table,
)
from calib.report.text import visible
from calib.report.timing import parts_table, ratios_table

__all__ = ["build_document"]


def build_document(merged: Merged, title: str | None = None) -> Document:
    """Works out everything that a report says.

    Args:
        merged: The results.
        title: The heading; by default the model's name and what is reported.
    """
    first = merged.first
    kind = "accuracy and latency" if merged.judged else "output errors and latency"
    heading = visible(title) if title else f"{visible(first.model.name)}: {kind} by precision"
    subtitle = (
        f"{counted(first.dataset.samples, 'validation sample[s]')} of {visible(first.dataset.name)}; "
        f"{whole(first.model.parameters)} parameters; measured {_dates(merged)}"
    )
    return Document(
        title=heading,
        subtitle=subtitle,
        banner=banner(merged),
        warnings=warnings(merged),
        sections=_sections(merged),
        footer=f"Made by calib {visible(first.calib_version)} from saved results alone.",
    )


def _dates(merged: Merged) -> str:
    days = sorted({visible(source.results.created[:10]) for source in merged.sources})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _sections(merged: Merged) -> tuple[Section, ...]:
    wanted = (
        ("summary", "Summary", (Bullets(headline(merged)), sources_table(merged))),
        ("accuracy-latency", "Accuracy against latency", _accuracy(merged)),
        ("precisions", "Precisions", _precisions(merged)),
        ("classes", "Classes", (classes_table(merged), confusions_table(merged))),
        ("latency", "Latency", _latency(merged)),
        ("engines", "Engines", (*engine_blocks(merged), simulations_table(merged))),
        ("builds", "Builds of one engine", build_blocks(merged)),
        ("outputs", "Output errors", (outputs_table(merged), columns_table(merged), kernels_table(merged))),
        ("samples", "Worst samples", (worst_table(merged),)),
        ("calibration", "Calibration", calibration_blocks(merged)),
        ("dataset", "Model and dataset", (model_table(merged), dataset_table(merged))),
        ("environment", "Environment", (environment_table(merged),)),
        ("repeat", "How to repeat this", repeat_blocks(merged)),
    )
    sections = (
        Section(anchor, title, tuple(block for block in blocks if block is not None))
        for anchor, title, blocks in wanted
    )
    return tuple(section for section in sections if section.blocks)


def _accuracy(merged: Merged) -> tuple[Block | None, ...]:
    figures = accuracy_figures(merged)
    if figures:
        return tuple(figures)
    return (Paragraph("No chart: no run has both a latency and a figure of accuracy."),)


def _precisions(merged: Merged) -> tuple[Block | None, ...]:
    return (precisions_table(merged), changes_table(merged), making_table(merged))


def _latency(merged: Merged) -> tuple[Block | None, ...]:
    table = latency_table(merged)
    if table is None:
        return (Paragraph("Latency was not measured."),)
    more = (parts_table(merged), ratios_table(merged), telemetry_table(merged))
    return (*latency_figures(merged), table, *more)
