"""A stand-in for PyCUDA 2026.1 on the fake driver, with what its source shows of its ways.

It keeps a context stack of its own and holds one of its contexts only on the driver's; it gives back streams
and events with the last reference; and out of its thread it gives back nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from fake_cuda import PRIMARY, CudaError, FakeGpu


def make_pycuda(gpu: FakeGpu) -> ModuleType:  # noqa: C901
    """A module like ``pycuda.driver``."""
    cuda: Any = ModuleType("pycuda.driver")
    cuda.Error = type("Error", (Exception,), {})
    cuda.MemoryError = type("MemoryError", (cuda.Error,), {})
    cuda.LogicError = type("LogicError", (cuda.Error,), {})

    def explained(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except CudaError as error:
                kind = cuda.MemoryError if error.code == 2 else cuda.LogicError
                raise kind(str(error)) from None

        return call

    stacks: dict[int, list[Any]] = {}

    def own() -> list[Any]:
        return stacks.setdefault(threading.get_ident(), [])

    class Context:
        def __init__(self) -> None:
            self.thread = threading.get_ident()

        def push(self) -> None:
            if own():
                gpu.pop()
            gpu.push(PRIMARY)
            own().append(self)

        @staticmethod
        def pop() -> None:
            gpu.pop()
            own().pop()
            if own():
                gpu.push(PRIMARY)

        @staticmethod
        @explained
        def synchronize() -> None:
            gpu.synchronize("cuCtxSynchronize", None)

        def detach(self) -> None:
            gpu.retained -= 1

    def cleaned(name: str, handle: int, context: Any) -> None:
        # scoped_context_activation: out of its thread, a resource cannot be given back.
        if own() and own()[-1] is context:
            gpu.drop(name, handle)
        elif threading.get_ident() == context.thread:
            context.push()
            gpu.drop(name, handle)
            context.pop()

    class Device:
        def __init__(self, index: int) -> None:
            gpu.called("cuDeviceGet", context=False)

        count = staticmethod(lambda: gpu.count)

        def name(self) -> str:
            return "Fake GPU"

        def compute_capability(self) -> tuple[int, int]:
            return 9, 0

        def pci_bus_id(self) -> str:
            return "0000:1B:00.0"

        def retain_primary_context(self) -> Context:
            gpu.retained += 1
            return Context()

    class Resource:
        free_call = ""

        def __init__(self, handle: int) -> None:
            self.address, self.context = handle, own()[-1]

        def __int__(self) -> int:
            return self.address

        def free(self) -> None:
            cleaned(self.free_call, self.address, self.context)

    class Allocation(Resource):
        free_call = "cuMemFree"

    class Pages(Resource):
        free_call = "cuMemFreeHost"

    class Stream(Resource):
        free_call = "cuStreamDestroy"

        @explained
        def __init__(self, flags: int = 0) -> None:
            assert flags == 1
            super().__init__(gpu.make("cuStreamCreate", "stream"))

        handle = property(int)

        @explained
        def synchronize(self) -> None:
            gpu.synchronize("cuStreamSynchronize", int(self))

        @explained
        def wait_for_event(self, event: Any) -> None:
            gpu.called("cuStreamWaitEvent")

        def __del__(self) -> None:
            self.free()

    class Event(Resource):
        free_call = "cuEventDestroy"

        @explained
        def __init__(self) -> None:
            super().__init__(gpu.make("cuEventCreate", "event", {}))

        @explained
        def record(self, stream: Stream) -> None:
            gpu.record(int(self))

        @explained
        def synchronize(self) -> None:
            gpu.called("cuEventSynchronize")

        @explained
        def time_till(self, end: Any) -> float:
            return gpu.elapsed(int(self), int(end))

        def __del__(self) -> None:
            self.free()

    def pagelocked_empty(shape: tuple[int], dtype: Any) -> Any:
        handle, pages = gpu.pin(shape[0])
        owner = Pages(handle)
        owner.__array_interface__ = pages.__array_interface__  # type: ignore[attr-defined]
        owner.pages = pages  # type: ignore[attr-defined]
        return np.asarray(owner)

    def put(name: str) -> Callable[..., None]:
        @explained
        def copy(address: int, array: Any, stream: Any = None) -> None:
            memory = gpu.live[address][1]
            run = lambda: memory.__setitem__(slice(array.nbytes), array)  # noqa: E731
            gpu.copy(name, run, None if stream is None else int(stream))

        return copy

    def get(name: str) -> Callable[..., None]:
        @explained
        def copy(array: Any, address: int, stream: Any = None) -> None:
            memory = gpu.live[address][1]
            run = lambda: array.__setitem__(slice(None), memory[: array.nbytes])  # noqa: E731
            gpu.copy(name, run, None if stream is None else int(stream))

        return copy

    cuda.Context, cuda.Device, cuda.Stream, cuda.Event = Context, Device, Stream, Event
    cuda.init = explained(lambda: gpu.called("cuInit", context=False))
    cuda.mem_alloc = explained(lambda nbytes: Allocation(gpu.allocate(nbytes)))
    cuda.mem_get_info = explained(lambda: (gpu.free, gpu.total))
    cuda.pagelocked_empty = explained(pagelocked_empty)
    cuda.memcpy_htod, cuda.memcpy_htod_async = put("cuMemcpyHtoD"), put("cuMemcpyHtoDAsync")
    cuda.memcpy_dtoh, cuda.memcpy_dtoh_async = get("cuMemcpyDtoH"), get("cuMemcpyDtoHAsync")
    return cuda  # type: ignore[no-any-return]
