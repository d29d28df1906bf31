"""Device memory by NVIDIA's cuda-python, for machines where PyCUDA cannot be built."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from calib.data import Array
from calib.engine.cuda_capture import SPOILT
from calib.engine.cuda_failures import cuda_failure, no_such_gpu, too_old
from calib.errors import MissingExtraError, require

__all__ = ["CudaPythonDriver", "open_driver"]

_EXTRA = "cuda-python"
# The layout of 12.8 and later, then the one up to 12.
_MODULES = ("cuda.bindings.driver", "cuda.cuda")
_NON_BLOCKING = 1
_OUT_OF_MEMORY = 2
_ALLOCATING = frozenset({"cuMemAlloc", "cuMemHostAlloc"})


def open_driver(index: int) -> CudaPythonDriver:
    """Starts CUDA by cuda-python and retains the GPU's primary context.

    Args:
        index: Number of the GPU.

    Raises:
        MissingExtraError: cuda-python is not installed, or not usable with this Python.
        EngineError: There is no such GPU, or CUDA fails.
    """
    calls = _Calls(_import())
    calls("cuInit", 0)
    count = int(calls("cuDeviceGetCount"))
    if not 0 <= index < count:
        raise no_such_gpu(index, count)
    return CudaPythonDriver(calls, index)


def _import() -> ModuleType:
    newer, older = _MODULES
    purpose = "Device memory by cuda-python"
    try:
        return require(newer, _EXTRA, purpose)
    except MissingExtraError as error:
        try:
            return require(older, _EXTRA, purpose)
        except MissingExtraError:
            raise error from None


class _Calls:
    """The driver's functions, whose first result is an error code."""

    def __init__(self, cuda: ModuleType) -> None:
        self.cuda: Any = cuda

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Calls a function.

        Returns:
            Its result; a tuple where there are several, None where there is none.

        Raises:
            MemoryError: There is not enough memory, for a function that gives some.
            EngineError: It fails, or the driver does not have it.
        """
        code, *results = self.raw(name, *arguments)
        if int(code) == _OUT_OF_MEMORY and name in _ALLOCATING:
            raise MemoryError(f"{name}: out of memory")
        if int(code):
            raise cuda_failure(name, self.text(code))
        if not results:
            return None
        return results[0] if len(results) == 1 else tuple(results)

    def raw(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Calls a function and gives its error code, too."""
        try:
            results: tuple[Any, ...] = getattr(self.cuda, name)(*arguments)
        except RuntimeError as error:
            if "not found" in str(error) and name in str(error):
                raise too_old(name) from error
            raise
        return results

    def text(self, code: Any) -> str:
        """What an error code means."""
        _, text = self.cuda.cuGetErrorString(code)
        return text.decode() if isinstance(text, bytes) else str(text or f"error {int(code)}")


def _text(found: Any) -> str:
    """What the driver wrote into a buffer of characters."""
    return found.split(b"\0")[0].decode() if isinstance(found, bytes) else str(found)


class CudaPythonDriver:
    """CUDA's driver API by cuda-python; see ``calib.engine.cuda_driver.CudaDriver``."""

    implementation = "cuda-python"

    def __init__(self, calls: _Calls, index: int) -> None:
        """Retains the primary context, which stays as current as it was.

        Args:
            calls: The driver's functions, initialized.
            index: Number of the GPU.
        """
        self._call = calls
        self.index = index
        self._device = calls("cuDeviceGet", index)
        self.name = _text(calls("cuDeviceGetName", 256, self._device))
        self.pci_bus_id = _text(calls("cuDeviceGetPCIBusId", 32, self._device))
        kinds = calls.cuda.CUdevice_attribute
        major, minor = (
            calls(
                "cuDeviceGetAttribute",
                getattr(kinds, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"),
                self._device,
            )
            for part in ("MAJOR", "MINOR")
        )
        self.compute_capability = (int(major), int(minor))
        self._context = calls("cuDevicePrimaryCtxRetain", self._device)

    def push(self) -> None:
        """Makes the primary context current."""
        self._call("cuCtxPushCurrent", self._context)

    def pop(self) -> None:
        """Takes it off this thread's stack again."""
        self._call("cuCtxPopCurrent")

    def release(self) -> None:
        """Gives the primary context back, at the end of the process."""
        self._call("cuDevicePrimaryCtxRelease", self._device)

    def synchronize(self) -> None:
        """Waits for the whole GPU."""
        self._call("cuCtxSynchronize")

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def allocate(self, nbytes: int) -> Any:
        """Device memory; raises MemoryError where there is not enough."""
        return self._call("cuMemAlloc", nbytes)

    def address(self, memory: Any) -> int:
        """Where device memory lies."""
        return int(memory)

    def free(self, memory: Any) -> None:
        """Gives device memory back."""
        self._call("cuMemFree", memory)

    def copy_in(self, address: int, array: Array, stream: Any | None) -> None:
        """From a flat array of bytes to the device."""
        if stream is None:
            self._call("cuMemcpyHtoD", address, array.ctypes.data, array.nbytes)
        else:
            self._call("cuMemcpyHtoDAsync", address, array.ctypes.data, array.nbytes, stream)

    def copy_out(self, array: Array, address: int, stream: Any | None) -> None:
        """From the device to a flat array of bytes."""
        if stream is None:
            self._call("cuMemcpyDtoH", array.ctypes.data, address, array.nbytes)
        else:
            self._call("cuMemcpyDtoHAsync", array.ctypes.data, address, array.nbytes, stream)

    def allocate_pinned(self, nbytes: int) -> tuple[Any, int]:
        """Page-locked memory and its address; raises MemoryError where there is not enough."""
        address = int(self._call("cuMemHostAlloc", nbytes, 0))
        return address, address

    def free_pinned(self, memory: Any) -> None:
        """Gives page-locked memory back."""
        self._call("cuMemFreeHost", memory)

    def make_stream(self) -> Any:
        """A stream that does not wait for the default stream."""
        return self._call("cuStreamCreate", _NON_BLOCKING)

    def stream_handle(self, stream: Any) -> int:
        """The CUstream as a number."""
        return int(stream)

    def synchronize_stream(self, stream: Any) -> None:
        """Waits for a stream."""
        self._call("cuStreamSynchronize", stream)

    def wait_event(self, stream: Any, event: Any) -> None:
        """Lets a stream wait for an event."""
        self._call("cuStreamWaitEvent", stream, event, 0)

    def free_stream(self, stream: Any) -> None:
        """Gives a stream back."""
        self._call("cuStreamDestroy", stream)

    def make_event(self) -> Any:
        """An event that takes the time."""
        return self._call("cuEventCreate", 0)

    def record_event(self, event: Any, stream: Any) -> None:
        """Records an event in a stream."""
        self._call("cuEventRecord", event, stream)

    def synchronize_event(self, event: Any) -> None:
        """Waits for an event."""
        self._call("cuEventSynchronize", event)

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds between two events that are reached."""
        return float(self._call("cuEventElapsedTime", start, end))

    def free_event(self, event: Any) -> None:
        """Gives an event back."""
        self._call("cuEventDestroy", event)

    def begin_capture(self, stream: Any) -> None:
        """Starts capturing this thread's work on a stream."""
        modes = self._call.cuda.CUstreamCaptureMode
        self._call("cuStreamBeginCapture", stream, modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)

    def end_capture(self, stream: Any) -> Any | None:
        """A graph to launch; None where the capture was spoilt."""
        code, graph = self._call.raw("cuStreamEndCapture", stream)
        if int(code) in SPOILT:
            return None
        if int(code) or not int(graph):
            raise cuda_failure("cuStreamEndCapture", self._call.text(code))
        try:
            return self._instantiate(graph)
        finally:
            self._call("cuGraphDestroy", graph)

    def _instantiate(self, graph: Any) -> Any:
        # With CUDA 12 the shorter name took over the longer one's arguments, and the longer one went.
        with_flags = hasattr(self._call.cuda, "cuGraphInstantiateWithFlags")
        return self._call("cuGraphInstantiateWithFlags" if with_flags else "cuGraphInstantiate", graph, 0)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        """Launches a graph."""
        self._call("cuGraphLaunch", graph, stream)

    def free_graph(self, graph: Any) -> None:
        """Gives a graph back."""
        self._call("cuGraphExecDestroy", graph)
