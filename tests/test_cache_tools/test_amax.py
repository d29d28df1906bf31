from __future__ import annotations

import numpy as np
import pytest
from goldens import NETS, REAL
from hypothesis import given
from hypothesis import strategies as st

from calib.calibrators import CalibrationCache
from calib.calibrators.amax import amax_of, has_exact_amax
from calib.calibrators.runtime_table import inexact_tensors

FILES = sorted([*(REAL / "caches").glob("*.cache"), *NETS.glob("*.cache")])


@given(st.floats(0, float(np.finfo(np.float32).max), width=32))
def test_every_float32_range_has_a_scale_that_gives_it_back(amax: float) -> None:
    scale = np.float32(amax) / np.float32(127)
    again = np.float32(amax_of(float(scale))) / np.float32(127)
    assert again.view(np.uint32) == scale.view(np.uint32)
    assert has_exact_amax(float(scale))


@given(st.floats(2.0**-100, 2.0**100, width=32))
def test_a_scale_without_a_range_has_none_among_the_neighbours_either(scale: float) -> None:
    nearest = np.float32(127 * scale)
    steps = np.arange(-64, 65)
    neighbours = (nearest.view(np.int32) + steps).astype(np.int32).view(np.float32)
    reachable = bool((neighbours / np.float32(127) == np.float32(scale)).any())
    assert has_exact_amax(scale) == reachable


def test_share_of_scales_without_a_range() -> None:
    # Ranges in [127, 254) lie 128/127 of a scale's step apart: one scale in 128 of m ≥ 128/127 is skipped.
    scales = np.arange(0x3F800000, 0x40000000, 211, dtype=np.uint32).view(np.float32)
    missed = np.mean([not has_exact_amax(float(scale)) for scale in scales])
    assert missed == pytest.approx(126 / 127 / 128, rel=0.1)


def test_range_beyond_float32_is_infinite() -> None:
    assert amax_of(3e37) == float("inf")
    assert not has_exact_amax(3e37)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scale_of_tensorrt_comes_from_a_float32_range(path) -> None:
    assert inexact_tensors(CalibrationCache.read(path)) == ()
