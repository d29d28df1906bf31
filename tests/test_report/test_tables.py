from __future__ import annotations

from dataclasses import replace

import pytest
from test_report import report_results as made

from calib.report.blocks import Cell
from calib.report.classes import classes_table
from calib.report.merge import merge
from calib.report.tables import outputs_table, precisions_table, worst_table
from calib.validation.results import ClassFigure, LatencyRatio, Metric, Results, WorstSample


def worst(precision: str, number: int, sqnr_db: float | None, after: int = 1) -> WorstSample:
    calibration = "entropy" if precision == "int8" else ""
    return WorstSample(precision, f"s{number}", f"s{number}", "1", 1, after, sqnr_db, 0.5, calibration)


def test_the_precision_that_moved_samples_most_comes_first():
    samples = (worst("fp16", 0, 50.0), worst("fp16", 1, None), worst("int8", 2, -4.0, after=-1))
    table = worst_table(merge([replace(made.classifier(), worst=samples)]))
    assert table is not None
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        ("INT8", "s2"),
        ("FP16", "s0"),
        ("FP16", "s1"),
    ]
    assert [row[3].text for row in table.rows] == ["1 → none", "1, as before", "1, as before"]


def test_samples_of_two_runs_of_one_calibration_are_told_apart():
    base = made.classifier()
    twice = replace(base, runs=(*base.runs, replace(base.runs[2], label="INT8 Q/DQ")))
    samples = (replace(worst("int8", 0, 20.0), run="INT8"), replace(worst("int8", 1, 30.0), run="INT8 Q/DQ"))
    table = worst_table(merge([replace(twice, worst=samples)]))
    assert table is not None
    assert [(row[0].text, row[1].text) for row in table.rows] == [("INT8", "s0"), ("INT8 Q/DQ", "s1")]


def test_samples_left_out_are_counted():
    samples = tuple(worst("int8", number, 10.0) for number in range(33))
    table = worst_table(merge([replace(made.classifier(), worst=samples)]))
    assert table is not None
    assert len(table.rows) == 20
    assert table.notes == ("13 more are in the results file.",)


def test_of_very_many_outputs_the_worst_are_shown():
    base = made.regressor()
    outputs = (
        *(made.output(f"y{number}", 80.0 - number) for number in range(70)),
        made.output("broken", None, non_finite=1, max_abs=None),
    )
    table = outputs_table(merge([replace(base, runs=(base.runs[0], replace(base.runs[2], outputs=outputs)))]))
    assert table is not None
    names = [row[0].text for row in table.rows]
    assert names == ["broken", *(f"y{number}" for number in range(69, 10, -1))]
    assert table.notes[-1] == "The 60 worst of 71 rows; outputs.csv has all."


def test_no_candidates_no_table_of_outputs():
    base = made.regressor()
    assert outputs_table(merge([replace(base, runs=base.runs[:1])])) is None


def cells(results: Results, title: str) -> dict[str, Cell]:
    """The column of that title, by the label of the run."""
    table = precisions_table(merge([results]))
    place = [column.title for column in table.columns].index(title)
    return {row[0].text: row[place] for row in table.rows}


def with_top1(**changed: object) -> Results:
    base = made.classifier()
    drop = {"drop": 0.014, "drop_low": None, "drop_high": None, "drop_p_value": None}
    int8 = replace(base.runs[2].metrics[0], **{**drop, **changed})
    return replace(base, runs=(*base.runs[:2], replace(base.runs[2], metrics=(int8,))))


@pytest.mark.parametrize(
    ("changed", "tone"),
    [
        ({"drop_low": -0.002, "drop_high": 0.03}, ""),
        ({"drop_low": 0.002, "drop_high": 0.03}, "bad"),
        ({"drop": -0.014, "drop_low": -0.03, "drop_high": -0.002}, "good"),
        # The exact test decides where there is one: 9 against 4 of 13, and 9 against 0 of 9.
        ({"drop_low": 0.002, "drop_high": 0.03, "drop_p_value": 0.267}, ""),
        ({"drop_low": 0.002, "drop_high": 0.03, "drop_p_value": 2 / 2**9}, "bad"),
        ({}, ""),
    ],
)
def test_a_drop_is_red_only_where_chance_hardly_explains_it(changed, tone):
    assert cells(with_top1(**changed), "Top-1 drop (points)")["INT8"].tone == tone


def test_a_rise_of_an_error_is_red():
    rmse = Metric("RMSE", 1.5, 9, higher_is_better=False, unit="mm", drop=-0.5, drop_low=-0.6, drop_high=-0.4)
    base = made.classifier()
    results = replace(
        base,
        main_metric="RMSE",
        runs=(base.runs[0], replace(base.runs[2], metrics=(rmse,))),
    )
    assert cells(results, "RMSE rise")["INT8"].tone == "bad"


def on_engines(**medians: float) -> Results:
    """As validation on TensorRT saves it: FP32 of TensorRT is a candidate beside ONNX Runtime's."""
    base = made.gpu()
    runs = [replace(one, role="candidate") for one in base.runs]
    timed = [replace(one, latency=made.latency(medians[one.precision], simulated=False)) for one in runs]
    return replace(base, runs=tuple(timed))


def test_fp32_is_no_failure_where_it_is_slower_than_fp16():
    results = on_engines(fp32=10.0, fp16=4.0, int8=5.0)
    found = cells(results, "Speed-up vs FP16")
    assert (found["FP32"].text, found["FP32"].sub, found["FP32"].tone) == ("0.40×", "", "")
    assert (found["INT8"].text, found["INT8"].sub, found["INT8"].tone) == (
        "0.80×",
        "slower than FP16",
        "bad",
    )


@pytest.mark.parametrize(
    ("low", "high", "sub", "tone"),
    [
        (0.97, 1.06, "no difference shown", ""),
        (1.005, 1.07, "slower than FP16", "bad"),
        (None, None, "slower than FP16", "bad"),
        (0.97, 0.99, "", "good"),
    ],
)
def test_the_interval_decides_where_there_is_one(low, high, sub, tone):
    results = on_engines(fp32=10.0, fp16=4.0, int8=4.16)
    ratio = LatencyRatio("INT8", "FP16", 1.04, low, high)
    found = cells(replace(results, ratios=(ratio,)), "Speed-up vs FP16")["INT8"]
    assert (found.sub, found.tone) == (sub, tone)


def test_an_answer_that_became_right_is_no_failure():
    base = made.classifier()
    assert base.labels is not None
    ids = {f"s{number}": base.labels[number] for number in range(len(base.labels))}
    truth = ids["s4"]
    samples = tuple(
        WorstSample("int8", "s4", "s4", str(truth), before, after, 9.0, 0.5, "entropy")
        for before, after in ((truth, 9), (9, truth), (8, 9), (truth, truth))
    )
    table = worst_table(merge([replace(base, sample_ids=tuple(ids), worst=samples)]))
    assert table is not None
    assert [(row[3].sub, row[3].tone) for row in table.rows] == [
        ("became wrong", "bad"),
        ("became right", "good"),
        ("", ""),
        ("", ""),
    ]


def test_an_answer_that_fails_is_not_right_where_the_label_is_unknown():
    """Both are written as −1."""
    base = made.classifier()
    assert base.labels is not None
    sample = WorstSample("int8", "s0", "s0", None, -1, 9, 9.0, 0.5, "entropy")
    ids = tuple(f"s{number}" for number in range(len(base.labels)))
    results = replace(base, sample_ids=ids, labels=(-1, *base.labels[1:]), worst=(sample,))
    table = worst_table(merge([results]))
    assert table is not None
    assert (table.rows[0][3].sub, table.rows[0][3].tone) == ("", "")


def with_classes(*figures: ClassFigure) -> Results:
    base = made.classifier()
    before = tuple(replace(one, drop=None, drop_error=None) for one in figures)
    runs = (
        replace(base.runs[0], classes=before, class_metric="AP"),
        replace(base.runs[2], classes=figures, class_metric="AP"),
    )
    return replace(base, runs=runs, labels=None)


def tones(results: Results) -> dict[str, str]:
    table = classes_table(merge([results]))
    assert table is not None
    return {row[0].text: row[-1].tone for row in table.rows}


def test_of_many_classes_one_that_chance_explains_is_not_red():
    # z of 2.5: beyond 1.96 for a class by itself, within 2.81 for ten classes (0.05 / 2 / 10 in each tail).
    figures = [ClassFigure(label, "", 50, 0.5, 0.05 if label else 0.1, 0.02) for label in range(10)]
    assert tones(with_classes(*figures)) == {"0": "bad", **{str(label): "" for label in range(1, 10)}}
    assert tones(with_classes(figures[1])) == {"1": "bad"}


def test_recall_is_judged_by_the_answers_to_a_class():
    base = made.classifier()
    assert base.labels is not None
    labels = tuple(index % 2 for index in range(360))
    # INT8 loses 12 samples of class 0 (p = 2 / 2^12) and 4 of class 1 (p = 2 / 2^4).
    lost = {index for index in range(360) if (labels[index] == 0 and index < 24) or index in (1, 3, 5, 7)}
    answers = tuple(9 if index in lost else label for index, label in enumerate(labels))
    figures = (ClassFigure(0, "", 180, 1 - 12 / 180, 12 / 180), ClassFigure(1, "", 180, 1 - 4 / 180, 4 / 180))
    runs = (
        replace(base.runs[0], predictions=labels),
        replace(base.runs[2], predictions=answers, classes=figures, class_metric="recall"),
    )
    assert tones(replace(base, labels=labels, runs=runs)) == {"0": "bad", "1": ""}
