"""Colours of the charts and the page, for light and dark.

Charts are drawn with the light colours. In the page, rules on the ``fill`` and ``stroke`` attributes
turn each into its dark twin, so every light colour has exactly one role. The series colours stay apart for
colour-blind readers (after Okabe and Ito) and keep 3:1 contrast to the surface in both modes.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ROLES", "Look", "Shade", "look_of"]


class Shade(NamedTuple):
    """One role's colour in both modes, as ``#rrggbb`` in lower case."""

    light: str
    dark: str


ROLES: dict[str, Shade] = {
    "surface": Shade("#ffffff", "#14181d"),
    "ink": Shade("#1f2328", "#e6edf3"),
    "muted": Shade("#59636e", "#9aa4af"),
    "grid": Shade("#e4e8ec", "#2b323b"),
    "axis": Shade("#8c959e", "#66707c"),
    "fp32": Shade("#0072b2", "#56b4e9"),
    "fp16": Shade("#c45500", "#f0883e"),
    "int8": Shade("#008560", "#2cc295"),
    "int8-second": Shade("#004d38", "#8fe3c8"),
    "other": Shade("#9a4b91", "#d68fcd"),
}

_LOOKS = {
    "fp32": (("fp32", "circle"),),
    "fp16": (("fp16", "square"),),
    "int8": (
        ("int8", "triangle-up"),
        ("int8-second", "triangle-down"),
        ("int8", "triangle-right"),
        ("int8-second", "triangle-left"),
    ),
}
_OTHER = (("other", "diamond"),)


class Look(NamedTuple):
    """How a run is drawn: its colour in charts, and its point's shape in Vega's words."""

    colour: str
    mark: str


def look_of(precision: str, variant: int = 0) -> Look:
    """How a run is drawn; colour is never the only difference.

    Args:
        precision: Decides the hue.
        variant: Number of the calibration: calibrations differ in shade and shape.
    """
    looks = _LOOKS.get(precision, _OTHER)
    role, mark = looks[variant % len(looks)]
    return Look(ROLES[role].light, mark)
