"""Numbers as text: the only place where reports round.

Every function takes None, NaN and infinity too and answers ``MISSING`` for them: a report never
shows "nan".
"""

from __future__ import annotations

import math

from calib.wording import inflected

__all__ = [
    "MISSING",
    "byte_size",
    "cosine",
    "counted",
    "decibels",
    "interval",
    "known",
    "milliseconds",
    "percent",
    "points",
    "points_interval",
    "probability",
    "seconds",
    "significant",
    "speedup",
    "times",
    "unsigned_points",
    "whole",
]

MISSING = "–"

_MINUS = "\N{MINUS SIGN}"
_MANY_SAMPLES = 1000
_MOST_DECIMALS = 4


def known(value: float | None) -> bool:
    """Whether there is a finite number."""
    return value is not None and math.isfinite(value)


def _decimals(count: int | None) -> int:
    """Decimals of a percentage: a second one only where one sample moves less than 0.1 %."""
    return 2 if count is not None and count > _MANY_SAMPLES else 1


def percent(share: float | None, count: int | None = None) -> str:
    """A share between 0 and 1 in per cent, never rounded up to all or down to none.

    Args:
        share: The share.
        count: Samples behind it; more than 1000 give a second decimal.

    >>> percent(0.9481), percent(0.94812, 5000), percent(0.9999, 360), percent(1.0)
    ('94.8%', '94.81%', '99.99%', '100%')
    """
    if share is None or not math.isfinite(share):
        return MISSING
    if share in (0.0, 1.0):
        return f"{share * 100:.0f}%"
    for decimals in range(_decimals(count), 7):
        text = f"{share * 100:.{decimals}f}"
        if float(text) not in (0.0, 100.0):
            break
    return text.replace("-", _MINUS) + "%"


def interval(low: float | None, high: float | None, count: int | None = None) -> str:
    """The interval of a share in per cent.

    >>> interval(0.9212, 0.9671)
    '92.1–96.7%'
    """
    if low is None or high is None or not (known(low) and known(high)):
        return MISSING
    return f"{percent(low, count).rstrip('%')}–{percent(high, count)}"


def points(drop: float | None, count: int | None = None) -> str:
    """A signed difference of two shares, in percentage points.

    >>> points(0.0131), points(-0.002), points(0.0)
    ('+1.3', '−0.2', '0.0')
    """
    if drop is None or not math.isfinite(drop):
        return MISSING
    return _signed_points(drop, _decimals(count))


def _signed_points(drop: float, decimals: int) -> str:
    text = f"{abs(drop) * 100:.{decimals}f}"
    if float(text) == 0.0:
        return text
    return ("+" if drop > 0 else _MINUS) + text


def points_interval(low: float | None, high: float | None, count: int | None = None) -> str:
    """The interval of a signed difference of two shares, in percentage points.

    A narrow interval has as many decimals as tell its ends apart.

    >>> points_interval(-0.0021, 0.0131), points_interval(None, None)
    ('−0.2 to +1.3', '–')
    >>> points_interval(-0.0007, -0.0003)
    '−0.07 to −0.03'
    """
    if low is None or high is None or not (known(low) and known(high)):
        return MISSING
    decimals = _decimals(count)
    while decimals < _MOST_DECIMALS and 0 < 100 * (high - low) < 2 * 10**-decimals:
        decimals += 1
    return " to ".join(_signed_points(end, decimals) for end in (low, high))


def unsigned_points(drop: float, count: int | None = None) -> str:
    """The size of a difference of two shares, in percentage points, for use in a sentence.

    >>> unsigned_points(-0.0131)
    '1.3'
    """
    return f"{abs(drop) * 100:.{_decimals(count)}f}"


def significant(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, plain between 0.0001 and a million.

    >>> significant(0.33951), significant(9.996), significant(12345.6), significant(1.234e-6)
    ('0.340', '10.0', '12,300', '1.23e−6')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    rounded = float(f"{value:.{digits - 1}e}")
    if rounded == 0.0:
        return "0"
    exponent = math.floor(math.log10(abs(rounded)))
    if -4 <= exponent < 6:
        text = f"{rounded:,.{max(0, digits - 1 - exponent)}f}"
    else:
        text = f"{rounded / 10.0**exponent:.{digits - 1}f}e{exponent}"
    return text.replace("-", _MINUS)


def milliseconds(value: float | None) -> str:
    """A time in milliseconds, three significant digits, without the unit.

    >>> milliseconds(0.3402), milliseconds(12.34), milliseconds(None)
    ('0.340', '12.3', '–')
    """
    return significant(value)


def seconds(value: float | None) -> str:
    """A time in seconds with its unit.

    >>> seconds(1.234)
    '1.23 s'
    """
    return f"{significant(value)} s" if known(value) else MISSING


def decibels(value: float | None) -> str:
    """An SQNR in dB, without the unit.

    >>> decibels(31.837), decibels(-0.04), decibels(None)
    ('31.8', '0.0', '–')
    """
    return _fixed(value, 1) if value is not None and known(value) else MISSING


def _fixed(value: float, decimals: int) -> str:
    """So many decimals; what rounds to nothing has no sign."""
    text = f"{value:.{decimals}f}"
    return (text if float(text) else text.lstrip("-")).replace("-", _MINUS)


def cosine(value: float | None) -> str:
    """A cosine similarity; one that is not 1 never reads as 1.

    >>> cosine(0.99991234), cosine(0.9999999), cosine(1.0), cosine(-1e-9)
    ('0.999912', '>0.999999', '1', '0.000000')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 1.0:
        return "1"
    text = _fixed(value, 6)
    return ">0.999999" if text == "1.000000" else text


def speedup(reference_ms: float | None, value_ms: float | None) -> float | None:
    """How many times as fast: reference ÷ value. None where either is missing or not positive.

    >>> speedup(3.05, 0.340)
    8.970588235294116
    """
    if reference_ms is None or value_ms is None or not (known(reference_ms) and known(value_ms)):
        return None
    return reference_ms / value_ms if reference_ms > 0 and value_ms > 0 else None


def times(ratio: float | None) -> str:
    """A ratio.

    >>> times(0.8), times(8.9706), times(12.34), times(9.996)
    ('0.80×', '8.97×', '12.3×', '10.0×')
    """
    if ratio is None or not math.isfinite(ratio):
        return MISSING
    return f"{ratio:,.{2 if ratio < 9.995 else 1}f}×"


def probability(value: float) -> str:
    """A p-value.

    >>> probability(0.342), probability(0.0000012)
    ('0.34', '<0.001')
    """
    return "<0.001" if value < 0.001 else f"{value:.2g}"


def whole(value: int | None) -> str:
    """A count with thousands set apart.

    >>> whole(11689512)
    '11,689,512'
    """
    return MISSING if value is None else f"{value:,}".replace("-", _MINUS)


def counted(count: int, words: str) -> str:
    """A count and its words, as ``calib.wording.counted``, with thousands apart.

    >>> counted(1, "sample[s]"), counted(1285, "validation sample[s]")
    ('1 sample', '1,285 validation samples')
    """
    return f"{whole(count)} {inflected(count, words)}"


def byte_size(value: int | None) -> str:
    """A size in bytes, KiB, MiB or GiB.

    >>> byte_size(980), byte_size(46_827_520)
    ('980 B', '44.7 MiB')
    """
    if value is None:
        return MISSING
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{significant(value / 1024**power)} {unit}"
    return f"{value} B"
