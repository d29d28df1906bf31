"""``calib validate --runner tensorrt`` as a whole, on a GPU and a TensorRT that need none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import conv_relu_gemm, samples, save
from test_runners.fake_gpu import FakeDevice
from test_runners.fake_tensorrt_runtime import FakeNetwork, FakeTensorRT, Tensor

import calib
from calib.calibrators import CalibrationCache
from calib.data import from_arrays
from calib.engine import BuildRecord, Engine
from calib.errors import CacheError, UsageError
from calib.graph import OnnxModel
from calib.runners import OnnxRuntimeRunner
from calib.validation import EngineOptions, Results, validate

GPU_MS = {"fp32": 8.0, "fp16": 4.0, "best": 3.0, "int8": 3.5}
"""Precision that is built → what a batch takes on the GPU."""

OFF = {"fp32": 0.0, "fp16": 1e-3, "best": 1e-2, "int8": 1e-2}
"""Precision that is built → what its answers are off, as a share."""

LAYERS = (("Conv_0", "CaskConvolution"), ("Reformatting CopyNode for Input Tensor 0", "Reformat"))


class Builder:
    """In place of ``calib.engine.build``: the engine computes what ONNX Runtime does, and a bit more."""

    def __init__(self, fake: FakeTensorRT) -> None:
        self.fake = fake
        self.asked: list[dict[str, Any]] = []

    def __call__(self, model: OnnxModel, *, precision: str, shapes: Any, **options: Any) -> Engine:
        self.asked.append({"precision": precision, "shapes": shapes, **options})
        plan = f"engine {len(self.asked)}".encode()
        self.fake.plans[plan] = self._network(model, precision)
        return Engine(
            plan, self._record(model, precision, plan, "implicit INT8" if "cache" in options else "float")
        )

    def _network(self, model: OnnxModel, precision: str) -> FakeNetwork:
        runner = OnnxRuntimeRunner(model, "fp32")

        def compute(x: np.ndarray) -> tuple[np.ndarray, ...]:
            return tuple(array * np.float32(1 + OFF[precision]) for array in runner.infer({"x": x}).values())

        bounds: list[tuple[int, ...]] = [(1, 3, 8, 8), (4, 3, 8, 8), (16, 3, 8, 8)]
        return FakeNetwork(
            [Tensor("x", (-1, 3, 8, 8), bounds=bounds)],
            [Tensor("y", (-1, 5))],
            compute,
            gpu_ms=GPU_MS[precision],
            layers={"Conv_0": 2.0, LAYERS[1][0]: 0.5},
            kinds=LAYERS,
        )

    def _record(self, model: OnnxModel, precision: str, plan: bytes, route: str) -> BuildRecord:
        return BuildRecord(
            precision=precision,
            route=route,
            level=None,
            tensorrt="8.6.0",
            flavour="tensorrt",
            device=self.fake.device.name,
            compute_capability=(9, 0),
            shapes=(),
            tf32=False,
            build_seconds=12.0,
            plan_bytes=len(plan),
            plan_sha256=hashlib.sha256(plan).hexdigest(),
            model=model.path.name,
            model_sha256="",
            cache_sha256=None,
            key="",
            notes=("names: all matched.", "built for nothing"),
        )


Run = Callable[..., tuple[Results, Builder]]

# What TensorRT 8 and 10 have, and 11 has not.
WITH_CALIBRATORS = {"calibrators": True, "precision_flags": True}


@pytest.fixture
def run(fake: FakeTensorRT, device: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    builder = Builder(fake)
    monkeypatch.setattr("calib.engine.build", builder)
    api = replace(fake.api, features={**fake.api.features, **WITH_CALIBRATORS})
    monkeypatch.setattr("calib.engine.api.load_api", lambda flavour="tensorrt": api)
    monkeypatch.setattr("calib.engine.memory.open_device", lambda: device)
    path = save(conv_relu_gemm(), tmp_path / "net.onnx")
    data = from_arrays("random", {"x": samples(48, 3, 8, 8)}, labels=[i % 5 for i in range(48)])
    cache = tmp_path / "net.cache"
    calib.calibrate(path, data, samples=16, out=cache)

    def validated(*, cache: Path = cache, **engine: Any) -> tuple[Results, Builder]:
        options = EngineOptions(simulation=False, **engine)
        found = validate(
            path,
            data,
            runner="tensorrt",
            cache=cache,
            batch_size=16,
            latency_batch=4,
            latency_count=8,
            engine=options,
        )
        device.check_nothing_left()
        assert device.entered == 0
        return found, builder

    return validated


def by_label(results: Results) -> Mapping[str, Any]:
    return {run.label: run for run in results.runs}


def test_every_precision_is_built_run_and_compared(run: Run) -> None:
    results, builder = run()
    runs = by_label(results)
    assert list(runs) == ["FP32", "TensorRT FP32", "TensorRT FP16", "TensorRT INT8"]
    assert [run.runner for run in results.runs] == ["onnxruntime", "tensorrt", "tensorrt", "tensorrt"]
    # Batches of 16, timed with 4; INT8's rest in FP16.
    assert [asked["precision"] for asked in builder.asked] == ["fp32", "fp16", "best"]
    assert {asked["shapes"] for asked in builder.asked} == {("x:1x3x8x8:4x3x8x8:16x3x8x8",)}
    assert ["cache" in asked for asked in builder.asked] == [False, False, True]
    # Off by a share s of every value: 20·log10(1/s) dB.
    assert runs["TensorRT FP16"].outputs[0].sqnr_db == pytest.approx(60.0, abs=0.1)
    assert runs["TensorRT INT8"].outputs[0].sqnr_db == pytest.approx(40.0, abs=0.1)


def test_latency_is_the_gpus(run: Run) -> None:
    results, _ = run()
    runs = by_label(results)
    medians = {name: one.latency.median_ms for name, one in runs.items() if name != "FP32"}
    assert medians == {"TensorRT FP32": 8.0, "TensorRT FP16": 4.0, "TensorRT INT8": 3.0}
    latency = runs["TensorRT INT8"].latency
    assert (latency.count, latency.batch_size, latency.on_gpu, latency.simulated) == (8, 4, True, False)
    assert [part.name for part in latency.parts] == [
        *("host to device", "device to host", "enqueue", "end to end", "with transfers")
    ]
    found = {(one.candidate, one.against): (one.ratio, one.low, one.high) for one in results.ratios}
    assert found["TensorRT INT8", "TensorRT FP16"] == (0.75, 0.75, 0.75)
    assert found["TensorRT INT8", "TensorRT FP32"] == (0.375, 0.375, 0.375)
    assert results.telemetry is not None
    assert results.telemetry.problem  # No NVML here, and that is said.


def test_engines_are_looked_into(run: Run) -> None:
    results, _ = run()
    engine = by_label(results)["TensorRT INT8"].engine
    assert (engine.tensorrt, engine.device, engine.route) == ("8.6.0", "Fake H200", "implicit INT8")
    assert (engine.layers, engine.by_precision["copies"]) == (1, 1)
    assert engine.slowest[0][0::2] == ("Conv_0", 0.8)  # 2.0 of 2.5 ms
    assert "20% of the layers' time (0.5 ms) goes to 1 reformat" in engine.costs[0]
    assert results.environment.tensorrt == "8.6.0"
    description = by_label(results)["TensorRT INT8"].description
    assert description.endswith("on Fake H200. Names: all matched. Built for nothing.")


def test_with_transfers_graphs_and_both_routes(run: Run, device: FakeDevice) -> None:
    results, builder = run(transfers=True, cuda_graph=True, route="both", rest="fp32", profile=False)
    runs = by_label(results)
    assert [asked["precision"] for asked in builder.asked] == ["fp32", "fp16", "int8", "int8"]
    assert [asked.get("route") for asked in builder.asked] == [None, None, "implicit", "explicit"]
    assert list(runs)[3:] == ["TensorRT INT8", "TensorRT INT8 Q/DQ"]
    assert list(dict.fromkeys(sample.run for sample in results.worst)) == list(runs)[2:]
    latency = runs["TensorRT FP16"].latency
    # One input and one output, each of one copy.
    assert latency.median_ms == pytest.approx(4.0 + 2 * device.copy_ms)
    assert latency.cuda_graph
    assert "GPU compute" in [part.name for part in latency.parts]


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (
            CalibrationCache({"x": 0.1}, version="10.3.0"),
            r"m\.cache is headed for TensorRT 10\.3\.0, but this is",
        ),
        (CalibrationCache({"images": 0.1}), r"m\.cache belongs to another model"),
    ],
    ids=["another version", "another model"],
)
def test_a_cache_that_will_be_refused_is_refused_before_anything_is_built(
    run: Run, tmp_path: Path, fake: FakeTensorRT, made: CalibrationCache, match: str
) -> None:
    cache = made.write(tmp_path / "m.cache")
    with pytest.raises(CacheError, match=match):
        run(cache=cache)
    assert fake.plans == {}


def test_q_dq_nodes_have_no_header(run: Run, tmp_path: Path) -> None:
    cache = CalibrationCache({"x": 0.1}, version="10.3.0").write(tmp_path / "m.cache")
    results, builder = run(cache=cache, route="explicit", profile=False)
    assert builder.asked[-1]["route"] == "explicit"
    assert results.runs[-1].precision == "int8"


def test_shapes_of_one_batch_are_the_batch_of_all_runs(run: Run, fake: FakeTensorRT) -> None:
    """48 samples, 16 of them calibrated on, leave 32: three batches of 12, the last filled up with 4."""
    results, builder = run(shapes=("x:12x3x8x8",))
    assert {asked["shapes"] for asked in builder.asked} == {("x:12x3x8x8",)}
    assert {one.latency.batch_size for one in results.runs if one.latency} == {12}
    assert len(results.sample_ids) == 32
    note = "--shapes insists on batches of 12, which was used throughout; the last batch was filled up with 4"
    assert any(text.startswith(note) for text in results.dataset.notes)


def test_shapes_that_leave_out_a_batch_are_refused_before_anything_is_built(
    run: Run, fake: FakeTensorRT
) -> None:
    with pytest.raises(UsageError, match=r"allows batches of 6 to 16, but --latency-batch is 4\. Pass .* 6"):
        run(shapes=("x:6x3x8x8:8x3x8x8:16x3x8x8",))
    with pytest.raises(UsageError, match=r"allows batches of 1 to 8, but --batch-size is 16\. Pass .* 8"):
        run(shapes=("x:1x3x8x8:4x3x8x8:8x3x8x8",))
    assert fake.plans == {}
