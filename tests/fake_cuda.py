"""A stand-in for CUDA's driver: a context stack a thread, memory, streams that run at once, graphs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

TEXTS = {
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    100: "no CUDA-capable device is detected",
    201: "invalid device context",
    400: "invalid resource handle",
    700: "an illegal memory access was encountered",
    803: "system has unsupported display driver / cuda driver combination",
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture",
}
PRIMARY = 0xC0


class CudaError(Exception):
    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} failed: {TEXTS[code]}")
        self.code = code


class FakeGpu:
    """The driver; ``live`` is what was made and not given back, ``calls`` all that happened."""

    def __init__(self) -> None:
        self.total = 1 << 20
        self.count = 1
        self.fails: dict[str, int] = {}
        self.calls: list[str] = []
        self.live: dict[int, tuple[str, Any]] = {}
        self.retained = 0
        self.clock = 0.0
        self.capturing: dict[int, list[Callable[[], None]] | None] = {}
        self._stacks: dict[int, list[int]] = {}
        self._next = 0x1000

    @property
    def stack(self) -> list[int]:
        """The context stack of the calling thread."""
        return self._stacks.setdefault(threading.get_ident(), [])

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.live.values()]

    @property
    def free(self) -> int:
        return self.total - sum(value.nbytes for kind, value in self.live.values() if kind == "memory")

    def called(self, name: str, *, context: bool = True) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise CudaError(name, self.fails[name])
        if context and not self.stack:
            raise CudaError(name, 201)

    def make(self, name: str, kind: str, value: Any = None) -> int:
        self.called(name)
        self._next += 0x1000
        self.live[self._next] = (kind, value)
        return self._next

    def drop(self, name: str, handle: int) -> None:
        self.called(name)
        del self.live[int(handle)]

    def allocate(self, nbytes: int) -> int:
        if nbytes > self.free:
            self.called("cuMemAlloc")
            raise CudaError("cuMemAlloc", 2)
        return self.make("cuMemAlloc", "memory", np.zeros(nbytes, np.uint8))

    def pin(self, nbytes: int) -> tuple[int, Any]:
        if nbytes > self.total:
            raise CudaError("cuMemHostAlloc", 2)
        pages = np.zeros(nbytes, np.uint8)
        return self.make("cuMemHostAlloc", "pinned", pages), pages

    def copy(self, name: str, run: Callable[[], None], stream: int | None) -> None:
        self.called(name)
        self.clock += 1.5
        if stream is None:
            if self.capturing:
                self.capturing = dict.fromkeys(self.capturing)
                raise CudaError(name, 900)
            run()
        elif (recorded := self.capturing.get(stream)) is not None:
            recorded.append(run)
        else:
            run()

    def synchronize(self, name: str, stream: int | None) -> None:
        self.called(name)
        if stream in self.capturing or (stream is None and self.capturing):
            self.capturing = dict.fromkeys(self.capturing)
            raise CudaError(name, 900)

    def begin(self, stream: int) -> None:
        self.called("cuStreamBeginCapture")
        self.capturing[stream] = []

    def end(self, stream: int) -> int:
        self.called("cuStreamEndCapture")
        if stream not in self.capturing:
            raise CudaError("cuStreamEndCapture", 1)
        recorded = self.capturing.pop(stream)
        if recorded is None:
            raise CudaError("cuStreamEndCapture", 901)
        return self.make("graph", "graph", recorded)

    def launch(self, graph: int) -> None:
        self.called("cuGraphLaunch")
        for run in self.live[graph][1]:
            run()

    def push(self, context: int) -> None:
        self.called("cuCtxPushCurrent", context=False)
        self.stack.append(context)

    def pop(self) -> int:
        self.called("cuCtxPopCurrent")
        return self.stack.pop()

    def elapsed(self, start: int, end: int) -> float:
        self.called("cuEventElapsedTime")
        first, last = self.live[start][1], self.live[end][1]
        if "at" not in first or "at" not in last:
            raise CudaError("cuEventElapsedTime", 400)
        return float(last["at"] - first["at"])

    def record(self, event: int) -> None:
        self.called("cuEventRecord")
        self.live[event][1]["at"] = self.clock


def make_library(gpu: FakeGpu) -> Any:
    """What ctypes finds in libcuda: the calls for graphs, with results through pointers."""

    def call(run: Callable[..., Any]) -> Any:
        def function(*given: Any) -> int:
            try:
                run(*given)
            except CudaError as error:
                return error.code
            return 0

        return function

    def set_to(pointer: Any, value: Any) -> None:
        pointer._obj.value = value

    def instantiate(pointer: Any, graph: Any, flags: int) -> None:
        set_to(pointer, gpu.make("cuGraphInstantiate", "launchable", gpu.live[graph.value][1]))

    return SimpleNamespace(
        cuStreamBeginCapture_v2=call(lambda stream, mode: gpu.begin(stream)),
        cuStreamEndCapture=call(lambda stream, pointer: set_to(pointer, gpu.end(stream))),
        cuGraphInstantiateWithFlags=call(instantiate),
        cuGraphLaunch=call(lambda graph, stream: gpu.launch(graph)),
        cuGraphDestroy=call(lambda graph: gpu.drop("cuGraphDestroy", graph.value)),
        cuGraphExecDestroy=call(lambda graph: gpu.drop("cuGraphExecDestroy", graph)),
        cuGetErrorString=call(lambda code, pointer: set_to(pointer, TEXTS[code].encode())),
    )
