from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_installs import LAYOUTS, install_driver, install_packages
from fake_cuda import PRIMARY, FakeGpu, make_library

from calib.engine import cuda_capture, cuda_device, driver_library, open_device
from calib.errors import EngineError, MissingExtraError, UsageError

TORCH = 0x70
"""A context that was current before."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    fake = install_driver(monkeypatch)
    fake.stack.append(TORCH)
    yield fake
    assert fake.stack == [TORCH]


@pytest.fixture(params=LAYOUTS)
def device(request: pytest.FixtureRequest, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> Any:
    install_packages(monkeypatch, gpu, request.param)
    opened = open_device()
    assert gpu.stack == [TORCH]
    return opened


def test_what_a_device_is(device: Any) -> None:
    assert (device.index, device.name, device.compute_capability) == (0, "Fake GPU", (9, 0))
    assert device.pci_bus_id == "0000:1B:00.0"
    assert device.implementation in ("pycuda", "cuda-python")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, np.uint8])
def test_a_round_trip(device: Any, dtype: Any) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    with device:
        buffer = device.allocate(values.nbytes)
        buffer.write(np.asfortranarray(values))
        found = np.empty_like(values, order="C")
        buffer.read(found)
        np.testing.assert_array_equal(found, values)
        buffer.read(part := np.empty(5, dtype))
        np.testing.assert_array_equal(part, values.ravel()[:5])
        buffer.write(np.empty(0, dtype))


def test_copies_on_a_stream_from_pinned_memory(device: Any, gpu: FakeGpu) -> None:
    with device:
        stream = device.stream()
        assert stream.handle in gpu.live
        start, end = device.event(), device.event()
        source, target = device.pinned((3, 5), np.float32), device.pinned((15,), "float32")
        source[:] = np.arange(15).reshape(3, 5)
        buffer = device.allocate(source.nbytes)
        start.record(stream)
        buffer.write(source, stream)
        buffer.read(target, stream)
        end.record(stream)
        stream.wait(end)
        stream.synchronize()
        end.synchronize()
        np.testing.assert_array_equal(target, np.arange(15))
        # The fake's clock counts 1.5 ms a copy.
        assert device.elapsed_ms(start, end) == 3.0
        assert gpu.calls.count("cuMemcpyHtoDAsync") == gpu.calls.count("cuMemcpyDtoHAsync") == 1


def test_a_copy_without_a_stream_waits_for_all_work_before_and_for_itself_after(
    device: Any, gpu: FakeGpu
) -> None:
    with device:
        buffer = device.allocate(8)
        gpu.calls.clear()
        buffer.write(np.zeros(2, np.float32))
        assert [name for name in gpu.calls if "Ctx" not in name or "Sync" in name] == [
            "cuCtxSynchronize",
            "cuMemcpyHtoD",
            "cuCtxSynchronize",
        ]


def test_the_context_is_current_inside_and_the_stack_as_before_outside(device: Any, gpu: FakeGpu) -> None:
    with device:
        assert gpu.stack == [TORCH, PRIMARY]
        with device:
            device.allocate(4)
        assert "memory" in gpu.kinds()
        assert gpu.stack == [TORCH, PRIMARY]
        with open_device() as again:
            # PyCUDA keeps its other contexts off the driver's stack.
            assert gpu.stack[-1] == PRIMARY
            again.stream()
        assert gpu.stack == [TORCH, PRIMARY]
        assert gpu.kinds() == ["memory"]
    assert gpu.stack == [TORCH]
    assert gpu.kinds() == []
    assert gpu.retained == 1, "one context for the life of the process"


def test_everything_is_freed_after_an_error_the_last_first(device: Any, gpu: FakeGpu) -> None:
    made: list[Any] = []

    def work() -> None:
        with device:
            made.extend((device.allocate(4), device.stream(), device.event()))
            made[1].begin_capture()
            made.append(made[1].end_capture())
            gpu.calls.clear()
            raise KeyError

    with pytest.raises(KeyError):
        work()
    order = [name for name in gpu.calls if "Destroy" in name or name == "cuMemFree"]
    assert order == ["cuGraphExecDestroy", "cuEventDestroy", "cuStreamDestroy", "cuMemFree"]
    assert gpu.kinds() == []
    for resource in made:
        resource.free()


def test_what_is_freed_is_freed_once_and_cannot_be_used(device: Any, gpu: FakeGpu) -> None:
    with device:
        buffer, stream = device.allocate(4), device.stream()
        buffer.free()
        buffer.free()
        stream.free()
        assert gpu.kinds() == []
        with pytest.raises(EngineError, match="This buffer of Fake GPU is freed"):
            _ = buffer.address
        with pytest.raises(EngineError, match="This stream of Fake GPU is freed"):
            stream.synchronize()


def test_out_of_memory_says_how_much_was_wanted_and_is_free(device: Any, gpu: FakeGpu) -> None:
    with device:
        device.allocate(1 << 19)
        with pytest.raises(
            EngineError,
            match=r"on GPU 0 \(Fake GPU\): wanted 1,048,576 bytes, free are 524,288 of 1,048,576",
        ):
            device.allocate(1 << 20)
        with pytest.raises(
            EngineError, match=r"Out of memory on the host \(page-locked memory\): wanted 2,097,152"
        ):
            device.pinned((1 << 21,), np.uint8)
        device.allocate(16)
        assert gpu.kinds() == ["memory", "memory"]
    assert gpu.kinds() == []


def test_pinned_memory_lives_as_long_as_its_arrays(device: Any, gpu: FakeGpu) -> None:
    with device:
        array = device.pinned((2, 3), np.float32)
        view = array[1:, ::2]
        del array
    gc.collect()
    assert gpu.kinds() == ["pinned"]
    view[:] = 7
    assert view.sum() == 14
    del view
    gc.collect()
    assert gpu.kinds() == []


def test_another_thread_may_use_the_device_and_keeps_its_own_stack(device: Any, gpu: FakeGpu) -> None:
    seen: list[Any] = []

    def work() -> None:
        gpu.stack.append(TORCH)
        buffer, stream, event = device.allocate(4), device.stream(), device.event()
        buffer.write(np.ones(1, np.float32), stream)
        event.record(stream)
        for resource in (stream, event, buffer):
            resource.free()
        seen.extend(gpu.stack)
        try:
            device.__enter__()
        except EngineError as error:
            seen.append(str(error))

    with device:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert gpu.kinds() == []
    assert seen[0] == TORCH
    assert seen[1].startswith("Fake GPU is open in another thread.")


def test_a_captured_graph_plays_the_work_back(device: Any, gpu: FakeGpu) -> None:
    with device:
        stream, buffer = device.stream(), device.allocate(8)
        source, target = device.pinned((2,), np.float32), device.pinned((2,), np.float32)
        stream.begin_capture()
        buffer.write(source, stream)
        buffer.read(target, stream)
        graph = stream.end_capture()
        assert graph is not None
        assert "graph" not in gpu.kinds(), "the graph itself is given back, the launchable one stays"
        source[:] = 3
        assert target.sum() == 0
        graph.launch(stream)
        stream.synchronize()
        assert target.tolist() == [3, 3]
        graph.free()
        assert "launchable" not in gpu.kinds()


def test_a_spoilt_capture_gives_no_graph_and_the_stream_goes_on(device: Any) -> None:
    with device:
        stream = device.stream()
        stream.begin_capture()
        with pytest.raises(
            EngineError, match=r"not allowed while a CUDA graph is captured.*cuStreamSynchronize"
        ):
            stream.synchronize()
        assert stream.end_capture() is None
        stream.synchronize()


@pytest.mark.parametrize(("call", "code"), [("cuStreamBeginCapture", 1), ("cuGraphInstantiate", 2)])
def test_a_capture_that_fails(device: Any, gpu: FakeGpu, call: str, code: int) -> None:
    gpu.fails[call] = code
    with device:
        stream = device.stream()
        with pytest.raises(EngineError, match=r"invalid argument|out of memory"):  # noqa: PT012
            stream.begin_capture()
            stream.end_capture()
        assert "graph" not in gpu.kinds()
        with pytest.raises(EngineError, match=r"cuStreamEndCapture: invalid argument|No CUDA graph is being"):
            stream.end_capture()


def test_misuse(device: Any) -> None:
    with pytest.raises(EngineError, match=r"Fake GPU is not open. Use it inside: with open_device\(0\)"):
        device.allocate(4)
    with device:
        buffer = device.allocate(4)
        with pytest.raises(EngineError, match="An array of 8 bytes does not fit into a buffer of 4 bytes"):
            buffer.write(np.zeros(2, np.float32))
        with pytest.raises(EngineError, match="C-contiguous, writable"):
            buffer.read(np.zeros((2, 2), np.uint8).T)
        with pytest.raises(EngineError, match="Device memory must have at least 1 byte, got 0"):
            device.allocate(0)
        with pytest.raises(EngineError, match="Expected a stream of calib's device, got int"):
            buffer.write(np.zeros(1, np.float32), 0)
        with pytest.raises(EngineError, match="cuEventElapsedTime: invalid resource handle"):
            device.elapsed_ms(device.event(), device.event())


@pytest.mark.parametrize(
    ("then", "raised", "message"),
    [(None, EngineError, "Earlier work on the GPU wrote or read outside"), (KeyError("x"), KeyError, "x")],
)
def test_an_error_in_freeing_is_told_unless_another_came_first(
    device: Any, gpu: FakeGpu, then: Exception | None, raised: type[Exception], message: str
) -> None:
    gpu.fails["cuGraphExecDestroy"] = 700

    def work() -> None:
        with device:
            stream = device.stream()
            stream.begin_capture()
            stream.end_capture()
            if then is not None:
                raise then

    with pytest.raises(raised, match=message):
        work()
    assert gpu.stack == [TORCH]


def test_the_end_of_the_process_leaves_nothing_behind(device: Any, gpu: FakeGpu) -> None:
    device.__enter__()
    device.allocate(4)
    cuda_device._end()
    assert (gpu.kinds(), gpu.stack, gpu.retained) == ([], [TORCH], 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (100, "No GPU here: the NVIDIA driver finds none, with CUDA_VISIBLE_DEVICES='' in the environment"),
        (803, "kernel module and libcuda are of different versions"),
        (2, "Out of memory on the GPU. End other programs there"),
        (3, r"The NVIDIA driver cannot be initialized: .*\(a fork\)"),
    ],
)
def test_cuda_that_does_not_start(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, layout: str, code: int, message: str
) -> None:
    install_packages(monkeypatch, gpu, layout)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpu.fails["cuInit"] = code
    with pytest.raises(EngineError, match=message):
        open_device()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gpu_that_is_not_there(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    install_packages(monkeypatch, gpu, layout)
    for index in (1, -1):
        with pytest.raises(EngineError, match=f"No GPU {index}: CUDA has GPU 0 alone"):
            open_device(index)
    gpu.count = 0
    with pytest.raises(EngineError, match="No GPU here: the NVIDIA driver finds none"):
        open_device()


def test_a_driver_that_is_too_old(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    install_packages(monkeypatch, gpu, "cuda.bindings.driver")

    def not_there(*_: Any) -> Any:
        raise RuntimeError('Function "cuDevicePrimaryCtxRetain" not found')

    sys.modules["cuda.bindings.driver"].cuDevicePrimaryCtxRetain = not_there  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match="The NVIDIA driver is too old: it has no cuDevicePrimaryCtxRetain"):
        open_device()
    library = make_library(gpu)
    del library.cuStreamBeginCapture_v2
    monkeypatch.setattr(cuda_capture, "load_driver_library", lambda: library)
    with pytest.raises(EngineError, match="too old: it has no cuStreamBeginCapture_v2"):
        cuda_capture.GraphCapture().begin(1)


def test_no_driver_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_library, "DRIVER_LIBRARY", "libcuda-of-no-machine.so.1")
    with pytest.raises(EngineError, match=r"the NVIDIA driver is not installed \(libcuda-of-no"):
        open_device()


def test_pycuda_first_and_cuda_python_where_there_is_none(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_packages(monkeypatch, gpu, *LAYOUTS)
    assert open_device().implementation == "pycuda"
    assert open_device(implementation="cuda-python").implementation == "cuda-python"
    install_packages(monkeypatch, gpu, "cuda.cuda")
    cuda_device.DRIVERS.clear()
    assert open_device().implementation == "cuda-python"
    with pytest.raises(MissingExtraError, match=r"PyCUDA needs pycuda.driver, .*int8-calib\[tensorrt\]"):
        open_device(implementation="pycuda")
    install_packages(monkeypatch, gpu)
    cuda_device.DRIVERS.clear()
    with pytest.raises(MissingExtraError, match=r"PyCUDA or cuda-python\..*\[tensorrt\].*\[cuda-python\]"):
        open_device()
    with pytest.raises(UsageError, match="must be one of pycuda, cuda-python, got 'torch'"):
        open_device(implementation="torch")


def test_importing_starts_no_cuda() -> None:
    code = (
        "import sys, calib.engine.memory, calib.engine.native, calib.engine.native_calibration; "
        "assert not {'pycuda', 'cuda', 'tensorrt', 'torch'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
