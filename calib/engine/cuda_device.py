"""The device behind ``calib.engine.memory``: ownership, checks and context, over a thin driver."""

from __future__ import annotations

import atexit
import math
import weakref
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from calib.data import Array
from calib.engine.cuda_driver import CudaDriver
from calib.engine.cuda_failures import out_of_memory
from calib.engine.memory import Event, Graph, Stream
from calib.errors import CalibError, EngineError

__all__ = ["DRIVERS", "CudaBuffer", "CudaDevice", "CudaEvent", "CudaGraph", "CudaStream"]

DRIVERS: dict[tuple[str, int], CudaDriver] = {}
"""(Implementation, number of the GPU) → driver. Each retains the GPU's primary context once, until the
process ends: making a context takes long, and PyCUDA leaves one that it gives back on the thread's stack."""


class _Pushed:
    """The context on the stack of a thread that did not enter the device."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver

    def __enter__(self) -> None:
        self._driver.push()

    def __exit__(self, *details: object) -> None:
        self._driver.pop()


_NOTHING = nullcontext()
_OPEN: weakref.WeakSet[CudaDevice] = weakref.WeakSet()


class CudaDevice:
    """A GPU; see ``calib.engine.memory.Device``."""

    def __init__(self, driver: CudaDriver) -> None:
        self.driver = driver
        self.index = driver.index
        self.name = driver.name
        self.compute_capability = driver.compute_capability
        self.pci_bus_id = driver.pci_bus_id
        self.implementation = driver.implementation
        self._depth = 0
        self._thread: int | None = None
        self._owned: dict[int, _Owned] = {}

    def __repr__(self) -> str:
        return f"<CudaDevice {self.index}: {self.name} by {self.implementation}>"

    def __enter__(self) -> Self:
        if self._depth == 0:
            self.driver.push()
            self._thread = get_ident()
            _OPEN.add(self)
        elif self._thread != get_ident():
            raise EngineError(
                f"{self.name} is open in another thread. Use it there, or open it again with open_device()."
            )
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        failure = self._leave()
        # After an error on the GPU nothing can be freed any more: what came first tells why.
        if failure is not None and error is None:
            raise failure

    def _leave(self) -> CalibError | None:
        failure = self._free_all()
        self._depth, self._thread = 0, None
        _OPEN.discard(self)
        self.driver.pop()
        return failure

    def _free_all(self) -> CalibError | None:
        failures = [resource.attempt_free() for resource in reversed(self._owned.copy().values())]
        self._owned.clear()
        return next(filter(None, failures), None)

    def current(self) -> AbstractContextManager[Any]:
        """Makes the context current where it is not, for the time of a call.

        Raises:
            EngineError: The device is not open.
        """
        if self._thread == get_ident():
            return _NOTHING
        if self._thread is None:
            raise EngineError(
                f"{self.name} is not open. Use it inside: with open_device({self.index}) as device"
            )
        return _Pushed(self.driver)

    def own(self, resource: _Owned) -> None:
        """Takes over freeing something when the device is left."""
        self._owned[id(resource)] = resource

    def disown(self, resource: _Owned) -> None:
        """The opposite of ``own``."""
        self._owned.pop(id(resource), None)

    def allocate(self, nbytes: int) -> CudaBuffer:
        """Device memory; see ``Device``."""
        if nbytes < 1:
            raise EngineError(f"Device memory must have at least 1 byte, got {nbytes}.")
        with self.current():
            try:
                memory = self.driver.allocate(nbytes)
            except MemoryError as error:
                what = f"GPU {self.index} ({self.name})"
                raise out_of_memory(nbytes, what, self.driver.memory_info()) from error
        return CudaBuffer(self, memory, nbytes)

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Page-locked host memory; see ``Device``."""
        kind = np.dtype(dtype)
        needed = math.prod(shape) * kind.itemsize
        with self.current():
            try:
                memory, address = self.driver.allocate_pinned(max(needed, 1))
            except MemoryError as error:
                raise out_of_memory(needed, "the host (page-locked memory)", None) from error
        pages = _Pages(self.driver, memory, address, max(needed, 1))
        flat: Array = np.asarray(pages)
        return flat[:needed].view(kind).reshape(shape)

    def stream(self) -> CudaStream:
        """A new stream."""
        with self.current():
            return CudaStream(self, self.driver.make_stream())

    def event(self) -> CudaEvent:
        """A new event."""
        with self.current():
            return CudaEvent(self, self.driver.make_event())

    def elapsed_ms(self, start: Event, end: Event) -> float:
        """GPU time between two recorded events, in milliseconds."""
        first, last = _ours(start, CudaEvent), _ours(end, CudaEvent)
        with self.current():
            self.driver.synchronize_event(last.raw)
            return self.driver.elapsed_ms(first.raw, last.raw)

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of the GPU's memory."""
        with self.current():
            return self.driver.memory_info()

    def synchronize(self) -> None:
        """Waits until all work on the GPU is done."""
        with self.current():
            self.driver.synchronize()

    @property
    def thread(self) -> int | None:
        """The thread that entered it; None while it is not open."""
        return self._thread

    def close(self) -> None:
        """Leaves it however often it was entered, and says nothing of what cannot be freed."""
        if self._depth:
            self._leave()


@atexit.register
def _end() -> None:
    # PyCUDA aborts a process that ends with a context on its stack.
    for device in list(_OPEN):
        if device.thread == get_ident():
            device.close()
    while DRIVERS:
        DRIVERS.popitem()[1].release()


class _Owned:
    """Something of the driver's that is given back once."""

    what = "resource"

    def __init__(self, device: CudaDevice, raw: Any) -> None:
        self._device = device
        self._raw = raw
        device.own(self)

    @property
    def raw(self) -> Any:
        """The driver's handle.

        Raises:
            EngineError: It is freed.
        """
        if self._raw is None:
            raise EngineError(
                f"This {self.what} of {self._device.name} is freed and cannot be used any more."
            )
        return self._raw

    def free(self) -> None:
        """Gives it back; a second call does nothing."""
        raw, self._raw = self._raw, None
        if raw is None:
            return
        self._device.disown(self)
        with self._device.current():
            self._release(raw)
            # PyCUDA gives back streams and events with the last reference: that must be here.
            del raw

    def attempt_free(self) -> CalibError | None:
        """``free``, with the error as a result."""
        try:
            self.free()
        except CalibError as error:
            return error
        return None

    def _release(self, raw: Any) -> None:
        raise NotImplementedError


_Kind = TypeVar("_Kind", bound=_Owned)


def _ours(resource: object, kind: type[_Kind]) -> _Kind:
    if not isinstance(resource, kind):
        raise EngineError(f"Expected a {kind.what} of calib's device, got {type(resource).__name__}.")
    return resource


class CudaBuffer(_Owned):
    """Device memory; see ``calib.engine.memory.Buffer``."""

    what = "buffer"

    def __init__(self, device: CudaDevice, raw: Any, nbytes: int) -> None:
        super().__init__(device, raw)
        self.nbytes = nbytes
        self._address = device.driver.address(raw)

    @property
    def address(self) -> int:
        """Where it lies on the GPU."""
        return self._address if self.raw is not None else 0

    def write(self, array: Array, stream: Stream | None = None) -> None:
        """Copies an array to the start of the buffer."""
        flat = _bytes_of(np.ascontiguousarray(array))
        self._check_size(flat)
        if not flat.size:
            return
        driver = self._device.driver
        with self._device.current():
            if stream is not None:
                driver.copy_in(self.address, flat, _ours(stream, CudaStream).raw)
                return
            driver.synchronize()
            driver.copy_in(self.address, flat, None)
            # From pageable memory the call returns when the driver has a copy, not when the GPU has it.
            driver.synchronize()

    def read(self, array: Array, stream: Stream | None = None) -> None:
        """Fills an array from the start of the buffer."""
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise EngineError("Reading a buffer needs a C-contiguous, writable array. Read into a new one.")
        flat = _bytes_of(array)
        self._check_size(flat)
        if not flat.size:
            return
        driver = self._device.driver
        with self._device.current():
            if stream is not None:
                driver.copy_out(flat, self.address, _ours(stream, CudaStream).raw)
                return
            driver.synchronize()
            driver.copy_out(flat, self.address, None)

    def _check_size(self, flat: Array) -> None:
        if flat.nbytes > self.nbytes:
            raise EngineError(
                f"An array of {flat.nbytes:,} bytes does not fit into a buffer of {self.nbytes:,} bytes."
            )

    def _release(self, raw: Any) -> None:
        self._device.driver.free(raw)


class CudaStream(_Owned):
    """A stream; see ``calib.engine.memory.Stream``."""

    what = "stream"

    @property
    def handle(self) -> int:
        """The driver's CUstream."""
        return self._device.driver.stream_handle(self.raw)

    def synchronize(self) -> None:
        """Waits until everything that is enqueued is done."""
        with self._device.current():
            self._device.driver.synchronize_stream(self.raw)

    def wait(self, event: Event) -> None:
        """Lets what is enqueued from now on wait for an event."""
        with self._device.current():
            self._device.driver.wait_event(self.raw, _ours(event, CudaEvent).raw)

    def begin_capture(self) -> None:
        """Captures what this thread enqueues from now on."""
        with self._device.current():
            self._device.driver.begin_capture(self.raw)

    def end_capture(self) -> Graph | None:
        """Ends the capture."""
        with self._device.current():
            graph = self._device.driver.end_capture(self.raw)
        return None if graph is None else CudaGraph(self._device, graph)

    def _release(self, raw: Any) -> None:
        self._device.driver.free_stream(raw)


class CudaEvent(_Owned):
    """An event; see ``calib.engine.memory.Event``."""

    what = "event"

    def record(self, stream: Stream) -> None:
        """Puts the mark behind what is enqueued in a stream."""
        with self._device.current():
            self._device.driver.record_event(self.raw, _ours(stream, CudaStream).raw)

    def synchronize(self) -> None:
        """Waits until the GPU has reached the mark."""
        with self._device.current():
            self._device.driver.synchronize_event(self.raw)

    def _release(self, raw: Any) -> None:
        self._device.driver.free_event(raw)


class CudaGraph(_Owned):
    """A captured graph; see ``calib.engine.memory.Graph``."""

    what = "graph"

    def launch(self, stream: Stream) -> None:
        """Enqueues all of it."""
        with self._device.current():
            self._device.driver.launch_graph(self.raw, _ours(stream, CudaStream).raw)

    def _release(self, raw: Any) -> None:
        self._device.driver.free_graph(raw)


class _Pages:
    """Page-locked memory that is given back with the last array that shows it."""

    def __init__(self, driver: CudaDriver, memory: Any, address: int, nbytes: int) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }
        # At the end of the process the system takes it: CUDA may be gone before Python.
        weakref.finalize(self, _free_pages, driver, memory).atexit = False


def _free_pages(driver: CudaDriver, memory: Any) -> None:
    with _Pushed(driver):
        driver.free_pinned(memory)


def _bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)
