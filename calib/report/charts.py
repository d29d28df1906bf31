"""The charts, drawn by altair from plain numbers.

Domains and sizes are fixed here, not left to Vega, because the places of the labels are worked out from
them. Each chart is drawn twice, for a page and for a phone, so that text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from calib.errors import require
from calib.report.labels import Anchor, Box, Label, place_labels, text_width
from calib.report.palette import ROLES, Look
from calib.report.svg import render_svg

__all__ = ["NARROW", "WIDE", "Plot", "Point", "Scale", "Strip", "draw_scatter", "draw_strips"]

_INK, _MUTED, _GRID = ROLES["ink"].light, ROLES["muted"].light, ROLES["grid"].light
_AXIS, _SURFACE = ROLES["axis"].light, ROLES["surface"].light
_FONT = "Helvetica, Arial, sans-serif"
_LOG_FROM = 20.0
_STRIP = 38
_TITLE = 20
_LINE_LABEL = 14.0
_WIDER = 1.3
"""By how much a character may be wider in the reader's font than in the one that Vega measures, in pixels."""
_LABEL = {"baseline": "middle", "fontSize": 13, "fontWeight": 600, "aria": False}


@dataclass(frozen=True)
class Plot:
    """A size: the plot inside its axes, in pixels."""

    width: int
    height: int
    ticks: int


WIDE = Plot(960, 380, 8)
NARROW = Plot(280, 300, 4)


@dataclass(frozen=True)
class Point:
    """A point with whiskers.

    Attributes:
        label: Its name, drawn beside it.
        look: Its colour and shape.
        tip: Its figures in words.
        x: Latency p50, ms.
        x_high: Latency p90, ms.
        y: The figure of accuracy; None draws a vertical line at x instead.
        y_low: Lower end of the interval, or None.
        y_high: Upper end of the interval, or None.
    """

    label: str
    look: Look
    tip: str
    x: float
    x_high: float
    y: float | None
    y_low: float | None = None
    y_high: float | None = None


@dataclass(frozen=True)
class Strip:
    """The latencies of one run: a row of dots. Times in milliseconds."""

    label: str
    look: Look
    tip: str
    times: tuple[float, ...]
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Scale:
    """A fixed axis: its domain, linear or logarithmic."""

    low: float
    high: float
    log: bool = False

    def pixel(self, value: float, length: float) -> float:
        """Distance of a value from the axis' start."""
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return share * length

    def value(self, pixel: float, length: float) -> float:
        """The value at a distance from the axis' start; ``pixel`` the other way round."""
        share = pixel / length
        if self.log:
            return self.low * math.pow(self.high / self.low, share)
        return self.low + share * (self.high - self.low)

    @classmethod
    def of_latency(cls, values: Sequence[float]) -> Scale:
        """From zero, so that lengths compare; logarithmic where the largest is 20 times the smallest.

        >>> Scale.of_latency([1.0, 4.0])
        Scale(low=0.0, high=4.6, log=False)
        """
        positive = [value for value in values if value > 0]
        largest = max(positive, default=1.0)
        smallest = min(positive, default=largest)
        if largest / smallest > _LOG_FROM and len(positive) == len(values):
            return cls(smallest / 1.5, largest * 1.6, log=True)
        return cls(0.0, largest * 1.15)

    @classmethod
    def around(cls, values: Sequence[float], least: float, limits: tuple[float, float]) -> Scale:
        """Around the values with room above and below, at least ``least`` wide, inside the limits."""
        low, high = min(values), max(values)
        room = max(0.12 * (high - low), (least - (high - low)) / 2)
        return cls(max(limits[0], low - room), min(limits[1], high + room))


def draw_scatter(points: Sequence[Point], y_title: str, x_title: str, y: Scale, plot: Plot) -> str:
    """The chart of accuracy against latency.

    Args:
        points: At least one.
        y_title: Title of the y axis, with its unit.
        x_title: Title of the x axis, with its unit.
        y: The y axis.
        plot: The size.

    Returns:
        SVG text with a transparent background.
    """
    alt = require("altair", "report", "Writing a report")
    x = Scale.of_latency([value for point in points for value in (point.x, point.x_high)])
    frame = _Frame(x, y, plot)
    axes = {"x": _x_axis(alt, x, x_title, plot), "y": _y_axis(alt, y, y_title, plot)}
    layers = [*_whiskers(alt, points, frame, axes), *_marks(alt, points), *_texts(alt, points, frame)]
    chart = alt.layer(*layers).properties(width=plot.width, height=plot.height)
    return render_svg(_styled(chart))


@dataclass(frozen=True)
class _Frame:
    """Both axes of a plot: where a point's mark is, in pixels from the top left."""

    x: Scale
    y: Scale
    plot: Plot

    def at(self, point: Point) -> tuple[float, float]:
        """The place of the mark; near the top for a point that is a vertical line."""
        px = self.x.pixel(point.x, self.plot.width)
        return px, _LINE_LABEL if point.y is None else self.down(point.y)

    def down(self, value: float) -> float:
        """Distance of a y value from the top."""
        return self.plot.height - self.y.pixel(value, self.plot.height)

    def values(self, px: float, py: float) -> tuple[float, float]:
        """The data values of a place."""
        x = self.x.value(px, self.plot.width)
        return x, self.y.value(self.plot.height - py, self.plot.height)


def _layer(alt: Any, rows: Sequence[dict[str, object]]) -> Any:
    return alt.Chart(alt.Data(values=list(rows)))


def _raw(alt: Any, channel: str, field: str) -> Any:
    """A channel that takes colours and shapes from the data as they are."""
    return getattr(alt, channel)(f"{field}:N", scale=None, legend=None)


def _x_axis(alt: Any, scale: Scale, title: str, plot: Plot) -> Any:
    ticks = {"values": list(_log_ticks(scale, plot.ticks))} if scale.log else {"tickCount": plot.ticks}
    kind = alt.Scale(domain=[scale.low, scale.high], type="log" if scale.log else "linear", nice=False)
    return alt.X("x:Q", title=title, scale=kind, axis=alt.Axis(format=",~r", **ticks))


def _log_ticks(scale: Scale, most: int) -> Iterator[float]:
    decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    steps = (1, 2, 5) if 3 * len(decades) <= 2 * most else (1,)
    for decade in decades:
        for step in steps:
            if scale.low <= step * 10.0**decade <= scale.high:
                yield step * 10.0**decade


def _y_axis(alt: Any, scale: Scale, title: str, plot: Plot) -> Any:
    domain = alt.Scale(domain=[scale.low, scale.high], nice=False, zero=False)
    return alt.Y("y:Q", title=title, scale=domain, axis=alt.Axis(tickCount=min(6, plot.ticks + 1)))


def _whiskers(alt: Any, points: Sequence[Point], frame: _Frame, axes: dict[str, Any]) -> Iterator[Any]:
    lines, across, upright = [], [], []
    for point in points:
        row = {"x": point.x, "colour": point.look.colour, "tip": point.tip}
        if point.y is None:
            lines.append({**row, "y": frame.y.low, "y2": frame.y.high})
            continue
        across.append({**row, "x2": point.x_high, "y": point.y})
        if point.y_low is not None and point.y_high is not None:
            upright.append({**row, "y": point.y_low, "y2": point.y_high})
    common = {**axes, "color": _raw(alt, "Color", "colour"), "description": "tip:N"}
    if lines:
        yield _layer(alt, lines).mark_rule(strokeWidth=2, strokeDash=[6, 4]).encode(**common, y2="y2")
    if across:
        rule = _layer(alt, across).mark_rule(strokeWidth=2, opacity=0.65)
        yield rule.encode(**common, x2="x2")
    if upright:
        rule = _layer(alt, upright).mark_rule(strokeWidth=2, opacity=0.65)
        yield rule.encode(**common, y2="y2")


def _marks(alt: Any, points: Sequence[Point]) -> Iterator[Any]:
    rows = [
        {
            "x": point.x,
            "y": point.y,
            "tip": point.tip,
            "colour": point.look.colour,
            "shape": point.look.mark,
        }
        for point in points
        if point.y is not None
    ]
    if rows:
        mark = _layer(alt, rows).mark_point(size=130, stroke=_SURFACE, strokeWidth=1.5, opacity=1)
        fill, shape = _raw(alt, "Fill", "colour"), _raw(alt, "Shape", "shape")
        yield mark.encode(x="x:Q", y="y:Q", fill=fill, shape=shape, description="tip:N")


def _labels(points: Sequence[Point], frame: _Frame) -> list[Label]:
    obstacles: list[Box] = []
    for point in points:
        px, py = frame.at(point)
        if point.y is None:
            obstacles.append(Box(px - 2, 0, px + 2, frame.plot.height))
            continue
        right = frame.x.pixel(point.x_high, frame.plot.width)
        ends = [frame.down(end) for end in (point.y, point.y_low, point.y_high) if end is not None]
        obstacles += [
            Box(px - 8, py - 8, px + 8, py + 8),
            Box(px, py - 3, right + 2, py + 3),
            Box(px - 3, min(ends), px + 3, max(ends)),
        ]
    anchors = [Anchor(*frame.at(point), point.label) for point in points]
    return place_labels(anchors, obstacles, frame.plot.width, frame.plot.height)


def _texts(alt: Any, points: Sequence[Point], frame: _Frame) -> Iterator[Any]:
    leaders: list[dict[str, object]] = []
    texts: dict[str, list[dict[str, object]]] = {}
    for point, label in zip(points, _labels(points, frame), strict=True):
        x, y = frame.values(label.x, label.y)
        texts.setdefault(label.align, []).append({"x": x, "y": y, "label": label.text})
        if label.leader:
            x2, y2 = frame.values(*frame.at(point))
            leaders.append({"x": x, "y": y, "x2": x2, "y2": y2})
    if leaders:
        line = _layer(alt, leaders).mark_rule(color=_AXIS, strokeWidth=1, aria=False)
        yield line.encode(x="x:Q", y="y:Q", x2="x2", y2="y2")
    for align, rows in texts.items():
        style = {**_LABEL, "align": align}
        for look in ({"color": _SURFACE, "stroke": _SURFACE, "strokeWidth": 4}, {"color": _INK}):
            yield _layer(alt, rows).mark_text(**style, **look).encode(x="x:Q", y="y:Q", text="label:N")


def draw_strips(strips: Sequence[Strip], x_title: str, plot: Plot) -> str:
    """The chart of all timed batches, a row a run: dots for batches, bars for p50, p90 and p99.

    Names stand before the rows, or above them where they would take more than half of the plot's width.

    Args:
        strips: At least one.
        x_title: Title of the x axis, with its unit.
        plot: The size; the height is taken from the number of rows.

    Returns:
        SVG text with a transparent background.
    """
    alt = require("altair", "report", "Writing a report")
    scale = Scale.of_latency([value for strip in strips for value in (strip.p50, strip.p99)])
    x, y = _x_axis(alt, scale, x_title, plot), alt.Y("y:Q", scale=None, axis=None)
    above = max(text_width(strip.label) for strip in strips) > plot.width / 2
    height = _STRIP + (_TITLE if above else 0)
    placed = [(strip, height * (row + 1) - _STRIP / 2) for row, strip in enumerate(strips)]
    dots = [dot for strip, middle in placed for dot in _dots(middle, strip, scale)]
    bars = [bar for strip, middle in placed for bar in _bars(middle, strip)]
    raised = (_STRIP + _TITLE) / 2 if above else 0
    names = [{"y": middle - raised, "label": strip.label} for strip, middle in placed]
    fill, width = _raw(alt, "Fill", "colour"), alt.StrokeWidth("width:Q", scale=None, legend=None)
    dot = _layer(alt, dots).mark_point(size=14, stroke="transparent", opacity=0.55, aria=False)
    bar = _layer(alt, bars).mark_rule(color=_INK)
    name = _layer(alt, names).mark_text(**_LABEL, align="left" if above else "right", color=_INK)
    layers = [
        *([dot.encode(x=x, y=y, fill=fill)] if dots else []),
        bar.encode(x=x, y=y, y2="y2", strokeWidth=width, description="tip:N"),
        name.encode(x=alt.value(0 if above else -10), y=y, text="label:N"),
    ]
    chart = alt.layer(*layers).properties(width=plot.width, height=height * len(strips))
    return render_svg(_styled(chart, 0 if above else _WIDER * max(len(strip.label) for strip in strips)))


def _dots(middle: float, strip: Strip, scale: Scale) -> Iterator[dict[str, object]]:
    inside = [time for time in strip.times if scale.low <= time <= scale.high]
    for index, time in enumerate(inside):
        # The golden ratio spreads the dots evenly over the row's height, the same in every report.
        y = middle + 20 * ((index * 0.618034) % 1 - 0.5)
        yield {"x": round(time, 6), "y": round(y, 1), "colour": strip.look.colour}


def _bars(middle: float, strip: Strip) -> Iterator[dict[str, object]]:
    for value, half, width in ((strip.p50, 14, 3.0), (strip.p90, 9, 2.0), (strip.p99, 9, 2.0)):
        yield {"x": value, "y": middle - half, "y2": middle + half, "width": width, "tip": strip.tip}


def _styled(chart: Any, left: float = 0) -> Any:
    padding = {"left": 6 + left, "top": 6, "right": 6, "bottom": 6}
    return (
        chart.configure(background="transparent", font=_FONT, padding=padding)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_MUTED,
            titleColor=_MUTED,
            gridColor=_GRID,
            domainColor=_AXIS,
            tickColor=_AXIS,
            labelFlush=False,
            labelFontSize=12,
            titleFontSize=13,
            titleFontWeight="normal",
            titlePadding=10,
        )
    )
