from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, top_k_accuracy_score

from calib.errors import UsageError, ValidationError
from calib.validation.classification import (
    NO_ANSWER,
    TopKCounter,
    baseline_warnings,
    check_labels,
    class_scores,
    integer_labels,
    share_metric,
    top_classes,
    wilson_interval,
)


def wilson_by_hand(successes: int, count: int, z: float) -> tuple[float, float]:
    share = successes / count
    centre = share + z * z / (2 * count)
    half = z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return (centre - half) / (1 + z * z / count), (centre + half) / (1 + z * z / count)


@pytest.mark.parametrize(("successes", "count"), [(0, 1), (8, 10), (10, 10), (341, 360)])
def test_wilson_interval_is_the_textbook_formula(successes: int, count: int) -> None:
    expected = wilson_by_hand(successes, count, 1.959963984540054)
    assert wilson_interval(successes, count) == pytest.approx(expected, abs=1e-12)


def test_a_share_carries_its_count_interval_and_drop() -> None:
    metric = share_metric("top1", 8, 10, baseline=0.7)
    assert (metric.value, metric.count, metric.successes) == (0.8, 10, 8)
    assert metric.drop == pytest.approx(-0.1)  # better than the baseline: a negative drop
    assert metric.low is not None
    assert metric.high is not None
    assert metric.low < 0.8 < metric.high


def test_a_share_of_nothing_has_no_value() -> None:
    metric = share_metric("top1", 0, 0)
    assert (metric.value, metric.low, metric.drop) == (None, None, None)
    assert "nothing was measured" in metric.note


class TestScores:
    def test_the_only_fitting_output_is_taken(self) -> None:
        outputs = {
            "features": np.zeros((4, 8, 3, 3), np.float32),
            "logits": np.zeros((4, 10), np.float32),
            "ids": np.zeros((4, 10), np.int64),
        }
        assert class_scores(outputs, 4) == "logits"

    def test_pooled_scores_with_empty_axes(self) -> None:
        assert class_scores({"y": np.zeros((2, 10, 1, 1), np.float32)}, 2) == "y"

    def test_several_need_a_choice(self) -> None:
        outputs = {"main": np.zeros((4, 10), np.float32), "aux": np.zeros((4, 10), np.float32)}
        with pytest.raises(UsageError, match="Outputs main, aux could all be class scores"):
            class_scores(outputs, 4)
        assert class_scores(outputs, 4, "aux") == "aux"

    def test_an_unknown_choice_lists_the_outputs(self) -> None:
        with pytest.raises(UsageError, match=r"no output 'logit'\. Its outputs are: logits \[4, 10\]"):
            class_scores({"logits": np.zeros((4, 10), np.float32)}, 4, "logit")

    @pytest.mark.parametrize("shape", [(4,), (4, 1), (3, 10), (4, 10, 2, 2)])
    def test_no_scores_at_all(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValidationError, match=r"No class scores: .* remove the task"):
            class_scores({"y": np.zeros(shape, np.float32)}, 4)


class TestTopClasses:
    def test_ties_go_to_the_lowest_class_in_every_precision(self) -> None:
        """A-V4."""
        fp32 = top_classes(np.array([[0.0, 2.01, 0.0, 2.00]], np.float32), 2)
        int8 = top_classes(np.array([[0.0, 2.0, 0.0, 2.0]], np.float32), 2)
        assert fp32.top.tolist() == int8.top.tolist() == [[1, 3]]
        assert (fp32.tied.tolist(), int8.tied.tolist()) == ([False], [True])

    def test_it_ranks_as_sklearn_does(self) -> None:
        rng = np.random.default_rng(3)
        scores, labels = rng.normal(size=(40, 8)).astype(np.float32), rng.integers(0, 8, 40)
        counter = TopKCounter()
        counter.add(top_classes(scores), labels, None)
        top1, top5 = counter.metrics(True, None)
        assert top1.value == accuracy_score(labels, scores.argmax(axis=1))
        assert top5.value == pytest.approx(top_k_accuracy_score(labels, scores, k=5, labels=np.arange(8)))

    def test_float16_scores_beyond_half_range_and_infinities(self) -> None:
        answers = top_classes(np.array([[60000, -60000, np.inf]], np.float16), 3)
        assert answers.top.tolist() == [[2, 0, 1]]

    def test_a_nan_among_the_scores_is_no_answer(self) -> None:
        answers = top_classes(np.array([[1.0, np.nan, 0.5], [0.0, 1.0, 0.0]]), 2)
        assert answers.top.tolist() == [[NO_ANSWER, NO_ANSWER], [1, 0]]


class TestCounter:
    def test_a_smaller_last_batch_weighs_what_it_holds(self) -> None:
        # 10 samples in batches of 4, 4 and 2, of which 3, 3 and 2 are right: 8 / 10.
        counter, labels = TopKCounter(), np.zeros(10, np.int64)
        wrong = {0, 4}
        scores = np.array([[0.0, 1.0] if i in wrong else [1.0, 0.0] for i in range(10)])
        for part in (slice(0, 4), slice(4, 8), slice(8, 10)):
            counter.add(top_classes(scores[part]), labels[part], None)
        (top1,) = counter.metrics(True, None)
        assert (top1.value, top1.count, top1.successes) == (0.8, 10, 8)
        assert counter.predictions == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]

    def test_agreement_and_drop(self) -> None:
        eye = np.eye(7)
        baseline = top_classes(eye)  # answers 0 … 6
        moved = eye.copy()
        moved[0, 1] = 2.0  # 0 → 1, with 0 second
        moved[6] = [6, 5, 4, 3, 2, 0, 0]  # 6 → 0, with 6 after 5: not among the top 5
        labels = np.arange(7)
        counter = TopKCounter()
        counter.add(top_classes(moved), labels, baseline)
        found = {m.name: m for m in counter.metrics(True, {"top1": 1.0, "top5": 1.0})}
        assert found["top1"].value == 5 / 7
        assert found["top1"].drop == pytest.approx(2 / 7)
        assert found["top5"].value == 6 / 7
        assert found["top1_agreement"].value == 5 / 7
        assert found["top5_agreement"].value == 6 / 7
        assert found["top1_agreement"].drop is None

    def test_without_labels_only_agreement(self) -> None:
        counter = TopKCounter()
        counter.add(top_classes(np.eye(3)), None, top_classes(np.eye(3)))
        assert [m.name for m in counter.metrics(False, {})] == ["top1_agreement"]

    def test_ties_are_counted_and_the_rule_is_told(self) -> None:
        """A-V4."""
        counter = TopKCounter()
        counter.add(top_classes(np.array([[1.0, 1.0], [0.0, 1.0]])), np.array([1, 1]), None)
        (top1,) = counter.metrics(True, None)
        assert (top1.value, top1.ties) == (0.5, 1)
        assert top1.note == "1 sample ties for top-1: the lowest class number wins"

    def test_no_answer_is_wrong_and_agrees_with_nothing(self) -> None:
        broken = top_classes(np.full((2, 3), np.nan))
        counter = TopKCounter()
        counter.add(broken, np.array([0, 1]), broken)
        top1, agreement = counter.metrics(True, {"top1": 0.0})
        assert (top1.value, agreement.value) == (0.0, 0.0)
        assert "2 samples have NaN scores and count as wrong" in top1.note


class TestLabels:
    def test_whole_numbers_of_any_kind(self) -> None:
        labels = integer_labels([0, np.int32(3), np.uint8(7)])
        assert labels is not None
        assert labels.tolist() == [0, 3, 7]

    @pytest.mark.parametrize("labels", [None, [0, None, 1]])
    def test_missing_labels(self, labels: list[object] | None) -> None:
        assert integer_labels(labels) is None

    @pytest.mark.parametrize("label", ["cat", 1.5, True, np.zeros(3)])
    def test_anything_else_is_refused(self, label: object) -> None:
        with pytest.raises(ValidationError, match="of sample number 1 is not a class number"):
            integer_labels([0, label])

    @pytest.mark.parametrize("labels", [[0, 5], [-1, 2]])
    def test_labels_without_a_score_are_refused(self, labels: list[int]) -> None:
        match = rf"labels from {min(labels)} to {max(labels)}, but output 'logits' has 4 scores"
        with pytest.raises(ValidationError, match=match):
            check_labels(np.array(labels), 4, "logits", "flowers", None)

    @pytest.mark.parametrize(
        ("labels", "hinted"), [([1, 2, 4], True), ([1, 5], False), ([0, 4], False), ([-1, 3], False)]
    )
    def test_labels_from_one_to_the_number_of_scores_seem_counted_from_one(
        self, labels: list[int], hinted: bool
    ) -> None:
        with pytest.raises(ValidationError) as caught:
            check_labels(np.array(labels), 4, "logits", "flowers", None)
        assert ("seem counted from 1: a list takes label_offset: -1" in str(caught.value)) is hinted

    def test_another_number_of_class_names_is_a_warning(self) -> None:
        doubt = check_labels(np.array([0, 3]), 4, "logits", "flowers", list("abcdef"))
        assert doubt is not None
        assert "names 6 classes, output 'logits' has 4 scores" in doubt
        assert check_labels(np.array([0, 3]), 4, "logits", "flowers", list("abcd")) is None


class TestBaselineWarnings:
    def test_labels_shifted_by_one(self) -> None:
        labels = np.arange(100) % 10
        (warning,) = baseline_warnings((labels + 1).tolist(), labels, 11)
        assert "with every label shifted by +1 it would be 100.0%" in warning

    def test_no_better_than_chance(self) -> None:
        labels = np.arange(200) % 10
        (warning,) = baseline_warnings([0] * 200, labels, 10)
        assert "FP32 top-1 is 10.0%, no better than chance (10.0% for 10 classes)" in warning
        assert "before INT8" in warning

    def test_low(self) -> None:
        labels = np.arange(200) % 10
        answers = np.where(np.arange(200) < 60, labels, (labels + 5) % 10)
        (warning,) = baseline_warnings(answers.tolist(), labels, 10)
        assert warning.startswith("FP32 top-1 is only 30.0%")

    @pytest.mark.parametrize(("right", "doubted"), [(121, True), (149, True), (150, False), (200, False)])
    def test_of_two_classes_half_of_the_way_from_chance_is_three_quarters(
        self, right: int, doubted: bool
    ) -> None:
        labels = np.arange(200) % 2
        answers = np.where(np.arange(200) < right, labels, 1 - labels)
        found = baseline_warnings(answers.tolist(), labels, 2)
        assert [f"FP32 top-1 is only {right / 2:.1f}%" in warning for warning in found] == [True] * doubted

    @pytest.mark.parametrize(("right", "count", "classes"), [(1, 1, 10), (3, 3, 2), (8, 10, 2)])
    def test_good_on_a_few_samples_is_no_doubt(self, right: int, count: int, classes: int) -> None:
        """Wilson's intervals reach down to 20.7, 43.8 and 49.0%, two of them to chance of 50%."""
        labels = np.arange(count) % classes
        answers = np.where(np.arange(count) < right, labels, (labels + 1) % classes)
        assert baseline_warnings(answers.tolist(), labels, classes) == ()

    def test_good(self) -> None:
        labels = np.arange(100) % 10
        assert baseline_warnings(labels.tolist(), labels, 10) == ()
