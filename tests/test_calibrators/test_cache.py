from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from goldens import NETS, REAL
from hypothesis import given
from hypothesis import strategies as st

from calib.calibrators import CalibrationCache, RangeTable, decode_version, encode_version, scale_of
from calib.errors import CacheError, OutputError, UsageError

FILES = sorted([*(REAL / "caches").glob("*.cache"), *NETS.glob("*.cache")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_real_files_round_trip_byte_for_byte(path: Path, tmp_path: Path) -> None:
    cache = CalibrationCache.read(path)
    written = cache.write(tmp_path / "copy.cache")
    assert written.read_bytes() == path.read_bytes()
    assert cache.header == path.read_text().splitlines()[0]


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1),
        st.floats(0, 2.0**100, width=32),
        min_size=1,
    )
)
def test_any_names_and_scales_round_trip(scales: dict[str, float]) -> None:
    cache = CalibrationCache(scales)
    again = CalibrationCache.parse(cache.to_text().encode())
    assert dict(again) == scales == dict(cache)
    assert again.to_text() == cache.to_text()


def test_unpadded_hexadecimals_and_zero() -> None:
    cache = CalibrationCache.parse(b"TRT-8600-EntropyCalibration2\nx: 3c010204\ny: 0\nz: 38d1b7\n")
    assert cache["x"] == np.float32(1 / 127)
    assert cache["y"] == 0.0
    assert cache["z"] == struct.unpack(">f", bytes.fromhex("0038d1b7"))[0]
    assert cache.unusable == {"y": "zero", "z": "subnormal"}
    assert cache.bits("z") == "38d1b7"


def test_infinite_and_nan_scales_are_read_and_named_but_never_made() -> None:
    cache = CalibrationCache.parse(b"TRT-8600-EntropyCalibration2\na: 7f800000\nb: 7fc00000\nc: 3c010204\n")
    assert cache.unusable == {"a": "infinite", "b": "not a number"}
    assert set(cache.ranges) == {"c"}
    for bad in (float("inf"), float("nan"), -1.0):
        with pytest.raises(CacheError, match="Scale of tensor 'x' must be finite"):
            CalibrationCache({"x": bad})


def test_names_with_colons_split_at_the_last_one(tmp_path: Path) -> None:
    names = ["a:0", "scope/b:0", "onnx::Conv_12", "odd: name"]
    path = CalibrationCache({name: 0.5 for name in names}).write(tmp_path / "m.cache")
    assert list(CalibrationCache.read(path)) == names


@pytest.mark.parametrize(
    ("header", "version", "algorithm"),
    [
        ("TRT-8600-EntropyCalibration2", "8.6.0", "EntropyCalibration2"),
        ("TRT-8510-EntropyCalibration2", "8.5.10", "EntropyCalibration2"),
        ("TRT-101000-EntropyCalibration2", "10.10.0", "EntropyCalibration2"),
        ("TRT-100300-MinMaxCalibration", "10.3.0", "MinMaxCalibration"),
        ("TRT-8XXX-EntropyCalibration2", None, "EntropyCalibration2"),
        ("0 3ff0000000000000 3fefff2e48e8a71e", None, "LegacyCalibration"),
    ],
)
def test_headers(header: str, version: str | None, algorithm: str) -> None:
    cache = CalibrationCache.parse(f"{header}\nx: 3c010204\n".encode())
    assert (cache.version, cache.algorithm, cache.header) == (version, algorithm, header)
    assert cache.to_text().startswith(header + "\n")


@pytest.mark.parametrize(
    ("version", "digits"),
    [("8.6.1", "8601"), ("7.2.3", "7203"), ("8.5.10", "8510"), ("10.0.0", "100000"), ("10.14.1", "101401")],
)
def test_version_digits(version: str, digits: str) -> None:
    assert encode_version(version) == digits
    assert decode_version(digits) == version


@pytest.mark.parametrize(
    ("version", "digits"),
    [
        ("8.6.1-1+cuda12.0", "8601"),
        ("8.6.1rc1", "8601"),
        ("8.6.1.post1", "8601"),
        ("10.0.1b6", "100001"),
        ("10.16.1.11", "101601"),
        ("8.6+cuda", "8600"),
    ],
)
def test_what_follows_the_third_number_does_not_hide_it(version: str, digits: str) -> None:
    """As packages of Debian and pip call releases: major · 1000 + minor · 100 + patch, from 10 on · 10000."""
    assert encode_version(version) == digits


@pytest.mark.parametrize("version", ["8600", "8.6.123", "8.6.x", "8.6."])
def test_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match=rf"must look like 8\.6\.0 or 10\.3\.0, got '{re.escape(version)}'"):
        CalibrationCache({}, version=version)


@pytest.mark.parametrize("algorithm", ["", "Foo-Bar", "A B", "EntropyCalibration2\nx: 1"])
def test_a_header_that_could_not_be_read_again_is_refused(algorithm: str) -> None:
    cache = CalibrationCache({"x": 1.0})
    with pytest.raises(UsageError, match="Algorithm must be one word such as EntropyCalibration2, got"):
        CalibrationCache({"x": 1.0}, algorithm)
    with pytest.raises(UsageError, match="Algorithm must be one word such as EntropyCalibration2, got"):
        cache.replaced(algorithm=algorithm)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ({"x": 1.0, "y": 3.5e38}, r"Scale 3\.5e\+38 of tensor 'y' is beyond float32's range"),
        ({"a\ud800": 1.0}, r"Tensor name 'a\\ud800' holds half a surrogate pair"),
    ],
)
def test_what_no_file_can_hold_is_refused_with_the_tensor_named(
    scales: dict[str, float], message: str
) -> None:
    """The largest float32 is 3.4028e38."""
    with pytest.raises(CacheError, match=message):
        CalibrationCache(scales)


def test_ranges_are_not_taken_for_scales() -> None:
    """The range 1.0 has the scale 1/127; taken for a scale it would stand for the range 127."""
    ranges = RangeTable({"x": 1.0})
    for wrong in (lambda: CalibrationCache(ranges), lambda: CalibrationCache({"x": 0.5}).replaced(ranges)):
        with pytest.raises(UsageError, match=r"127 times the scales\. Give its \.scales"):
            wrong()
    assert CalibrationCache(ranges.scales)["x"] == np.float32(1) / np.float32(127)


@pytest.mark.parametrize("digits", ["10300", "860", "1003000"])
def test_digits_that_no_version_has_are_a_placeholder(digits: str) -> None:
    assert decode_version(digits) is None


GOOD = b"TRT-8600-EntropyCalibration2\nx: 3c010204\ny: 3d010204\n"


@pytest.mark.parametrize(
    "edited",
    [
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.replace(b"04\n", b"04  \t\n"),
        GOOD + b"\n",
        GOOD[:-1],
        GOOD.replace(b"3d010204", b"3D010204"),
        b"\xef\xbb\xbf" + GOOD,
    ],
    ids=["crlf", "trailing blanks", "empty last line", "no final newline", "upper case", "byte order mark"],
)
def test_what_an_editor_leaves_is_forgiven_and_written_canonically(edited: bytes) -> None:
    assert CalibrationCache.parse(edited).to_text().encode() == GOOD


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD[:-4], r"cache, line 3: expected .* got 'y: 3d010'"),
        (GOOD[:-11], r"cache, line 3: .* got 'y'"),
        (GOOD[:-9], r"cache, line 3: .* got 'y:'"),
        (b"TRT-8600-EntropyCalibration2\n", r"cache has no entries, only a header"),
        (b"TRT-8600-EntropyCalibration2\nx: zzz\n", r"line 2: .*'x: zzz'"),
        (
            GOOD + b"x: 3c010204\n",
            r"line 4: tensor 'x' is there twice, before with the same scale\. Delete one",
        ),
        (
            GOOD + b"x: 3d010204\n",
            r"line 4: tensor 'x' is there twice, before with another scale\. Delete one",
        ),
        (b"data 2.64\n", r"ONNX Runtime's table"),
        (b"", r"no header: line 1 must read like TRT-8600"),
        (b"hello world there\n", r"line 1 must read like .* got 'hello world there'"),
        (
            b"\xff\x00binary",
            r"byte 0 is no text\. ONNX Runtime's tables and Q/DQ models .* calib cache convert",
        ),
        (GOOD.decode().encode("utf-16"), r"cache is UTF-16 text, .* Save it as UTF-8"),
    ],
)
def test_damaged_files_are_refused_with_the_line(content: bytes, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        CalibrationCache.parse(content, "cache")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"nowhere\.cache: no such file\. Make one with: calib calibrate"):
        CalibrationCache.read(tmp_path / "nowhere.cache")


def test_reading_changes_neither_bytes_nor_time(tmp_path: Path) -> None:
    path = CalibrationCache({"x": 0.5}).write(tmp_path / "m.cache")
    path.chmod(0o444)
    before = path.stat()
    CalibrationCache.read(path)
    CalibrationCache.read(path)
    after = path.stat()
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


def test_scale_bits_are_equal_in_table_cache_and_text() -> None:
    table = RangeTable({"x": 0.20115377})
    cache = CalibrationCache.from_ranges(table, "EntropyCalibration2", "8.6.0")
    assert cache["x"] == table.scales["x"] == float(np.float32(0.20115377) / np.float32(127))
    assert float(repr(cache["x"])) == cache["x"]


@given(st.floats(0, 2.0**127, width=32))
def test_scale_is_a_float32_division(amax: float) -> None:
    expected = struct.unpack("f", struct.pack("f", amax))[0] / 127
    assert scale_of(amax) == float(np.float32(expected))


def test_line_breaks_in_names_are_refused() -> None:
    with pytest.raises(CacheError, match="holds a line break"):
        CalibrationCache({"a\nb": 1.0})


def test_unwritable_target_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"Cannot write .*file/m\.cache"):
        CalibrationCache({"x": 1.0}).write(tmp_path / "file" / "m.cache")
