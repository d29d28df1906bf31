from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, jaccard_score
from task_judging import judged, metrics, numbered, values

from calib.errors import UsageError, ValidationError
from calib.validation.tasks.resizing import resize_bilinear, resize_nearest

RANDOM = np.random.default_rng(0)
CLASSES = 4
MASKS = [RANDOM.integers(0, CLASSES, (6, 5)).astype(np.int32) for _ in range(7)]
for _mask in MASKS:
    _mask[RANDOM.random(_mask.shape) < 0.15] = 255


def scores_of(answers: np.ndarray) -> np.ndarray:
    """Scores whose highest channel is the answer; [N, classes, h, w]."""
    return np.moveaxis(np.eye(CLASSES, dtype=np.float32)[answers], -1, 1)


def noisy(share: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    answers = np.where(np.stack(MASKS) == 255, 0, np.stack(MASKS))
    wrong = random.random(answers.shape) < share
    return np.where(wrong, random.integers(0, CLASSES, answers.shape), answers)


FP32, INT8 = noisy(0.1, 1), noisy(0.3, 2)
KNOWN = np.stack(MASKS) != 255
TASK = {"kind": "segmentation"}


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_the_figures_are_those_of_scikit_learn(batch: int) -> None:
    found = judged(TASK, numbered(MASKS), {"y": scores_of(FP32)}, {"y": scores_of(INT8)}, batch=batch)
    labels = np.stack(MASKS)[KNOWN]
    for which, answers in enumerate((FP32, INT8)):
        each = jaccard_score(labels, answers[KNOWN], average=None)
        got = values(found, which)
        assert got["mIoU"] == pytest.approx(each.mean())
        assert got["pixel_accuracy"] == pytest.approx((labels == answers[KNOWN]).mean())
        assert [one.value for one in found.judgements[which].classes] == pytest.approx(each.tolist())
        matrix = confusion_matrix(labels, answers[KNOWN])
        for label, answer, count in found.judgements[which].confusions:
            assert matrix[label, answer] == count
    assert values(found, 1)["pixel_agreement"] == pytest.approx((FP32 == INT8).mean())


def test_a_resample_is_the_figure_of_its_images() -> None:
    found = judged(TASK, numbered(MASKS), {"y": scores_of(FP32)})
    judge = found.findings[0].judge
    assert judge is not None
    statistic = judge.statistic()
    assert statistic is not None
    weights = np.array([[2.0, 0, 1, 0, 3, 0, 1]])
    images = [0, 0, 2, 4, 4, 4, 6]
    labels = np.concatenate([MASKS[index][KNOWN[index]] for index in images])
    answers = np.concatenate([FP32[index][KNOWN[index]] for index in images])
    got = dict(zip(statistic.names, statistic(weights)[0].tolist(), strict=False))
    assert got["mIoU"] == pytest.approx(jaccard_score(labels, answers, average="macro"))
    assert got["pixel_accuracy"] == pytest.approx((labels == answers).mean())


def test_the_drop_has_an_interval_over_images() -> None:
    found = judged(TASK, numbered(MASKS), {"y": scores_of(FP32)}, {"y": scores_of(INT8)})
    drop = metrics(found, 1)["mIoU"]
    assert drop.drop_method == "BCa bootstrap, 1999 resamples, seed 0"
    assert drop.drop is not None
    assert drop.drop_low is not None
    assert drop.drop_high is not None
    assert 0 < drop.drop_low < drop.drop < drop.drop_high
    assert all(one.drop_error for one in found.judgements[1].classes)


def test_classes_that_neither_side_has_are_left_out() -> None:
    mask = np.zeros((1, 4), np.int32)
    mask[0, 2:] = 1
    answers = np.array([[[0, 0, 0, 1]]])
    found = judged(TASK, numbered([mask]), {"y": scores_of(answers)})
    # Class 0: 2 of 3; class 1: 1 of 2; classes 2 and 3 do not occur.
    assert values(found)["mIoU"] == pytest.approx((2 / 3 + 1 / 2) / 2)


@pytest.mark.parametrize("channels", [1, 2])
def test_pixels_with_nan_are_never_right_nor_in_agreement(channels: int) -> None:
    mask = np.array([[0, 0, 0, 1]], np.int32)
    given = np.array([[[[1, 1, 1, -1]], [[-1, -1, -1, 1]]]], np.float32)[:, -channels:]
    broken = given.copy()
    broken[:, -1, 0, :2] = np.nan
    found = judged(TASK, numbered([mask]), {"y": given}, {"y": broken})
    assert set(values(found).values()) == {1.0}
    # Class 0: one of its three pixels is right, and nothing else is answered with 0. Class 1: all right.
    assert values(found, 1) == pytest.approx(
        {"mIoU": (1 / 3 + 1) / 2, "pixel_accuracy": 2 / 4, "pixel_agreement": 2 / 4}
    )
    for one in metrics(found, 1).values():
        assert one.note.startswith("2 pixels have NaN scores and count as wrong")
    assert found.judgements[1].confusions == ()
    both = judged(TASK, numbered([mask]), {"y": broken}, {"y": broken})
    assert values(both, 1)["pixel_agreement"] == pytest.approx(2 / 4)


class TestOutputs:
    def test_channels_last(self) -> None:
        last = np.moveaxis(scores_of(FP32), 1, -1)
        found = judged({**TASK, "channels": "last"}, numbered(MASKS), {"y": last})
        assert values(found) == values(judged(TASK, numbered(MASKS), {"y": scores_of(FP32)}))

    @pytest.mark.parametrize("axes", [3, 4])
    def test_class_numbers(self, axes: int) -> None:
        numbers = FP32 if axes == 3 else FP32[:, None]
        found = judged(TASK, numbered(MASKS), {"y": numbers.astype(np.int64)})
        assert values(found)["mIoU"] == values(judged(TASK, numbered(MASKS), {"y": scores_of(FP32)}))["mIoU"]

    @pytest.mark.parametrize(("what", "scale"), [("logits", 40.0), ("probabilities", 1.0)])
    def test_one_channel_is_cut_at_a_threshold(self, what: str, scale: float) -> None:
        mask = np.array([[0, 1, 1]], np.int32)
        output = np.array([[[[0.1, 0.4, 0.9]]]], np.float32)
        if what == "logits":
            output = np.log(output / (1 - output))
        for threshold, expected in ((0.5, (1 / 2 + 1 / 2) / 2), (0.3, 1.0)):
            task = {**TASK, "scores": what, "threshold": threshold}
            assert values(judged(task, numbered([mask]), {"y": output}))["mIoU"] == pytest.approx(expected)

    @pytest.mark.parametrize("way", ["nearest", "bilinear"])
    def test_other_sizes_must_be_said(self, way: str) -> None:
        mask = np.array([[0, 0, 1, 1]] * 2, np.int32)
        small = np.array([[[[1.0, 0.0]], [[0.0, 1.0]]]], np.float32)
        with pytest.raises(
            ValidationError, match=r"has \[1, 2\] pixels, the mask of sample file 0 has \[2, 4\]"
        ):
            judged(TASK, numbered([mask]), {"y": small})
        found = judged({**TASK, "resize": way}, numbered([mask]), {"y": small})
        assert values(found)["mIoU"] == 1.0
        assert found.warnings() == (f"Output 'y', [1, 2] pixels, was resized to the mask's [2, 4] ({way}).",)

    def test_several_outputs_need_a_name(self) -> None:
        outputs = {"main": scores_of(FP32), "aux": scores_of(INT8)}
        with pytest.raises(
            UsageError, match=r"Outputs main, aux could all be .*: name one with task: \{output"
        ):
            judged(TASK, numbered(MASKS), outputs)
        found = judged({**TASK, "output": "main"}, numbered(MASKS), outputs)
        assert values(found)["mIoU"] == values(judged(TASK, numbered(MASKS), {"y": scores_of(FP32)}))["mIoU"]


class TestLabels:
    def test_a_class_without_a_score_is_named(self) -> None:
        mask = np.full((1, 4), 7, np.int32)
        answers = {"y": scores_of(np.zeros((1, 1, 4), np.int64))}
        with pytest.raises(
            ValidationError, match="mask of sample file 0 has class 7, and the model answers 4 cl"
        ):
            judged(TASK, numbered([mask]), answers)
        found = judged({**TASK, "ignore": 7}, numbered([mask]), answers)
        assert metrics(found)["mIoU"].note == "no pixel of a mask is judged"

    def test_one_class_everywhere_is_doubted(self) -> None:
        mask = np.array([[0, 0, 0, 1]], np.int32)
        (warning,) = judged(
            TASK, numbered([mask]), {"y": scores_of(np.zeros((1, 1, 4), np.int64))}
        ).warnings()
        # IoU of class 0 is ¾, of class 1 it is 0.
        assert warning.startswith("FP32 mIoU is 37.5%, no better than answering class 0 everywhere (37.5%)")

    def test_without_masks_only_agreement_is_measured(self) -> None:
        outputs = {"y": scores_of(FP32)}, {"y": scores_of(INT8)}
        found = judged(TASK, numbered([None] * 7), *outputs)
        assert list(values(found, 1)) == ["pixel_agreement"]
        change = found.worst(found.findings[1])[0].change
        assert change.endswith("% of the pixels changed class")


@pytest.mark.parametrize("size", [(8, 8), (13, 5), (3, 20), (6, 7)])
def test_resizing_is_that_of_torch(size: tuple[int, int]) -> None:
    torch: Any = pytest.importorskip("torch")
    scores = np.random.default_rng(3).normal(size=(2, 6, 7))
    tensor = torch.from_numpy(scores)[None]
    nearest = torch.nn.functional.interpolate(tensor, size, mode="nearest")[0].numpy()
    bilinear = torch.nn.functional.interpolate(tensor, size, mode="bilinear", align_corners=False)[0].numpy()
    assert (resize_nearest(scores, size) == nearest).all()
    assert resize_bilinear(scores, size) == pytest.approx(bilinear)
    # A class that is ruled out everywhere stays so, also at the borders, which mix one pixel with none.
    scores[0] = -np.inf
    assert (resize_bilinear(scores, size)[0] == -np.inf).all()
