from __future__ import annotations

import numpy as np
import pytest

from calib.validation.tasks.boxes import Detections, corners, count_matches, overlaps, suppress


def random_boxes(count: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    low = random.uniform(0, 50, (count, 2))
    return np.concatenate([low, low + random.uniform(1, 30, (count, 2))], axis=1)


def test_overlaps_are_those_of_pycocotools() -> None:
    mask = pytest.importorskip("pycocotools.mask")
    first, second = random_boxes(20, 0), random_boxes(15, 1)

    def sized(boxes: np.ndarray) -> np.ndarray:
        return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)

    theirs = mask.iou(sized(first), sized(second), [0] * 15)
    assert overlaps(first, second) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("overlap", [0.3, 0.5, 0.7])
def test_suppression_is_that_of_torchvision(overlap: float) -> None:
    torch = pytest.importorskip("torch")
    ops = pytest.importorskip("torchvision.ops")
    boxes, random = random_boxes(200, 3), np.random.default_rng(4)
    scores, classes = random.random(200), random.integers(0, 3, 200)
    kept = ops.batched_nms(*map(torch.from_numpy, (boxes, scores, classes)), overlap).numpy()
    found = suppress(Detections.of(boxes, scores, classes), overlap, 1000)
    assert found.scores.tolist() == scores[kept].tolist()
    assert found.classes.tolist() == classes[kept].tolist()
    first = suppress(Detections.of(boxes, scores, classes), overlap, 5)
    assert first.scores.tolist() == scores[kept][:5].tolist()


def test_suppression_of_nothing() -> None:
    assert len(suppress(Detections.of([], [], []), 0.5, 10)) == 0


def test_corners() -> None:
    assert corners([[5, 5, 4, 2]]).tolist() == [[3, 4, 7, 6]]


class TestMatches:
    def test_each_box_is_used_once(self) -> None:
        two = Detections.of([[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        one = Detections.of([[0, 0, 10, 10]], [0.9], [0])
        assert (count_matches(two, one), count_matches(one, two)) == (1, 1)

    def test_classes_and_places_must_agree(self) -> None:
        here = Detections.of([[0, 0, 10, 10]], [0.9], [0])
        other_class = Detections.of([[0, 0, 10, 10]], [0.9], [1])
        elsewhere = Detections.of([[6, 0, 16, 10]], [0.9], [0])  # IoU 40 / 160
        assert count_matches(here, other_class) == count_matches(here, elsewhere) == 0
        assert count_matches(here, Detections.of([], [], [])) == 0
