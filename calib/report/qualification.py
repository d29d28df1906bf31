"""A comparison of two results files as text, Markdown and a page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from calib.errors import require
from calib.files import check_writable, write_text
from calib.report import numbers
from calib.report.blocks import Block, Bullets, Cell, Column, Document, Paragraph, Section, Table, Tone
from calib.report.gates import gate_lines, p_text
from calib.report.html import to_html
from calib.report.markdown import to_markdown
from calib.report.text import visible
from calib.validation.qualification import (
    EngineShift,
    Flip,
    Flips,
    LatencyShift,
    OutputShift,
    Qualification,
    Shift,
)

__all__ = ["QualificationFiles", "qualification_headline", "qualification_text", "write_qualification"]

_TONES: dict[str, Tone] = {
    "worse": "bad",
    "missing": "bad",
    "unfair": "bad",
    "became wrong": "bad",
    "fail": "bad",
    "undecided": "bad",
    "better": "good",
    "became right": "good",
    "pass": "good",
}
_WEIGHTS = {"unfair": "unfair", "doubt": "doubtful", "subject": "changed"}
_SHOWN = 5
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


def qualification_headline(found: Qualification) -> str:
    """What came out, in one sentence.

    >>> qualification_headline(Qualification("a", "b", "m", "d", 9, (), (), (), (), (), ()))
    'no figure got worse by more than chance and noise explain'
    """
    worse = [f"{one.run} {one.figure}" for one in found.worse]
    better = [f"{one.run} {one.figure}" for one in found.better]
    parts = [f"worse: {', '.join(worse)}"] if worse else []
    parts += [f"better: {', '.join(better)}"] if better else []
    said = "; ".join(map(visible, parts)) or "no figure got worse by more than chance and noise explain"
    return said if found.verdict is None else f"{found.verdict.upper()}; {said}"


def qualification_text(found: Qualification) -> str:
    """The comparison for a terminal."""
    lines = [
        f"{visible(found.model)} on {visible(found.dataset)}, {found.samples} samples: "
        f"{qualification_headline(found)}",
        f"  {visible(found.old)} → {visible(found.new)}",
    ]
    for title, part in (
        ("What is not the same:", _circumstance_lines(found)),
        ("Figures:", [f"  {_shift_text(one)}" for one in found.shifts if one.status != "same"]),
        ("Answers:", [line for flips in found.flips for line in _flip_lines(flips)]),
        ("Latency:", [f"  {_latency_text(one)}" for one in found.latencies]),
        ("Engines:", [f"  {_engine_text(one)}" for one in found.engines]),
        ("Gates:", [line for one in found.gates for line in gate_lines(one, 9)]),
    ):
        lines += [title, *part] if part else []
    same = sum(one.status == "same" for one in found.shifts)
    lines += [f"{same} figures are the same."] if same else []
    lines += [text for text in _left_out(found)]
    return "\n".join(lines)


def _left_out(found: Qualification) -> Iterator[str]:
    if found.only_old:
        yield f"Only in the old results: {visible(', '.join(found.only_old))}."
    if found.only_new:
        yield f"Only in the new results: {visible(', '.join(found.only_new))}."


def _circumstance_lines(found: Qualification) -> list[str]:
    return [
        f"  {_WEIGHTS[one.weight]:<8}  {visible(one.what)}: {visible(one.before)} → {visible(one.after)}"
        + (f" ({visible(one.note)})" if one.note else "")
        for one in found.circumstances
    ]


def _shift_text(one: Shift) -> str:
    change = f", change {_difference(one)}" if one.difference is not None else ""
    ends = _ends(one)
    interval = "" if ends == numbers.MISSING else f" ({ends}, 95% interval)"
    p_value = _p_value(one)
    chance = "" if p_value == numbers.MISSING else f", p = {p_value}".replace("= <", "< ")
    noise = "" if one.noise is None else f", builds differ by up to {_amount(one.noise, one.unit)}"
    return (
        f"{visible(one.run)} {visible(one.figure)}: {_figure(one.before, one.unit)} → "
        f"{_figure(one.after, one.unit)}: {one.status}{change}{interval}{chance}{noise}"
    )


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "null"
    if unit == "dB":
        return f"{numbers.decibels(value)} dB"
    return numbers.percent(value) if unit == "share" else numbers.significant(value)


def _amount(value: float, unit: str) -> str:
    """A difference with its unit."""
    if unit == "share":
        return f"{numbers.significant(100 * value)} points"
    return f"{numbers.significant(value)} {unit}".rstrip()


def _difference(one: Shift) -> str:
    if one.difference is None:
        return numbers.MISSING
    sign = "+" if one.difference > 0 else ""
    return f"{sign}{_amount(one.difference, one.unit)}"


def _ends(one: Shift) -> str:
    if one.low is None or one.high is None:
        return numbers.MISSING
    if one.unit == "share":
        return numbers.points_interval(one.low, one.high)
    return " to ".join(f"{'+' if end > 0 else ''}{numbers.significant(end)}" for end in (one.low, one.high))


def _p_value(one: Shift) -> str:
    value = one.p_value if one.p_adjusted is None else one.p_adjusted
    return numbers.MISSING if value is None else numbers.probability(value)


def _flip_lines(flips: Flips) -> list[str]:
    if not flips.changed:
        return []
    sides = (
        ""
        if flips.became_wrong is None
        else (f": {flips.became_wrong} became wrong, {flips.became_right} became right")
    )
    lines = [f"  {visible(flips.run)}: {flips.changed} of {flips.samples} changed{sides}"]
    lines += [f"    {_flip_text(one)}" for one in flips.listed[:_SHOWN]]
    left = flips.changed - min(_SHOWN, len(flips.listed))
    return [*lines, *([f"    and {left} more"] if left else [])]


def _flip_text(one: Flip) -> str:
    label = "" if one.label is None else f", label {one.label}"
    level = "" if one.sqnr_db is None else f", SQNR {numbers.decibels(one.sqnr_db)} dB"
    return f"{visible(one.sample_id)}{label}: {one.before} → {one.after}, {one.effect}{level}"


def _latency_text(one: LatencyShift) -> str:
    ends = " → ".join(f"{numbers.milliseconds(value)} ms" for value in (one.before_ms, one.after_ms))
    if one.ratio is None:
        return f"{visible(one.run)}: {ends}: not compared: {visible(one.note)}"
    interval = _ratio_ends(one)
    interval = "" if interval == numbers.MISSING else f" ({interval}, 95% interval)"
    noise = "" if one.noise is None else f", builds differ by up to {numbers.significant(one.noise, 4)} times"
    within = ": within the noise" if _within(one) else ""
    return f"{visible(one.run)}: {ends}: {numbers.significant(one.ratio, 4)} times{interval}{noise}{within}"


def _within(one: LatencyShift) -> bool:
    return bool(one.ratio and one.noise and max(one.ratio, 1 / one.ratio) <= one.noise)


def _ratio_ends(one: LatencyShift) -> str:
    if one.low is None or one.high is None:
        return numbers.MISSING
    return f"{numbers.significant(one.low, 4)} to {numbers.significant(one.high, 4)}"


def _engine_text(one: EngineShift) -> str:
    size = " → ".join(map(numbers.byte_size, one.engine_bytes))
    layers = " → ".join(
        f"{int8} of {layers}" for int8, layers in zip(one.int8_layers, one.layers, strict=True)
    )
    return f"{visible(one.run)}: {size}; INT8 layers {layers}; {_moved_text(one)}"


def _moved_text(one: EngineShift) -> str:
    if not one.known:
        return "which node computes in what is not known of both"
    if not one.moved:
        return "every node computes in the same precision"
    shown = ", ".join(f"{name} {before} → {after}" for name, before, after in one.moved[:_SHOWN])
    left = len(one.moved) - _SHOWN
    more = f" and {left} more" if left > 0 else ""
    return f"{len(one.moved)} nodes compute in another precision: {visible(shown)}{more}"


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
            f"{visible(found.old)} → {visible(found.new)}; {numbers.whole(found.samples)} samples of "
            f"{visible(found.dataset)}"
        ),
        banner="",
        warnings=tuple(map(visible, doubts)),
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
    items += [("Left out", text) for text in _left_out(found)]
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
            Cell(_WEIGHTS[one.weight], visible(one.note), tone=_TONES.get(one.weight, "")),
        )
        for one in found.circumstances
    ]
    return _table("What differs between the two.", ("What", "Before", "Now", "Weight"), 4, rows)


def _shifts(found: Qualification) -> Table:
    rows = [
        (
            Cell(visible(one.run)),
            Cell(visible(one.figure)),
            Cell(one.status, tone=_TONES.get(one.status, "")),
            Cell(_figure(one.before, one.unit)),
            Cell(_figure(one.after, one.unit)),
            Cell(_difference(one), "" if _ends(one) == numbers.MISSING else _ends(one)),
            Cell(_p_value(one)),
            Cell(numbers.MISSING if one.noise is None else _amount(one.noise, one.unit)),
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
    rows = [
        (
            Cell(one.verdict, tone=_TONES.get(one.verdict, "")),
            Cell(visible(one.name)),
            Cell(one.limit),
            Cell(visible(one.reason), "; ".join(part for part in (p_text(one), visible(one.note)) if part)),
        )
        for one in found.gates
    ]
    return _table("Gates against the old results.", ("Verdict", "Gate", "Limit", "Found"), 4, rows)


def _flip_blocks(every: Sequence[Flips]) -> Iterator[Block]:
    for flips in every:
        if not flips.changed:
            continue
        rows = [
            (
                Cell(visible(one.sample_id), code=True),
                Cell(one.effect, tone=_TONES.get(one.effect, "")),
                Cell(numbers.MISSING if one.label is None else str(one.label)),
                Cell(str(one.before)),
                Cell(str(one.after)),
                Cell(numbers.decibels(one.sqnr_db)),
            )
            for one in flips.listed
        ]
        left = flips.changed - len(flips.listed)
        yield _table(
            f"{visible(flips.run)}: {flips.changed} of {flips.samples} answers changed.",
            ("Sample", "Effect", "Label", "Before", "Now", "SQNR now (dB)"),
            2,
            rows,
            *([f"{left} more are not listed."] if left else []),
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
                "" if _ratio_ends(one) == numbers.MISSING else _ratio_ends(one),
            ),
            Cell(numbers.MISSING if one.noise is None else numbers.significant(one.noise, 4)),
            Cell("within the noise" if _within(one) else visible(one.note)),
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
            *([f"{left} more are in the JSON."] if left else []),
        )


def _share(count: int, layers: int) -> str:
    return f"{count} ({numbers.percent(count / layers)})" if layers else str(count)
