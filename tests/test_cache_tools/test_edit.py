from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.calibrators import CalibrationCache
from calib.calibrators.cache_diff import diff_caches
from calib.calibrators.cache_edit import (
    drop_unusable,
    merge_caches,
    rename_by_map,
    rename_by_regex,
    with_header,
)
from calib.calibrators.cache_table import cache_rows
from calib.errors import CacheError, UsageError

A = CalibrationCache({"x": 0.25, "y": 0.5, "z": 1.0})
B = CalibrationCache({"y": 0.125, "x": 0.5, "w": 2.0})
BAD = CalibrationCache.parse(b"TRT-8600-EntropyCalibration2\na: 7f800000\nb: 3c010204\nc: 0\nd: 7fc00000\n")


@pytest.mark.parametrize(
    ("policy", "x", "y"),
    [
        ("max", 0.5, 0.5),
        ("first", 0.25, 0.5),
        ("ours", 0.25, 0.5),
        ("last", 0.5, 0.125),
        ("theirs", 0.5, 0.125),
    ],
)
def test_merge_policies(policy: str, x: float, y: float) -> None:
    merged = merge_caches([("a", A), ("b", B)], policy)
    assert dict(merged.cache) == {"x": x, "y": y, "z": 1.0, "w": 2.0}
    assert merged.conflicts == ("x", "y")
    assert merged.cache.header == A.header


def test_merge_of_three_takes_the_largest_or_the_last() -> None:
    caches = [(str(scale), CalibrationCache({"x": scale})) for scale in (0.5, 2.0, 1.0)]
    assert merge_caches(caches).cache["x"] == 2.0
    assert merge_caches(caches, "last").cache["x"] == 1.0
    assert merge_caches(caches, "first").cache["x"] == 0.5


@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1e6, width=32)), min_size=2, max_size=4)
)
def test_merging_by_max_does_not_depend_on_the_order(tables: list[dict[str, float]]) -> None:
    caches = [(str(number), CalibrationCache(table)) for number, table in enumerate(tables)]
    forward = dict(merge_caches(caches).cache)
    assert forward == dict(merge_caches(caches[::-1]).cache)
    assert forward == {key: max(t[key] for t in tables if key in t) for t in tables for key in t}


def test_merge_refuses_headers_that_differ_naming_both() -> None:
    newer = CalibrationCache({"x": 1.0}, version="10.3.0")
    other = CalibrationCache({"x": 1.0}, "MinMaxCalibration")
    with pytest.raises(
        CacheError, match=r"TensorRT version differs: 8\.6\.0 in a, 10\.3\.0 in b\..*--tensorrt"
    ):
        merge_caches([("a", A), ("b", newer)])
    with pytest.raises(
        CacheError,
        match=r"algorithm differs: EntropyCalibration2 in a, MinMaxCalibration in c\..*--algorithm",
    ):
        merge_caches([("a", A), ("c", other)])
    merged = merge_caches([("a", A), ("b", newer), ("c", other)], version="10.3.0", algorithm="minmax")
    assert merged.cache.header == "TRT-100300-MinMaxCalibration"


def test_merge_keeps_a_placeholder_that_all_share() -> None:
    placeholder = CalibrationCache.parse(b"TRT-8XXX-MinMaxCalibration\nx: 3c010204\n")
    assert merge_caches([("a", placeholder), ("b", placeholder)]).cache.header == placeholder.header


def test_merge_refuses_what_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match="at least two caches, got 1"):
        merge_caches([("a", A)])
    with pytest.raises(UsageError, match=r"--policy must be one of max, .* got 'mean'"):
        merge_caches([("a", A), ("b", B)], "mean")
    with pytest.raises(UsageError, match=r"--policy theirs is for two caches, got 3\. Say --policy last"):
        merge_caches([("a", A), ("b", B), ("c", A)], "theirs")
    with pytest.raises(CacheError, match=r"^bad has 2 scales .*: 'a' \(infinite\), 'd' \(not a number\)\."):
        merge_caches([("a", A), ("bad", BAD)])


def test_unusable_entries_are_dropped_on_request_only() -> None:
    kept, dropped = drop_unusable(BAD, "bad")
    assert (dict(kept), dropped) == ({"b": BAD["b"]}, ("a", "c", "d"))
    assert kept.bits("b") == "3c010204"
    with pytest.raises(CacheError, match="No scale in bad is usable"):
        drop_unusable(CalibrationCache({"x": 0.0}), "bad")


def test_rename_keeps_order_and_bits() -> None:
    renamed = rename_by_map(A, {"y": "why"}, "a")
    assert renamed.cache.to_text() == A.to_text().replace("y:", "why:")
    assert dict(renamed.renamed) == {"y": "why"}


def test_rename_can_swap() -> None:
    swapped = rename_by_map(A, {"x": "y", "y": "x"}, "a").cache
    assert dict(swapped) == {"y": 0.25, "x": 0.5, "z": 1.0}


def test_rename_by_regex() -> None:
    cache = CalibrationCache({"model/a:0": 0.5, "model/b:0": 0.25, "c": 1.0})
    renamed = rename_by_regex(cache, r"^model/(.*):0$", r"/\1", "m")
    assert dict(renamed.cache) == {"/a": 0.5, "/b": 0.25, "c": 1.0}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"x": "y"}, "tensors 'x' and 'y' would both be named 'y'"),
        ({"x": "n", "z": "n"}, "tensors 'x' and 'z' would both be named 'n'"),
        ({"x": "x"}, "Nothing was renamed"),
        ({"x": ""}, "tensor 'x' would get an empty name"),
        ({"xx:0": "n"}, "a has no tensor 'xx:0' to rename"),
        ({"x": "n\nm"}, "holds a line break"),
    ],
)
def test_rename_refuses(names: dict[str, str], message: str) -> None:
    with pytest.raises(CacheError, match=message):
        rename_by_map(A, names, "a")


def test_rename_of_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(CacheError, match=r"no tensor 'conv1' to rename\. Did you mean 'conv1:0'\?"):
        rename_by_map(CalibrationCache({"conv1:0": 1.0}), {"conv1": "c"}, "a")
    assert len(rename_by_map(A, {"nowhere": "n", "x": "m"}, "a", every=False).renamed) == 1


@pytest.mark.parametrize(("pattern", "replacement"), [("(", "a"), ("x", r"\2")])
def test_broken_regular_expressions_are_refused(pattern: str, replacement: str) -> None:
    with pytest.raises(UsageError, match="is not a valid regular expression and replacement"):
        rename_by_regex(A, pattern, replacement, "a")


def test_new_header_keeps_the_bits() -> None:
    moved = with_header(A, "10.3.0", "minmax")
    assert moved.to_text() == A.to_text().replace(A.header, "TRT-100300-MinMaxCalibration")
    assert with_header(A).to_text() == A.to_text()
    with pytest.raises(UsageError, match=r"TensorRT 11\.0 has no calibrators .* calib quantize"):
        with_header(A, "11.0")
    with pytest.raises(UsageError, match="TensorRT version must look like"):
        with_header(A, "²")
    legacy = CalibrationCache.parse(b"0 3ff0000000000000 3fefff2e48e8a71e\nx: 3c010204\n")
    with pytest.raises(UsageError, match="names no version of TensorRT"):
        with_header(legacy, algorithm="entropy")
    assert with_header(legacy, "8.6.0").header == "TRT-8600-LegacyCalibration"


def test_diff_sorts_by_the_size_of_the_ratio_in_either_direction() -> None:
    first = CalibrationCache({"same": 1.0, "half": 1.0, "up": 1.0, "dead": 0.0, "gone": 1.0})
    second = CalibrationCache({"same": 1.0, "half": 0.5, "up": 8.0, "dead": 1.0, "new": 1.0})
    diff = diff_caches(first, second)
    assert [(row.tensor, row.ratio) for row in diff.ratios] == [
        ("dead", math.inf),
        ("up", 8.0),
        ("half", 0.5),
        ("same", 1.0),
    ]
    assert (diff.only_first, diff.only_second, diff.equal) == (("gone",), ("new",), 1)
    assert (diff.largest_factor, diff.median_factor) == (math.inf, 5.0)
    assert diff_caches(first, first).identical
    assert not diff.identical


def test_diff_survives_unusable_scales() -> None:
    good = CalibrationCache({"a": 1.0, "b": BAD["b"], "c": 1.0, "d": 1.0})
    factors = {row.tensor: row.factor for row in diff_caches(BAD, good).ratios}
    assert factors == {"a": math.inf, "b": 1.0, "c": math.inf, "d": math.inf}


def test_diff_of_chosen_names() -> None:
    diff = diff_caches(A, B, {"x", "z"})
    assert [row.tensor for row in diff.ratios] == ["x"]
    assert (diff.only_first, diff.only_second) == (("z",), ())


def test_rows_share_and_orders() -> None:
    assert [(row.tensor, row.share) for row in cache_rows(BAD, "scale")][-1] == ("b", 1.0)
    rows = cache_rows(A, "scale")
    assert [(row.tensor, row.share, row.amax) for row in rows] == [
        ("z", 1.0, 127.0),
        ("y", 0.5, 63.5),
        ("x", 0.25, 31.75),
    ]
    assert [row.tensor for row in cache_rows(B)] == ["y", "x", "w"]
    assert [row.tensor for row in cache_rows(B, "name")] == ["w", "x", "y"]
    with pytest.raises(UsageError, match="--sort must be one of file, name, scale, got 'size'"):
        cache_rows(A, "size")
