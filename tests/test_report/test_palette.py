from __future__ import annotations

from itertools import pairwise

import pytest

from calib.report.palette import ROLES, look_of


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("role", "least"),
    [
        ("ink", 7),
        ("muted", 4.5),
        ("fp32", 3),
        ("fp16", 3),
        ("int8", 3),
        ("int8-second", 3),
        ("other", 3),
        ("axis", 3),
    ],
)
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_contrast_to_the_surface(role, least, mode):
    assert contrast(getattr(ROLES[role], mode), getattr(ROLES["surface"], mode)) >= least


def test_each_light_colour_has_one_role():
    assert len({shade.light for shade in ROLES.values()}) == len(ROLES)


def test_precisions_differ_in_colour_and_shape():
    looks = [look_of(name) for name in ("fp32", "fp16", "int8", "best")]
    assert len({look.colour for look in looks}) == len({look.mark for look in looks}) == 4


def test_calibrations_differ_in_shape_and_neighbours_in_shade():
    looks = [look_of("int8", variant) for variant in range(4)]
    assert len({look.mark for look in looks}) == 4
    assert all(one.colour != other.colour for one, other in pairwise(looks))
    assert look_of("int8", 4) == looks[0]
    assert look_of("fp16", 3) == look_of("fp16")
