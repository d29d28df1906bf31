"""Reports of tasks other than classification: units, directions, classes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from task_judging import judged, numbered
from task_results import as_results

from calib.cli.tables import results_table
from calib.report import write_report
from calib.report.classes import classes_table, confusions_table
from calib.report.figures import accuracy_figures
from calib.report.merge import merge
from calib.report.metrics import main_metric
from calib.report.summary import headline
from calib.report.tables import precisions_table
from calib.validation import Results

RANDOM = np.random.default_rng(0)
LABELS = [float(value) for value in RANDOM.normal(size=40)]
FP32 = (np.array(LABELS) + RANDOM.normal(0, 0.1, 40)).astype(np.float32)[:, None]
INT8 = FP32 + RANDOM.normal(0.05, 0.1, FP32.shape).astype(np.float32)


@pytest.fixture(scope="module")
def regression() -> Results:
    task = {"kind": "regression", "unit": "mm"}
    return as_results(judged(task, numbered(LABELS), {"y": FP32}, {"y": INT8}))


@pytest.fixture(scope="module")
def segmentation() -> Results:
    masks = [RANDOM.integers(0, 3, (4, 5)).astype(np.int32) for _ in range(20)]
    lost = np.stack(masks)
    lost[(RANDOM.random(lost.shape) < 0.3) & (lost == 2)] = 1
    outputs = [{"y": np.moveaxis(np.eye(3, dtype=np.float32)[one], -1, 1)} for one in (np.stack(masks), lost)]
    dataset = numbered(masks, class_names=("road", "sky", "tree"))
    return as_results(judged({"kind": "segmentation"}, dataset, *outputs))


def test_the_figure_of_the_task_leads(regression: Results, segmentation: Results) -> None:
    assert main_metric(merge([regression])) == "MAE"
    assert main_metric(merge([segmentation])) == "mIoU"


def test_numbers_keep_their_unit_and_a_rise_is_a_loss(regression: Results) -> None:
    table = precisions_table(merge([regression]))
    titles = [column.title for column in table.columns]
    assert titles[:6] == ["Precision", "MAE", "MAE rise", "RMSE", "R²", "Spearman"]
    fp32, int8 = table.rows
    error = regression.runs[1].metrics[0]
    assert error.value is not None
    assert error.drop is not None
    assert error.drop < 0
    assert int8[1].text == f"{error.value:.3f} mm"
    assert (int8[2].text, int8[2].tone) == (f"+{-error.drop:.3f} mm", "bad")
    assert int8[2].sub == f"+{-(error.drop_high or 0):.3f} to +{-(error.drop_low or 0):.3f} mm"
    assert fp32[4].text == f"{regression.runs[0].metrics[2].value:.3f}"
    assert "so is a positive rise of a figure of which less is better" in table.caption


def test_the_summary_says_it_in_words(regression: Results, segmentation: Results) -> None:
    (_, fp32), (_, int8), *_ = headline(merge([regression]))
    assert fp32.startswith("the baseline; MAE 0.")
    assert " mm above FP32 (95% interval of the loss +0." in int8
    (_, fp32), (_, int8), *_ = headline(merge([segmentation]))
    assert fp32.startswith("the baseline; mIoU 100%")
    assert " points below FP32 (95% interval of the loss +" in int8


def test_charts_have_the_units_and_the_better_end(regression: Results, segmentation: Results) -> None:
    (figure,) = accuracy_figures(merge([regression]))
    assert "Down and left is better. Upright: MAE with its 95% interval (BCa bootstrap" in figure.caption
    assert figure.alt.startswith("MAE (mm) against latency")
    (figure,) = accuracy_figures(merge([segmentation]))
    assert "Up and left is better" in figure.caption
    assert figure.alt.startswith("mIoU (%) against latency")


def test_classes_that_lost_most_come_first(segmentation: Results) -> None:
    table = classes_table(merge([segmentation]))
    assert table is not None
    assert [row[0].text for row in table.rows][-1] == "road"
    assert {row[0].text for row in table.rows[:2]} == {"sky", "tree"}
    first = table.rows[0]
    figure = max(segmentation.runs[1].classes, key=lambda one: one.drop or 0)
    assert first[0].text == figure.name
    assert first[3].sub.startswith(f"+{100 * (figure.drop or 0):.1f} ± ")
    assert first[3].tone == "bad"


def test_confusions_are_named(segmentation: Results) -> None:
    table = confusions_table(merge([segmentation]))
    assert table is not None
    (row,) = table.rows
    count = segmentation.runs[1].confusions[0][2]
    assert [cell.text for cell in row] == ["tree", "sky", str(count)]


def test_there_are_no_tables_of_classes_where_there_are_none(regression: Results) -> None:
    assert classes_table(merge([regression])) is None
    assert confusions_table(merge([regression])) is None


def test_the_terminal_shows_the_figure_and_its_loss(regression: Results, segmentation: Results) -> None:
    headers = [str(column.header) for column in results_table(regression).columns]
    assert headers[:3] == ["Precision", "MAE and\n95% interval", "Rise"]
    headers = [str(column.header) for column in results_table(segmentation).columns]
    assert headers[:4] == ["Precision", "mIoU and\n95% interval", "Drop\npoints", "Agree-\nment"]


def test_the_whole_report_is_written(segmentation: Results, tmp_path: Path) -> None:
    text = write_report([segmentation], tmp_path).markdown.read_text()
    assert "## Classes" in text
    assert "IoU of each class, the largest drop first." in text
    assert "nan" not in text.lower().replace("nan or infinite", "")


def test_small_numbers_are_not_shown_as_none(regression: Results) -> None:
    """The same figures in a unit 2²³ times as large: 0.0755 mm becomes 9e-9."""
    factor = 2.0**-23
    task = {"kind": "regression", "unit": "mm"}
    small = as_results(
        judged(task, numbered([factor * one for one in LABELS]), {"y": factor * FP32}, {"y": factor * INT8})
    )
    row = precisions_table(merge([small])).rows[1]
    error = small.runs[1].metrics[0]
    assert error.value == pytest.approx(factor * (regression.runs[1].metrics[0].value or 0))
    digits, _, exponent = row[1].text.removesuffix(" mm").partition("e")
    assert float(digits) * 10.0 ** int(exponent.replace("\N{MINUS SIGN}", "-")) == pytest.approx(
        error.value, rel=5e-3
    )
    assert "0.000" not in "".join((row[1].sub, row[2].text, row[2].sub))
    # The chart has its marks where they are in the other unit.
    marks = [
        re.findall(
            r'<path aria-label="[^"]*"[^>]*transform="([^"]*)"', accuracy_figures(merge([one]))[0].wide
        )
        for one in (regression, small)
    ]
    assert marks[0] == marks[1] != []
