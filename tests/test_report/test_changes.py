from __future__ import annotations

from dataclasses import replace

import pytest
from scipy.stats import binomtest
from test_report import report_results as made

from calib.report.changes import Changes, changed_answers
from calib.report.merge import merge


def test_answers_are_counted_sample_by_sample():
    # FP32 is wrong on samples 0 to 7, INT8 on 4 to 16, with the same wrong class where both are.
    merged = merge([made.classifier()])
    fp32, fp16, int8 = merged.rows
    assert changed_answers(merged, fp32) is None
    assert changed_answers(merged, fp16) == Changes(360, 0, 0, 0, None)
    changes = changed_answers(merged, int8)
    assert changes is not None
    assert (changes.changed, changes.became_wrong, changes.became_right) == (13, 9, 4)
    assert changes.p_value == pytest.approx(binomtest(4, 13, 0.5).pvalue)


def test_without_labels_only_changes_are_known():
    merged = merge([replace(made.classifier(), labels=None)])
    assert changed_answers(merged, merged.rows[2]) == Changes(360, 13)


def test_predictions_of_another_length_are_not_compared():
    base = made.classifier()
    short = replace(base.runs[2], predictions=(1, 2, 3))
    merged = merge([replace(base, runs=(*base.runs[:2], short))])
    assert changed_answers(merged, merged.rows[2]) is None


def test_a_sample_without_a_label_is_neither_right_nor_wrong():
    base = made.classifier()
    assert base.labels is not None
    merged = merge([replace(base, labels=(*(-1 for _ in range(17)), *base.labels[17:]))])
    changes = changed_answers(merged, merged.rows[2])
    assert changes == Changes(360, 13, 0, 0, None)
