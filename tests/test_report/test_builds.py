"""Builds of one engine and integer kernels in reports."""

from __future__ import annotations

from dataclasses import replace

from test_report import report_results as made
from test_report.report_results import HOSTILE

from calib.report.builds import build_blocks, kernels_table
from calib.report.document import build_document
from calib.report.html import to_html
from calib.report.merge import merge
from calib.validation import KernelDifference, RebuildRecord
from calib.validation.peer_records import BuildDifference

RECORD = RebuildRecord(
    run="INT8",
    builds=3,
    figures={"top1": (0.76, 0.758, 0.761), "SQNR of y": (30.0, None, 31.0)},
    between=(
        (BuildDifference("y", 38.25, 0.1, "differs"),),
        (BuildDifference("y", None, 0.0, "equal"),),
    ),
    changed_answers=(4, 0),
    median_ms=(2.0, 2.1, 2.05),
    int8_layers=(15, 14, 15),
)
KERNEL = KernelDifference("INT8 integer kernels", "INT8", "y", 0.5, 1.0, 2.0, 0.125, 33.0)


def test_every_figure_of_every_build() -> None:
    merged = merge([replace(made.classifier(), rebuilds=(RECORD,))])
    (table,) = build_blocks(merged)
    assert table is not None
    assert [tuple(cell.text for cell in row) for row in table.rows] == [  # type: ignore[union-attr]
        ("INT8", "top1", "0.76000, 0.75800, 0.76100", "0.00300"),
        ("INT8", "SQNR of y (dB)", "30.0, –, 31.0", "–"),
        ("INT8", "SQNR of y against the first build (dB)", "–, 38.2, equal", "–"),
        ("INT8", "answers that are not the first build's", "–, 4, 0", "4"),
        ("INT8", "latency p50 (ms)", "2.00, 2.10, 2.05", "1.050 times"),
        ("INT8", "INT8 layers", "15, 14, 15", "1"),
    ]


def test_integer_kernels() -> None:
    table = kernels_table(merge([replace(made.classifier(), kernels=(KERNEL,))]))
    assert table is not None
    assert [cell.text for cell in table.rows[0]] == [
        *("INT8 integer kernels", "y", "1.00", "2.00", "0.125", "33.0"),
    ]


def test_integer_kernels_of_several_results_are_told_apart() -> None:
    first = replace(made.classifier(), kernels=(KERNEL,))
    table = kernels_table(merge([first, replace(first, created="2026-07-16T09:00:00Z")]))
    assert table is not None
    assert [row[0].text for row in table.rows] == ["INT8 integer kernels · A", "INT8 integer kernels · B"]


def test_nothing_where_neither_was_run() -> None:
    merged = merge([made.classifier()])
    assert build_blocks(merged) == ()
    assert kernels_table(merged) is None


def test_names_are_escaped() -> None:
    record = replace(RECORD, run=HOSTILE, figures={HOSTILE: (1.0, 2.0, 3.0)})
    kernel = replace(KERNEL, run=HOSTILE, output=HOSTILE)
    page = to_html(build_document(merge([replace(made.classifier(), rebuilds=(record,), kernels=(kernel,))])))
    assert "<script>alert" not in page
    assert 'id="builds"' in page
