"""A builder that calibrates as TensorRT does: by callbacks, whose exceptions it prints and forgets."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from fake_cuda import FakeGpu

from calib.calibrators import CalibrationCache, encode_version

ALGORITHMS = {
    "IInt8EntropyCalibrator2": "EntropyCalibration2",
    "IInt8MinMaxCalibrator": "MinMaxCalibration",
    "IInt8EntropyCalibrator": "EntropyCalibration",
    "IInt8LegacyCalibrator": "LegacyCalibration",
}


class Calibration:
    """What the fake TensorRT saw while it calibrated.

    Attributes:
        seen: The batches of the first input, as they were in device memory.
        names: The inputs that it asks for.
        most: How many batches it asks for at most.
        then_fails: Whether the build fails after calibration.
    """

    def __init__(self, gpu: FakeGpu, names: tuple[str, ...] = ("x",)) -> None:
        self.gpu, self.names = gpu, names
        self.seen: list[np.ndarray] = []
        self.most = 1000
        self.then_fails = False

    def run(self, version: str, calibrator: Any) -> str | None:
        """Calibrates; the error where TensorRT would fail."""
        name = next(kind.__name__ for kind in type(calibrator).__mro__ if kind.__name__ in ALGORITHMS)
        assert calibrator.get_batch_size() > 0
        header = _header(version, name, calibrator)
        content = _swallowed(calibrator.read_calibration_cache)
        if content is not None and bytes(content).split(b"\n")[0].decode() == header:
            return None
        while len(self.seen) < self.most and (found := _swallowed(calibrator.get_batch, list(self.names))):
            memory = self.gpu.live[found[0]][1]
            self.seen.append(memory.copy().view(np.float32))
        if not self.seen:
            return "Calibration failure occurred with no scaling factors detected."
        amax = max(float(np.abs(batch).max()) for batch in self.seen)
        rows = CalibrationCache({self.names[0]: amax / 127}).to_text().partition("\n")[2]
        _swallowed(calibrator.write_calibration_cache, memoryview(f"{header}\n{rows}".encode()))
        return "Could not find any implementation for node conv1." if self.then_fails else None


def _header(version: str, name: str, calibrator: Any) -> str:
    """The first line that TensorRT writes; the legacy calibrator's holds its settings, and no version."""
    if name != "IInt8LegacyCalibrator":
        return f"TRT-{encode_version(version)}-{ALGORITHMS[name]}"
    settings = (calibrator.get_regression_cutoff(), calibrator.get_quantile())
    return " ".join(("0", *(struct.pack(">d", value).hex() for value in settings)))


def _swallowed(callback: Callable[..., Any], *given: Any) -> Any:
    with contextlib.suppress(BaseException):
        return callback(*given)
    return None
