from __future__ import annotations

import numpy as np
import pytest
from goldens import NETS, REAL

from calib.calibrators import CalibrationCache
from calib.calibrators.cache_lint import lint_cache
from calib.data.findings import passes
from calib.errors import UsageError

REAL_CACHES = sorted((REAL / "caches").glob("*.cache"))


def parse(*rows: str, header: str = "TRT-8600-EntropyCalibration2") -> CalibrationCache:
    return CalibrationCache.parse("\n".join([header, *rows, ""]).encode())


def found(cache: CalibrationCache, **options: str) -> list[tuple[str, str, str | None]]:
    return [(row.code, row.severity, row.tensor) for row in lint_cache(cache, **options)]


def message(cache: CalibrationCache, code: str, **options: str) -> str:
    (row,) = [row for row in lint_cache(cache, **options) if row.code == code]
    return row.message


def test_unpadded_zero_and_subnormal_are_unusable_and_nothing_is_dropped() -> None:
    cache = parse("x: 3c010204", "y: 0", "z: 38d1b7")
    assert found(cache) == [("scale-zero", "warning", "y"), ("scale-subnormal", "warning", "z")]
    assert cache["x"] == np.float32(1 / 127)
    assert "scale is subnormal (38d1b7), unusable" in message(cache, "scale-subnormal")


def test_infinite_nan_and_negative_scales_are_errors() -> None:
    cache = parse("a: 7f800000", "b: 7fc00000", "c: 3c010204", "d: bc010204")
    assert found(cache) == [
        ("scale-infinite", "error", "a"),
        ("scale-nan", "error", "b"),
        ("scale-negative", "error", "d"),
    ]
    assert not passes(lint_cache(cache))


@pytest.mark.parametrize(
    ("amax", "said"),
    [
        (float(np.finfo(np.float32).max), "the largest float32"),
        (65504.0, "the largest float16"),
        (65504.0 * 2048.5 / 2048, "the largest float16"),
        (1e9, "1e9"),
        (1e9 * 2048.5 / 2048, "1e9"),
        (3e6, "times the median range"),
    ],
)
def test_mask_constants(amax: float, said: str) -> None:
    scales = {"a": 1 / 127, "b": 2 / 127, "c": 1 / 127, "mask": float(np.float32(amax) / np.float32(127))}
    cache = CalibrationCache(scales)
    assert found(cache) == [("mask-constant", "warning", "mask")]
    assert said in message(cache, "mask-constant")


@pytest.mark.parametrize("amax", [65000.0, 9.9e5, 255.0, 9999.0])
def test_wide_ranges_are_no_masks(amax: float) -> None:
    assert found(CalibrationCache({"a": 1 / 127, "b": 1 / 127, "wide": amax / 127})) == []


def test_activations_that_vanish_make_no_mask_of_an_image() -> None:
    """Behind a network without trained weights they fall to 1e-14; ±1 stands for minus infinity nowhere."""
    small = {f"deep{number}": 1e-14 / 127 for number in range(4)}
    assert found(CalibrationCache({"image": 1 / 127, "wide": 999 / 127, **small})) == []
    assert found(CalibrationCache({"image": 1 / 127, "mask": 5e3 / 127, **small})) == [
        ("mask-constant", "warning", "mask")
    ]


def test_the_largest_float32_as_real_files_hold_it() -> None:
    assert found(parse("x: 3c010204", "/Constant_3_output_0_output: 7c010204")) == [
        ("mask-constant", "warning", "/Constant_3_output_0_output")
    ]


def test_version_of_another_target_states_both_and_offers_a_header() -> None:
    text = message(parse("x: 3c010204"), "version-mismatch", target="10.3.0")
    assert "made for TensorRT 8.6.0, the target is TensorRT 10.3.0" in text
    assert "will ignore the file" in text
    assert "with no data" in text
    assert "calib cache convert FILE OUT --tensorrt 10.3.0" in text


@pytest.mark.parametrize(
    ("header", "target", "codes"),
    [
        ("TRT-100300-EntropyCalibration2", "10.3.0", []),
        ("TRT-101000-EntropyCalibration2", "10.10.0", []),
        ("TRT-101000-EntropyCalibration2", "10.1.0", ["version-mismatch"]),
        ("TRT-8601-EntropyCalibration2", "8.6", []),
        ("TRT-8601-EntropyCalibration2", "8.6.0", ["version-mismatch"]),
        ("TRT-8XXX-EntropyCalibration2", "8.6.0", ["version-mismatch"]),
        ("TRT-8600-EntropyCalibration2", "11.0", ["target-has-no-calibrators"]),
        ("TRT-8XXX-EntropyCalibration2", None, ["version-unknown"]),
    ],
)
def test_versions(header: str, target: str | None, codes: list[str]) -> None:
    assert [row.code for row in lint_cache(parse("x: 3c010204", header=header), target=target)] == codes


def test_patch_level_alone_may_be_refused() -> None:
    text = message(parse("x: 1", header="TRT-8601-EntropyCalibration2"), "version-mismatch", target="8.6.0")
    assert "it may ignore the file" in text


def test_placeholder_says_version_unknown() -> None:
    cache = parse("x: 3c010204", header="TRT-XXXX-MinMaxCalibration")
    assert "version unknown" in message(cache, "version-unknown")
    assert not passes(lint_cache(cache), strict=True)
    assert passes(lint_cache(cache))


def test_tensorrt_11_needs_qdq() -> None:
    assert "calib quantize" in message(parse("x: 1"), "target-has-no-calibrators", target="11.0.0")


@pytest.mark.parametrize(
    ("algorithm", "method", "codes"),
    [
        ("EntropyCalibration2", "entropy", []),
        ("EntropyCalibration2", "minmax", ["algorithm-mismatch"]),
        ("MinMaxCalibration", "MinMaxCalibration", []),
        ("MinMaxCalibration", "entropy", ["algorithm-mismatch"]),
        ("MinMaxCalibration", None, ["algorithm-reader"]),
        ("Histogram3", None, ["algorithm-unknown"]),
    ],
)
def test_algorithms(algorithm: str, method: str | None, codes: list[str]) -> None:
    cache = parse("x: 3c010204", header=f"TRT-8600-{algorithm}")
    assert [row.code for row in lint_cache(cache, method=method)] == codes


def test_unknown_method_and_version_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Algorithm must be one of .* got 'minmx'. Did you mean 'minmax'\?"):
        lint_cache(parse("x: 1"), method="minmx")
    with pytest.raises(UsageError, match="TensorRT version must look like"):
        lint_cache(parse("x: 1"), target="new")


@pytest.mark.parametrize("path", [*REAL_CACHES, *sorted(NETS.glob("*.cache"))], ids=lambda path: path.stem)
def test_real_caches_have_no_errors_or_warnings(path) -> None:
    assert passes(lint_cache(CalibrationCache.read(path)), strict=True)
