"""What a report is made of, before it becomes HTML or Markdown: both show the same blocks.

All strings here are plain text; the writers escape them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from calib.report.numbers import MISSING

__all__ = [
    "Block",
    "Bullets",
    "Cell",
    "Code",
    "Column",
    "Document",
    "Figure",
    "Paragraph",
    "Section",
    "Table",
    "Tone",
]

Tone = Literal["", "good", "bad", "muted"]


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: What it says; ``MISSING`` for a figure that was not measured.
        sub: A second, quieter line.
        tone: How a reader should take it; never the only carrier of the meaning.
        code: Whether the text is an identifier.
        bar: Length of a bar behind the figure, a share between 0 and 1; None for no bar.
    """

    text: str
    sub: str = ""
    tone: Tone = ""
    code: bool = False
    bar: float | None = None

    @property
    def missing(self) -> bool:
        """Whether the figure was not measured."""
        return self.text == MISSING


@dataclass(frozen=True)
class Column:
    """A column's heading. Numeric columns are set flush right."""

    title: str
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """A table; the first cell of each row names the row."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of prose."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True)
class Bullets:
    """A list; each item is a bold lead and the rest."""

    kind: ClassVar[str] = "bullets"
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """A command or text to copy."""

    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class Figure:
    """A chart.

    Attributes:
        name: File name of its SVG, without the ending.
        caption: What it shows and how to read it.
        alt: The chart in words, for those who cannot see it.
        wide: SVG for a page or a screen.
        narrow: The same for a phone.
    """

    kind: ClassVar[str] = "figure"
    name: str
    caption: str
    alt: str
    wide: str = field(repr=False)
    narrow: str = field(repr=False)


Block = Table | Paragraph | Bullets | Code | Figure


@dataclass(frozen=True)
class Section:
    """A part of the report under a heading. ``anchor`` is the link's target."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report.

    Attributes:
        title: The heading.
        subtitle: Model, dataset and date in one line.
        banner: What must be seen before any figure, such as that speeds are simulated; may be empty.
        warnings: What a reader must know before believing a figure.
        sections: The parts, the summary first.
        footer: What made it.
    """

    title: str
    subtitle: str
    banner: str
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    footer: str

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All charts, in order."""
        return tuple(
            block for section in self.sections for block in section.blocks if isinstance(block, Figure)
        )
