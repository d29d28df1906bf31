"""Strings from results files, made safe to show.

Model names, sample ids and tensor names come from users' files. ``visible`` makes them printable;
HTML is escaped by the template engine; ``markdown`` and ``markdown_code`` do it for Markdown.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["markdown", "markdown_code", "shorten", "visible"]

# Characters that could reorder the text around them on the screen.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
_HIDDEN = frozenset({"Cc", "Cs", "Cn", "Zl", "Zp"})


def visible(text: str, *, lines: bool = False) -> str:
    r"""Control, bidirectional and unassigned characters as escapes, so that HTML and XML can hold them.

    Args:
        text: Any string.
        lines: Keep line breaks, for text that is shown in a block of its own.

    >>> visible("a\tb\x1b[0m")
    'a\\tb\\x1b[0m'
    """
    kept = "\n" if lines else ""
    return "".join(char if char in kept or _printable(char) else _escape(char) for char in text)


def _printable(char: str) -> bool:
    return unicodedata.category(char) not in _HIDDEN and char not in _BIDI


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def shorten(text: str, limit: int) -> str:
    """The text, its middle replaced by an ellipsis where it is longer than ``limit`` characters.

    >>> shorten("backbone.layer4.conv2", 11)
    'backb…conv2'
    """
    if len(text) <= limit:
        return text
    head = limit // 2
    return text[:head] + "…" + text[len(text) - (limit - head - 1) :]


def markdown(text: str) -> str:
    r"""Text that Markdown shows as it is, in a paragraph, list item or table cell.

    >>> markdown("a|b <c> *d* e_f _g_")
    'a\\|b &lt;c&gt; \\*d\\* e_f \\_g\\_'
    """
    escaped = re.sub(r"([\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", visible(text))
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", escaped)
    return re.sub(r"^([-=]|\+(?=\s))", r"\\\1", escaped)


def markdown_code(text: str) -> str:
    r"""Text as a code span, also inside a table, where ``|`` ends a cell even in code.

    >>> markdown_code("conv1|out"), markdown_code("a`b")
    ('`conv1\\|out`', '`` a`b ``')
    """
    shown = visible(text).replace("|", "\\|")
    if not shown.strip():
        return "` `"
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    if not longest:
        return f"`{shown}`"
    fence = "`" * (longest + 1)
    return f"{fence} {shown} {fence}"
