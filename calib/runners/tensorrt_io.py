"""One execution context with its memory: feeds in, results out, everything by tensor name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from calib.errors import EngineError
from calib.runners.casting import as_declared
from calib.runners.tensorrt_outputs import GrowingBuffer, make_output_allocator
from calib.runners.tensorrt_types import TensorSpec, check_names, check_shape, check_values, size_text

if TYPE_CHECKING:
    from calib.data import Array
    from calib.engine.api import Api
    from calib.engine.memory import Device, Stream

__all__ = ["Bindings"]

Explain = Callable[[str], EngineError]


class Bindings:
    """Device memory, pinned host memory and addresses of every input and output.

    Memory is kept between batches and grows where a batch needs more. Results are copies.

    Attributes:
        context: The ``trt.IExecutionContext``.
        casts: Inputs that were fed in another type than the engine's → "int64 → int32".
    """

    def __init__(
        self,
        api: Api,
        context: Any,
        specs: Sequence[TensorSpec],
        device: Device,
        explain: Explain,
    ) -> None:
        """Allocates nothing yet.

        Args:
            api: TensorRT.
            context: The execution context.
            specs: The engine's inputs and outputs.
            device: An open device.
            explain: Makes an error from a sentence and from what TensorRT said.
        """
        self.context = context
        self.casts: dict[str, str] = {}
        self._api = api
        self._device = device
        self._explain = explain
        self._inputs = [spec for spec in specs if spec.is_input]
        self._outputs = [spec for spec in specs if not spec.is_input]
        self._memory = {spec.name: GrowingBuffer(device) for spec in specs if not spec.on_host}
        self._pinned: dict[str, Array] = {}
        self._views: dict[str, Array] = {}
        self._addresses: dict[str, int] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._values: dict[str, bytes] = {}
        self._allocators: dict[str, Any] = {}
        self._stale = True

    def bind(self, feeds: Mapping[str, Array]) -> None:
        """Puts a batch into pinned memory, and shapes and addresses into the context.

        Args:
            feeds: One array for each input.

        Raises:
            ValidationError: A feed is missing, unknown, or of a type or shape the engine does not take.
            EngineError: TensorRT refuses it, or the GPU's memory is full.
        """
        check_names(feeds, (spec.name for spec in self._inputs), "engine")
        ready = {spec.name: self._checked(spec, feeds[spec.name]) for spec in self._inputs}
        for spec in self._inputs:
            self._bind_input(spec, ready[spec.name])
        if self._stale:
            self._infer_shapes()
            for spec in self._outputs:
                self._bind_output(spec)
            self._stale = False

    def _checked(self, spec: TensorSpec, array: Array) -> Array:
        check_shape(spec, array.shape)
        cast = as_declared(spec.name, array, spec.dtype)
        if cast.dtype != array.dtype:
            self.casts[spec.name] = f"{array.dtype} → {cast.dtype}"
        if spec.on_host:
            check_values(spec, cast)
        return cast

    def _bind_input(self, spec: TensorSpec, array: Array) -> None:
        name = spec.name
        view = self._pin(spec, array.shape)
        np.copyto(view, array)
        if self._shapes.get(name) != array.shape:
            self._stale = True
            self._shapes.pop(name, None)
            if not self.context.set_input_shape(name, array.shape):
                raise self._explain(f"TensorRT refused the shape {size_text(array.shape)} of input {name!r}")
            self._shapes[name] = array.shape
        if not spec.on_host:
            self._set_address(name, self._memory[name].reserve(view.nbytes).address)
            return
        self._set_address(name, int(self._pinned[name].ctypes.data))
        values = view.tobytes()
        if self._values.get(name) != values:
            self._stale = True
            self._values[name] = values

    def _infer_shapes(self) -> None:
        try:
            missing = list(self.context.infer_shapes())
        except RuntimeError as error:
            raise self._explain(f"TensorRT cannot infer shapes from {self._feed_text()}: {error}") from error
        if missing:
            raise self._explain(
                f"TensorRT lacks the shapes or values of {missing}, given {self._feed_text()}"
            )

    def _bind_output(self, spec: TensorSpec) -> None:
        name = spec.name
        shape = tuple(int(size) for size in self.context.get_tensor_shape(name))
        self._shapes[name] = shape
        if -1 in shape or name in self._allocators:
            self._let_allocate(spec)
            return
        view = self._pin(spec, shape)
        if spec.on_host:
            self._set_address(name, int(self._pinned[name].ctypes.data))
        else:
            self._set_address(name, self._memory[name].reserve(view.nbytes).address)

    def _let_allocate(self, spec: TensorSpec) -> None:
        if spec.on_host:
            raise self._explain(
                f"Output {spec.name!r} holds sizes that depend on the data, which cannot be read"
            )
        if spec.name in self._allocators:
            return
        allocator = make_output_allocator(self._api.trt, self._memory[spec.name])
        if not self.context.set_output_allocator(spec.name, allocator):
            raise self._explain(f"TensorRT refused an allocator for output {spec.name!r}")
        self._allocators[spec.name] = allocator

    def _set_address(self, name: str, address: int) -> None:
        if self._addresses.get(name) == address:
            return
        if not self.context.set_tensor_address(name, address):
            raise self._explain(f"TensorRT refused the memory of {name!r}")
        self._addresses[name] = address

    def _pin(self, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
        """Page-locked host memory of a tensor's size, seen as that tensor."""
        needed, pinned = spec.nbytes(shape), self._pinned.get(spec.name)
        if pinned is None or pinned.nbytes < needed:
            pinned = self._pinned[spec.name] = self._device.pinned((max(needed, 1),), np.dtype(np.uint8))
        view: Array = pinned[:needed].view(spec.dtype).reshape(shape)
        self._views[spec.name] = view
        return view

    def enqueue(self, stream: Stream) -> None:
        """Enqueues the network once.

        Raises:
            EngineError: TensorRT refuses it; the message holds what it said.
        """
        for allocator in self._allocators.values():
            allocator.shape = None
        done = self.context.execute_async_v3(stream.handle)
        for name, allocator in self._allocators.items():
            if allocator.failure is not None:
                failure, allocator.failure = allocator.failure, None
                raise EngineError(f"No memory for output {name!r} of the engine: {failure}") from failure
        if not done:
            raise self._explain(f"TensorRT could not run the engine on {self._feed_text()}")

    def write(self, stream: Stream) -> None:
        """Enqueues the copies of the inputs to the GPU."""
        for spec in self._inputs:
            view = self._views[spec.name]
            if not spec.on_host and view.nbytes:
                self._memory[spec.name].buffer.write(view, stream)

    def read(self, stream: Stream) -> None:
        """Enqueues the copies of the outputs from the GPU."""
        for spec in self._outputs:
            if spec.name in self._allocators:
                self._pin(spec, self._found_shape(spec.name))
            view = self._views[spec.name]
            if not spec.on_host and view.nbytes:
                self._memory[spec.name].buffer.read(view, stream)

    def _found_shape(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] | None = self._allocators[name].shape
        if shape is None or -1 in shape:
            raise self._explain(
                f"TensorRT did not say the shape of output {name!r}, which depends on the data"
            )
        return shape

    def results(self) -> dict[str, Array]:
        """Copies of the outputs; to be called when the stream is through."""
        return {spec.name: self._views[spec.name].copy() for spec in self._outputs}

    @property
    def data_dependent(self) -> tuple[str, ...]:
        """Outputs whose shape depends on the data, as far as a batch was bound."""
        return tuple(self._allocators)

    @property
    def key(self) -> Hashable:
        """Everything that a captured CUDA graph has fixed: shapes, addresses, values of shape tensors."""
        return (
            tuple(sorted(self._shapes.items())),
            tuple(sorted(self._addresses.items())),
            tuple(sorted(self._values.items())),
        )

    def _feed_text(self) -> str:
        return ", ".join(f"{spec.name} {size_text(self._shapes.get(spec.name, ()))}" for spec in self._inputs)

    def free(self) -> None:
        """Gives all memory back, also where one buffer fails to be freed."""
        self._views.clear()
        self._pinned.clear()
        self.context = None
        self._allocators.clear()
        with ExitStack() as stack:
            for memory in self._memory.values():
                stack.callback(memory.free)
