"""A GPU that is a clock and some bytearrays: work is done in stream order, at virtual times.

Nothing happens when it is enqueued. A stream's work is done when somebody waits for it, so that a
runner that reads too early reads garbage, and one that stops its clock too early measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
from typing_extensions import Self

from calib.errors import EngineError

__all__ = ["FakeDevice"]

_GARBAGE = 0xAB
_ALIGNMENT = 256


class FakeBuffer:
    def __init__(self, device: FakeDevice, address: int, nbytes: int) -> None:
        self.device, self.address, self.nbytes = device, address, nbytes
        self.content = np.full(nbytes, _GARBAGE, np.uint8)

    def write(self, array: np.ndarray, stream: FakeStream | None = None) -> None:
        assert array.nbytes <= self.nbytes
        self._copy(stream, lambda: self._put(array))

    def _put(self, array: np.ndarray) -> None:
        self.content[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)

    def read(self, array: np.ndarray, stream: FakeStream | None = None) -> None:
        assert array.nbytes <= self.nbytes
        self._copy(stream, lambda: self._get(array))

    def _get(self, array: np.ndarray) -> None:
        array[...] = self.content[: array.nbytes].view(array.dtype).reshape(array.shape)

    def _copy(self, stream: FakeStream | None, action: Callable[[], None]) -> None:
        assert self.address in self.device.memory, "used after it was freed"
        assert stream is not None
        stream.add(self.device.copy_ms, action)

    def free(self) -> None:
        del self.device.memory[self.address]
        if self.device.fail_free:
            raise EngineError("cuMemFree failed")


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.time_ms: float | None = None

    def record(self, stream: FakeStream) -> None:
        self.time_ms = None

        def mark() -> None:
            self.time_ms = self.device.gpu_ms

        stream.add(0.0, mark)

    def synchronize(self) -> None:
        self.device.stream_of_all.synchronize()

    def free(self) -> None:
        self.device.handles.remove(self)


class FakeGraph:
    def __init__(self, work: list[tuple[float, Callable[[], None]]]) -> None:
        self.work = work
        self.launches = 0
        self.freed = False

    def launch(self, stream: FakeStream) -> None:
        assert not self.freed
        self.launches += 1
        stream.device.host_ms += stream.device.graph_launch_ms
        for duration, action in self.work:
            stream.add(duration, action)

    def free(self) -> None:
        self.freed = True


class FakeStream:
    handle = 77

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.queue: list[tuple[float, float, Callable[[], None]]] = []
        self.capturing: list[tuple[float, Callable[[], None]]] | None = None

    def add(self, duration_ms: float, action: Callable[[], None]) -> None:
        if self.capturing is not None:
            self.capturing.append((duration_ms, action))
        else:
            self.queue.append((self.device.host_ms, duration_ms, action))

    def synchronize(self) -> None:
        assert self.capturing is None, "a stream that captures cannot be waited for"
        device, queue = self.device, self.queue
        self.queue = []
        for submitted, duration, action in queue:
            device.gpu_ms = max(device.gpu_ms, submitted) + duration
            action()
        device.host_ms = max(device.host_ms, device.gpu_ms)

    def free(self) -> None:
        self.device.handles.remove(self)

    def begin_capture(self) -> None:
        if self.device.no_capture == "begin":
            raise EngineError("this PyCUDA cannot capture")
        self.capturing = []

    def end_capture(self) -> FakeGraph | None:
        work, self.capturing = self.capturing, None
        if self.device.no_capture == "end":
            return None
        self.device.graphs.append(FakeGraph(work or []))
        return self.device.graphs[-1]


class FakeDevice:
    """Implements the protocol of ``calib.engine.memory`` on virtual time, in ms."""

    name = "Fake H200"
    compute_capability = (9, 0)
    pci_bus_id = "0000:1B:00.0"
    implementation = "fake"

    def __init__(self, *, no_capture: str = "", most_bytes: int = 1 << 30) -> None:
        self.no_capture = no_capture
        self.most_bytes = most_bytes
        self.copy_ms = 2.0
        self.pinning_ms = 0.0
        self.graph_launch_ms = 0.01
        self.fail_free = False
        self.host_ms = 0.0
        self.gpu_ms = 0.0
        self.memory: dict[int, FakeBuffer] = {}
        self.allocations = 0
        self.graphs: list[FakeGraph] = []
        self.entered = 0
        self.stream_of_all = FakeStream(self)
        self.handles: list[FakeStream | FakeEvent] = []

    def __enter__(self) -> Self:
        self.entered += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.entered -= 1
        # Several runners have one device in a test; the last to leave must have left nothing.
        if not self.entered:
            self.check_nothing_left()

    def check_nothing_left(self) -> None:
        assert not self.memory, "device memory was left"
        assert not self.handles, "streams or events were left"
        assert all(graph.freed for graph in self.graphs), "graphs were left"

    def now(self) -> float:
        """The host's clock, in seconds."""
        return self.host_ms / 1e3

    def allocate(self, nbytes: int) -> FakeBuffer:
        assert nbytes > 0
        used = sum(buffer.nbytes for buffer in self.memory.values())
        if used + nbytes > self.most_bytes:
            raise EngineError(f"The GPU's memory is full: {nbytes} bytes were asked for.")
        self.allocations += 1
        address = self.allocations * (1 << 32) + _ALIGNMENT
        self.memory[address] = FakeBuffer(self, address, nbytes)
        return self.memory[address]

    def stream(self) -> FakeStream:
        self.handles.append(self.stream_of_all)
        return self.stream_of_all

    def event(self) -> FakeEvent:
        event = FakeEvent(self)
        self.handles.append(event)
        return event

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        self.host_ms += self.pinning_ms
        return np.full(shape, _GARBAGE, np.uint8).view(dtype)

    def elapsed_ms(self, start: FakeEvent, end: FakeEvent) -> float:
        assert start.time_ms is not None
        assert end.time_ms is not None, "the event was not reached yet"
        return end.time_ms - start.time_ms

    def memory_info(self) -> tuple[int, int]:
        used = sum(buffer.nbytes for buffer in self.memory.values())
        return self.most_bytes - used, self.most_bytes
