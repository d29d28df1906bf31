"""Device memory by PyCUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from calib.data import Array
from calib.engine.cuda_capture import GraphCapture, LaunchableGraph
from calib.engine.cuda_failures import cuda_failure, no_such_gpu
from calib.errors import EngineError, require

__all__ = ["PyCudaDriver", "open_driver"]

_NON_BLOCKING = 1

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def open_driver(index: int) -> PyCudaDriver:
    """Starts CUDA by PyCUDA and retains the GPU's primary context.

    Args:
        index: Number of the GPU.

    Raises:
        MissingExtraError: PyCUDA is not installed, or not usable with this Python.
        EngineError: There is no such GPU, or CUDA fails.
    """
    cuda: Any = require("pycuda.driver", "tensorrt", "Device memory by PyCUDA")
    try:
        cuda.init()
        count = int(cuda.Device.count())
        if not 0 <= index < count:
            raise no_such_gpu(index, count)
        return PyCudaDriver(cuda, index)
    except cuda.Error as error:
        raise _failure(error) from error


def _failure(error: Exception) -> EngineError:
    call, _, reason = str(error).partition(" failed: ")
    return cuda_failure(call, reason) if reason else cuda_failure("PyCUDA", str(error))


def _explained(
    method: Callable[Concatenate[PyCudaDriver, _Given], _Result],
) -> Callable[Concatenate[PyCudaDriver, _Given], _Result]:
    """Turns PyCUDA's errors into ours."""

    @functools.wraps(method)
    def call(self: PyCudaDriver, /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        try:
            return method(self, *given, **named)
        except self.cuda.Error as error:
            raise _failure(error) from error

    return call


class PyCudaDriver:
    """CUDA's driver API by PyCUDA; see ``calib.engine.cuda_driver.CudaDriver``."""

    implementation = "pycuda"

    def __init__(self, cuda: Any, index: int) -> None:
        """Retains the primary context, which stays as current as it was.

        Args:
            cuda: The module ``pycuda.driver``, initialized.
            index: Number of the GPU.
        """
        self.cuda = cuda
        self.index = index
        device = cuda.Device(index)
        self.name = str(device.name())
        major, minor = device.compute_capability()
        self.compute_capability = (int(major), int(minor))
        self.pci_bus_id = str(device.pci_bus_id())
        self._context = device.retain_primary_context()
        self._capture: GraphCapture | None = None

    @_explained
    def push(self) -> None:
        """Makes the primary context current."""
        self._context.push()

    @_explained
    def pop(self) -> None:
        """Takes it off this thread's stack again."""
        self._context.pop()

    @_explained
    def release(self) -> None:
        """Gives the primary context back, at the end of the process."""
        self._context.detach()

    @_explained
    def synchronize(self) -> None:
        """Waits for the whole GPU."""
        self._context.synchronize()

    @_explained
    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = self.cuda.mem_get_info()
        return int(free), int(total)

    @_explained
    def allocate(self, nbytes: int) -> Any:
        """Device memory; raises MemoryError where there is not enough."""
        try:
            return self.cuda.mem_alloc(nbytes)
        except self.cuda.MemoryError as error:
            raise MemoryError(str(error)) from error

    def address(self, memory: Any) -> int:
        """Where device memory lies."""
        return int(memory)

    @_explained
    def free(self, memory: Any) -> None:
        """Gives device memory back."""
        memory.free()

    @_explained
    def copy_in(self, address: int, array: Array, stream: Any | None) -> None:
        """From a flat array of bytes to the device."""
        if stream is None:
            self.cuda.memcpy_htod(address, array)
        else:
            self.cuda.memcpy_htod_async(address, array, stream)

    @_explained
    def copy_out(self, array: Array, address: int, stream: Any | None) -> None:
        """From the device to a flat array of bytes."""
        if stream is None:
            self.cuda.memcpy_dtoh(array, address)
        else:
            self.cuda.memcpy_dtoh_async(array, address, stream)

    @_explained
    def allocate_pinned(self, nbytes: int) -> tuple[Any, int]:
        """Page-locked memory and its address; raises MemoryError where there is not enough."""
        try:
            array = self.cuda.pagelocked_empty((nbytes,), np.uint8)
        except self.cuda.MemoryError as error:
            raise MemoryError(str(error)) from error
        return array.base, int(array.ctypes.data)

    @_explained
    def free_pinned(self, memory: Any) -> None:
        """Gives page-locked memory back."""
        memory.free()

    @_explained
    def make_stream(self) -> Any:
        """A stream that does not wait for the default stream."""
        return self.cuda.Stream(_NON_BLOCKING)

    def stream_handle(self, stream: Any) -> int:
        """The CUstream as a number."""
        return int(stream.handle)

    @_explained
    def synchronize_stream(self, stream: Any) -> None:
        """Waits for a stream."""
        stream.synchronize()

    @_explained
    def wait_event(self, stream: Any, event: Any) -> None:
        """Lets a stream wait for an event."""
        stream.wait_for_event(event)

    def free_stream(self, stream: Any) -> None:
        """Gives a stream back: PyCUDA does it with the last reference, which the caller drops."""

    @_explained
    def make_event(self) -> Any:
        """An event that takes the time."""
        return self.cuda.Event()

    @_explained
    def record_event(self, event: Any, stream: Any) -> None:
        """Records an event in a stream."""
        event.record(stream)

    @_explained
    def synchronize_event(self, event: Any) -> None:
        """Waits for an event."""
        event.synchronize()

    @_explained
    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds between two events that are reached."""
        return float(start.time_till(end))

    def free_event(self, event: Any) -> None:
        """Gives an event back, as ``free_stream`` does a stream."""

    def begin_capture(self, stream: Any) -> None:
        """Starts capturing this thread's work on a stream."""
        if self._capture is None:
            self._capture = GraphCapture()
        self._capture.begin(self.stream_handle(stream))

    def end_capture(self, stream: Any) -> LaunchableGraph | None:
        """A graph to launch; None where the capture was spoilt."""
        return self._graphs.end(self.stream_handle(stream))

    def launch_graph(self, graph: LaunchableGraph, stream: Any) -> None:
        """Launches a graph."""
        self._graphs.launch(graph, self.stream_handle(stream))

    def free_graph(self, graph: LaunchableGraph) -> None:
        """Gives a graph back."""
        self._graphs.free(graph)

    @property
    def _graphs(self) -> GraphCapture:
        if self._capture is None:
            raise EngineError("No CUDA graph is being captured: call begin_capture() before end_capture().")
        return self._capture
