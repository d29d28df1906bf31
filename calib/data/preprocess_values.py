"""What a value of a recipe's preprocessing may be: numbers, sizes, colours."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator

__all__ = ["Divisor", "Fill", "Fraction", "Nonzero", "PerChannel", "Pixels", "Size", "pair"]

_LARGEST = 16384


def _number(value: object) -> float:
    """A finite number, or one written as text: ``1/255``, or ``1e-3`` (text to a YAML reader)."""
    try:
        if isinstance(value, str):
            over, _, under = value.partition("/")
            value = float(over) / float(under or 1)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, ArithmeticError):
        raise ValueError(f'expected a number or a fraction such as "1/255", got {value!r}') from None
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {value!r}")
    return number


def _nonzero(value: object) -> float:
    number = _number(value)
    if number == 0:
        raise ValueError("must not be 0")
    return number


def _fraction(value: object) -> float:
    number = _number(value)
    if not 0 < number <= 1:
        raise ValueError(f"expected a share above 0 and at most 1, got {value!r}")
    return number


def _per_channel(value: object) -> float | tuple[float, ...]:
    if isinstance(value, (list, tuple)):
        if not value:
            raise ValueError("expected a number, or a list with one number a channel, got []")
        return tuple(_number(item) for item in value)
    return _number(value)


def _divisor(value: object) -> float | tuple[float, ...]:
    number = _per_channel(value)
    if 0 in (number if isinstance(number, tuple) else (number,)):
        raise ValueError("must not be 0: values are divided by it")
    return number


def _pixels(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
        raise ValueError(f"expected pixels from 1 to {_LARGEST}, got {value!r}")
    return value


def _size(value: object) -> int | tuple[int, int]:
    sides = value if isinstance(value, (list, tuple)) else (value, value)
    whole = all(isinstance(side, int) and not isinstance(side, bool) for side in sides)
    if len(sides) != 2 or not whole or not all(1 <= side <= _LARGEST for side in sides):
        raise ValueError(f"expected pixels from 1 to {_LARGEST}, or [height, width], got {value!r}")
    return (sides[0], sides[1]) if isinstance(value, (list, tuple)) else sides[0]


def _fill(value: object) -> int | tuple[int, int, int] | Literal["mean"]:
    if value == "mean":
        return "mean"
    colors = value if isinstance(value, (list, tuple)) else (value,) * 3
    whole = all(isinstance(color, int) and not isinstance(color, bool) for color in colors)
    if len(colors) != 3 or not whole or not all(0 <= color <= 255 for color in colors):
        raise ValueError(f"expected a grey value from 0 to 255, [red, green, blue], or mean, got {value!r}")
    return (colors[0], colors[1], colors[2]) if isinstance(value, (list, tuple)) else colors[0]


Nonzero = Annotated[float, BeforeValidator(_nonzero)]
Fraction = Annotated[float, BeforeValidator(_fraction)]
PerChannel = Annotated[float | tuple[float, ...], BeforeValidator(_per_channel)]
Divisor = Annotated[float | tuple[float, ...], BeforeValidator(_divisor)]
Pixels = Annotated[int, BeforeValidator(_pixels)]
Size = Annotated[int | tuple[int, int], BeforeValidator(_size)]
Fill = Annotated[int | tuple[int, int, int] | Literal["mean"], BeforeValidator(_fill)]


def pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width of a size that may be the side of a square.

    >>> pair(224), pair((32, 100))
    ((224, 224), (32, 100))
    """
    return (size, size) if isinstance(size, int) else size
