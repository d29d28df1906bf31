"""As much of the module ``tensorrt`` as a runner uses, by the rules of its documentation.

A network is a Python function. Engines are looked up by their serialized bytes.
"""

from __future__ import annotations

import ctypes
import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from test_runners.fake_gpu import FakeDevice

from calib.engine.api import Api, find_features

__all__ = ["FakeNetwork", "FakeTensorRT", "Tensor"]

DataType = enum.Enum("DataType", ["FLOAT", "HALF", "INT8", "INT32", "BOOL", "UINT8", "FP8", "INT64"])
Mode = enum.Enum("Mode", ["INPUT", "OUTPUT"])
Location = enum.Enum("Location", ["DEVICE", "HOST"])
Format = enum.Enum("Format", ["LINEAR", "CHW32"])

NUMPY = {
    DataType.FLOAT: np.float32,
    DataType.HALF: np.float16,
    DataType.INT8: np.int8,
    DataType.INT32: np.int32,
    DataType.INT64: np.int64,
    DataType.UINT8: np.uint8,
    DataType.BOOL: np.bool_,
}


@dataclass
class Tensor:
    """An input or output: -1 in its shape is dynamic; ``bounds`` are the profile's shapes or values."""

    name: str
    shape: tuple[int, ...]
    kind: DataType = DataType.FLOAT
    bounds: list[tuple[int, ...]] = field(default_factory=list)
    host: bool = False
    data_dependent: bool = False
    layout: Format = Format.LINEAR


@dataclass
class FakeNetwork:
    """What an engine computes, and how long that takes on the GPU and to enqueue, in ms."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    compute: Callable[..., Any]
    gpu_ms: float = 5.0
    enqueue_ms: float = 0.5
    fails: bool = False
    layers: dict[str, float] = field(default_factory=dict)
    kinds: tuple[tuple[str, str], ...] = ()
    refuses: str = ""


class Context:
    """Checks what TensorRT checks: shapes before addresses are used, every address set."""

    def __init__(self, module: FakeTensorRT, network: FakeNetwork) -> None:
        self.module, self.network = module, network
        self.profiler: Any = None
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.allocators: dict[str, Any] = {}
        self.calls: list[str] = []
        module.contexts.append(self)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.calls.append(f"shape {name}")
        self.shapes[name] = tuple(shape)
        return self.network.refuses != name

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert address
        self.calls.append(f"address {name}")
        self.addresses[name] = address
        return True

    def set_output_allocator(self, name: str, allocator: Any) -> bool:
        self.allocators[name] = allocator
        return True

    def infer_shapes(self) -> list[str]:
        return [
            tensor.name
            for tensor in self.network.inputs
            if tensor.name not in self.shapes or (tensor.host and tensor.name not in self.addresses)
        ]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        tensor = next(tensor for tensor in self.network.outputs if tensor.name == name)
        if tensor.data_dependent:
            return tensor.shape
        blank = {
            item.name: self._host(item) if item.host else np.zeros(self.shapes[item.name], NUMPY[item.kind])
            for item in self.network.inputs
        }
        return self._outputs(blank)[name].shape

    def _outputs(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = self.network.compute(**feeds)
        return {
            tensor.name: np.asarray(value, NUMPY[tensor.kind])
            for tensor, value in zip(self.network.outputs, found, strict=True)
        }

    def _host(self, tensor: Tensor) -> np.ndarray:
        kind = np.dtype(NUMPY[tensor.kind])
        shape = self.shapes[tensor.name]
        size = int(np.prod(shape)) * kind.itemsize
        raw = ctypes.string_at(self.addresses[tensor.name], size)
        return np.frombuffer(raw, kind).reshape(shape)

    def _input(self, tensor: Tensor) -> np.ndarray:
        kind, shape = np.dtype(NUMPY[tensor.kind]), self.shapes[tensor.name]
        buffer = self.module.device.memory[self.addresses[tensor.name]]
        return buffer.content[: int(np.prod(shape)) * kind.itemsize].view(kind).reshape(shape)

    def execute_async_v3(self, handle: int) -> bool:
        device = self.module.device
        stream = device.stream_of_all
        assert handle == stream.handle
        self.calls.append("execute")
        device.host_ms += self.network.enqueue_ms
        if self.network.fails:
            self.module.say("ERROR", "3: [executionContext.cpp::enqueueV3] Error Code 3: API Usage Error")
            return False
        # Sizes are read when the network is enqueued: a graph that is captured has them fixed.
        sizes = {tensor.name: self._host(tensor) for tensor in self.network.inputs if tensor.host}
        if not self.allocators:
            stream.add(self.network.gpu_ms, lambda: self._run(sizes))
            return True
        # The size of such an output is known only when it is computed: TensorRT waits.
        stream.add(self.network.gpu_ms, lambda: None)
        stream.synchronize()
        return self._run_with_allocators(sizes)

    def _feeds(self, sizes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        device = {tensor.name: self._input(tensor) for tensor in self.network.inputs if not tensor.host}
        return {**device, **sizes}

    def _run(self, sizes: dict[str, np.ndarray]) -> None:
        found = self._outputs(self._feeds(sizes))
        for tensor in self.network.outputs:
            self._store(tensor, found[tensor.name], self.addresses[tensor.name])
        if self.profiler is not None:
            for name, milliseconds in self.network.layers.items():
                self.profiler.report_layer_time(name, milliseconds)

    def _run_with_allocators(self, sizes: dict[str, np.ndarray]) -> bool:
        found = self._outputs(self._feeds(sizes))
        for tensor in self.network.outputs:
            value = found[tensor.name]
            if tensor.name not in self.allocators:
                self._store(tensor, value, self.addresses[tensor.name])
                continue
            allocator = self.allocators[tensor.name]
            if hasattr(allocator, "reallocate_output_async") and self.module.release[0] >= 10:
                address = allocator.reallocate_output_async(tensor.name, 0, value.nbytes, 256, 77)
            else:
                address = allocator.reallocate_output(tensor.name, 0, value.nbytes, 256)
            if not address:
                return False
            allocator.notify_shape(tensor.name, value.shape)
            self._store(tensor, value, address)
        return True

    def _store(self, tensor: Tensor, value: np.ndarray, address: int) -> None:
        raw = np.ascontiguousarray(value).tobytes()
        if tensor.host:
            ctypes.memmove(address, raw, len(raw))
        else:
            self.module.device.memory[address].content[: len(raw)] = np.frombuffer(raw, np.uint8)


class FakeEngine:
    def __init__(self, module: FakeTensorRT, network: FakeNetwork) -> None:
        self.module, self.network = module, network
        self.tensors = {tensor.name: tensor for tensor in (*network.inputs, *network.outputs)}
        self.num_io_tensors = len(self.tensors)
        if module.release[0] >= 10:
            self.get_tensor_profile_values = self.get_profile_shape_input

    def get_tensor_name(self, index: int) -> str:
        return list(self.tensors)[index]

    def get_tensor_mode(self, name: str) -> Mode:
        return Mode.INPUT if self.tensors[name] in self.network.inputs else Mode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return self.tensors[name].kind

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def get_tensor_location(self, name: str) -> Location:
        return Location.HOST if self.tensors[name].host else Location.DEVICE

    def is_shape_inference_io(self, name: str) -> bool:
        return self.tensors[name].host

    def get_tensor_format(self, name: str) -> Format:
        return self.tensors[name].layout

    def get_tensor_format_desc(self, name: str) -> str:
        return "Thirty-two wide channel vectorized row major INT8 format"

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        assert profile_index == 0
        return self.tensors[name].bounds or [self.tensors[name].shape] * 3

    def get_profile_shape_input(self, profile_index: int, name: str) -> list[tuple[int, ...]]:
        assert profile_index == 0
        return self.tensors[name].bounds

    def create_engine_inspector(self) -> SimpleNamespace:
        answer = json.dumps(
            {"Layers": [{"Name": name, "LayerType": kind} for name, kind in self.network.kinds]}
        )
        return SimpleNamespace(execution_context=None, get_engine_information=lambda form: answer)

    def create_execution_context(self) -> Context | None:
        if self.module.no_context:
            self.module.say(
                "ERROR", "2: [executionContext.cpp] Error Code 2: OutOfMemory (no further information)"
            )
            return None
        return Context(self.module, self.network)


class Runtime:
    def __init__(self, logger: Any) -> None:
        module = FakeTensorRT.current
        module.logger = logger
        if module.cuda_error:
            text = f"CUDA initialization failure with error: {module.cuda_error}. Please check your CUDA"
            module.say("WARNING", text)
        if module.no_runtime:
            raise TypeError("pybind11::init(): factory function returned nullptr")

    engine_host_code_allowed = False

    def deserialize_cuda_engine(self, plan: bytes) -> FakeEngine | None:
        module = FakeTensorRT.current
        if module.strange:
            module.say("WARNING", module.strange)
        if module.holds_code and not self.engine_host_code_allowed:
            module.say(
                "ERROR", "Cannot deserialize engine with lean runtime: engine host code is not allowed"
            )
            return None
        if plan in module.plans:
            return FakeEngine(module, module.plans[plan])
        module.say("ERROR", module.refusal)
        return None


class FakeTensorRT:
    """The module, its engines, and an ``api`` object as ``calib.engine.api.load_api`` gives it."""

    current: FakeTensorRT
    __name__ = "fake_tensorrt"

    DataType, TensorIOMode, TensorLocation, TensorFormat = DataType, Mode, Location, Format
    Runtime = Runtime
    LayerInformationFormat = SimpleNamespace(JSON="json")
    ILogger = type("ILogger", (), {})
    IOutputAllocator = type("IOutputAllocator", (), {})
    IProfiler = type("IProfiler", (), {})

    def __init__(self, device: FakeDevice, release: tuple[int, int, int] = (8, 6, 0)) -> None:
        FakeTensorRT.current = self
        self.device = device
        self.release = release
        self.plans: dict[bytes, FakeNetwork] = {}
        self.contexts: list[Context] = []
        self.logger: Any = None
        self.no_context = False
        self.refusal = "1: Serialization assertion stdVersionRead == serializationVersion failed."
        self.plugins_loaded = False
        self.strange = ""
        self.holds_code = False
        self.no_runtime = False
        self.cuda_error = 0

    def init_libnvinfer_plugins(self, logger: Any, namespace: str) -> bool:
        self.plugins_loaded = True
        return True

    def say(self, severity: str, text: str) -> None:
        self.logger.log(f"Severity.{severity}", text)

    @property
    def api(self) -> Api:
        version = ".".join(map(str, self.release))
        return Api(self, "tensorrt", version, self.release, find_features(self))
