from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from engine_fakes import TENSORS, FakeDevice, InstallTensorRT
from fake_tensorrt import Behaviour, make_tensorrt
from networks import conv_relu_gemm, save

from calib.calibrators import CalibrationCache
from calib.engine import target_device


@pytest.fixture
def install_tensorrt(monkeypatch: pytest.MonkeyPatch) -> InstallTensorRT:
    """Installs a fake TensorRT of some version, on a machine with an H200."""

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
