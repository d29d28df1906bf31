from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from calib.report.text import markdown, markdown_code, shorten, visible

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("\x00\x1b", "\\x00\\x1b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("naïve 猫 😀", "naïve 猫 😀"),
    ],
)
def test_visible_escapes_what_cannot_be_seen(text, shown):
    assert visible(text) == shown


def test_visible_keeps_lines_on_request():
    assert visible("a\nb\x00", lines=True) == "a\nb\\x00"


def cell_of(table_cell: str):
    """The inline tokens of a cell, as GitHub-flavoured Markdown reads it."""
    tokens = MARKDOWN.parse(f"| head | next |\n| :--- | :--- |\n| {table_cell} | end |\n")
    inline = [token for token in tokens if token.type == "inline"]
    assert [token.content for token in inline[:2]] == ["head", "next"]
    assert inline[3].content == "end"
    return inline[2].children or []


@given(st.text(max_size=40))
def test_markdown_shows_any_text_as_it_is(text):
    children = cell_of(markdown(text))
    assert {child.type for child in children} <= {"text", "text_special"}
    # A reader sees runs of blanks at the ends trimmed, everything else as it was.
    assert "".join(child.content for child in children).strip() == visible(text).strip()


@given(st.text(max_size=40))
def test_markdown_code_shows_any_text_as_it_is(text):
    children = cell_of(markdown_code(text))
    assert [child.type for child in children] == ["code_inline"]
    assert children[0].content.strip() == visible(text).strip()


@pytest.mark.parametrize("text", ["1. one", "- one", "+ one", "# one", "=== ", "> one", "```", "2) x"])
def test_markdown_starts_no_block(text):
    tokens = MARKDOWN.parse(markdown(text))
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]


@pytest.mark.parametrize(("limit", "expected"), [(10, "abcdefghij"), (5, "ab…ij"), (4, "ab…j")])
def test_shorten_keeps_both_ends(limit, expected):
    assert shorten("abcdefghij", limit) == expected
    assert len(expected) <= limit
