"""The TensorRT runner on a real GPU: ``python -m pytest -m gpu -s tests/test_gpu/test_runner_on_tensorrt.py``.

Run by hand on a machine with an NVIDIA GPU, TensorRT 8.6 or later, and PyCUDA or cuda-python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import conv_relu_gemm, model, node, samples, save
from onnx import TensorProto

from calib.data import load_recipe, open_validation
from calib.demo import DEMO_MODEL
from calib.engine.api import load_api
from calib.engine.building import build
from calib.engine.memory import Device, open_device
from calib.errors import EngineError, ValidationError
from calib.graph import load_model, open_session, session_options
from calib.runners import TensorRTRunner
from calib.validation import GpuLatencyPlan, measure_gpu_latency

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with open_device() as opened:
        yield opened


@pytest.fixture(scope="module")
def conv_net(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A small convolutional net with a dynamic batch, as engines of three precisions and as a file."""
    path = save(conv_relu_gemm(), tmp_path_factory.mktemp("net") / "conv.onnx")
    shapes = ["x:1x3x8x8:8x3x8x8:32x3x8x8"]
    engines = {name: build(path, precision=name, shapes=shapes, level=0) for name in ("fp32", "fp16")}
    return {"path": path, **engines}


def on_cpu(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = open_session(load_model(path), session_options())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def far_apart(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest error as a share of the largest value."""
    return float(np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max())


def checked(
    tmp_path: Path, proto: onnx.ModelProto, device: Device, feeds: dict[str, np.ndarray], **options: Any
) -> dict[str, np.ndarray]:
    """Runs a model through TensorRT, twice, and compares with ONNX Runtime; TensorRT's outputs."""
    path = save(proto, tmp_path / "net.onnx")
    expected = on_cpu(path, feeds)
    with TensorRTRunner(build(path, level=0, **options), "fp32", device=device) as runner:
        first, found = runner.infer(feeds), runner.infer(feeds)
        print("\n", runner.session_options)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape, name
        np.testing.assert_array_equal(first[name], found[name])
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
    return found


def test_the_demo_net_answers_as_onnx_runtime_does(device: Device) -> None:
    network = load_model(DEMO_MODEL)
    data = open_validation(load_recipe("digits"), samples=96)
    name = network.inputs[0].name
    images = np.stack([next(iter(sample.inputs.values())) for sample in data]).astype(np.float32)
    (expected,) = on_cpu(Path(DEMO_MODEL), {name: images}).values()
    outputs = []
    with TensorRTRunner(build(DEMO_MODEL, level=0), "fp32", device=device) as runner:
        for start in range(0, 96, 32):
            (found,) = runner.infer({name: images[start : start + 32]}).values()
            outputs.append(found)
        print("\n", runner.note, runner.session_options)
    apart = far_apart(np.concatenate(outputs), expected)
    print(f"FP32 engine of the demo net against ONNX Runtime: {apart:.2e} of the largest logit")
    assert apart < 1e-4
    np.testing.assert_array_equal(np.concatenate(outputs).argmax(1), expected.argmax(1))


def test_a_dynamic_batch_grows_and_shrinks(device: Device, conv_net: dict[str, Any]) -> None:
    with TensorRTRunner(conv_net["fp32"], "fp32", device=device) as runner:
        for count in (4, 32, 1, 7):
            x = samples(count, 3, 8, 8, seed=count)
            found = runner.infer({"x": x})["y"]
            assert found.shape == (count, 5)
            assert far_apart(found, on_cpu(conv_net["path"], {"x": x})["y"]) < 1e-4
        with pytest.raises(ValidationError, match=r"profile holds 1x3x8x8 to 32x3x8x8, got 33x3x8x8"):
            runner.infer({"x": samples(33, 3, 8, 8)})
        assert runner.infer({"x": samples(2, 3, 8, 8)})["y"].shape == (2, 5)


def test_several_inputs_and_outputs(tmp_path: Path, device: Device) -> None:
    proto = model(
        [
            node("Add", ["a", "b"], ["sum"]),
            node("Mul", ["a", "b"], ["product"]),
            node("Greater", ["a", "b"], ["larger"]),
        ],
        {"a": ["n", 6], "b": ["n", 6]},
        {"sum": ["n", 6], "product": ["n", 6], "larger": ["n", 6]},
        types={"larger": TensorProto.BOOL},
    )
    feeds = {"b": samples(3, 6, seed=1), "a": samples(3, 6, seed=2)}
    shapes = ["a:1x6:3x6:8x6", "b:1x6:3x6:8x6"]
    found = checked(tmp_path, proto, device, feeds, shapes=shapes)
    assert found["larger"].dtype == np.bool_


def test_int64_inputs_and_outputs(tmp_path: Path, device: Device) -> None:
    proto = model(
        [node("Gather", ["table", "ids"], ["rows"]), node("Add", ["ids", "one"], ["next"])],
        {"ids": [4]},
        {"rows": [4, 3], "next": [4]},
        {"table": samples(10, 3), "one": np.array([1], np.int64)},
        types={"ids": TensorProto.INT64, "next": TensorProto.INT64},
    )
    found = checked(tmp_path, proto, device, {"ids": np.array([3, 0, 9, 3])})
    # TensorRT 8 has no INT64 and takes INT32 for it.
    assert found["next"].dtype == (np.int64 if load_api().has("int64") else np.int32)


def test_outputs_whose_shape_depends_on_the_data(tmp_path: Path, device: Device) -> None:
    proto = model(
        [node("NonZero", ["x"], ["where"]), node("Relu", ["x"], ["y"])],
        {"x": [2, 8]},
        {"where": [2, "found"], "y": [2, 8]},
        types={"where": TensorProto.INT64},
    )
    path = save(proto, tmp_path / "nonzero.onnx")
    try:
        engine = build(path, level=0)
    except EngineError as error:
        pytest.skip(f"{load_api().title} does not build NonZero: {error}")
    with TensorRTRunner(engine, "fp32", device=device, cuda_graph=True) as runner:
        for density in (0.5, 1.0, 0.0, 0.2):
            x = samples(2, 8) * (np.random.default_rng(4).random((2, 8)) < density).astype(np.float32)
            found = runner.infer({"x": x})
            np.testing.assert_array_equal(found["where"], np.array(np.nonzero(x)))
            np.testing.assert_array_equal(found["y"], np.maximum(x, 0))
        times = runner.time_batch({"x": x})
        print("\n", found["where"].dtype, times, runner.graph_problem)
        assert not runner.cuda_graph
        assert "depends on the data" in runner.graph_problem
        assert 0 < times.compute_ms <= times.end_to_end_ms


def test_shape_tensors_are_read_on_the_host(tmp_path: Path, device: Device) -> None:
    proto = model(
        [node("Reshape", ["x", "size"], ["y"])],
        {"x": [12], "size": [2]},
        {"y": ["rows", "columns"]},
        types={"size": TensorProto.INT64},
    )
    path = save(proto, tmp_path / "reshape.onnx")
    engine = build(path, shapes=["size:1x1:3x4:12x12"], level=0)
    x = np.arange(12, dtype=np.float32)
    with TensorRTRunner(engine, "fp32", device=device) as runner:
        for size in ([3, 4], [12, 1], [2, 6]):
            found = runner.infer({"x": x, "size": np.array(size)})["y"]
            np.testing.assert_array_equal(found, x.reshape(size))
        # TensorRT 8.6.0 tells the first size's profile alone, and crashes on sizes beyond it.
        with pytest.raises(ValidationError, match=r"'size' holds sizes: .* got \[13, 1\]"):
            runner.infer({"x": x, "size": np.array([13, 1])})


def test_the_parts_of_a_batch(device: Device, conv_net: dict[str, Any]) -> None:
    feeds = {"x": samples(32, 3, 8, 8)}
    with TensorRTRunner(conv_net["fp32"], "fp32", device=device) as runner:
        for _ in range(20):
            runner.time_batch(feeds)
        batches = [runner.time_batch(feeds) for _ in range(50)]
    for times in batches:
        assert 0 < times.compute_ms <= times.end_to_end_ms
        assert times.with_transfers_ms <= times.end_to_end_ms * 1.05
        assert min(times.host_to_device_ms, times.device_to_host_ms, times.enqueue_ms) > 0
    print("\n", sorted(batches, key=lambda times: times.compute_ms)[25])


def test_a_cuda_graph_gives_the_same_outputs(device: Device, conv_net: dict[str, Any]) -> None:
    batches = [samples(8, 3, 8, 8, seed=seed) for seed in range(4)] + [samples(3, 3, 8, 8)]
    with TensorRTRunner(conv_net["fp16"], "fp16", device=device) as plain:
        expected = [plain.infer({"x": x})["y"] for x in batches]
        enqueue = [plain.time_batch({"x": batches[0]}).enqueue_ms for _ in range(50)]
    with TensorRTRunner(conv_net["fp16"], "fp16", device=device, cuda_graph=True) as runner:
        found = [runner.infer({"x": x})["y"] for x in batches]
        launch = [runner.time_batch({"x": batches[0]}).enqueue_ms for _ in range(50)]
        print(f"\nCUDA graph: {runner.session_options['cuda_graph']}; host time of an enqueue "
              f"{np.median(enqueue):.4f} ms, of a launch {np.median(launch):.4f} ms")  # fmt: skip
        if not runner.cuda_graph:
            pytest.skip(f"no CUDA graph here: {runner.graph_problem}")
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_layers_and_their_times(device: Device, conv_net: dict[str, Any]) -> None:
    feeds = {"x": samples(32, 3, 8, 8)}
    with TensorRTRunner(conv_net["fp32"], "fp32", device=device) as runner:
        before = runner.infer(feeds)["y"]
        times = runner.profile(feeds, runs=10)
        np.testing.assert_array_equal(runner.infer(feeds)["y"], before)
        compute = min(runner.time_ms(feeds) for _ in range(20))
    print("\n", times, f"sum {sum(times.values()):.4f} ms, compute {compute:.4f} ms")
    assert times
    assert all(milliseconds >= 0 for milliseconds in times.values())
    assert sum(times.values()) > 0


def test_an_engine_is_timed_without_data(device: Device, conv_net: dict[str, Any]) -> None:
    with TensorRTRunner(conv_net["fp32"], "fp32", device=device) as runner:
        feeds = runner.usual_feeds()
        assert feeds["x"].shape == (8, 3, 8, 8)
        times = runner.profile(feeds, runs=3)
        layers = runner.layers(feeds)
    assert set(times) & {layer.name for layer in layers}
    assert sum(times.values()) > 0


def test_precisions_measured_in_turn(device: Device, conv_net: dict[str, Any]) -> None:
    feeds = {"x": samples(32, 3, 8, 8)}
    with (
        TensorRTRunner(conv_net["fp32"], "fp32", device=device) as fp32,
        TensorRTRunner(conv_net["fp16"], "fp16", device=device) as fp16,
        TensorRTRunner(conv_net["fp16"], "fp16", device=device, cuda_graph=True) as graph,
    ):
        runners = [fp32, fp16, graph]
        plan = GpuLatencyPlan(32, count=200, seconds=20)
        found = measure_gpu_latency(
            runners,
            [feeds] * 3,
            plan,
            ["FP32", "FP16", "FP16 CUDA graph"],
        )
    for latency in found.latencies:
        parts = {part.name: part.median_ms for part in latency.parts}
        print(f"\n{latency.median_ms:.4f} ms, p99 {latency.p99_ms:.4f}, graph {latency.cuda_graph}, {parts}")
        assert latency.count >= 10
        assert 0 < latency.median_ms <= parts["end to end"]
    for ratio in found.ratios:
        print(ratio)
        assert ratio.low is not None
        assert ratio.high is not None
        assert ratio.low <= ratio.ratio <= ratio.high
    print(found.telemetry, *found.warnings, sep="\n")
    assert found.telemetry.sm_clock_mhz is not None or found.telemetry.problem


def test_memory_is_given_back_also_after_an_error(conv_net: dict[str, Any]) -> None:
    def used() -> int:
        with open_device() as opened:
            free, total = opened.memory_info()
        return total - free

    def run() -> None:
        with TensorRTRunner(conv_net["fp32"], "fp32") as runner:
            runner.infer({"x": samples(32, 3, 8, 8)})
            raise KeyError("an error of the caller's")

    with pytest.raises(KeyError):
        run()
    before = used()
    for _ in range(5):
        with pytest.raises(KeyError):
            run()
    assert used() - before < 4 << 20


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_what_is_no_engine(device: Device, conv_net: dict[str, Any], damage: str) -> None:
    plan = conv_net["fp32"].plan
    broken = plan[: len(plan) // 2] if damage == "cut" else b"not an engine" * 100
    with pytest.raises(EngineError, match=r"cannot load the engine of \d+ bytes") as caught:
        TensorRTRunner(broken, "fp32", device=device)
    print("\n", caught.value)
