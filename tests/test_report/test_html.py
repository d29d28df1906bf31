from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from test_report import report_results as made
from test_report.report_results import SETS

VOID = {"meta", "br", "img", "hr", "link", "input"}
LOADS = {"src", "srcset", "href", "xlink:href", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """Checks nesting and gathers what a test asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(params=list(SETS))
def source(request, report) -> str:
    return report(request.param).html.read_text(encoding="utf-8")


def test_nothing_is_loaded(source):
    page = Page(source)
    for tag, attributes in page.tags:
        for name in LOADS & set(attributes):
            assert (attributes[name] or "").startswith("#"), f"<{tag} {name}={attributes[name]}>"
    assert not {"script", "link", "iframe", "object", "embed", "img", "base"} & {tag for tag, _ in page.tags}
    styles = "".join(re.findall(r"<style>(.*?)</style>", source, re.S))
    assert "@import" not in styles
    assert "@font-face" not in styles
    assert "url(" not in styles
    assert "default-src 'none'" in source


def test_no_figure_reads_nan_or_none(source):
    text = " ".join(Page(source).text)
    assert not re.search(r"\b(nan|None|inf)\b", text)


def test_it_can_be_read_without_seeing(source):
    page = Page(source)
    assert len(page.named("h1")) == 1
    assert page.named("html") == [{"lang": "en"}]
    assert len(page.named("caption")) == len(page.named("table")) >= 6
    assert all(heading.get("scope") in {"row", "col"} for heading in page.named("th"))
    images = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert len(images) == len(page.named("figure")) >= 1
    assert all(attributes["aria-label"] for attributes in images)
    anchors = {attributes["href"] for attributes in page.named("a")}
    assert anchors == {f"#{attributes['id']}" for attributes in page.named("section")}


def test_identifiers_are_unique(source):
    names = [attributes["id"] for _, attributes in Page(source).tags if "id" in attributes]
    assert len(names) == len(set(names))


def test_light_dark_and_print(source):
    assert "prefers-color-scheme: dark" in source
    assert "@media print" in source
    assert '.chart [fill="#0072b2"] { fill: var(--fp32); }' in source


def test_hostile_strings_are_text(report):
    source = report("hostile").html.read_text(encoding="utf-8")
    page = Page(source)
    shown = made.HOSTILE.replace("\n", "\\n").replace("\x1b", "\\x1b")
    assert shown in "".join(page.text)
    assert "<script" not in source
    assert "\x1b" not in source


def test_the_simulation_is_announced_before_any_figure(report):
    source = report("classifier").html.read_text(encoding="utf-8")
    assert 0 < source.index("CPU simulation: says nothing of TensorRT") < source.index("<main>")
    assert "CPU simulation" not in report("gpu").html.read_text(encoding="utf-8")


def rows_of(source: str, caption: str) -> list[list[str]]:
    table = next(part for part in re.findall(r"<table>(.*?)</table>", source, re.S) if caption in part)
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in rows]
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in row] for row in cells]


def test_the_table_of_precisions(report):
    rows = rows_of(report("gpu").html.read_text(encoding="utf-8"), "side by side")
    heads, int8 = rows[0], rows[3]
    found = dict(zip(heads, int8, strict=True))
    assert found["Top-1"].startswith("96.4% 93.9–97.9%")
    assert found["Top-1 drop (points)"] == "+1.4"
    assert found["Latency p50 (ms)"].startswith("5.00 p90 5.47")
    assert found["Throughput (samples/s)"] == "6,400"
    assert found["Speed-up vs FP32"] == "2.00×"
    assert found["Speed-up vs FP16"] == "0.80× slower than FP16"
    assert found["Model size"] == "409 KiB"


def test_a_simulation_has_no_ratios(report):
    rows = rows_of(report("classifier").html.read_text(encoding="utf-8"), "side by side")
    found = dict(zip(rows[0], rows[3], strict=True))
    assert found["Speed-up vs FP32"] == found["Speed-up vs FP16"] == "simulated"


def test_merged_results_share_one_table_but_not_one_chart(report):
    source = report("merged").html.read_text(encoding="utf-8")
    assert len(rows_of(source, "side by side")) == 1 + 6
    assert source.count('class="chart wide"') == 4


def test_every_output_of_a_regressor_is_listed(report):
    rows = rows_of(report("regressor").html.read_text(encoding="utf-8"), "Error of each output")
    names = [(row[0].split()[0], row[1]) for row in rows[1:]]
    assert names == [("boxes", "FP16"), ("boxes", "INT8"), ("scores", "FP16"), ("scores", "INT8")]


def test_captions_of_wide_tables_fit_beside_the_margins_and_a_scroll_bar(report):
    page = report("classifier").html.read_text(encoding="utf-8")
    styles = "".join(re.findall(r"<style>(.*?)</style>", page, re.S))
    screens = styles.split("@media screen and (max-width: 40rem)")
    assert len(screens) == 2
    for rules in screens:
        margin = float(re.search(r"body \{[^}]*?padding: [\d.]+rem ([\d.]+)rem", rules).group(1))
        caption = re.search(r"caption span \{[^}]*?max-width: calc\(100vw - ([\d.]+)rem\)", rules)
        # A rem is 16 pixels, and a scroll bar that takes room, on Windows and Linux, at most 17.
        assert 2 * margin + 17 / 16 <= float(caption.group(1))
