"""Scale, mean, std, layout and dtype."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from calib.data import Preprocess
from calib.data.preprocess import cast
from calib.errors import DatasetError

RAMP = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_order_is_scale_mean_std():
    steps = Preprocess(scale="1/2", mean=[1, 2], std=[2, 4])
    result = steps.apply(RAMP, "x")
    # Channel 0 holds 0…11: (v/2 - 1)/2 = v/4 - 0.5; channel 1 holds 12…23: (v/2 - 2)/4 = v/8 - 0.5.
    np.testing.assert_array_equal(result[0], np.arange(12).reshape(3, 4) / 4 - 0.5)
    np.testing.assert_array_equal(result[1], np.arange(12, 24).reshape(3, 4) / 8 - 0.5)
    assert result.dtype == np.float32


@pytest.mark.parametrize(
    ("layout", "stored", "shape"),
    [
        ("chw", None, (2, 3, 4)),
        ("chw", "chw", (2, 3, 4)),
        ("hwc", "chw", (3, 4, 2)),
        ("chw", "hwc", (4, 2, 3)),
        ("hwc", None, (2, 3, 4)),
    ],
)
def test_layout(layout, stored, shape):
    result = Preprocess(layout=layout).apply(RAMP, "x", stored)
    assert result.shape == shape
    assert result.flags.c_contiguous
    if shape == (3, 4, 2):
        assert result[1, 2, 1] == RAMP[1, 1, 2]


def test_channels_are_last_where_stored_so():
    result = Preprocess(mean=[0, 1, 2, 3], layout="hwc").apply(np.zeros((2, 3, 4)), "x")
    np.testing.assert_array_equal(result[1, 1], [0, -1, -2, -3])


def test_wrong_number_of_channels_is_named():
    message = r"a\.npy: preprocess\.mean has 3 numbers, .* shape \(2, 3, 4\) has 2 channels"
    with pytest.raises(DatasetError, match=message):
        Preprocess(mean=[1, 2, 3]).apply(RAMP, "a.npy")


def test_only_three_axes_are_reordered():
    with pytest.raises(DatasetError, match=r"a\.npy: shape \(5,\) cannot be brought to layout hwc"):
        Preprocess(layout="hwc").apply(np.zeros(5), "a.npy", "chw")


@pytest.mark.parametrize(
    ("stored", "steps", "expected"),
    [
        ("int64", {}, "int64"),
        (">i4", {}, "int32"),
        ("bool", {}, "bool"),
        ("float64", {}, "float32"),
        ("float16", {}, "float32"),
        ("uint8", {"scale": "1/255"}, "float32"),
        ("uint8", {"dtype": "float32"}, "float32"),
        ("int64", {"dtype": "int32"}, "int32"),
        ("float32", {"dtype": "float16"}, "float16"),
    ],
)
def test_type_that_the_model_gets(stored, steps, expected):
    result = Preprocess(**steps).apply(np.ones((1, 2), stored), "x")
    assert result.dtype == np.dtype(expected)
    assert result.dtype.isnative


def test_a_single_number_stays_one():
    assert Preprocess().apply(np.array(5, np.int64), "x").shape == ()


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([[0.0, 0.5]], "int8", r"a\.npz: x\[6\]: value 0\.5 at index \(0, 1\) does not fit int8 \(1 "),
        ([128.0, 1, 300], "int8", r"value 128\.0 at index \(0,\) does not fit int8 \(2 such"),
        ([float("nan")], "int32", "value nan at index"),
        ([2.0**63], "int64", "value 9.2.* does not fit int64"),
        (np.array([2**31]), "int32", "value 2147483648 at index"),
        (np.array([-1]), "uint8", "value -1 at index"),
        ([1e39], "float32", r"value 1e\+39 at index"),
        (np.float32([70000.0]), "float16", "value 70000.0 at index"),
        (np.float16([60000.0]), "int16", "value 60000.0 at index"),
    ],
)
def test_lossy_casts_are_refused(values, dtype, message):
    with pytest.raises(DatasetError, match=message):
        cast(np.asarray(values), np.dtype(dtype), "a.npz: x[6]")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([127.0, -128.0], "int8"),
        ([-(2.0**63)], "int64"),
        (np.array([2**31 - 1]), "int32"),
        (np.array([True, False]), "uint8"),
        (np.array([2**63], np.uint64), "float32"),
        ([float("inf"), float("nan")], "float32"),
        (np.float16([60000.0]), "int32"),
    ],
)
def test_safe_casts_keep_values(values, dtype):
    result = cast(np.asarray(values), np.dtype(dtype), "x")
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result.astype(np.float64), np.asarray(values, np.float64))


@settings(deadline=None)
@given(
    npst.arrays(st.sampled_from(["f8", "f4", "i8", "u8", "i2"]), npst.array_shapes(max_side=3)),
    st.sampled_from(["int8", "uint8", "int32", "int64"]),
)
def test_cast_to_whole_numbers_is_exact_or_refused(values, dtype):
    info = np.iinfo(dtype)
    exact = [v.item() for v in values.flat]
    fits = all(v == v and abs(v) != float("inf") for v in exact) and all(
        int(v) == v and info.min <= int(v) <= info.max for v in exact
    )
    if fits:
        result = cast(values, np.dtype(dtype), "x")
        assert [int(v) for v in result.flat] == [int(v) for v in exact]
    else:
        with pytest.raises(DatasetError, match="does not fit"):
            cast(values, np.dtype(dtype), "x")
