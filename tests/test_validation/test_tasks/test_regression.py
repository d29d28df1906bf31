from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from task_judging import judged, metrics, numbered, values

from calib.errors import ValidationError
from calib.validation.tasks.correlations import Correlation, weighted_ranks
from calib.validation.tasks.regression import Determination

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.normal(size=(12, 2))
ANSWERS = (LABELS + RANDOM.normal(0, 0.3, LABELS.shape)).astype(np.float32)
WORSE = (LABELS + RANDOM.normal(0, 0.9, LABELS.shape)).astype(np.float32)
TASK: dict[str, Any] = {"kind": "regression", "unit": "mm"}


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("batch", [1, 5, 12])
def test_the_figures_are_those_of_scikit_learn_and_scipy(columns: int, batch: int) -> None:
    labels, answers = LABELS[:, :columns], ANSWERS[:, :columns]
    given = [float(row[0]) for row in labels] if columns == 1 else list(labels)
    got = values(judged(TASK, numbered(given), {"y": answers}, batch=batch))
    wide = answers.astype(np.float64)
    assert got["MAE"] == pytest.approx(mean_absolute_error(labels, wide))
    assert got["R2"] == pytest.approx(r2_score(labels, wide))
    rank = np.mean([spearmanr(labels[:, i], wide[:, i]).statistic for i in range(columns)])
    assert got["spearman"] == pytest.approx(rank)
    # Over all numbers together, where scikit-learn averages the columns' roots.
    assert got["RMSE"] == pytest.approx(root_mean_squared_error(labels.ravel(), wide.ravel()))


def test_a_resample_is_the_figure_of_its_samples() -> None:
    found = judged(TASK, numbered(list(LABELS)), {"y": ANSWERS})
    judge = found.findings[0].judge
    assert judge is not None
    statistic = judge.statistic()
    assert statistic is not None
    weights = np.random.default_rng(1).integers(0, 3, 12)
    index = np.repeat(np.arange(12), weights)
    labels, answers = LABELS[index], ANSWERS[index].astype(np.float64)
    got = dict(zip(statistic.names, statistic(weights[None].astype(np.float64))[0].tolist(), strict=True))
    assert got["MAE"] == pytest.approx(mean_absolute_error(labels, answers))
    assert got["R2"] == pytest.approx(r2_score(labels, answers))
    assert got["spearman"] == pytest.approx(
        np.mean([spearmanr(labels[:, i], answers[:, i]).statistic for i in range(2)])
    )


@pytest.mark.parametrize(("value", "other"), [(0.0, 1.0), (0.1, 0.7), (100.1, 107.3)])
def test_draws_of_one_label_alone_have_no_figure(value: float, other: float) -> None:
    """Nor do rounded means make equal labels vary: R² of −10¹⁶ came of that."""
    labels = np.full((20, 1), value)
    labels[3] = other
    random = np.random.default_rng(4)
    answers = labels + random.normal(0, 0.1, labels.shape)
    weights = random.multinomial(20, np.full(20, 1 / 20), size=400).astype(np.float64)
    without = weights[:, 3] == 0
    assert 0 < without.sum() < 400
    for statistic in (Determination(labels, answers), Correlation(labels, answers)):
        found = statistic(weights)
        assert np.isnan(found[without]).all()
        assert np.isfinite(found[~without]).all()


def test_less_error_is_better() -> None:
    found = judged(TASK, numbered(list(LABELS)), {"y": ANSWERS}, {"y": WORSE})
    error = metrics(found, 1)["MAE"]
    assert (error.higher_is_better, error.unit) == (False, "mm")
    assert error.drop is not None
    assert error.drop_high is not None
    assert error.drop < error.drop_high < 0  # baseline minus candidate: the error rose


def test_an_answer_no_better_than_the_mean_is_doubted() -> None:
    (warning,) = judged(TASK, numbered(list(LABELS)), {"y": -ANSWERS}).warnings()
    assert warning.startswith("FP32 R² is -")
    assert "no better than answering the mean of the labels" in warning


def test_answers_that_are_not_finite_have_no_figure() -> None:
    broken = ANSWERS.copy()
    broken[3, 0] = np.nan
    found = judged(TASK, numbered(list(LABELS)), {"y": ANSWERS}, {"y": broken})
    error = metrics(found, 1)["MAE"]
    assert (error.value, error.drop, error.note) == (None, None, "1 answer is NaN or infinite")


def test_labels_must_fit() -> None:
    with pytest.raises(
        ValidationError, match="Sample file 0 has 1 number as its label, and the model answers 2"
    ):
        judged(TASK, numbered([1.0, 2.0]), {"y": ANSWERS[:2]})
    with pytest.raises(ValidationError, match="label of sample file 1 is not finite"):
        judged(TASK, numbered([LABELS[0], np.array([1.0, np.nan])]), {"y": ANSWERS[:2]})
    with pytest.raises(ValidationError, match="Sample file 0 has the label 'a', which is not a number"):
        judged(TASK, numbered(["a"]), {"y": ANSWERS[:1]})


def test_without_labels_nothing_is_judged() -> None:
    found = judged(TASK, numbered([None, None]), {"y": ANSWERS[:2]})
    assert (values(found), values(found, 1)) == ({}, {})
    assert found.warnings() == ("Dataset 'numbered' has no labels: accuracy is not measured.",)


def test_weighted_ranks_are_those_of_repeated_numbers() -> None:
    from scipy.stats import rankdata

    random = np.random.default_rng(2)
    numbers, weights = random.integers(0, 4, 9).astype(np.float64), random.integers(0, 3, 9)
    ranks = weighted_ranks(numbers, weights[None].astype(np.float64))[0]
    assert np.repeat(ranks, weights) == pytest.approx(rankdata(np.repeat(numbers, weights)))


def test_weighted_correlations_are_those_of_repeated_pairs() -> None:
    weights = np.random.default_rng(3).integers(0, 3, 12)
    pairs = np.repeat(LABELS, weights, axis=0)
    found = Correlation(LABELS[:, :1], LABELS[:, 1:])(weights[None].astype(np.float64))[0]
    expected = [spearmanr(*pairs.T).statistic, pearsonr(*pairs.T).statistic]
    assert found == pytest.approx(expected)
    assert np.isnan(Correlation(np.ones((3, 1)), np.ones((3, 1)))(np.ones((1, 3)))).all()
