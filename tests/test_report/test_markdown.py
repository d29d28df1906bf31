from __future__ import annotations

import pytest
from markdown_it import MarkdownIt
from test_report.report_results import SETS

from calib.report.document import build_document
from calib.report.html import to_html
from calib.report.markdown import to_markdown
from calib.report.merge import merge

PARSER = MarkdownIt("commonmark", {"html": True}).enable("table")


@pytest.fixture(params=list(SETS))
def files(request, report):
    return report(request.param)


def test_it_holds_no_html_and_whole_tables(files):
    tokens = PARSER.parse(files.markdown.read_text(encoding="utf-8"))
    inline = [child for token in tokens for child in token.children or []]
    assert not [token for token in [*tokens, *inline] if token.type.startswith("html")]
    assert sum(token.type == "table_open" for token in tokens) >= 6
    widths: list[int] = []
    for token in tokens:
        if token.type == "tr_open":
            widths.append(0)
        elif token.type in {"td_open", "th_open"}:
            widths[-1] += 1
    assert min(widths) >= 2


def test_charts_lie_beside_it(files):
    tokens = PARSER.parse(files.markdown.read_text(encoding="utf-8"))
    images = [child for token in tokens for child in token.children or [] if child.type == "image"]
    assert {image.attrs["src"] for image in images} == {path.name for path in files.charts}
    assert all(path.parent == files.markdown.parent for path in files.charts)
    assert all(image.content for image in images)


def test_both_writers_show_the_same_blocks():
    document = build_document(merge(SETS["classifier"]()))
    page, text = to_html(document), to_markdown(document)
    for section in document.sections:
        assert f"## {section.title}" in text
        assert f">{section.title}</h2>" in page


def test_the_banner_and_the_warnings_are_alerts(report):
    text = report("classifier").markdown.read_text(encoding="utf-8")
    assert "> [!IMPORTANT]\n> CPU simulation: says nothing of TensorRT's speed." in text
    assert "> [!WARNING]\n> - FP16 is simulated" in text


def test_slower_than_fp16_stands_out(report):
    assert "**0.80×** (slower than FP16)" in report("gpu").markdown.read_text(encoding="utf-8")
