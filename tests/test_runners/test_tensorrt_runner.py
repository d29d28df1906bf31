from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_runners.fake_gpu import FakeDevice
from test_runners.fake_tensorrt_runtime import DataType, FakeNetwork, FakeTensorRT, Format, Tensor

from calib.engine import memory
from calib.errors import EngineError, UsageError, ValidationError
from calib.runners import TensorRTRunner

Open = Callable[..., TensorRTRunner]

DYNAMIC = [(1, 3), (4, 3), (8, 3)]


def doubling(**changes: Any) -> FakeNetwork:
    return FakeNetwork(
        [Tensor("x", (-1, 3), bounds=DYNAMIC)], [Tensor("y", (-1, 3))], lambda x: (x * 2,), **changes
    )


def rows(count: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + count * 3, dtype=np.float32).reshape(count, 3)


def test_results_are_copied_back_and_belong_to_the_caller(open_runner: Open) -> None:
    runner = open_runner(doubling())
    first = runner.infer({"x": rows(2)})["y"]
    kept = first.copy()
    second = runner.infer({"x": rows(2, 100)})["y"]
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(first, [[0, 2, 4], [6, 8, 10]])
    np.testing.assert_array_equal(second[0], [200, 202, 204])
    assert (runner.input_names, runner.output_names) == (("x",), ("y",))


def test_memory_is_kept_and_grows(open_runner: Open, device: FakeDevice, fake: FakeTensorRT) -> None:
    runner = open_runner(doubling())
    for count in (4, 2, 4, 1):
        np.testing.assert_array_equal(runner.infer({"x": rows(count)})["y"], rows(count) * 2)
    assert device.allocations == 2
    runner.infer({"x": rows(8)})
    assert device.allocations == 4
    assert sorted(buffer.nbytes for buffer in device.memory.values()) == [8 * 3 * 4] * 2


def test_shapes_are_set_only_when_they_change(open_runner: Open, fake: FakeTensorRT) -> None:
    runner = open_runner(doubling())
    for _ in range(3):
        runner.infer({"x": rows(2)})
    (context,) = fake.contexts
    assert context.calls == ["shape x", "address x", "address y", "execute", "execute", "execute"]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((9, 3), r"Input 'x': .* profile holds 1x3 to 8x3, got 9x3\. .* --shapes x:1x3:4x3:9x3"),
        ((0, 3), r"profile holds 1x3 to 8x3, got 0x3"),
        ((2, 4), r"Input 'x' of the engine has the shape -1x3 \(-1 is dynamic\), got 2x4"),
        ((2, 3, 1), r"has the shape -1x3 .* got 2x3x1"),
    ],
)
def test_shapes_outside_of_the_profile(open_runner: Open, shape: tuple[int, ...], message: str) -> None:
    runner = open_runner(doubling())
    with pytest.raises(ValidationError, match=message):
        runner.infer({"x": np.zeros(shape, np.float32)})
    np.testing.assert_array_equal(runner.infer({"x": rows(1)})["y"], rows(1) * 2)


@pytest.mark.parametrize("feeds", [{}, {"z": rows(1)}, {"x": rows(1), "z": rows(1)}])
def test_one_array_for_each_input(open_runner: Open, feeds: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValidationError, match=r"inputs \['x'\], the feeds are \["):
        open_runner(doubling()).infer(feeds)


@pytest.mark.parametrize(
    ("kind", "fed", "given"),
    [
        (DataType.FLOAT, np.float32, np.float32),
        (DataType.HALF, np.float32, np.float16),
        (DataType.INT32, np.int64, np.int32),
        (DataType.INT64, np.int32, np.int64),
        (DataType.INT8, np.int8, np.int8),
        (DataType.UINT8, np.uint8, np.uint8),
        (DataType.BOOL, np.bool_, np.bool_),
    ],
)
def test_types(open_runner: Open, kind: DataType, fed: type, given: type) -> None:
    network = FakeNetwork([Tensor("x", (2, 2), kind)], [Tensor("y", (2, 2), kind)], lambda x: (x,))
    runner = open_runner(network)
    value = np.array([[0, 1], [1, 0]], fed)
    found = runner.infer({"x": value})["y"]
    assert found.dtype == given
    np.testing.assert_array_equal(found, value)
    cast = runner.session_options.get("cast_feeds")
    assert cast == (None if fed is given else f"x: {np.dtype(fed)} → {np.dtype(given)}")


def test_a_value_that_the_engines_type_cannot_hold(open_runner: Open) -> None:
    network = FakeNetwork([Tensor("ids", (2,), DataType.INT32)], [Tensor("y", (2,))], lambda ids: (ids,))
    with pytest.raises(ValidationError, match=r"'ids' is declared int32, which cannot hold 3000000000"):
        open_runner(network).infer({"ids": np.array([1, 3_000_000_000])})


def test_types_and_layouts_that_numpy_does_not_have(open_runner: Open) -> None:
    with pytest.raises(EngineError, match=r"'x' is a tensor of TensorRT's type FP8"):
        open_runner(FakeNetwork([Tensor("x", (1,), DataType.FP8)], [], lambda x: ()))
    with pytest.raises(EngineError, match=r"'x' has the memory layout 'Thirty-two wide"):
        open_runner(FakeNetwork([Tensor("x", (1,), layout=Format.CHW32)], [], lambda x: ()))


def test_several_inputs_and_outputs(open_runner: Open) -> None:
    network = FakeNetwork(
        [Tensor("a", (2,)), Tensor("b", (2,), DataType.INT32)],
        [Tensor("sum", (2,)), Tensor("difference", (2,)), Tensor("larger", (2,), DataType.BOOL)],
        lambda a, b: (a + b, a - b, a > b),
    )
    found = open_runner(network).infer({"b": np.array([1, 5]), "a": np.array([2.5, 3], np.float32)})
    assert list(found) == ["sum", "difference", "larger"]
    np.testing.assert_array_equal(found["sum"], [3.5, 8])
    np.testing.assert_array_equal(found["difference"], [1.5, -2])
    np.testing.assert_array_equal(found["larger"], [True, False])


@pytest.mark.parametrize("release", [(8, 6, 0), (10, 3, 0)])
def test_outputs_whose_shape_depends_on_the_data(device: FakeDevice, release: tuple[int, int, int]) -> None:
    fake = FakeTensorRT(device, release)
    fake.plans[b"nonzero"] = FakeNetwork(
        [Tensor("x", (4,))],
        [
            Tensor("indices", (1, -1), DataType.INT32, data_dependent=True),
            Tensor("count", (1,), DataType.INT32),
        ],
        lambda x: (np.nonzero(x), [np.count_nonzero(x)]),
    )
    with TensorRTRunner(b"nonzero", "fp32", device=device, api=fake.api) as runner:
        for values in ([0, 3, 0, 4], [1, 1, 1, 1], [0, 0, 0, 0], [0, 9, 0, 0]):
            found = runner.infer({"x": np.array(values, np.float32)})
            np.testing.assert_array_equal(found["indices"], [np.flatnonzero(values)])
            assert found["count"] == np.count_nonzero(values)
            assert found["indices"].dtype == np.int32
    # Two outputs and an input; the first output needed more once.
    assert device.allocations == 4


def test_no_memory_for_an_output_whose_size_only_the_run_tells(fake: FakeTensorRT) -> None:
    fake.device.most_bytes = 1024
    fake.plans[b"big"] = FakeNetwork(
        [Tensor("x", (1,))], [Tensor("y", (-1,), data_dependent=True)], lambda x: (np.zeros(10_000),)
    )
    with (
        pytest.raises(EngineError, match=r"No memory for output 'y' of the engine: The GPU's memory is full"),
        TensorRTRunner(b"big", "fp32", device=fake.device, api=fake.api) as runner,
    ):
        runner.infer({"x": np.ones(1, np.float32)})
    fake.device.check_nothing_left()


@pytest.mark.parametrize("release", [(8, 6, 0), (10, 3, 0)])
def test_shape_tensors_stay_on_the_host(device: FakeDevice, release: tuple[int, int, int]) -> None:
    fake = FakeTensorRT(device, release)
    sizes = Tensor("size", (2,), DataType.INT32, [(1, 1), (2, 2), (4, 4)], host=True)
    fake.plans[b"reshape"] = FakeNetwork(
        [Tensor("x", (4,)), sizes],
        [Tensor("y", (-1, -1)), Tensor("shape", (2,), DataType.INT32, host=True)],
        lambda x, size: (np.resize(x, size), size),
    )
    with TensorRTRunner(b"reshape", "fp32", device=device, api=fake.api) as runner:
        x = np.arange(4, dtype=np.float32)
        for wanted in ([2, 2], [4, 1], [1, 4], [1, 1]):
            found = runner.infer({"x": x, "size": np.array(wanted)})
            np.testing.assert_array_equal(found["y"], np.resize(x, wanted))
            np.testing.assert_array_equal(found["shape"], wanted)
        with pytest.raises(
            ValidationError, match=r"'size' holds sizes: .* \[1, 1\] to \[4, 4\], got \[2, 5\]"
        ):
            runner.infer({"x": x, "size": np.array([2, 5])})


def test_a_profile_that_is_told_in_part_is_checked_in_part(open_runner: Open) -> None:
    """TensorRT 8.6.0 tells one value of a shape tensor with two."""
    network = FakeNetwork(
        [Tensor("x", (6,)), Tensor("size", (2,), DataType.INT32, host=True, bounds=[(1,), (2,), (4,)])],
        [Tensor("y", (-1, -1))],
        lambda x, size: (x.reshape(tuple(size)),),
    )
    runner, x = open_runner(network), np.arange(6, dtype=np.float32)
    found = runner.infer({"x": x, "size": np.array([3, 2])})["y"]
    np.testing.assert_array_equal(found, [[0, 1], [2, 3], [4, 5]])
    with pytest.raises(ValidationError, match=r"'size' holds sizes: .* \[1\] to \[4\], got \[6, 1\]"):
        runner.infer({"x": x, "size": np.array([6, 1])})


def test_an_empty_batch_goes_through(open_runner: Open) -> None:
    network = FakeNetwork(
        [Tensor("boxes", (-1, 4), bounds=[(0, 4), (2, 4), (8, 4)])],
        [Tensor("y", (-1, 4))],
        lambda boxes: (boxes,),
    )
    found = open_runner(network).infer({"boxes": np.zeros((0, 4), np.float32)})["y"]
    assert found.shape == (0, 4)


def test_a_failed_run_says_what_tensorrt_said_and_frees_everything(fake: FakeTensorRT) -> None:
    fake.plans[b"bad"] = doubling(fails=True)
    with (
        pytest.raises(
            EngineError,
            match=r"could not run the engine on x 2x3 \(int8 engine\)\. TensorRT says: 3: .*API Usage Error",
        ),
        TensorRTRunner(b"bad", "int8", device=fake.device, api=fake.api) as runner,
    ):
        runner.infer({"x": rows(2)})
    fake.device.check_nothing_left()
    with pytest.raises(UsageError, match="int8 runner is closed"):
        runner.infer({"x": rows(2)})


def test_a_refused_shape_does_not_leave_old_outputs_behind(open_runner: Open) -> None:
    network = FakeNetwork(
        [Tensor("a", (-1,), bounds=[(1,), (2,), (4,)]), Tensor("b", (-1,), bounds=[(1,), (2,), (4,)])],
        [Tensor("y", (-1,))],
        lambda a, b: (np.concatenate([a, b]),),
    )
    runner = open_runner(network)
    one, three = np.ones(1, np.float32), np.ones(3, np.float32)
    runner.infer({"a": one, "b": one})
    network.refuses = "b"
    with pytest.raises(EngineError, match="refused the shape 3 of input 'b'"):
        runner.infer({"a": three, "b": three})
    network.refuses = ""
    assert runner.infer({"a": three, "b": one})["y"].shape == (4,)


VERSION, GPU = "built by another TensorRT", "built for another GPU"
REFUSALS = [
    (
        "The engine plan file is not compatible with this version of TensorRT, expecting 10.3.0 got 10.0.1",
        VERSION,
    ),
    ("1: [stdArchiveReader.cpp] Version tag does not match. Note: Current Version: 236, got 213)", VERSION),
    ("The engine plan file is generated on an incompatible device, expecting compute 8.6 got 7.5", GPU),
]


@pytest.mark.parametrize(("refusal", "hint"), REFUSALS)
def test_an_engine_that_is_not_for_this_machine(fake: FakeTensorRT, refusal: str, hint: str) -> None:
    fake.refusal = refusal
    with pytest.raises(
        EngineError, match=rf"TensorRT 8.6.0 on Fake H200 cannot load the engine of 5 bytes.*{hint}"
    ):
        TensorRTRunner(b"other", "fp32", device=fake.device, api=fake.api)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (35, "CUDA does not start for TensorRT 8.6.0: error 35, the driver is too old for the CUDA"),
        (4711, "TensorRT says: CUDA initialization failure with error: 4711"),
        (0, "It says: pybind11::init"),
    ],
)
def test_a_driver_that_serves_us_and_not_tensorrt(fake: FakeTensorRT, error: int, reason: str) -> None:
    """TensorRT brings a CUDA of its own, newer than what the driver may serve: it then makes no runtime."""
    fake.no_runtime, fake.cuda_error = True, error
    with pytest.raises(
        EngineError, match=rf"TensorRT 8.6.0 cannot run engines here\. {reason}.*calib doctor"
    ):
        TensorRTRunner(b"plan", "fp32", device=fake.device, api=fake.api)


def test_an_engine_that_holds_code_is_run_where_that_is_allowed(fake: FakeTensorRT) -> None:
    fake.plans[b"plan"], fake.holds_code = doubling(), True
    with pytest.raises(EngineError, match=r"holds code of its own.*--host-code, or host_code=True"):
        TensorRTRunner(b"plan", "fp32", device=fake.device, api=fake.api)
    with TensorRTRunner(b"plan", "fp32", device=fake.device, api=fake.api, host_code=True) as runner:
        assert runner.infer({"x": rows(1)})["y"].tolist() == [[0.0, 2.0, 4.0]]


def test_an_engine_of_another_gpu_of_the_kind_is_run_with_tensorrts_warning(fake: FakeTensorRT) -> None:
    fake.plans[b"plan"] = doubling()
    fake.strange = "Using an engine plan file across different models of devices is not recommended"
    with TensorRTRunner(b"plan", "fp32", device=fake.device, api=fake.api) as runner:
        assert runner.note == f"TensorRT 8.6.0 engine on Fake H200; TensorRT warns: {fake.strange}"


def test_no_memory_for_a_context(fake: FakeTensorRT) -> None:
    fake.plans[b"plan"] = doubling()
    fake.no_context = True
    with pytest.raises(
        EngineError, match=r"could not make an execution context .* OutOfMemory .* memory is full"
    ):
        TensorRTRunner(b"plan", "fp32", device=fake.device, api=fake.api)


def test_its_own_device_is_closed_also_after_an_error(
    fake: FakeTensorRT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "open_device", lambda: fake.device)
    fake.plans[b"plan"] = doubling()
    with TensorRTRunner(b"plan", "fp32", api=fake.api) as runner:
        runner.infer({"x": rows(2)})
        assert fake.device.entered == 1
    assert fake.device.entered == 0
    runner.close()
    with pytest.raises(EngineError, match="cannot load the engine"):
        TensorRTRunner(b"other", "fp32", api=fake.api)
    assert fake.device.entered == 0


def test_every_buffer_is_freed_also_where_one_cannot_be(fake: FakeTensorRT) -> None:
    fake.plans[b"plan"] = doubling()
    runner = TensorRTRunner(b"plan", "fp32", device=fake.device, api=fake.api)
    runner.infer({"x": rows(2)})
    fake.device.fail_free = True
    with pytest.raises(EngineError, match="cuMemFree failed"):
        runner.close()
    fake.device.check_nothing_left()


def test_what_went_wrong_first_is_what_is_told(fake: FakeTensorRT) -> None:
    fake.plans[b"plan"] = doubling()
    runner = TensorRTRunner(b"plan", "fp32", device=fake.device, api=fake.api)
    runner.infer({"x": rows(2)})
    fake.device.fail_free = True
    with pytest.raises(KeyError, match="first"), runner:
        raise KeyError("first")
    fake.device.check_nothing_left()


def test_files_and_their_absence(fake: FakeTensorRT, tmp_path: Path) -> None:
    fake.plans[b"plan"] = doubling()
    path = tmp_path / "net.engine"
    with pytest.raises(EngineError, match=r"net.engine"):
        TensorRTRunner(path, "fp32", device=fake.device, api=fake.api)
    path.write_bytes(b"plan")
    with TensorRTRunner(path, "fp32", device=fake.device, api=fake.api) as runner:
        np.testing.assert_array_equal(runner.infer({"x": rows(1)})["y"], rows(1) * 2)
        assert runner.model_bytes == 4


def test_what_a_report_is_told(open_runner: Open, fake: FakeTensorRT) -> None:
    runner = open_runner(doubling(), "int8")
    assert (runner.name, runner.precision, runner.simulated) == ("tensorrt", "int8", False)
    assert runner.note == "TensorRT 8.6.0 engine on Fake H200"
    assert runner.session_options == {
        "library": "TensorRT 8.6.0",
        "device": "Fake H200",
        "memory": "fake",
        "cuda_graph": "off",
        "optimization_profile": "0: x:1x3:4x3:8x3",
        "types": "x float32, y float32",
    }
    assert fake.plugins_loaded


def test_nvml_is_told_which_gpu(open_runner: Open) -> None:
    assert open_runner(doubling()).gpu == "0000:1B:00.0"


def test_unknown_precision(fake: FakeTensorRT) -> None:
    with pytest.raises(UsageError, match=r"one of fp32, fp16, int8, best, got 'int4'"):
        TensorRTRunner(b"plan", "int4", device=fake.device, api=fake.api)


class TestUsualFeeds:
    """What an engine is timed with where there are no data."""

    def test_types_and_shapes_are_those_it_was_tuned_for(self, open_runner: Open) -> None:
        inputs = [
            Tensor("x", (-1, 3), bounds=DYNAMIC),
            Tensor("half", (2, 2), DataType.HALF),
            Tensor("ids", (1, 4), DataType.INT32),
            Tensor("mask", (1, 4), DataType.BOOL),
            Tensor("sizes", (2,), DataType.INT32, [(1, 1), (3, 5), (9, 9)], host=True),
        ]
        network = FakeNetwork(inputs, [Tensor("y", (-1, 3))], lambda x, **_: (x,))
        found = open_runner(network).usual_feeds()
        assert {name: (array.shape, array.dtype.name) for name, array in found.items()} == {
            "x": ((4, 3), "float32"),
            "half": ((2, 2), "float16"),
            "ids": ((1, 4), "int32"),
            "mask": ((1, 4), "bool"),
            "sizes": ((2,), "int32"),
        }
        # Zeros would take less power, and be faster than data.
        assert np.unique(found["x"]).size == 12
        assert not found["ids"].any()
        assert found["mask"].all()
        assert found["sizes"].tolist() == [3, 5]

    @pytest.mark.parametrize(
        "untold",
        [
            Tensor("sizes", (2,), DataType.INT32, [(1,), (3,), (9,)], host=True),
            Tensor("sizes", (2,), DataType.INT32, host=True),
        ],
        ids=["the first value alone", "nothing"],
    )
    def test_sizes_that_the_engine_does_not_tell(self, open_runner: Open, untold: Tensor) -> None:
        network = FakeNetwork([untold], [Tensor("y", (1,))], lambda sizes: ([0.0],))
        with pytest.raises(EngineError, match="does not tell what its input 'sizes' usually is"):
            open_runner(network).usual_feeds()
