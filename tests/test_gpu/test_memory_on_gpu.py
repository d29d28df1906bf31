"""Device memory on a real GPU: ``python -m pytest -m gpu -s tests/test_gpu/test_memory_on_gpu.py``.

Needs PyCUDA or cuda-python; tests of the one that is missing are skipped. The one beside torch needs torch.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from calib.engine import TelemetrySampler, open_device
from calib.engine.memory import IMPLEMENTATIONS
from calib.errors import EngineError, MissingExtraError

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

MIB = 1 << 20


def current_context() -> int:
    """The driver's current context of this thread."""
    found = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(found))
    return found.value or 0


@pytest.fixture(params=IMPLEMENTATIONS)
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    try:
        opened = open_device(implementation=request.param)
    except MissingExtraError as error:
        pytest.skip(str(error))
    before = current_context()
    with opened:
        assert current_context() != 0
        yield opened
    assert current_context() == before


def test_what_it_is(device: Any) -> None:
    free, total = device.memory_info()
    print(f"\n{device.implementation}: {device.name}, compute capability {device.compute_capability}, "
          f"{free / MIB:.0f} of {total / MIB:.0f} MiB free")  # fmt: skip
    assert 0 < free <= total
    assert device.compute_capability >= (5, 0)


def test_nvml_knows_it_by_its_bus(device: Any) -> None:
    pytest.importorskip("pynvml")
    with TelemetrySampler(device.pci_bus_id) as sampler:
        pass
    assert sampler.readings.readings, sampler.readings.problem


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, np.uint8])
def test_a_round_trip(device: Any, dtype: Any) -> None:
    values = np.random.default_rng(0).integers(0, 2, (1000, 1003)).astype(dtype)
    buffer = device.allocate(values.nbytes)
    assert buffer.address % 256 == 0
    buffer.write(values)
    found = np.zeros_like(values)
    buffer.read(found)
    np.testing.assert_array_equal(found, values)


def test_a_copy_without_a_stream_is_seen_by_a_stream_at_once(device: Any) -> None:
    stream, buffer = device.stream(), device.allocate(64 * MIB)
    target = device.pinned((64 * MIB,), np.uint8)
    for value in range(1, 6):
        buffer.write(np.full(64 * MIB, value, np.uint8))
        buffer.read(target, stream)
        stream.synchronize()
        assert (target == value).all()


def test_events_measure_a_copy(device: Any) -> None:
    size = 256 * MIB
    source, buffer, stream = device.pinned((size,), np.uint8), device.allocate(size), device.stream()
    source[:] = 1
    start, end = device.event(), device.event()
    for _ in range(3):
        start.record(stream)
        buffer.write(source, stream)
        end.record(stream)
    ms = device.elapsed_ms(start, end)
    speed = size / ms / 1e6
    print(f"\n{device.implementation}: {size // MIB} MiB from pinned memory in {ms:.2f} ms: {speed:.1f} GB/s")
    # From PCIe 2 at half its width to what NVLink to the host can do.
    assert 1 < speed < 1000
    with pytest.raises(EngineError, match="cuEventElapsedTime"):
        device.elapsed_ms(device.event(), end)


def test_one_stream_waits_for_another(device: Any) -> None:
    first, second, copied = device.stream(), device.stream(), device.event()
    source, target = device.pinned((64 * MIB,), np.uint8), device.pinned((64 * MIB,), np.uint8)
    source[:], target[:] = 9, 0
    buffer = device.allocate(64 * MIB)
    buffer.write(source, first)
    copied.record(first)
    second.wait(copied)
    buffer.read(target, second)
    second.synchronize()
    assert (target == 9).all()


def test_a_captured_graph(device: Any) -> None:
    stream, buffer = device.stream(), device.allocate(4096)
    source, target = device.pinned((1024,), np.float32), device.pinned((1024,), np.float32)
    source[:], target[:] = 1, 0
    stream.begin_capture()
    buffer.write(source, stream)
    buffer.read(target, stream)
    graph = stream.end_capture()
    assert graph is not None
    assert target.sum() == 0, "captured, not run"
    for value in (2, 3):
        source[:] = value
        graph.launch(stream)
        stream.synchronize()
        assert (target == value).all()
    graph.free()


def test_a_spoilt_capture(device: Any) -> None:
    stream = device.stream()
    stream.begin_capture()
    with pytest.raises(EngineError, match="not allowed while a CUDA graph is captured"):
        stream.synchronize()
    assert stream.end_capture() is None
    stream.synchronize()


def test_out_of_memory(device: Any) -> None:
    free, total = device.memory_info()
    with pytest.raises(
        EngineError, match=rf"Out of memory on GPU 0 .*wanted {2 * total:,} bytes, free are [\d,]+"
    ) as told:
        device.allocate(2 * total)
    print(f"\n{told.value}")
    buffer = device.allocate(MIB)
    buffer.write(np.zeros(MIB, np.uint8))
    assert free > 0


def test_leaving_gives_the_memory_back(device: Any) -> None:
    before, _ = device.memory_info()

    def work() -> None:
        with open_device(implementation=device.implementation) as again:
            again.allocate(512 * MIB)
            assert again.memory_info()[0] <= before - 500 * MIB
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        work()
    assert device.memory_info()[0] >= before - 16 * MIB


def test_pinned_memory_outlives_the_device(device: Any) -> None:
    with open_device(implementation=device.implementation) as again:
        array = again.pinned((MIB,), np.uint8)
    array[:] = 5
    assert array.sum() == 5 * MIB
    del array
    gc.collect()


def test_another_thread(device: Any) -> None:
    seen: list[Any] = []

    def work() -> None:
        buffer, stream = device.allocate(400), device.stream()
        source, target = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
        buffer.write(source, stream)
        stream.synchronize()
        buffer.read(target)
        stream.free()
        buffer.free()
        seen.extend((bool((source == target).all()), current_context()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True, 0]


def test_torch_beside_it_works_on_the_same_memory_and_streams(device: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    values = torch.arange(1000, dtype=torch.float32, device="cuda")
    context = current_context()
    with open_device(implementation=device.implementation) as inner:
        assert current_context() == context, "the primary context, which torch uses"
        stream = inner.stream()
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
            doubled = values * 2
        stream.synchronize()
        buffer = inner.allocate(4000)
        buffer.write(doubled.cpu().numpy())
        inner.pinned((4,), np.float32)
    assert current_context() == context
    assert float((values * 3).sum()) == 3 * 999 * 1000 / 2
    assert float(doubled[-1]) == 1998


def test_a_gpu_that_is_not_there(device: Any) -> None:
    with pytest.raises(EngineError, match="No GPU 4096: CUDA has GPU"):
        open_device(4096, device.implementation)
