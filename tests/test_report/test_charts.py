from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from calib.report.charts import NARROW, WIDE, Point, Scale, Strip, draw_scatter, draw_strips
from calib.report.palette import ROLES, look_of
from calib.report.svg import inline_svg, standalone_svg

POINTS = [
    Point("FP32", look_of("fp32"), "FP32: 97%", 3.05, 3.2, 97.0, 95.0, 98.0),
    Point("FP16 <&>", look_of("fp16"), "FP16: 97%", 0.49, 0.5, 97.0, 95.0, 98.0),
    Point("INT8 (no error)", look_of("int8"), "INT8: none", 0.34, 0.36, None),
]


@pytest.fixture(scope="module")
def scatter() -> str:
    return draw_scatter(POINTS, "Top-1 (%)", "ms", Scale(94.0, 99.0), WIDE)


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1.0, 4.0], (0.0, 4.6, False)),
        ([1.0, 20.0], (0.0, 23.0, False)),
        ([1.0, 30.0], (1 / 1.5, 48.0, True)),
        ([0.0, 30.0], (0.0, 34.5, False)),
        ([], (0.0, 1.15, False)),
    ],
)
def test_latency_starts_at_zero_unless_it_spans_much(values, scale):
    found = Scale.of_latency(values)
    assert (found.low, found.high, found.log) == pytest.approx(scale)


@pytest.mark.parametrize("scale", [Scale(0.0, 10.0), Scale(0.1, 100.0, log=True)])
@pytest.mark.parametrize("value", [0.2, 1.0, 9.0])
def test_pixels_and_values_are_inverse(scale, value):
    assert scale.value(scale.pixel(value, 300.0), 300.0) == pytest.approx(value)


def test_a_log_scale_spreads_decades_evenly():
    assert Scale(0.1, 1000.0, log=True).pixel(1.0, 400.0) == pytest.approx(100.0)


def test_accuracy_axis_has_room_and_stays_in_its_limits():
    assert Scale.around([99.5, 100.0], 1.0, (0.0, 100.0)) == Scale(99.25, 100.0)


def test_every_colour_can_turn_dark(scatter):
    strips = draw_strips([Strip("INT8", look_of("int8"), "", (1.0, 2.0), 1.0, 1.5, 2.0)], "ms", NARROW)
    for svg in (scatter, strips):
        colours = set(re.findall(r'(?:fill|stroke)="(#?\w+)"', svg)) - {"none", "transparent"}
        assert colours <= {shade.light for shade in ROLES.values()}


@pytest.mark.parametrize(
    ("label", "plot", "align", "left"),
    [
        ("INT8", NARROW, "end", -10.0),
        ("TensorRT INT8 entropy", WIDE, "end", -10.0),
        ("TensorRT INT8 entropy", NARROW, "start", 0.0),
    ],
)
def test_a_name_stands_before_its_row_or_above_it_where_it_is_long(label, plot, align, left):
    svg = draw_strips([Strip(label, look_of("int8"), "", (1.0, 2.0), 1.0, 1.5, 2.0)], "ms", plot)
    (name,) = (
        one
        for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
        if one.text == label
    )
    assert name.get("text-anchor") == align
    assert float(re.findall(r"translate\(([-\d.]+),", name.get("transform"))[0]) == left
    # The reader's font may be wider than the one that the size was worked out with.
    width = float(ElementTree.fromstring(svg).get("width"))
    assert width > plot.width + (8 * len(label) + 10 if align == "end" else 0)


def test_all_points_are_labelled(scatter):
    texts = [
        element.text for element in ElementTree.fromstring(scatter).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {"FP32", "FP16 <&>", "INT8 (no error)", "Top-1 (%)", "ms"} <= set(texts)


def test_points_tell_their_figures(scatter):
    assert "<title>FP32: 97%</title>" in inline_svg(scatter)


def test_ticks_are_plain_numbers():
    points = [
        Point("a", look_of("fp32"), "", 0.05, 0.06, 1.0),
        Point("b", look_of("int8"), "", 2000.0, 2100.0, 2.0),
    ]
    svg = draw_scatter(points, "dB", "ms", Scale(0.0, 3.0), NARROW)
    texts = {element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}
    assert {"0.1", "1", "10", "100", "1,000"} <= texts


def test_the_file_stands_alone_on_a_light_card(scatter):
    root = ElementTree.fromstring(standalone_svg(scatter, "Title <x>", "Words & more"))
    title, description, card = list(root)[:3]
    assert (title.text, description.text) == ("Title <x>", "Words & more")
    assert card.get("fill") == "#ffffff"
    assert root.get("role") == "img"
