"""A comparison of two results files as Markdown and a page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from calib.errors import require
from calib.files import check_writable, write_text
from calib.report import numbers
from calib.report.blocks import Block, Bullets, Cell, Column, Document, Paragraph, Section, Table
from calib.report.gates import TONES, gate_cells
from calib.report.html import to_html
from calib.report.markdown import to_markdown
from calib.report.qualification_text import (
    WEIGHTS,
    amount,
    chance_of,
    change_interval,
    difference,
    figure,
    left_out,
    qualification_headline,
    ratio_doubt,
    ratio_interval,
)
from calib.report.text import visible
from calib.validation.qualification import (
    EngineShift,
    Flips,
    LatencyShift,
    OutputShift,
    Qualification,
)
from calib.wording import counted

__all__ = ["QualificationFiles", "build_document", "write_qualification"]

_MOVED = 40


@dataclass(frozen=True)
class QualificationFiles:
    """Where a comparison was written.

    Attributes:
        html: The page; opens offline and needs no other file.
        markdown: The same for GitHub.
        json: All of it, for programs.
    """

    html: Path
    markdown: Path
    json: Path


def write_qualification(found: Qualification, out_dir: str | os.PathLike[str]) -> QualificationFiles:
    """Writes ``compare.html``, ``compare.md`` and ``compare.json``.

    Args:
        found: What ``calib.compare`` gave.
        out_dir: Folder for the files, created if needed.

    Raises:
        OutputError: The folder cannot be written.
        MissingExtraError: jinja2 is not installed.
    """
    require("jinja2", "report", "Writing a comparison")
    folder = Path(out_dir)
    check_writable(folder / "compare.html")
    document = build_document(found)
    page, text = to_html(document), to_markdown(document)
    return QualificationFiles(
        json=write_text(folder / "compare.json", found.to_json()),
        markdown=write_text(folder / "compare.md", text),
        html=write_text(folder / "compare.html", page),
    )


def build_document(found: Qualification) -> Document:
    """The comparison as a document, for a page and for Markdown."""
    sections = (
        ("summary", "Summary", _summary(found)),
        ("circumstances", "What is not the same", (_circumstances(found),)),
        ("figures", "Figures", (_shifts(found),)),
        ("gates", "Gates", (_gates(found),)),
        ("answers", "Answers that changed", tuple(_flip_blocks(found.flips))),
        ("outputs", "Output errors", (_outputs(found.outputs),)),
        ("latency", "Latency", (_latencies(found.latencies),)),
        ("engines", "Engines", tuple(_engines(found.engines))),
    )
    made = (
        Section(anchor, title, tuple(block for block in blocks if block is not None))
        for anchor, title, blocks in sections
    )
    doubts = tuple(
        f"{one.what}: {one.before} → {one.after}" + (f" ({one.note})" if one.note else "")
        for one in found.circumstances
        if one.weight != "subject"
    )
    return Document(
        title=f"{visible(found.model)}: two versions compared",
        subtitle=(
            f"{visible(found.old)} → {visible(found.new)}; {numbers.counted(found.samples, 'sample[s]')} of "
            f"{visible(found.dataset)}"
        ),
        banner="",
        warnings=(*map(visible, found.faults), *map(visible, doubts)),
        sections=tuple(section for section in made if section.blocks),
        footer="Made by calib from saved results alone.",
    )


def _summary(found: Qualification) -> tuple[Block | None, ...]:
    items = [("Figures", qualification_headline(found))]
    items += [
        (f"{visible(one.run)}, answers", f"{one.changed} of {one.samples} changed") for one in found.flips
    ]
    if found.builds:
        items.append(("Noise", f"known from {found.builds} builds of one model"))
    items += [("Left out", text) for text in left_out(found)]
    return (Bullets(tuple(items)),)


def _table(
    caption: str, titles: Sequence[str], text: int, rows: Sequence[tuple[Cell, ...]], *notes: str
) -> Table:
    """A table whose first columns hold text, the others figures."""
    columns = tuple(Column(title, index >= text) for index, title in enumerate(titles))
    return Table(caption, columns, tuple(rows), notes)


def _circumstances(found: Qualification) -> Block:
    if not found.circumstances:
        return Paragraph("Model, data, calibration, software and machine are the same.")
    rows = [
        (
            Cell(visible(one.what)),
            Cell(visible(one.before)),
            Cell(visible(one.after)),
            Cell(WEIGHTS[one.weight], visible(one.note), tone=TONES.get(one.weight, "")),
        )
        for one in found.circumstances
    ]
    return _table("What differs between the two.", ("What", "Before", "Now", "Weight"), 4, rows)


def _shifts(found: Qualification) -> Table:
    rows = [
        (
            Cell(visible(one.run)),
            Cell(visible(one.figure)),
            Cell(one.status, tone=TONES.get(one.status, "")),
            Cell(figure(one.before, one.unit, one.status)),
            Cell(figure(one.after, one.unit, one.status)),
            Cell(difference(one), "" if change_interval(one) == numbers.MISSING else change_interval(one)),
            Cell(chance_of(one)),
            Cell(numbers.MISSING if one.noise is None else amount(one.noise, one.unit)),
        )
        for one in found.shifts
    ]
    correction = "" if found.correction == "none" else f", after {found.correction.capitalize()}'s correction"
    methods = dict.fromkeys(one.method for one in found.shifts if one.method)
    return _table(
        "Every figure before and now, with 95% intervals of the change from the same samples.",
        ("Run", "Figure", "Status", "Before", "Now", "Change", "p", "Noise of builds"),
        3,
        rows,
        f"“better” and “worse”: chance alone would show it in less than {100 * found.alpha:g}% of "
        f"comparisons{correction}. “within noise”: builds of one model differ as much.",
        *methods,
    )


def _gates(found: Qualification) -> Table | None:
    if not found.gates:
        return None
    rows = [gate_cells(one) for one in found.gates]
    return _table("Gates against the old results.", ("Verdict", "Gate", "Limit", "Found"), 4, rows)


def _flip_blocks(every: Sequence[Flips]) -> Iterator[Block]:
    for flips in every:
        if not flips.changed:
            continue
        rows = [
            (
                Cell(visible(one.sample_id), code=True),
                Cell(one.effect, tone=TONES.get(one.effect, "")),
                Cell(numbers.MISSING if one.label is None else str(one.label)),
                Cell(str(one.before)),
                Cell(str(one.after)),
                Cell(numbers.decibels(one.sqnr_db)),
            )
            for one in flips.listed
        ]
        left = flips.changed - len(flips.listed)
        yield _table(
            f"{visible(flips.run)}: {flips.changed} of {counted(flips.samples, 'answer[s]')} changed.",
            ("Sample", "Effect", "Label", "Before", "Now", "SQNR now (dB)"),
            2,
            rows,
            *([f"{counted(left, 'more [is|are]')} not listed."] if left else []),
        )


def _outputs(outputs: Sequence[OutputShift]) -> Table | None:
    if not outputs:
        return None
    rows = [
        (
            Cell(visible(one.run)),
            Cell(visible(one.output), code=True),
            _both(*map(numbers.decibels, one.sqnr_db)),
            _both(*map(numbers.cosine, one.cosine)),
            _both(*map(numbers.significant, one.max_abs)),
            _both(*one.verdict),
        )
        for one in outputs
    ]
    titles = ("Run", "Output", "SQNR (dB)", "Cosine", "Largest error", "Against FP32")
    return _table("Errors of each output against FP32 of the same results, before → now.", titles, 2, rows)


def _both(before: str, after: str) -> Cell:
    return Cell(before if before == after else f"{before} → {after}")


def _latencies(latencies: Sequence[LatencyShift]) -> Table | None:
    if not latencies:
        return None
    rows = [
        (
            Cell(visible(one.run)),
            Cell(visible(one.device) or numbers.MISSING),
            Cell(numbers.milliseconds(one.before_ms)),
            Cell(numbers.milliseconds(one.after_ms)),
            Cell(
                numbers.MISSING if one.ratio is None else numbers.significant(one.ratio, 4),
                "" if ratio_interval(one) == numbers.MISSING else ratio_interval(one),
            ),
            Cell(numbers.MISSING if one.noise is None else numbers.significant(one.noise, 4)),
            Cell(ratio_doubt(one) or visible(one.note)),
        )
        for one in latencies
    ]
    titles = ("Run", "Device", "Before (ms)", "Now (ms)", "Ratio", "Noise of builds", "Note")
    return _table("Latency p50; the ratio only where both were timed on the same GPU.", titles, 2, rows)


def _engines(engines: Sequence[EngineShift]) -> Iterator[Block]:
    if not engines:
        return
    rows = [
        (
            Cell(visible(one.run)),
            _both(*map(numbers.byte_size, one.engine_bytes)),
            _both(*map(str, one.layers)),
            _both(
                *(_share(count, layers) for count, layers in zip(one.int8_layers, one.layers, strict=True))
            ),
            Cell(str(len(one.moved)) if one.known else numbers.MISSING),
        )
        for one in engines
    ]
    titles = ("Run", "Engine size", "Layers", "INT8 layers", "Nodes in another precision")
    yield _table("The engines, before → now.", titles, 1, rows)
    moved = [(one.run, *change) for one in engines for change in one.moved]
    if moved:
        lines = [
            (Cell(visible(run)), Cell(visible(name), code=True), Cell(before), Cell(after))
            for run, name, before, after in moved[:_MOVED]
        ]
        left = len(moved) - len(lines)
        yield _table(
            "Nodes that compute in another precision.",
            ("Run", "Node", "Before", "Now"),
            4,
            lines,
            *([f"{counted(left, 'more [is|are]')} in the JSON."] if left else []),
        )


def _share(count: int, layers: int) -> str:
    return f"{count} ({numbers.percent(count / layers)})" if layers else str(count)
