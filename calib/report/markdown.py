"""The report as Markdown for GitHub, with its charts as SVG files beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from calib.report.blocks import Block, Bullets, Cell, Code, Document, Figure, Paragraph, Section, Table
from calib.report.numbers import MISSING
from calib.report.text import markdown, markdown_code

__all__ = ["block_to_markdown", "to_markdown"]


def to_markdown(document: Document) -> str:
    """Writes the same content as the page.

    Args:
        document: The content. Charts are referenced as ``<name>.svg`` in the same folder.
    """
    parts = [f"# {markdown(document.title)}", markdown(document.subtitle)]
    if document.banner:
        parts.append(_quote("IMPORTANT", [document.banner]))
    if document.warnings:
        parts.append(_quote("WARNING", [f"- {markdown(text)}" for text in document.warnings], raw=True))
    parts += [_section(section) for section in document.sections]
    parts += ["---", markdown(document.footer)]
    return "\n\n".join(parts) + "\n"


def _quote(kind: str, lines: list[str], *, raw: bool = False) -> str:
    shown = [line if raw else markdown(line) for line in lines]
    return "\n".join(f"> {line}" for line in (f"[!{kind}]", *shown))


def _section(section: Section) -> str:
    return "\n\n".join(
        [f"## {markdown(section.title)}", *(block_to_markdown(block) for block in section.blocks)]
    )


def block_to_markdown(block: Block) -> str:
    """One block of a report as Markdown."""
    return _WRITERS[block.kind](block)


def _paragraph(block: Paragraph) -> str:
    return markdown(block.text)


def _bullets(block: Bullets) -> str:
    return "\n".join(f"- **{markdown(lead)}**: {markdown(rest)}" for lead, rest in block.items)


def _code(block: Code) -> str:
    longest = max((len(run) for run in re.findall(r"`+", block.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{block.text}\n{fence}"


def _figure(block: Figure) -> str:
    alt = markdown(block.alt).replace("\n", " ")
    return f"![{alt}]({block.name}.svg)\n\n*{markdown(block.caption)}*"


def _table(block: Table) -> str:
    heads = " | ".join(markdown(column.title) for column in block.columns)
    rules = " | ".join("---:" if column.numeric else ":---" for column in block.columns)
    rows = [" | ".join(_cell(cell) for cell in row) for row in block.rows]
    table = "\n".join(f"| {line} |" for line in (heads, rules, *rows))
    notes = "\n".join(f"- {markdown(note)}" for note in block.notes)
    return "\n\n".join(part for part in (f"*{markdown(block.caption)}*", table, notes) if part)


def _cell(cell: Cell) -> str:
    text = markdown_code(cell.text) if cell.code and cell.text != MISSING else markdown(cell.text)
    if cell.tone == "bad":
        text = f"**{text}**"
    return f"{text} ({markdown(cell.sub)})" if cell.sub else text


_WRITERS: dict[str, Callable[[Any], str]] = {
    "paragraph": _paragraph,
    "bullets": _bullets,
    "code": _code,
    "figure": _figure,
    "table": _table,
}
