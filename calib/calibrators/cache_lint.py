"""What is wrong with a calibration cache, or will be for a given TensorRT."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from calib.calibrators.algorithms import ALGORITHMS, algorithm_named
from calib.calibrators.amax import LEAST_MASK, amax_of
from calib.calibrators.cache import CalibrationCache, unusable_reason
from calib.calibrators.trt_version import encode_version
from calib.data.findings import Severity

__all__ = ["Finding", "Severity", "lint_cache", "lint_header", "lint_scales", "mask_tensors"]

_LAST_WITH_CALIBRATORS = 10
_MASK_RATIO = 1e6
# Values that stand for "minus infinity" in attention masks and padding.
_MASK_CONSTANTS = (
    (float(np.finfo(np.float32).max), "the largest float32"),
    (float(np.finfo(np.float16).max), "the largest float16"),
    (1e9, "1e9"),
    (1e4, "1e4"),
)
# Entropy calibration puts the threshold half a bin of 2048 above the largest value.
_HALF_BIN = 2048.5 / 2048


@dataclass(frozen=True)
class Finding:
    """Something worth knowing about a cache.

    Attributes:
        code: A fixed word for it, such as "scale-zero".
        severity: "error": the cache cannot do its job. "warning": it may not. "note": good to know.
        tensor: The entry or tensor that it is about; None where it is about the whole cache.
        message: What it is and what to do.
    """

    code: str
    severity: Severity
    tensor: str | None
    message: str


def lint_cache(
    cache: CalibrationCache, *, target: str | None = None, method: str | None = None
) -> list[Finding]:
    """Everything that can be said of a cache without a model.

    Args:
        cache: The cache.
        target: TensorRT version that shall read it; None for any.
        method: Method of calib, or algorithm, that the reading calibrator has; None for any.

    Raises:
        UsageError: Target or method do not exist.

    >>> cache = CalibrationCache({"x": 1 / 127, "dead": 0.0}, version="8.6.0")
    >>> [(finding.code, finding.tensor) for finding in lint_cache(cache, target="10.3.0")]
    [('version-mismatch', None), ('scale-zero', 'dead')]
    """
    return [*lint_header(cache, target, method), *lint_scales(cache)]


def lint_header(cache: CalibrationCache, target: str | None, method: str | None) -> list[Finding]:
    """Findings on version and algorithm.

    Raises:
        UsageError: Target or method do not exist.
    """
    findings = [_version(cache, target), _algorithm(cache, method)]
    return [finding for finding in findings if finding is not None]


def _version(cache: CalibrationCache, target: str | None) -> Finding | None:
    if target is None:
        if cache.version is None:
            text = f"version unknown: header {cache.header!r} names no version of TensorRT. " + _REHEADER
            return Finding("version-unknown", "warning", None, text.format(version="VERSION"))
        return None
    digits = encode_version(target)
    if int(target.strip().partition(".")[0]) > _LAST_WITH_CALIBRATORS:
        return Finding("target-has-no-calibrators", "error", None, _NO_CALIBRATORS.format(target=target))
    made = f"unknown version (header {cache.header!r})" if cache.version is None else cache.version
    same_release = cache.version is not None and cache.version.rpartition(".")[0] == _release(target)
    if cache.header.startswith(f"TRT-{digits}-") or (same_release and _release(target) == target.strip()):
        return None
    will = "may" if same_release else "will"
    text = (
        f"made for TensorRT {made}, the target is TensorRT {target}: it {will} ignore the file and then "
        f"calibrate anew, with no data where none is given. {_REHEADER.format(version=target.strip())}"
    )
    return Finding("version-mismatch", "error", None, text)


_REHEADER = (
    "Calibrate again, or if model and data are the same, ask for a new header: "
    "calib cache convert FILE OUT --tensorrt {version}"
)
_NO_CALIBRATORS = (
    "TensorRT {target} has no calibrators and reads no calibration cache. "
    "Write the scales into the model as Q/DQ nodes: calib quantize MODEL.onnx --cache FILE"
)


def _release(version: str) -> str:
    """Major and minor number: "10.3.0" → "10.3"."""
    match = re.match(r"\s*\d+\.\d+", version)
    return match[0].strip() if match else version


def _algorithm(cache: CalibrationCache, method: str | None) -> Finding | None:
    wanted = None if method is None else algorithm_named(method)
    if wanted is not None and cache.algorithm != wanted:
        text = (
            f"made by {cache.algorithm}, but the calibrator is {ALGORITHMS[wanted]}, which reads {wanted} "
            "only: TensorRT will refuse the file. Use the other calibrator, calibrate again, or ask for a "
            f"new header: calib cache convert FILE OUT --algorithm {wanted}"
        )
        return Finding("algorithm-mismatch", "error", None, text)
    if cache.algorithm not in ALGORITHMS:
        text = f"algorithm {cache.algorithm!r} is none of TensorRT's: {', '.join(ALGORITHMS)}."
        return Finding("algorithm-unknown", "warning", None, text)
    if wanted is None and cache.algorithm != "EntropyCalibration2":
        text = (
            f"read by {ALGORITHMS[cache.algorithm]} only. trtexec --calib reads EntropyCalibration2 headers "
            "and no others."
        )
        return Finding("algorithm-reader", "note", None, text)
    return None


def lint_scales(cache: CalibrationCache) -> list[Finding]:
    """Findings on scales: unusable ones, and constants of masks."""
    findings = [_unusable(name, cache.bits(name), reason) for name, reason in cache.unusable.items()]
    findings += _masks(cache)
    order = {name: number for number, name in enumerate(cache)}
    return sorted(findings, key=lambda finding: order[finding.tensor or ""])


_ADVICE = {
    "zero": "the tensor was zero on all calibration data. Add data that excites it, or leave it in float.",
    "subnormal": "the tensor was all but zero on all calibration data. Leave it in float.",
    "infinite": "the model made infinities. Find the samples that do: calib calibrate names them.",
    "not a number": "the model made NaN. Find the samples that do: calib calibrate names them.",
    "negative": "the file is damaged. Calibrate again.",
}


def _unusable(name: str, bits: str, reason: str) -> Finding:
    severity: Severity = "warning" if reason in ("zero", "subnormal") else "error"
    code = "scale-nan" if reason == "not a number" else f"scale-{reason}"
    return Finding(code, severity, name, f"scale is {reason} ({bits}), unusable: {_ADVICE[reason]}")


def mask_tensors(scales: Mapping[str, float]) -> dict[str, str]:
    """Tensors whose range is that of a constant which stands for minus infinity, each with the reason.

    INT8 sees zero for all else in such a tensor.

    Args:
        scales: Tensor → scale.
    """
    ranges = {name: amax_of(scale) for name, scale in scales.items() if not unusable_reason(scale)}
    median = statistics.median(ranges.values()) if ranges else 0.0
    found = {}
    for name, amax in ranges.items():
        constant = next((text for value, text in _MASK_CONSTANTS if _is_constant(amax, value)), None)
        if constant:
            found[name] = f"amax {amax:.6g} is {constant}"
        elif amax >= max(LEAST_MASK, _MASK_RATIO * median):
            found[name] = f"amax {amax:.6g} is {amax / median:.2g} times the median range ({median:.3g})"
    return found


def _masks(cache: CalibrationCache) -> Iterator[Finding]:
    for name, reason in mask_tensors(cache).items():
        text = f"{reason}: a mask's constant rather than an activation. INT8 sees zero for all else in it."
        yield Finding("mask-constant", "warning", name, text + " Leave it in float.")


def _is_constant(amax: float, value: float) -> bool:
    # Half a bin above the largest float32 is beyond float32.
    return any(abs(amax - value * factor) <= 1e-6 * value for factor in (1.0, _HALF_BIN)) or (
        np.isinf(amax) and value > 1e38
    )
