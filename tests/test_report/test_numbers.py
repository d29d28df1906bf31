from __future__ import annotations

import math

import pytest

from calib.report import numbers

NOTHING = (None, math.nan, math.inf, -math.inf)


@pytest.mark.parametrize("value", NOTHING)
@pytest.mark.parametrize(
    "function",
    [
        numbers.percent,
        numbers.points,
        numbers.significant,
        numbers.milliseconds,
        numbers.seconds,
        numbers.decibels,
        numbers.cosine,
        numbers.times,
        lambda value: numbers.interval(value, 0.5),
        lambda value: numbers.interval(0.5, value),
    ],
)
def test_what_was_not_measured_is_a_dash(function, value):
    assert function(value) == numbers.MISSING


@pytest.mark.parametrize(
    ("share", "count", "text"),
    [
        (352 / 360, 360, "97.8%"),
        (48_730 / 50_000, 50_000, "97.46%"),
        (49_999 / 50_000, 50_000, "99.998%"),
        (1 / 50_000, 50_000, "0.002%"),
        (1.0, 360, "100%"),
        (0.0, 360, "0%"),
    ],
)
def test_percent_is_never_rounded_to_all_or_none(share, count, text):
    assert numbers.percent(share, count) == text


@pytest.mark.parametrize(
    ("drop", "text"),
    [(0.01389, "+1.4"), (-0.01389, "\N{MINUS SIGN}1.4"), (0.0, "0.0"), (0.0001, "0.0"), (-0.0001, "0.0")],
)
def test_points_are_signed(drop, text):
    assert numbers.points(drop, 360) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.000123, "0.000123"),
        (0.0000123, "1.23e−5"),
        (-2.5, "−2.50"),
        (0.9996, "1.00"),
        (99.96, "100"),
        (1234.0, "1,230"),
        (1.5e9, "1.50e9"),
    ],
)
def test_three_significant_digits(value, text):
    assert numbers.significant(value) == text


@pytest.mark.parametrize("pair", [(None, 1.0), (1.0, None), (0.0, 1.0), (1.0, 0.0), (math.nan, 1.0)])
def test_no_speedup_without_two_latencies(pair):
    assert numbers.speedup(*pair) is None


def test_speedup_is_reference_over_value():
    assert numbers.speedup(4.0, 5.0) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (5 << 20, "5.00 MiB"),
        (3 << 30, "3.00 GiB"),
    ],
)
def test_byte_size(size, text):
    assert numbers.byte_size(size) == text
