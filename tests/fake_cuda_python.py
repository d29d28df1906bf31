"""A stand-in for cuda-python on the fake driver: every call returns a tuple, its error code first."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from fake_cuda import PRIMARY, TEXTS, CudaError, FakeGpu


def make_cuda_python(gpu: FakeGpu, name: str = "cuda.bindings.driver") -> ModuleType:  # noqa: C901
    """A module like ``cuda.bindings.driver``, or like ``cuda.cuda`` of 12.0 to 12.9."""
    cuda: Any = ModuleType(name)
    results = enum.IntEnum("CUresult", {f"CUDA_ERROR_{code}": code for code in TEXTS} | {"CUDA_SUCCESS": 0})

    def call(run: Callable[..., Any], several: bool = False) -> Any:
        def function(*given: Any) -> tuple[Any, ...]:
            try:
                result = run(*given)
            except CudaError as error:
                return results(error.code), None
            if result is None:
                return (results(0),)
            return (results(0), *result) if several else (results(0), result)

        return function

    def memory_at(address: int, nbytes: int) -> Any:
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

    def put(name: str) -> Any:
        def copy(address: int, host: int, nbytes: int, stream: Any = None) -> None:
            run = lambda: gpu.live[address][1].__setitem__(slice(nbytes), memory_at(host, nbytes))  # noqa: E731
            gpu.copy(name, run, stream)

        return call(copy)

    def get(name: str) -> Any:
        def copy(host: int, address: int, nbytes: int, stream: Any = None) -> None:
            run = lambda: memory_at(host, nbytes).__setitem__(slice(None), gpu.live[address][1][:nbytes])  # noqa: E731
            gpu.copy(name, run, stream)

        return call(copy)

    pinned: dict[int, int] = {}

    def pin(nbytes: int, flags: int) -> int:
        handle, pages = gpu.pin(nbytes)
        pinned[pages.ctypes.data] = handle
        return int(pages.ctypes.data)

    def retain(device: int) -> int:
        gpu.retained += 1
        return PRIMARY

    def release(device: int) -> None:
        gpu.retained -= 1

    graphs = "cuGraphInstantiate" if name == "cuda.bindings.driver" else "cuGraphInstantiateWithFlags"
    functions = {
        "cuInit": lambda flags: gpu.called("cuInit", context=False),
        "cuDeviceGetCount": lambda: gpu.count,
        "cuDeviceGet": lambda index: index,
        "cuDeviceGetName": lambda length, device: b"Fake GPU" + bytes(length - 8),
        "cuDeviceGetPCIBusId": lambda length, device: b"0000:1B:00.0" + bytes(length - 12),
        "cuDeviceGetAttribute": lambda kind, device: {75: 9, 76: 0}[kind],
        "cuDevicePrimaryCtxRetain": retain,
        "cuDevicePrimaryCtxRelease": release,
        "cuCtxPushCurrent": gpu.push,
        "cuCtxPopCurrent": gpu.pop,
        "cuCtxSynchronize": lambda: gpu.synchronize("cuCtxSynchronize", None),
        "cuMemAlloc": gpu.allocate,
        "cuMemFree": lambda memory: gpu.drop("cuMemFree", memory),
        "cuMemHostAlloc": pin,
        "cuMemFreeHost": lambda pages: gpu.drop("cuMemFreeHost", pinned[pages]),
        "cuStreamCreate": lambda flags: gpu.make("cuStreamCreate", "stream") if flags == 1 else None,
        "cuStreamDestroy": lambda stream: gpu.drop("cuStreamDestroy", stream),
        "cuStreamSynchronize": lambda stream: gpu.synchronize("cuStreamSynchronize", stream),
        "cuStreamWaitEvent": lambda stream, event, flags: gpu.called("cuStreamWaitEvent"),
        "cuStreamBeginCapture": lambda stream, mode: gpu.begin(stream),
        "cuStreamEndCapture": gpu.end,
        "cuGraphDestroy": lambda graph: gpu.drop("cuGraphDestroy", graph),
        graphs: lambda graph, flags: gpu.make("cuGraphInstantiate", "launchable", gpu.live[graph][1]),
        "cuGraphLaunch": lambda graph, stream: gpu.launch(graph),
        "cuGraphExecDestroy": lambda graph: gpu.drop("cuGraphExecDestroy", graph),
        "cuEventCreate": lambda flags: gpu.make("cuEventCreate", "event", {}),
        "cuEventDestroy": lambda event: gpu.drop("cuEventDestroy", event),
        "cuEventRecord": lambda event, stream: gpu.record(event),
        "cuEventSynchronize": lambda event: gpu.called("cuEventSynchronize"),
        "cuEventElapsedTime": gpu.elapsed,
    }
    for key, function in functions.items():
        setattr(cuda, key, call(function))
    cuda.cuMemGetInfo = call(lambda: (gpu.free, gpu.total), several=True)
    cuda.cuMemcpyHtoD, cuda.cuMemcpyHtoDAsync = put("cuMemcpyHtoD"), put("cuMemcpyHtoDAsync")
    cuda.cuMemcpyDtoH, cuda.cuMemcpyDtoHAsync = get("cuMemcpyDtoH"), get("cuMemcpyDtoHAsync")
    cuda.cuGetErrorString = lambda code: (results(0), TEXTS[int(code)].encode())
    cuda.CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=76
    )
    cuda.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
    return cuda  # type: ignore[no-any-return]
