from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fake_tensorrt import Behaviour, make_tensorrt
from networks import conv_relu_gemm, save

from calib.calibrators import CalibrationCache
from calib.engine import target_device

TENSORS = ("x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y")

InstallTensorRT = Callable[..., Behaviour]


class FakeDevice:
    name = "NVIDIA H200"
    compute_capability = (9, 0)

    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class HandingOver:
    """A calibrator that hands a cache over, as ``calib.engine.native`` makes them."""

    def __init__(self, cache: CalibrationCache) -> None:
        self.cache, self.asked, self.failure = cache, 0, None

    def read_calibration_cache(self) -> bytes:
        return self.cache.to_text().encode()

    def get_batch(self, names: list[str]) -> None:
        self.asked += 1


@pytest.fixture
def install_tensorrt(monkeypatch: pytest.MonkeyPatch) -> InstallTensorRT:
    """Installs a fake TensorRT of some version, on a machine with an H200."""
    native: Any = ModuleType("calib.engine.native")
    native.cache_calibrator = lambda api, cache: HandingOver(cache)
    monkeypatch.setitem(sys.modules, "calib.engine.native", native)

    def install(version: str = "8.6.0", device: Any = FakeDevice) -> Behaviour:
        module: Any = make_tensorrt(version)
        monkeypatch.setitem(sys.modules, "tensorrt", module)
        monkeypatch.setattr(target_device, "_open_device", lambda index: device())
        return module.behaviour  # type: ignore[no-any-return]

    return install


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """x [batch,3,8,8] → two Conv, a Gemm → y [batch,5]."""
    return save(conv_relu_gemm(), tmp_path / "net.onnx")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of that network for TensorRT 8.6.0."""
    return CalibrationCache(dict.fromkeys(TENSORS, 0.02)).write(tmp_path / "net.cache")
