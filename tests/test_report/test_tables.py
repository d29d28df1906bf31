from __future__ import annotations

from dataclasses import replace

from test_report import report_results as made

from calib.report.merge import merge
from calib.report.tables import outputs_table, worst_table
from calib.validation.results import WorstSample


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
