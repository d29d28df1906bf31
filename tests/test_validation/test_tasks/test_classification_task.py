from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score, recall_score, top_k_accuracy_score
from task_judging import TableRunner, judged, metrics, numbered, values

from calib.errors import UsageError, ValidationError
from calib.validation.comparison import Comparison
from calib.validation.tasks.classification import MacroF1
from calib.validation.tasks.confusion import MOST_CONFUSIONS, confused_answers

RANDOM = np.random.default_rng(0)
CLASSES = 7
LABELS = RANDOM.integers(0, CLASSES, 60).tolist()
SCORES = RANDOM.normal(size=(60, CLASSES)).astype(np.float32)
SCORES[np.arange(60), LABELS] += 1.5
WORSE = SCORES + RANDOM.normal(0, 0.8, SCORES.shape).astype(np.float32)


def compared(**options: Any) -> Comparison:
    task = {"kind": "classification", **options}
    return judged(task, numbered(LABELS), {"y": SCORES}, {"y": WORSE}, batch=13)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_top_k_of_any_k(k: int) -> None:
    found = values(compared(top_k=k))
    assert found[f"top{k}"] == pytest.approx(top_k_accuracy_score(LABELS, SCORES, k=k))
    assert list(values(compared(top_k=k), 1)) == [
        "top1",
        f"top{k}",
        "macro_f1",
        "top1_agreement",
        f"top{k}_agreement",
    ]


def test_macro_f1_and_recall_are_those_of_scikit_learn() -> None:
    found = compared()
    for which, scores in enumerate((SCORES, WORSE)):
        answers = scores.argmax(axis=1)
        assert values(found, which)["macro_f1"] == pytest.approx(f1_score(LABELS, answers, average="macro"))
        recall = [one.value for one in found.judgements[which].classes]
        assert recall == pytest.approx(recall_score(LABELS, answers, average=None).tolist())
        matrix = confusion_matrix(LABELS, answers)
        pairs = found.judgements[which].confusions
        assert sum(count for _, _, count in pairs) == matrix.sum() - np.trace(matrix)
        assert all(matrix[label, answer] == count for label, answer, count in pairs)
        assert [count for _, _, count in pairs] == sorted((count for _, _, count in pairs), reverse=True)


def test_macro_f1_has_intervals_of_the_samples() -> None:
    f1 = metrics(compared(), 1)["macro_f1"]
    assert f1.value is not None
    assert f1.drop is not None
    assert f1.low is not None
    assert f1.high is not None
    assert f1.low < f1.value < f1.high
    assert f1.drop_low is not None
    assert f1.drop_high is not None
    assert f1.drop_low < f1.drop < f1.drop_high
    assert f1.drop_method == "BCa bootstrap, 1999 resamples, seed 0"
    assert metrics(compared(), 1)["top1"].drop_method == "Tango score"


@pytest.mark.parametrize("seed", range(5))
def test_a_resample_is_the_macro_f1_of_its_samples(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels, answers = random.integers(0, 5, 12), random.integers(0, 5, 12)
    weights = random.integers(0, 3, 12)
    found = MacroF1(labels, answers)(weights[None].astype(np.float64))[0, 0]
    index = np.repeat(np.arange(12), weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes without a right answer
        assert found == pytest.approx(f1_score(labels[index], answers[index], average="macro"))


def test_samples_without_an_answer_are_wrong_and_no_class() -> None:
    # Class 0: 1 right, 2 samples, 1 answer: 2/3. Class 1: 1, 1, 1.
    found = MacroF1(np.array([0, 0, 1]), np.array([0, -1, 1]))(np.ones((1, 3)))
    assert found[0, 0] == pytest.approx((2 / 3 + 1) / 2)


def test_a_smaller_last_batch_weighs_what_it_holds() -> None:
    """Ten samples in batches of four, right answers 3, 3 and 2: eight tenths, whatever the batch."""
    labels = [0] * 10
    scores = np.tile(np.array([[1.0, 0.0]], np.float32), (10, 1))
    scores[[3, 7]] = [0.0, 1.0]
    for batch in (1, 3, 4, 10):
        found = judged("classification", numbered(labels), {"y": scores}, batch=batch)
        assert values(found)["top1"] == 0.8


def test_the_named_output_is_read() -> None:
    outputs = {"main": SCORES, "aux": WORSE}
    with pytest.raises(UsageError, match="could all be class scores"):
        judged("classification", numbered(LABELS), outputs)
    found = judged({"kind": "classification", "output": "aux"}, numbered(LABELS), outputs)
    assert values(found)["top1"] == np.mean(WORSE.argmax(axis=1) == LABELS)


def test_scores_of_an_option_are_for_classes_alone() -> None:
    from calib.data.task_options import parse_task

    with pytest.raises(
        UsageError, match="--scores names an output of class scores, and the task is regression"
    ):
        Comparison(
            [TableRunner("fp32", {"y": SCORES})], numbered([1.0]), task=parse_task("regression"), scores="y"
        )


def test_a_candidate_that_cannot_be_read_is_named() -> None:
    def flat(index: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": SCORES[index, :1]}

    with pytest.raises(ValidationError, match="No class scores"):
        judged("classification", numbered(LABELS), flat)


def test_only_the_most_frequent_confusions_are_kept() -> None:
    labels = np.arange(MOST_CONFUSIONS + 50)
    pairs = confused_answers(np.append(labels, 3), np.append(labels + 1, 4))
    assert len(pairs) == MOST_CONFUSIONS
    assert pairs[0] == (3, 4, 2)
