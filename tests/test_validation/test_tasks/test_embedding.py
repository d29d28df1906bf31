from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from task_judging import judged, metrics, numbered, values

from calib.data.truth import Pair
from calib.errors import UsageError, ValidationError

PAIRS = 15
RANDOM = np.random.default_rng(0)
FIRST = RANDOM.normal(size=(PAIRS, 6))
SCORES = np.linspace(0, 5, PAIRS)
SECOND = FIRST * (SCORES / 5)[:, None] + RANDOM.normal(size=(PAIRS, 6)) * (1 - SCORES / 5)[:, None]
# Both halves of a pair lie apart in the dataset.
VECTORS = np.concatenate([FIRST, SECOND]).astype(np.float32)
LABELS = [Pair(f"p{i % PAIRS}", float(SCORES[i % PAIRS])) for i in range(2 * PAIRS)]
TASK: dict[str, Any] = {"kind": "embedding"}


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.array(
        [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(first, second, strict=True)]
    )


@pytest.mark.parametrize("batch", [1, 4, 30])
def test_the_correlations_are_those_of_scipy(batch: int) -> None:
    found = judged(TASK, numbered(LABELS), {"y": VECTORS}, batch=batch)
    similar = cosines(VECTORS[:PAIRS].astype(np.float64), VECTORS[PAIRS:].astype(np.float64))
    assert values(found)["spearman"] == pytest.approx(spearmanr(similar, SCORES).statistic)
    assert values(found)["pearson"] == pytest.approx(pearsonr(similar, SCORES).statistic)
    assert metrics(found)["spearman"].count == PAIRS
    assert metrics(found)["spearman"].low is not None
    assert values(found, 1)["embedding_agreement"] == pytest.approx(1.0)
    assert found.warnings() == ()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_have_no_correlation(value: float) -> None:
    broken = VECTORS.copy()
    broken[:6, 2] = value
    found = judged(TASK, numbered(LABELS), {"y": VECTORS}, {"y": broken})
    for name in ("spearman", "pearson"):
        one = metrics(found, 1)[name]
        assert (one.value, one.note) == (None, "fewer than two pairs, or embeddings that are not finite")
    # 24 of 30 are as they were, and what is not finite agrees with nothing.
    assert values(found, 1)["embedding_agreement"] == pytest.approx(24 / 30)


def test_halves_of_pairs_are_left_out_and_counted() -> None:
    dataset = numbered(LABELS).subset(range(2 * PAIRS - 3))
    found = metrics(judged(TASK, dataset, {"y": VECTORS}))["spearman"]
    assert (found.count, found.note) == (
        PAIRS - 3,
        "3 samples are left out: the other half of their pair is not here",
    )


def test_pairs_must_be_two_samples_with_one_score() -> None:
    three = [Pair("a", 1.0)] * 3
    with pytest.raises(
        ValidationError, match=r"Pair 'a' must be two samples with one score; it is 3 samples"
    ):
        judged(TASK, numbered(three), {"y": VECTORS}).judgements  # noqa: B018
    with pytest.raises(ValidationError, match="Pair 'a' must be two samples with one score"):
        judged(TASK, numbered([Pair("a", 1.0), Pair("a", 2.0)]), {"y": VECTORS}).judgements  # noqa: B018


class TestPooling:
    TOKENS = RANDOM.normal(size=(2 * PAIRS, 4, 6)).astype(np.float32)
    MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]] * 10)

    def test_mean_of_the_tokens_that_count(self) -> None:
        mean = np.stack(
            [row[mask == 1].mean(axis=0) for row, mask in zip(self.TOKENS, self.MASK, strict=True)]
        )
        dataset = numbered(LABELS, inputs={"attention_mask": self.MASK})
        task = {**TASK, "pooling": "mean", "mask": "attention_mask"}
        found = judged(task, dataset, {"y": self.TOKENS})
        expected = judged(TASK, numbered(LABELS), {"y": mean})
        assert values(found)["spearman"] == pytest.approx(values(expected)["spearman"])

    def test_first_token(self) -> None:
        found = judged({**TASK, "pooling": "first"}, numbered(LABELS), {"y": self.TOKENS})
        expected = judged(TASK, numbered(LABELS), {"y": self.TOKENS[:, 0]})
        assert values(found) == values(expected)

    def test_tokens_need_a_pooling(self) -> None:
        with pytest.raises(ValidationError, match=r"pooling: mean"):
            judged(TASK, numbered(LABELS), {"y": self.TOKENS})

    def test_an_unknown_mask(self) -> None:
        with pytest.raises(UsageError, match=r"task.mask: there is no input 'm'. The inputs are i\."):
            judged({**TASK, "pooling": "mean", "mask": "m"}, numbered(LABELS), {"y": self.TOKENS})


def test_chance_is_doubted() -> None:
    noise = np.random.default_rng(5).normal(size=VECTORS.shape).astype(np.float32)
    (warning,) = judged(TASK, numbered(LABELS), {"y": noise}).warnings()
    assert "no better than chance: doubt the pairs, the tokenizer or the pooling" in warning


def test_without_pairs_only_agreement_is_measured() -> None:
    turned = VECTORS.copy()
    turned[0] = -turned[0]
    found = judged(TASK, numbered([None] * 30), {"y": VECTORS}, {"y": turned})
    assert values(found, 1) == {"embedding_agreement": pytest.approx((29 - 1) / 30)}
