from __future__ import annotations

import pytest

from calib.report.labels import Anchor, Box, place_labels

WIDTH, HEIGHT = 400.0, 300.0


def box_of(label) -> Box:
    width = 9.2 * len(label.text)
    left = {"left": label.x, "center": label.x - width / 2, "right": label.x - width}[label.align]
    return Box(left, label.y - 8, left + width, label.y + 8)


@pytest.mark.parametrize(
    "spots",
    [
        [(200, 150)],
        [(1, 1), (399, 299), (1, 299), (399, 1)],
        [(200, 150), (203, 150), (206, 151), (200, 153)],
        [(390, 150), (392, 152)],
    ],
)
def test_labels_cover_nothing_and_stay_inside(spots):
    points = [Box(x - 8, y - 8, x + 8, y + 8) for x, y in spots]
    labels = place_labels([Anchor(x, y, f"INT8 · {x}") for x, y in spots], points, WIDTH, HEIGHT)
    boxes = [box_of(label) for label in labels]
    for index, box in enumerate(boxes):
        assert box.left >= 0
        assert box.top >= 0
        assert box.right <= WIDTH
        assert box.bottom <= HEIGHT
        assert not any(box.overlap(other) for other in points + boxes[:index])


def test_a_lonely_point_has_its_label_beside_it():
    (label,) = place_labels([Anchor(100, 100, "FP32")], [], WIDTH, HEIGHT)
    assert (label.x, label.y, label.align, label.leader) == (111.0, 100, "left", False)


def test_a_label_far_away_has_a_leader():
    wall = Box(60, 60, 140, 140)
    (label,) = place_labels([Anchor(100, 100, "FP32")], [wall], WIDTH, HEIGHT)
    assert label.leader


def test_labels_as_wide_as_the_plot_cover_no_mark():
    spots = [(20, 140), (24, 140), (70, 140), (170, 140), (200, 140)]
    marks = [Box(x - 8, y - 8, x + 8, y + 8) for x, y in spots]
    anchors = [Anchor(x, y, f"TensorRT INT8 minmax · {x}") for x, y in spots]
    boxes = [box_of(label) for label in place_labels(anchors, marks, 280.0, HEIGHT)]
    for index, box in enumerate(boxes):
        assert not any(box.overlap(other) for other in marks + boxes[:index])


def test_overlap_is_the_common_area():
    assert Box(0, 0, 4, 4).overlap(Box(2, 3, 9, 9)) == 2.0
    assert Box(0, 0, 1, 1).overlap(Box(2, 2, 3, 3)) == 0.0
