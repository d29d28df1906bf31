from __future__ import annotations

import numpy as np
import pytest

from calib.errors import UsageError
from calib.validation.thresholds import parse_per_cent, parse_threshold


@pytest.mark.parametrize(
    ("given", "unit", "value"),
    [
        ("0.01", "share", 0.01),
        ("1%", "share", 0.01),
        ("0.5 %", "share", 0.005),
        (0.01, "share", 0.01),
        (0, "share", 0.0),
        ("1e-3", "share", 0.001),
        ("20", "dB", 20.0),
        ("20 dB", "dB", 20.0),
        (".99", "cosine", 0.99),
        ("0.8x", "ratio", 0.8),
        ("25MB", "MB", 25.0),
        (np.float32(0.01), "share", 0.01),
        (np.int64(20), "dB", 20.0),
    ],
)
def test_what_people_write(given: str | float, unit: str, value: float) -> None:
    assert parse_threshold(given, "--gate", unit).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nan", "'nan' would switch the gate off"),
        ("NaN%", "would switch the gate off"),
        (float("nan"), "would switch the gate off"),
        ("inf", "would switch the gate off"),
        ("-inf", "would switch the gate off"),
        ("-1", "is negative: a threshold is 0 or more"),
        ("-1%", "is negative"),
        ("1e9", "cannot be meant: it lies between 0 and 1"),
        ("1e999", "cannot be meant"),
        ("", "got nothing. Write 0.01 or 1%"),
        ("  ", "got nothing"),
        ("0,5", r"has a comma: write 0\.5, or 0\.5% for a percentage"),
        ("0,5%", r"has a comma: write 0\.5%\."),
        ("2", r"more than everything.* write 2% or 0\.02"),
        ("150%", "more than everything"),
        ("ten", "needs a number, got 'ten'"),
        ("0x1", "needs a number"),
        ("1_0", "needs a number"),
        ("20dB", "needs a number, got '20dB'"),
        (True, "needs a number, got True"),
        (None, "needs a number, got None"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_threshold(given, "--max-drop", "share")  # type: ignore[arg-type]
    assert str(caught.value).startswith("--max-drop")


@pytest.mark.parametrize(("given", "unit"), [("0", "ratio"), ("0", "MB"), ("300", "dB"), ("1.5", "cosine")])
def test_other_units_have_limits_too(given: str, unit: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be meant|can never be kept"):
        parse_threshold(given, "--gate", unit)


def test_a_share_that_looks_like_points_is_doubted() -> None:
    assert parse_threshold("0.5", "--max-drop", "share").warning == (
        "0.5 is 50%: if 0.5% was meant, write 0.5%"
    )
    assert not parse_threshold("50%", "--max-drop", "share").warning
    assert not parse_threshold("0.05", "--max-drop", "share").warning


def test_per_cent_with_and_without_its_sign() -> None:
    assert parse_per_cent("0.5", "--margin") == parse_per_cent("0.5%", "--margin") == 0.005
    with pytest.raises(UsageError, match="--margin needs a number, got nothing"):
        parse_per_cent("", "--margin")
    with pytest.raises(UsageError, match="more than everything"):
        parse_per_cent("101", "--baseline")
