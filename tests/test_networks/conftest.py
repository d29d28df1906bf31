"""Networks are exported, calibrated and quantized once a session, when the first test asks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

import calib
from calib.calibrators import CalibrationCache
from calib.graph import OnnxModel, QuantizedModel, load_model, quantize_model


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], OnnxModel]:
    """Name of a network → its model."""
    from torchvision_networks import export_by_tracing, trained_like

    folder = tmp_path_factory.mktemp("networks")

    @cache
    def export(name: str) -> OnnxModel:
        return load_model(export_by_tracing(trained_like(name), name, folder / f"{name}.onnx"))

    return export


@pytest.fixture(scope="session")
def calibrated(exported: Callable[[str], OnnxModel]) -> Callable[[str, str], CalibrationCache]:
    """Name of a network and a method → its calibration cache."""
    from torchvision_networks import NETWORKS, feeds

    @cache
    def calibrate(name: str, method: str) -> CalibrationCache:
        count = 2 if NETWORKS[name].size >= 300 else 4
        return calib.calibrate(exported(name), feeds(name, count, seed=1), method=method).cache

    return calibrate


@pytest.fixture(scope="session")
def quantized(
    exported: Callable[[str], OnnxModel], calibrated: Callable[[str, str], CalibrationCache]
) -> Callable[[str, str, str], QuantizedModel]:
    """Name of a network, a method and a target → its model with pairs."""

    @cache
    def quantize(name: str, method: str, target: str) -> QuantizedModel:
        return quantize_model(
            exported(name), calibrated(name, method), target=target, attention="int8", conv_transpose="int8"
        )

    return quantize
