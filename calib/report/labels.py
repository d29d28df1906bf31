"""Places for the labels of points, so that none covers a point, a whisker or another label.

Vega-Lite has no such step. All coordinates are pixels inside the plot, y downwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Literal, NamedTuple

__all__ = ["Anchor", "Box", "Label", "place_labels", "text_width"]

# The page is drawn in the reader's font: this is the width in DejaVu Sans Bold, the widest of the usual ones.
_CHAR_WIDTH = 9.2
_HALF_HEIGHT = 8.0
_RADII = (11.0, 18.0, 28.0, 42.0, 60.0, 84.0)
_DIRECTIONS = ((1, 0), (0.75, -0.8), (0.75, 0.8), (-1, 0), (-0.75, -0.8), (-0.75, 0.8), (0, -1), (0, 1))
_LEADER_FROM = 18.0
# Straight up and down, for labels almost as wide as a narrow plot: better than covering a mark, which is 256
# square pixels, and worse than crossing a line or two.
_FAR_RADII = (28.0, 42.0, 60.0, 84.0, 112.0, 144.0, 180.0)
_STEEP = ((0.08, -1), (0.08, 1), (-0.08, -1), (-0.08, 1))
_FAR_COST = 200.0


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
        label, box, _ = min(_candidates(anchor), key=lambda place: _cost(place, taken, plot))
        taken.append(box)
        labels.append(label)
    return labels


def text_width(text: str) -> float:
    """The width that a label may have in the reader's font, in pixels."""
    return _CHAR_WIDTH * len(text)


class _Place(NamedTuple):
    """A label, what it covers, and what it costs to be there at all."""

    label: Label
    box: Box
    cost: float


def _candidates(anchor: Anchor) -> list[_Place]:
    places = []
    for radii, directions, cost in ((_RADII, _DIRECTIONS, 0.0), (_FAR_RADII, _STEEP, _FAR_COST)):
        for radius, (toward_x, toward_y) in product(radii, directions):
            x, y = anchor.x + toward_x * radius, anchor.y + toward_y * radius
            label = Label(anchor.text, x, y, _align(toward_x), radius > _LEADER_FROM)
            places.append(_Place(label, _box(label), cost))
    return places


def _align(toward_x: float) -> Literal["left", "center", "right"]:
    if toward_x == 0:
        return "center"
    return "left" if toward_x > 0 else "right"


def _box(label: Label) -> Box:
    width = text_width(label.text)
    share = {"left": 0.0, "center": 0.5, "right": 1.0}[label.align]
    left = label.x - share * width
    return Box(left, label.y - _HALF_HEIGHT, left + width, label.y + _HALF_HEIGHT)


def _cost(place: _Place, taken: Iterable[Box], plot: Box) -> float:
    """Area covered or outside. Candidates come nearest first and ``min`` keeps the first of equals."""
    box = place.box
    area = (box.right - box.left) * (box.bottom - box.top)
    return place.cost + 2.0 * (area - box.overlap(plot)) + sum(box.overlap(other) for other in taken)
