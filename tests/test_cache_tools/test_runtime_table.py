"""ONNX Runtime's table, with ONNX Runtime's own writer and reader as the reference."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from goldens import REAL
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.calibrators import CalibrationCache
from calib.calibrators.cache_convert import detect_form, form_of_output, read_cache_as, write_converted
from calib.calibrators.runtime_table import RUNTIME_FORMS, inexact_tensors, parse_table, render_table
from calib.errors import CacheError, MissingExtraError, UsageError

RANGES = {"zeta:0": (-1.5, 2.64), "(Unnamed Layer* 3) [Shuffle]_output": (-4.0, 0.5), "data": (0.0, 6.0)}


def runtime_table(ranges: dict[str, tuple[float, float]], method: str = "MinMax") -> Any:
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData

    data = {
        name: TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))
        for name, (low, high) in ranges.items()
    }
    return TensorsData(CalibrationMethod[method], data)


def written_by_runtime(ranges: dict[str, tuple[float, float]], folder: Path, method: str = "MinMax") -> None:
    from onnxruntime.quantization.quant_utils import write_calibration_table

    write_calibration_table(runtime_table(ranges, method), str(folder))


@pytest.mark.parametrize(
    ("method", "algorithm"), [("MinMax", "MinMaxCalibration"), ("Entropy", "EntropyCalibration2")]
)
def test_json_of_onnx_runtime_takes_the_larger_side(tmp_path: Path, method: str, algorithm: str) -> None:
    written_by_runtime(RANGES, tmp_path, method)
    read = read_cache_as(tmp_path / "calibration.json", "onnxruntime-json")
    expected = {name: np.float32(max(-low, high)) / np.float32(127) for name, (low, high) in RANGES.items()}
    assert dict(read.cache) == {name: float(scale) for name, scale in expected.items()}
    assert read.cache.algorithm == algorithm


@pytest.mark.parametrize("form", ["onnxruntime-cache", "onnxruntime-flatbuffers"])
def test_one_sided_forms_hold_what_onnx_runtime_wrote_and_say_so(tmp_path: Path, form: str) -> None:
    written_by_runtime(RANGES, tmp_path)
    path = tmp_path / f"calibration{RUNTIME_FORMS[form]}"
    assert detect_form(path) == form
    read = read_cache_as(path, form)
    expected = {name: float(np.float32(high) / np.float32(127)) for name, (_, high) in RANGES.items()}
    assert dict(read.cache) == expected
    assert list(read.cache) == sorted(RANGES)
    assert "even where the lower end lies further from zero" in read.notes[0]


def test_what_is_written_equals_onnx_runtimes_own_files_byte_for_byte(tmp_path: Path) -> None:
    ranges = {"b:0": (-2.5, 2.5), "a b": (-0.125, 0.125), "é": (-1e-6, 1e-6)}
    scales = {name: float(np.float32(high) / np.float32(127)) for name, (_, high) in ranges.items()}
    written_by_runtime(ranges, tmp_path, "Entropy")
    cache = CalibrationCache(scales)
    assert inexact_tensors(cache) == ()
    for form, suffix in RUNTIME_FORMS.items():
        assert render_table(cache, form) == (tmp_path / f"calibration{suffix}").read_bytes(), form


def test_onnx_runtimes_reader_restores_the_ranges(tmp_path: Path) -> None:
    from onnxruntime.quantization import load_tensors_data

    cache = CalibrationCache.read(REAL / "caches" / "mlperf_resnet50.cache")
    write_converted(cache, tmp_path / "t.json", "onnxruntime-json", "x", "tensorrt")
    loaded = load_tensors_data(tmp_path / "t.json")
    for name, scale in cache.items():
        low, high = (float(end) for end in loaded[name].range_value)
        assert np.float32(high) / np.float32(127) == np.float32(scale)
        assert low == -high


def test_onnx_runtimes_own_save_is_read(tmp_path: Path) -> None:
    from onnxruntime.quantization.calibrate import save_tensors_data

    save_tensors_data(runtime_table(RANGES), tmp_path / "t.json")
    read = parse_table((tmp_path / "t.json").read_bytes(), "onnxruntime-json")
    assert set(read.ranges) == set(RANGES)


@pytest.mark.parametrize("form", RUNTIME_FORMS)
@pytest.mark.parametrize("path", sorted((REAL / "caches").glob("*.cache")), ids=lambda path: path.stem)
def test_real_caches_come_back_with_every_bit(path: Path, form: str, tmp_path: Path) -> None:
    cache = CalibrationCache.read(path)
    table = tmp_path / f"table{RUNTIME_FORMS[form]}"
    assert write_converted(cache, table, form, path, "tensorrt") == ()
    assert detect_form(table) == form
    again = read_cache_as(table, form).cache
    assert {name: again.bits(name) for name in again} == {name: cache.bits(name) for name in cache}


NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1)
FORMS = st.sampled_from([*RUNTIME_FORMS])


@settings(max_examples=60)
@given(st.dictionaries(NAMES, st.floats(0, 2.0**120, width=32), min_size=1), FORMS)
def test_scales_of_float32_ranges_round_trip_bit_for_bit(amax: dict[str, float], form: str) -> None:
    scales = {name: float(np.float32(value) / np.float32(127)) for name, value in amax.items()}
    cache = CalibrationCache(scales)
    again = CalibrationCache(parse_table(render_table(cache, form), form).ranges.scales)
    assert {name: again.bits(name) for name in again} == {name: cache.bits(name) for name in cache}


@settings(max_examples=60)
@given(st.dictionaries(NAMES, st.floats(0, 2.0**120, width=32), min_size=1), FORMS)
def test_any_other_scale_loses_its_last_bit_at_most_and_is_named(scales: dict[str, float], form: str) -> None:
    cache = CalibrationCache(scales)
    again = CalibrationCache(parse_table(render_table(cache, form), form).ranges.scales)
    moved = {name: abs(int(again.bits(name), 16) - int(cache.bits(name), 16)) for name in cache}
    assert max(moved.values()) <= 1
    assert {name for name, steps in moved.items() if steps} == set(inexact_tensors(cache))


def test_decimal_ranges_go_through_float32() -> None:
    ranges = parse_table(b"data 2.64\nprob 1\n", "onnxruntime-cache").ranges
    assert ranges.scales["data"] == float(np.float32(2.64) / np.float32(127))
    assert ranges.scales["data"] == pytest.approx(0.020787, abs=5e-7)


def test_older_json_is_a_pair_of_numbers_even_for_a_tensor_named_data() -> None:
    content = b'{"data": [-2.1179039478302, 2.640000104904175], "CLS": [-3, 1], "fc": [-10.7, 34.8]}'
    table = parse_table(content, "onnxruntime-json")
    assert dict(table.ranges) == {"data": 2.640000104904175, "CLS": 3.0, "fc": 34.8}
    assert table.algorithm is None


def test_json_by_channel_takes_the_widest() -> None:
    def array(values: list[float]) -> dict[str, Any]:
        return {"data": values, "dtype": "float32", "CLS": "numpy.array"}

    entry = {"lowest": array([-1, -5]), "highest": array([2, 3]), "CLS": "TensorData"}
    content = json.dumps({"CLS": "TensorsData", "data": {"x": entry}, "calibration_method": None})
    assert dict(parse_table(content.encode(), "onnxruntime-json").ranges) == {"x": 5.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t is not ONNX Runtime's JSON table: Expecting value"),
        (b"{", "t is not ONNX Runtime's JSON table: Expecting property"),
        (b"[1]", "expected an object of tensors"),
        (b"{}", "t has no entries"),
        (b'{"CLS": "TensorsData"}', "it has no 'data' of tensors"),
        (b'{"x": 3}', "range of tensor 'x' must be two numbers, got 3"),
        (b'{"x": [1, 2, 3]}', r"range of tensor 'x' must be two numbers, got \[1, 2, 3\]"),
        (b'{"x": [true, 2]}', "range of tensor 'x' must be two numbers"),
        (b'{"x": ["1", 2]}', "range of tensor 'x' must be two numbers"),
        (b'{"x": [-Infinity, 2]}', r"range of tensor 'x' is not finite \(inf, 2.0\)"),
        (b'{"x": [NaN, 2]}', r"range of tensor 'x' is not finite \(nan, 2.0\)"),
        (b'{"x": [-1e39, 2]}', "range of tensor 'x' is not finite"),
        (b'{"x": [-1' + b"0" * 400 + b", 2]}", "range of tensor 'x' is not finite"),
        (b'{"x": [0, 2], "x": [0, 3]}', "'x' is there twice"),
        (b'{"x": {"avg": 1, "std": 2}}', "tensor 'x' has no 'lowest' and 'highest'"),
        (b'{"x": {"lowest": {"data": []}, "highest": 1}}', "must be two numbers"),
        (b"[" * 100_000, "is not ONNX Runtime's JSON table"),
    ],
)
def test_bad_json_is_refused_with_the_tensor(content: bytes, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        parse_table(content, "onnxruntime-json", "t")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t has no entries"),
        (b"data 2.64\nalone\n", r"t, line 2: expected 'tensor name value', got 'alone'"),
        (b"data 2.64x\n", "range of tensor 'data' must be a number, got '2.64x'"),
        (b"data inf\n", "range of tensor 'data' is not finite"),
        (b"data nan\n", "range of tensor 'data' is not finite"),
        (b"data -0.5\n", "range -0.5 of tensor 'data' is negative: ONNX Runtime's newer versions"),
        (b"data 1\ndata 2\n", "tensor 'data' is there twice"),
        (b"\xff", "byte 0 is no text"),
        ("data 1".encode("utf-16"), "t is UTF-16 text"),
    ],
)
def test_bad_text_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        parse_table(content, "onnxruntime-cache", "t")


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (b"data 63.5\n", "onnxruntime-cache"),
        (b'{"data": [-63.5, 1]}', "onnxruntime-json"),
        (b"TRT-8600-EntropyCalibration2\ndata: 3f000000\n", "tensorrt"),
    ],
)
def test_a_byte_order_mark_belongs_to_no_name(content: bytes, form: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_bytes(b"\xef\xbb\xbf" + content)
    assert detect_form(path) == form
    assert dict(read_cache_as(path, form).cache) == {"data": 0.5}


@pytest.mark.parametrize("text", ["data 63.5", "TRT-8600-EntropyCalibration2\ndata: 3f000000"])
def test_wide_text_is_told_as_such_whatever_it_holds(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_bytes(text.encode("utf-16"))
    with pytest.raises(CacheError, match=r"table is UTF-16 text, .* Save it as UTF-8"):
        read_cache_as(path, detect_form(path))


@pytest.mark.parametrize("cut", [0, 1, 3, 8, 20, 60])
def test_damaged_flatbuffers_are_refused(cut: int) -> None:
    whole = render_table(CalibrationCache({"alpha": 1.0, "beta": 2.0}), "onnxruntime-flatbuffers")
    with pytest.raises(
        CacheError, match=r"^t (is not ONNX Runtime's calibration\.flatbuffers|has no entries)"
    ):
        parse_table(whole[:cut], "onnxruntime-flatbuffers", "t")


@settings(max_examples=150)
@given(st.binary(max_size=64))
def test_any_bytes_as_flatbuffers_end_in_one_error_or_a_table(content: bytes) -> None:
    with contextlib.suppress(CacheError):
        assert parse_table(content, "onnxruntime-flatbuffers").ranges


def test_ranges_beyond_float32_cannot_be_written() -> None:
    with pytest.raises(CacheError, match=r"Range of tensor 'x' is inf, which no table can hold"):
        render_table(CalibrationCache({"x": 3e37}), "onnxruntime-json")


def test_flatbuffers_without_onnxruntime_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(
        MissingExtraError, match=r"calibration\.flatbuffers needs flatbuffers.*\[onnxruntime\]"
    ):
        render_table(CalibrationCache({"x": 1.0}), "onnxruntime-flatbuffers")


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (b"TRT-8600-EntropyCalibration2\nx: 1\n", "tensorrt"),
        (b"0 3ff0000000000000 3fefff2e48e8a71e\nx: 3c010204\n", "tensorrt"),
        (b"0 3000000000000000 3000000000000000\nx: 3c010204\n", "tensorrt"),
        (b"x: 38123456\ny: 38123456\n", "tensorrt"),
        (b"data 2.64\n", "onnxruntime-cache"),
        (b"(Unnamed Layer* 3) [Shuffle]_output 1e-05\n", "onnxruntime-cache"),
        (b"two words 1.23456789012345\n", "onnxruntime-cache"),
        (b' {"data": [1, 2]}', "onnxruntime-json"),
        (b"\x10\x00\x00\x00abc", "onnxruntime-flatbuffers"),
        (b"", "tensorrt"),
    ],
)
def test_forms_are_known_by_content(content: bytes, form: str, tmp_path: Path) -> None:
    path = tmp_path / "m.cache"
    path.write_bytes(content)
    assert detect_form(path) == form


def test_forms_by_ending_and_unknown_forms() -> None:
    assert [form_of_output(f"t{end}") for end in (".json", ".FLATBUFFERS", ".cache", "")] == [
        "onnxruntime-json",
        "onnxruntime-flatbuffers",
        "tensorrt",
        "tensorrt",
    ]
    with pytest.raises(UsageError, match=r"Form must be one of tensorrt, .* got 'csv'"):
        read_cache_as("t", "csv")
    with pytest.raises(UsageError, match="Form of a table must be one of"):
        render_table(CalibrationCache({"x": 1.0}), "tensorrt")
