"""A small U-Net with one scale at each Concat, and with own ones.

Run by hand on a machine with an NVIDIA GPU, TensorRT 8 to 10, and PyCUDA or cuda-python:
``python -m pytest -m gpu -s tests/test_gpu/test_shared_scales_on_tensorrt.py``. Half a minute: three engines at
level 0. TensorRT 8.6.0 on an H200 answered wrongly with shared scales, which is why they are off; and so did an
implicit engine with FP16 allowed, so that they need not be the cause. Hence the figures of both are told, and
only our default is held to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from goldens import NETS, digits

import calib
from calib.calibrators import CalibrationCache
from calib.data import from_arrays
from calib.engine import Engine, load_api
from calib.engine.memory import Device, open_device
from calib.graph import OnnxModel, load_model, open_session, quantize_model, session_options
from calib.runners import TensorRTRunner

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

BATCH = 32
WAYS = ("own", "shared", "implicit")
SHAPES = [f"input:{BATCH}x1x32x32:{BATCH}x1x32x32:{BATCH}x1x32x32"]

Answers = Mapping[str, np.ndarray]


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.ascontiguousarray(digits()["xte"][: 4 * BATCH], np.float32)


@pytest.fixture(scope="module")
def cache() -> CalibrationCache:
    data = from_arrays("digits32", {"input": digits()["xtr"]})
    return calib.calibrate(NETS / "unet.onnx", data, method="minmax", tensorrt=load_api().version).cache


@pytest.fixture(scope="module")
def models(cache: CalibrationCache) -> dict[str, OnnxModel]:
    """The U-Net in float, and with pairs that have own and shared scales; the ranges of all are the same."""
    network = load_model(NETS / "unet.onnx")
    found = {way: quantize_model(network, cache, share_scales=way == "shared") for way in ("own", "shared")}
    assert found["own"].explanation.shared == ()
    groups = found["shared"].explanation.shared
    assert any(len(group.tensors) > 1 for group in groups)
    print("\nshared:", [(group.tensors, group.own) for group in groups])
    return {"float": network, **{way: result.model for way, result in found.items()}}


def simulated(model: OnnxModel, images: np.ndarray) -> np.ndarray:
    session = open_session(model, session_options(float_qdq=True))
    return np.asarray(session.run(None, {"input": images})[0])


@pytest.fixture(scope="module")
def on_cpu(models: dict[str, OnnxModel], images: np.ndarray) -> Answers:
    """FP32, and the simulations of INT8."""
    return {name: simulated(model, images) for name, model in models.items()}


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with open_device() as opened:
        yield opened


def build(model: OnnxModel, **options: Any) -> Engine:
    return calib.build(model, precision="int8", shapes=SHAPES, level=0, **options)


@pytest.fixture(scope="module")
def engines(
    models: dict[str, OnnxModel], cache: CalibrationCache, images: np.ndarray, device: Device
) -> Answers:
    """What the engines answer: two of Q/DQ models, and one that takes the cache; none has FP16."""
    answers = {}
    for way in WAYS:
        if way == "implicit":
            engine = build(models["float"], route="implicit", cache=cache)
        else:
            engine = build(models[way])
        with TensorRTRunner(engine, "int8", device=device) as runner:
            parts = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
            answers[way] = np.concatenate([next(iter(runner.infer({"input": x}).values())) for x in parts])
    return answers


def decibels(reference: np.ndarray, other: np.ndarray) -> float:
    exact = reference.astype(np.float64)
    noise = ((exact - other) ** 2).sum()
    return float(10 * np.log10((exact**2).sum() / noise)) if noise else float("inf")


def test_own_scales_answer_as_the_simulation_does(engines: Answers, on_cpu: Answers) -> None:
    found = decibels(on_cpu["own"], engines["own"])
    print(f"\nown scales: engine against simulation {found:.2f} dB")
    # 66.1 dB on an H200: the same roundings, but for sums in another order that end on the other side of one.
    assert found >= 30


def test_every_way_is_recorded(
    engines: Answers, on_cpu: Answers, record_property: Callable[[str, object], None]
) -> None:
    """Shared scales and the implicit engine, beside own scales: told, and held to nothing but being numbers."""
    reference = on_cpu["float"]
    figures = {}
    for way in WAYS:
        model = on_cpu["own" if way == "implicit" else way]
        figures[way] = {
            "engine against FP32, dB": round(decibels(reference, engines[way]), 2),
            "simulation against FP32, dB": round(decibels(reference, model), 2),
            "engine against simulation, dB": round(decibels(model, engines[way]), 2),
            "engine against the implicit one, dB": round(decibels(engines["implicit"], engines[way]), 2),
            "same answers": round(float((engines[way].argmax(1) == model.argmax(1)).mean()), 4),
        }
        record_property(way, json.dumps(figures[way]))
    print("\n" + json.dumps({"tensorrt": load_api().version, **figures}, indent=1))
    assert all(np.isfinite(engines[way]).all() for way in WAYS)
    # One scale for a Concat costs little where it is computed as it should be.
    assert figures["shared"]["simulation against FP32, dB"] > 25
