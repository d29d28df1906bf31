from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_runners.fake_gpu import FakeDevice
from test_runners.fake_tensorrt_runtime import DataType, FakeNetwork, FakeTensorRT, Tensor

from calib.errors import EngineError, UsageError
from calib.runners import BatchTimes, TensorRTRunner

Open = Callable[..., TensorRTRunner]


def network(**changes: Any) -> FakeNetwork:
    return FakeNetwork(
        [Tensor("x", (-1,), bounds=[(1,), (2,), (4,)])], [Tensor("y", (-1,))], lambda x: (x + 1,), **changes
    )


def batch(count: int = 2, value: float = 1.0) -> dict[str, np.ndarray]:
    return {"x": np.full(count, value, np.float32)}


def test_the_enqueue_returns_at_once_and_the_result_takes_50_ms(open_runner: Open) -> None:
    runner = open_runner(network(gpu_ms=50.0, enqueue_ms=0.0))
    assert runner.time_ms(batch()) == 50.0
    times = runner.time_batch(batch())
    assert times == BatchTimes(50.0, 2.0, 2.0, pytest.approx(54.0), 0.0)
    assert times.with_transfers_ms == 54.0


def test_the_parts_of_a_batch(open_runner: Open, device: FakeDevice) -> None:
    # The copy ends at 3 ms; the enqueue took the host 10 ms, so the GPU starts late and computes 1 ms.
    device.copy_ms = 3.0
    times = open_runner(network(gpu_ms=1.0, enqueue_ms=10.0)).time_batch(batch())
    assert (times.host_to_device_ms, times.device_to_host_ms) == (3.0, 3.0)
    assert times.enqueue_ms == pytest.approx(10.0)
    assert times.end_to_end_ms == pytest.approx(10.0 + 1.0 + 3.0)


def test_host_memory_is_there_before_the_clock_starts(open_runner: Open, device: FakeDevice) -> None:
    device.pinning_ms = 500.0
    runner = open_runner(network())
    assert runner.time_batch(batch()).end_to_end_ms == pytest.approx(2.0 + 5.0 + 2.0)
    assert device.host_ms == pytest.approx(2 * 500.0 + 9.0)


def test_a_graph_gives_the_same_results(open_runner: Open, device: FakeDevice, fake: FakeTensorRT) -> None:
    runner = open_runner(network(), cuda_graph=True)
    for value in (1.0, 5.0):
        np.testing.assert_array_equal(runner.infer(batch(2, value))["y"], [value + 1] * 2)
    (graph,) = device.graphs
    assert graph.launches == 2
    # One plain enqueue, and one that was captured; both batches were launches.
    assert fake.contexts[0].calls.count("execute") == 2
    assert runner.cuda_graph
    assert runner.session_options["cuda_graph"] == "on"


def test_a_launch_costs_the_host_less_than_an_enqueue(open_runner: Open) -> None:
    runner = open_runner(network(gpu_ms=5.0, enqueue_ms=4.0), cuda_graph=True)
    times = runner.time_batch(batch())
    assert times.enqueue_ms == pytest.approx(0.01)
    assert times.compute_ms == 5.0
    assert times.end_to_end_ms == pytest.approx(9.0)


def test_with_a_graph_a_batch_is_sent_once(open_runner: Open, device: FakeDevice) -> None:
    """A copy more would lie before the first event, and count for the host's clock alone."""
    runner = open_runner(network(), cuda_graph=True)
    runner.time_batch(batch())  # captures, which takes an enqueue and its inputs
    times = runner.time_batch(batch())
    assert runner.cuda_graph
    assert times.end_to_end_ms == pytest.approx(2.0 + 5.0 + 2.0)
    before = device.gpu_ms
    runner.infer(batch())
    assert device.gpu_ms - before == pytest.approx(2.0 + 5.0 + 2.0)


def test_another_shape_is_captured_anew(open_runner: Open, device: FakeDevice) -> None:
    runner = open_runner(network(), cuda_graph=True)
    for count in (2, 2, 4, 2):
        np.testing.assert_array_equal(runner.infer(batch(count))["y"], [2.0] * count)
    assert [graph.launches for graph in device.graphs] == [2, 1, 1]


def test_other_sizes_in_a_shape_tensor_are_captured_anew(open_runner: Open, device: FakeDevice) -> None:
    runner = open_runner(
        FakeNetwork(
            [Tensor("x", (4,)), Tensor("start", (1,), DataType.INT32, [(0,), (1,), (2,)], host=True)],
            [Tensor("y", (2,))],
            lambda x, start: (x[int(start[0]) :][:2],),
        ),
        cuda_graph=True,
    )
    x = np.arange(4, dtype=np.float32)
    for start in (2, 0, 0):
        found = runner.infer({"x": x, "start": np.array([start])})
        np.testing.assert_array_equal(found["y"], [start, start + 1])
    assert [graph.launches for graph in device.graphs] == [1, 2]


@pytest.mark.parametrize(
    ("no_capture", "reason"),
    [("begin", "this PyCUDA cannot capture"), ("end", "the CUDA driver made no graph of it")],
)
def test_without_graphs_the_plain_enqueue_stays(fake: FakeTensorRT, no_capture: str, reason: str) -> None:
    fake.device.no_capture = no_capture
    fake.plans[b"plan"] = network()
    with TensorRTRunner(b"plan", "fp16", device=fake.device, api=fake.api, cuda_graph=True) as runner:
        for value in (1.0, 3.0):
            np.testing.assert_array_equal(runner.infer(batch(2, value))["y"], [value + 1] * 2)
        assert not runner.cuda_graph
        assert runner.graph_problem == reason
        assert runner.session_options["cuda_graph"] == f"off: {reason}"


def test_a_failure_while_capturing_leaves_the_stream_usable(open_runner: Open, device: FakeDevice) -> None:
    net = network()
    runner = open_runner(net, cuda_graph=True)
    stream, begin = device.stream_of_all, device.stream_of_all.begin_capture

    def failing() -> None:
        begin()
        net.fails = True

    stream.begin_capture = failing  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="could not run"):
        runner.infer(batch())
    net.fails = False
    np.testing.assert_array_equal(runner.infer(batch())["y"], [2.0, 2.0])
    assert "API Usage Error" in runner.graph_problem


def test_data_dependent_outputs_have_no_graph(open_runner: Open) -> None:
    found = FakeNetwork(
        [Tensor("x", (3,))], [Tensor("y", (-1,), data_dependent=True)], lambda x: (x[x > 0],), gpu_ms=7.0
    )
    runner = open_runner(found, cuda_graph=True)
    np.testing.assert_array_equal(runner.infer({"x": np.array([1, 0, 2], np.float32)})["y"], [1, 2])
    assert runner.graph_problem == "the shape of y depends on the data"
    assert runner.time_ms({"x": np.ones(3, np.float32)}) == 7.0


def test_layer_times_are_means_of_runs(open_runner: Open, fake: FakeTensorRT, device: FakeDevice) -> None:
    runner = open_runner(network(layers={"conv1": 2.0, "conv2": 3.0}), cuda_graph=True)
    before = runner.infer(batch())["y"]
    assert runner.profile(batch(), runs=4) == {"conv1": 2.0, "conv2": 3.0}
    assert list(runner.profile(batch(), runs=1)) == ["conv1", "conv2"]
    np.testing.assert_array_equal(runner.infer(batch())["y"], before)
    # A profiler stays with its context, and no profile of shapes can be shared: each has its own.
    assert [context.profiler is not None for context in fake.contexts] == [False, True, False, True, False]
    assert len(device.memory) == 2


def test_profiling_needs_a_run_and_an_engine_that_tells(open_runner: Open) -> None:
    runner = open_runner(network())
    with pytest.raises(UsageError, match="at least 1 run, got 0"):
        runner.profile(batch(), runs=0)
    with pytest.raises(EngineError, match=r"reported no layer's time .* calib build"):
        runner.profile(batch())
    np.testing.assert_array_equal(runner.infer(batch())["y"], [2.0, 2.0])
    runner.close()
    with pytest.raises(UsageError, match="runner is closed"):
        runner.profile(batch())
