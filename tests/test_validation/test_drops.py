from __future__ import annotations

import numpy as np
import pytest

from calib.errors import ValidationError
from calib.validation import Metric
from calib.validation.drops import class_drops, correct_drops, with_drop
from calib.validation.paired import PairedTable, mcnemar, tango_interval


def test_a_drop_gets_the_interval_and_test_of_its_answers() -> None:
    baseline = np.array([True] * 90 + [False] * 10)
    candidate = np.array([False] * 6 + [True] * 86 + [False] * 8)  # 6 became wrong, 2 became right
    found = with_drop(Metric("top1", 0.86, 100, drop=0.04), {"top1": candidate}, {"top1": baseline})
    interval, test = tango_interval(PairedTable(84, 6, 2, 8)), mcnemar(6, 2)
    assert (found.drop_low, found.drop_high, found.drop_method) == (
        interval.low,
        interval.high,
        "Tango score",
    )
    assert (found.drop_p_value, found.drop_mid_p) == (test.p_value, test.mid_p)


@pytest.mark.parametrize("metric", [Metric("top1", 0.5, 4), Metric("top1_agreement", 0.5, 4, drop=0.1)])
def test_figures_without_a_drop_or_answers_stay_as_they_are(metric: Metric) -> None:
    hits = {"top1": np.array([True, False])}
    assert with_drop(metric, hits, hits) is metric


def test_all_drops_are_corrected_together() -> None:
    first, second, third = (Metric("top1", 0.5, 4, drop_p_value=p) for p in (0.01, 0.04, 0.03))
    agreement = Metric("top1_agreement", 0.5, 4)
    (one, two) = correct_drops([[first, agreement], [second, third]])
    # Holm: 0.01·3, 0.03·2, then 0.04·1 raised to the one before.
    assert [metric.drop_p_adjusted for metric in (*one, *two)] == [0.03, None, 0.06, 0.06]


def test_classes_from_the_largest_drop_on() -> None:
    labels = [0, 0, 0, 0, 1, 1, 2, 2, -1]
    baseline = [1, 1, 1, 1, 1, 1, 0, 0, 1]
    candidate = [1, 1, 0, 0, 1, 0, 1, 0, 0]
    found = class_drops(labels, baseline, candidate)
    # 0 and 1 both lose half; 0 has more samples. The sample without a label is nobody's.
    assert [(one.label, one.drop, one.table.count) for one in found] == [
        (0, 0.5, 4),
        (1, 0.5, 2),
        (2, -0.5, 2),
    ]
    assert found[0].interval == tango_interval(PairedTable(2, 2, 0, 0))


def test_other_samples_are_refused() -> None:
    with pytest.raises(ValidationError, match="same samples"):
        class_drops([0, 1], [True], [True, False])
