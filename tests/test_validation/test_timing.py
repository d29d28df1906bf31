"""Latency of runs on a GPU and on the CPU, in one validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from calib.errors import UsageError
from calib.validation import EngineOptions
from calib.validation.latency import LatencyPlan
from calib.validation.naming import RunName
from calib.validation.options import Options
from calib.validation.timing import time_variants
from calib.validation.variants import Variant


class FixedRunner:
    """A runner that says how long a batch takes."""

    note = ""
    simulated = False
    model_bytes = 1
    output_names = ("y",)
    session_options: Mapping[str, str] = {}

    def __init__(self, name: str, precision: str, clock: str, milliseconds: float) -> None:
        self.name, self.precision, self.clock = name, precision, clock
        self.on_gpu = clock == EVENTS
        self.place = "NVIDIA H200" if self.on_gpu else "CPU"
        self._milliseconds = milliseconds

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        return self._milliseconds


def variant(precision: str, runner: str, clock: str, milliseconds: float) -> Variant:
    fake: Any = FixedRunner(runner, precision, clock, milliseconds)
    own = "" if runner == "onnxruntime" else runner
    return Variant(RunName(precision, runner=own), fake, "", simulated_latency=runner == "onnxruntime")


EVENTS = "GPU compute by CUDA events around the enqueue"
PLAN = LatencyPlan(4, 20, 1, seconds=5.0)


def test_runs_on_a_gpu_are_compared_with_each_other_and_not_with_the_cpu() -> None:
    variants = [
        variant("fp32", "onnxruntime", "host clock", 50.0),
        variant("fp32", "tensorrt", EVENTS, 8.0),
        variant("fp16", "tensorrt", EVENTS, 4.0),
        variant("int8", "tensorrt", EVENTS, 3.0),
    ]
    timing = time_variants(variants, {"x": np.zeros((4, 1), np.float32)}, PLAN)
    latencies = [latency for latency in timing.latencies if latency is not None]
    assert [latency.median_ms for latency in latencies] == [50.0, 8.0, 4.0, 3.0]
    assert [latency.simulated for latency in latencies] == [True, False, False, False]
    assert [latency.on_gpu for latency in latencies] == [False, True, True, True]
    assert [latency.device for latency in latencies] == ["CPU", *["NVIDIA H200"] * 3]
    assert latencies[3].throughput_per_s == pytest.approx(4 / 3e-3)
    # 4/8, 3/8 and 3/4.
    found = {(r.candidate, r.against): r.ratio for r in timing.ratios}
    assert found == {
        ("TensorRT FP16", "TensorRT FP32"): 0.5,
        ("TensorRT INT8", "TensorRT FP32"): 0.375,
        ("TensorRT INT8", "TensorRT FP16"): 0.75,
    }
    # No GPU here: the readings say why there are none.
    assert timing.telemetry is not None


def test_runs_on_the_cpu_have_no_ratios() -> None:
    timing = time_variants([variant("fp32", "onnxruntime", "host clock", 2.0)], {}, PLAN)
    assert timing.ratios == ()
    assert timing.telemetry is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"route": "fast"}, "--route must be one of auto, implicit, explicit, both, got 'fast'"),
        ({"rest": "int4"}, "--rest must be one of fp16, fp32, got 'int4'"),
    ],
)
def test_engine_options_that_cannot_be_meant(options: dict[str, str], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        EngineOptions(**options)  # type: ignore[arg-type]


def test_engine_options_are_part_of_the_command_that_repeats_a_run() -> None:
    engine = EngineOptions(level=2, route="both", cuda_graph=True, profile=False)
    command = Options(runner="tensorrt", caches=("m.cache",), engine=engine).command("m.onnx", "digits")
    assert command.endswith("--level 2 --route both --cuda-graph --no-profile")


def test_two_routes_have_two_names() -> None:
    implicit = RunName("int8", "entropy", runner="tensorrt")
    explicit = RunName("int8", "entropy", runner="tensorrt", form="Q/DQ")
    assert (implicit.label, explicit.label) == ("TensorRT INT8", "TensorRT INT8 Q/DQ")
