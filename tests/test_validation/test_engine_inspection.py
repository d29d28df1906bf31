"""Records of engines in results: layers, shares of time, and what INT8's time goes to beside FP16."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from goldens import NETS
from layer_answers import FP16, FP32, INT8, conv, golden, parsed, reformat

from calib.calibrators import CalibrationCache
from calib.engine import BuildRecord, Engine
from calib.graph import load_model
from calib.validation.engine_inspection import inspect_variants
from calib.validation.naming import RunName
from calib.validation.variants import Variant

FEEDS = {"input": np.zeros((1, 1, 32, 32), np.float32)}


class FakeRunner:
    """Tells layers and times; remembers whether it was timed."""

    def __init__(self, layers: Any, times: dict[str, float]) -> None:
        self._layers, self._times, self.profiled = layers, times, 0

    def layers(self, feeds: Any) -> Any:
        assert feeds is FEEDS
        return self._layers

    def profile(self, feeds: Any) -> dict[str, float]:
        assert feeds is FEEDS
        self.profiled += 1
        return self._times


def variant(precision: str, layers: Any, times: dict[str, float], **more: Any) -> Variant:
    fields = dict.fromkeys(BuildRecord.__dataclass_fields__, None)
    changed: dict[str, Any] = {
        "route": "implicit INT8" if precision == "int8" else "float",
        "tensorrt": "8.6.0",
        "device": "NVIDIA H200",
        "level": 3,
        "build_seconds": 12.5,
        "plan_bytes": 1234,
        "from_cache": False,
    }
    record = BuildRecord(**{**fields, **changed, **more.pop("record", {})})
    runner: Any = FakeRunner(layers, times)
    engine = Engine(b"plan", record)
    return Variant(RunName(precision, runner="tensorrt"), runner, "", engine=engine, **more)


INT8_LAYERS = parsed(reformat("r", FP32, INT8), conv("c", INT8, INT8), conv("d", FP32, FP32))
INT8_TIMES = {"r": 0.5, "c": 0.3, "d": 0.2}


def test_everything_that_is_known_of_an_engine() -> None:
    network = load_model(NETS / "res.onnx")
    cache = CalibrationCache.read(NETS / "res.minmax.cache")
    times = {one.name: 1.0 for one in golden("res.minmax") if not one.free}
    (record,) = inspect_variants(
        [variant("int8", golden("res.minmax"), times, scales=cache)], network, FEEDS, True
    )
    assert record is not None
    assert (record.tensorrt, record.device, record.route, record.level) == (
        *("8.6.0", "NVIDIA H200", "implicit INT8", 3),
    )
    assert (record.build_seconds, record.engine_bytes) == (12.5, 1234)
    assert (record.layers, record.int8_layers) == (15, 8)
    assert record.by_precision == {"INT8": 8, "FP32": 7, "copies": 1}
    assert record.int8_time_share == pytest.approx(8 / 16)
    assert sum(record.reasons.values()) == 7
    assert record.fusion == ("31 ONNX nodes became 15 engine layers: 11 vertical fusions; 1 reformat.",)
    assert len(record.slowest) == 5
    assert record.costs == ()


def test_int8_beside_fp16_says_what_its_time_goes_to() -> None:
    network = load_model(NETS / "res.onnx")
    fp16 = variant("fp16", parsed(conv("c", FP16, FP16)), {"c": 0.2})
    onnx_runtime: Any = SimpleNamespace(engine=None)
    found = inspect_variants(
        [onnx_runtime, variant("int8", INT8_LAYERS, INT8_TIMES), fp16], network, FEEDS, True
    )
    assert found[0] is None
    assert found[1] is not None
    assert found[2] is not None
    assert found[1].costs == (
        "50% of the layers' time (0.5 ms) goes to 1 reformat changing the format or type between layers "
        "(0 ms in 0 in FP16).",
        "20% of the layers' time (0.2 ms) goes to 1 layer that stayed in float (1 in FP32: allow FP16 beside "
        "INT8).",
        "1 of 1 INT8 layers take longer than the same nodes in FP16, by 0.1 ms in all; most of all c: 0.3 ms "
        "against 0.2 ms.",
    )
    assert found[2].costs == ()


def test_without_the_profiler() -> None:
    one = variant("int8", INT8_LAYERS, INT8_TIMES, record={"from_cache": True})
    (record,) = inspect_variants([one], load_model(NETS / "res.onnx"), FEEDS, False)
    runner: Any = one.runner
    assert runner.profiled == 0
    assert record is not None
    assert (record.build_seconds, record.int8_time_share, record.slowest) == (None, None, ())
