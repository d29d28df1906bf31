"""Places for the labels of points, so that none covers a point, a whisker or another label.

Vega-Lite has no such step. All coordinates are pixels inside the plot, y downwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

__all__ = ["Anchor", "Box", "Label", "place_labels"]

# The page is drawn in the reader's font: this is the width in DejaVu Sans Bold, the widest of the usual ones.
_CHAR_WIDTH = 9.2
_HALF_HEIGHT = 8.0
_RADII = (11.0, 18.0, 28.0, 42.0, 60.0, 84.0)
_DIRECTIONS = ((1, 0), (0.75, -0.8), (0.75, 0.8), (-1, 0), (-0.75, -0.8), (-0.75, 0.8), (0, -1), (0, 1))
_LEADER_FROM = 18.0


class Box(NamedTuple):
    """A rectangle that labels keep clear of."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """The common area, in square pixels."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)


class Anchor(NamedTuple):
    """A point that wants a label."""

    x: float
    y: float
    text: str


class Label(NamedTuple):
    """Where a label's text goes; its middle line runs through y."""

    text: str
    x: float
    y: float
    align: Literal["left", "center", "right"]
    leader: bool


def place_labels(
    anchors: Sequence[Anchor], obstacles: Iterable[Box], width: float, height: float
) -> list[Label]:
    """Finds a place for each label, near ones first.

    Args:
        anchors: The points, in the order of their labels.
        obstacles: What is drawn already.
        width: Of the plot.
        height: Of the plot.

    Returns:
        A label for each anchor, in the same order. Where no free place is left, the least bad one.
    """
    taken = list(obstacles)
    plot = Box(0.0, 0.0, width, height)
    labels = []
    for anchor in anchors:
        label, box = min(_candidates(anchor), key=lambda place: _cost(place, taken, plot))
        taken.append(box)
        labels.append(label)
    return labels


def _candidates(anchor: Anchor) -> list[tuple[Label, Box]]:
    places = []
    for radius in _RADII:
        for toward_x, toward_y in _DIRECTIONS:
            x, y = anchor.x + toward_x * radius, anchor.y + toward_y * radius
            label = Label(anchor.text, x, y, _align(toward_x), radius > _LEADER_FROM)
            places.append((label, _box(label)))
    return places


def _align(toward_x: float) -> Literal["left", "center", "right"]:
    if toward_x == 0:
        return "center"
    return "left" if toward_x > 0 else "right"


def _box(label: Label) -> Box:
    width = _CHAR_WIDTH * len(label.text)
    share = {"left": 0.0, "center": 0.5, "right": 1.0}[label.align]
    left = label.x - share * width
    return Box(left, label.y - _HALF_HEIGHT, left + width, label.y + _HALF_HEIGHT)


def _cost(place: tuple[Label, Box], taken: Iterable[Box], plot: Box) -> float:
    """Area covered or outside. Candidates come nearest first and ``min`` keeps the first of equals."""
    box = place[1]
    area = (box.right - box.left) * (box.bottom - box.top)
    return 2.0 * (area - box.overlap(plot)) + sum(box.overlap(other) for other in taken)
