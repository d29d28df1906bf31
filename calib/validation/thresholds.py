"""Thresholds of gates as people write them: a share or per cent, dB, a ratio.

A threshold that cannot be meant would switch its gate off unnoticed, so it is refused: NaN, infinity,
negative numbers, a share above 1, a decimal comma.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real

from calib.errors import UsageError

__all__ = ["Threshold", "describe_points", "parse_per_cent", "parse_threshold", "plain"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WIDE_SHARE = 0.2

_LIMITS = {"share": 1.0, "dB": 200.0, "cosine": 1.0, "ratio": 100.0, "MB": 1e6, "number": 1e12}
_EXAMPLES = {
    "share": "0.01 or 1%",
    "dB": "20",
    "cosine": "0.99",
    "ratio": "0.8",
    "MB": "50",
    "number": "0.5",
}
_SUFFIXES = {
    "share": ("%",),
    "dB": ("dB",),
    "cosine": (),
    "ratio": ("x", "×"),
    "MB": ("MB",),
    "number": (),
}


@dataclass(frozen=True)
class Threshold:
    """A number that a gate judges by.

    Attributes:
        value: The number: a share between 0 and 1, dB, a ratio, megabytes of 10⁶ bytes, or a number in the
            unit of the figure that is judged.
        unit: "share", "dB", "cosine", "ratio", "MB" or "number".
        given: What the user wrote.
        warning: Why it is probably not what was meant; empty where nothing is doubtful.
    """

    value: float
    unit: str
    given: str
    warning: str = ""


def plain(value: float, digits: int = 4) -> str:
    """A number with up to so many significant digits and no more zeros than needed.

    >>> plain(0.01), plain(1.25), plain(20.0), plain(-0.123456)
    ('0.01', '1.25', '20', '−0.1235')
    """
    if value < 0:
        return f"−{plain(-value, digits)}"
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def describe_points(share: float) -> str:
    """A difference of shares in words, with the share itself.

    >>> describe_points(0.01), describe_points(0.005)
    ('1 percentage point (0.01)', '0.5 percentage points (0.005)')
    """
    points = plain(100 * share)
    return f"{points} percentage point{'' if points == '1' else 's'} ({plain(share)})"


def parse_threshold(given: str | float, option: str, unit: str) -> Threshold:
    """Reads a threshold.

    Args:
        given: What was written: a number, or text such as "0.01", "1%", "20 dB", "0.8x".
        option: The option or key that it belongs to, for messages.
        unit: "share", "dB", "cosine", "ratio", "MB" or "number".

    Raises:
        UsageError: It is no number, not finite, negative, or outside of what the unit allows.

    >>> parse_threshold("1%", "--max-drop", "share").value, parse_threshold(0.01, "max_drop", "share").value
    (0.01, 0.01)
    """
    example = f"Write {_EXAMPLES[unit]}, for instance."
    if isinstance(given, bool) or not isinstance(given, (str, Real)):
        raise UsageError(f"{option} needs a number, got {given!r}. {example}")
    text = str(given).strip()
    if not text:
        raise UsageError(f"{option} needs a number, got nothing. {example}")
    number, per_cent = _number(text, option, unit, example)
    value = number / 100 if per_cent else number
    _check_range(value, text, option, unit, example)
    return Threshold(value, unit, text, _doubt(value, per_cent) if unit == "share" else "")


def _number(text: str, option: str, unit: str, example: str) -> tuple[float, bool]:
    suffix = next((end for end in _SUFFIXES[unit] if text.lower().endswith(end.lower())), "")
    digits = text[: len(text) - len(suffix)].strip()
    if "," in digits:
        point = text.replace(",", ".")
        per_cent = f", or {point}% for a percentage" if unit == "share" and not suffix else ""
        raise UsageError(f"{option} {text!r} has a comma: write {point}{per_cent}.")
    if digits.lstrip("+-").lower() in ("nan", "inf", "infinity"):
        raise UsageError(f"{option} {text!r} would switch the gate off: it needs a finite number. {example}")
    if unit == "number" and digits.endswith("%"):
        raise UsageError(
            f"{option} {text!r}: the figure is no share, so that a percentage can only be of its value. Give "
            "--max-relative-drop, or a number in its unit."
        )
    if not _NUMBER.fullmatch(digits):
        raise UsageError(f"{option} needs a number, got {text!r}. {example}")
    return float(digits), suffix == "%"


def _check_range(value: float, text: str, option: str, unit: str, example: str) -> None:
    if value < 0:
        raise UsageError(f"{option} {text!r} is negative: a threshold is 0 or more. {example}")
    if not math.isfinite(value) or value > _LIMITS[unit]:
        if unit == "share" and value <= 100:
            raise UsageError(
                f"{option} {text!r} is more than everything: a share lies between 0 and 1. For "
                f"{plain(value)} percentage points write {plain(value)}% or {plain(value / 100)}; for a "
                f"figure that is no share name it, such as MAE={plain(value)}."
            )
        raise UsageError(
            f"{option} {text!r} cannot be meant: it lies between 0 and {_LIMITS[unit]:g}. {example}"
        )
    if value == 0 and unit in ("ratio", "MB"):
        raise UsageError(f"{option} 0 can never be kept. {example}")


def _doubt(value: float, per_cent: bool) -> str:
    if per_cent or value <= _WIDE_SHARE:
        return ""
    return f"{plain(value)} is {plain(100 * value)}%: if {plain(value)}% was meant, write {plain(value)}%"


def parse_per_cent(given: str, option: str) -> float:
    """Reads a percentage, with or without its sign, as a share.

    Args:
        given: What was written: "0.5", "0.5%".
        option: The option that it belongs to, for messages.

    Raises:
        UsageError: It is no number from 0 to 100.

    >>> parse_per_cent("0.5", "--margin"), parse_per_cent("76%", "--baseline")
    (0.005, 0.76)
    """
    text = given.strip()
    return parse_threshold(text if text.endswith("%") or not text else f"{text}%", option, "share").value
