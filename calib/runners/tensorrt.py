"""An engine on a GPU through TensorRT 8.6 or later: inference, and latency as trtexec measures it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from typing_extensions import Self

from calib.engine.loading import load_engine, said_by_tensorrt
from calib.errors import CalibError, EngineError, UsageError
from calib.runners.batch_times import BatchTimes
from calib.runners.tensorrt_graph import GraphSlot
from calib.runners.tensorrt_io import Bindings
from calib.runners.tensorrt_profile import profile_layers
from calib.runners.tensorrt_types import TensorSpec, read_specs, size_text, usual_feeds

if TYPE_CHECKING:
    from calib.data import Array
    from calib.engine.api import Api
    from calib.engine.engine_file import BuildRecord, Engine
    from calib.engine.inspector import EngineLayer
    from calib.engine.memory import Device

__all__ = ["TensorRTRunner"]

_PRECISIONS = ("fp32", "fp16", "int8", "best")

# An engine of another GPU of the same kind loads, and may be slow or wrong.
_STRANGE = "different models of devices"


class TensorRTRunner:
    """Runs a serialized engine on a GPU.

    One batch at a time, on a stream of its own: inputs are copied to page-locked memory and from there to
    the GPU, the network is enqueued, outputs are copied back, and the stream is waited for. Memory is kept
    between batches and freed at the end of the with block. Optimization profile 0 is used.

    Attributes:
        name: "tensorrt".
        precision: "fp32", "fp16", "int8" or "best".
        clock: How ``time_ms`` measures.
        note: What a reader of the figures must know.
        simulated: False.
        on_gpu: True.
        place: The GPU's name.
        input_names: What must be fed.
        output_names: The engine's outputs, in its order.
        model_bytes: Size of the serialized engine.
        device: The GPU.
    """

    name = "tensorrt"
    clock = "GPU compute by CUDA events around the enqueue"
    simulated = False
    on_gpu = True

    def __init__(
        self,
        engine: Engine | bytes | str | os.PathLike[str],
        precision: str,
        *,
        device: Device | None = None,
        flavour: str = "tensorrt",
        cuda_graph: bool = False,
        note: str | None = None,
        host_code: bool = False,
        api: Api | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Opens the GPU and loads the engine.

        Args:
            engine: What ``calib.build`` gave, a serialized engine, or its file.
            precision: What the engine stands for: "fp32", "fp16", "int8" or "best".
            device: A device whose with block is open; None opens the first GPU for this runner alone.
            flavour: "tensorrt", or "tensorrt_rtx" for TensorRT-RTX.
            cuda_graph: Captures the enqueue as a CUDA graph and launches that, where it can be had.
            note: Replaces the runner's own note.
            host_code: Lets a version-compatible engine run the runtime code it holds; for trusted ones only.
            api: TensorRT, where it is loaded already.
            now: The host's clock, in seconds.

        Raises:
            UsageError: The precision is unknown.
            EngineError: No GPU, or an engine that this TensorRT cannot load here.
            MissingExtraError: TensorRT, or both PyCUDA and cuda-python, are not installed.
        """
        if precision not in _PRECISIONS:
            raise UsageError(f"Precision must be one of {', '.join(_PRECISIONS)}, got {precision!r}.")
        self.precision = precision
        self._now = now
        self._graph = GraphSlot(cuda_graph)
        self._said = 0
        self._open = False
        with ExitStack() as stack:
            self._load(stack, engine, device, flavour, host_code, api)
            self._stack = stack.pop_all()
        self._open = True
        self.place: str = self.device.name
        self.note = self._own_note() if note is None else note
        self.input_names: tuple[str, ...] = tuple(spec.name for spec in self._specs if spec.is_input)
        self.output_names: tuple[str, ...] = tuple(spec.name for spec in self._specs if not spec.is_input)

    def _load(
        self,
        stack: ExitStack,
        engine: Engine | bytes | str | os.PathLike[str],
        device: Device | None,
        flavour: str,
        host_code: bool,
        api: Api | None,
    ) -> None:
        """Takes everything that must be given back, in the order in which it depends on one another."""
        from calib.engine.api import capture_log, load_api

        plan, self._record, origin = _read_engine(engine)
        self.model_bytes = len(plan)
        self._api = api or load_api(flavour)
        # TensorRT 8.6 crashes where CUDA does not start, so the GPU comes first.
        self.device = _open_device(stack) if device is None else device
        self._log = capture_log(self._api)
        self._runtime, self._engine = load_engine(
            self._api, plan, self._log, origin=origin, here=self.device.name, host_code=host_code
        )
        stack.callback(self._forget_engine)
        self._specs: tuple[TensorSpec, ...] = read_specs(self._api, self._engine)
        self._stream = self.device.stream()
        stack.callback(self._stream.free)
        self._events = [self.device.event() for _ in range(4)]
        for event in self._events:
            stack.callback(event.free)
        self._bindings = self._make_bindings()
        stack.callback(self._free_bindings)

    def _own_note(self) -> str:
        warned = [text for severity, text in self._log.lines if severity == "WARNING" and _STRANGE in text]
        warning = f"; TensorRT warns: {warned[0]}" if warned else ""
        return f"{self._api.title} engine on {self.device.name}{warning}"

    def _forget_engine(self) -> None:
        # The engine must go before its runtime, and both before the CUDA context.
        self._engine = None
        self._runtime = None

    def _make_bindings(self) -> Bindings:
        context = self._engine.create_execution_context()
        if context is None:
            raise self._explain("TensorRT could not make an execution context")
        return Bindings(self._api, context, self._specs, self.device, self._explain)

    def _free_bindings(self) -> None:
        self._graph.free()
        self._bindings.free()

    def _explain(self, sentence: str) -> EngineError:
        """An error of what happened and of what TensorRT said of it."""
        lines = self._log.lines
        text = f"{sentence} ({self.precision} engine). {said_by_tensorrt(lines[self._said :])}"
        self._said = len(lines)
        return EngineError(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except CalibError:
            # After an error on the GPU nothing can be freed any more: what came first tells why.
            if error is None:
                raise

    def close(self) -> None:
        """Frees everything; a second call does nothing."""
        self._open = False
        self._stack.close()

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch.

        Args:
            feeds: One array for each input, batch axis first. Types are cast to those of the engine where
                no value can be lost: TensorRT 8 has INT32 where ONNX has INT64.

        Returns:
            One array for each output, in the engine's type, owned by the caller.

        Raises:
            ValidationError: A feed is missing, unknown, or of a type or shape the engine does not take.
            EngineError: TensorRT fails, or the GPU's memory is full.
        """
        self._bind(feeds)
        self._bindings.write(self._stream)
        self._launch()
        self._bindings.read(self._stream)
        self._stream.synchronize()
        return self._bindings.results()

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        """Runs one batch and returns its GPU compute time, in milliseconds, transfers apart.

        Raises:
            ValidationError: As ``infer``.
            EngineError: As ``infer``.
        """
        return self.time_batch(feeds).compute_ms

    def time_batch(self, feeds: Mapping[str, Array]) -> BatchTimes:
        """Runs one batch and returns the times it is made up of.

        Not counted are casting the feeds, putting them into page-locked memory, and what TensorRT does
        when shapes change; a CUDA graph is captured before.

        Raises:
            ValidationError: As ``infer``.
            EngineError: As ``infer``.
        """
        self._bind(feeds)
        before, sent, computed, received = self._events
        stream = self._stream
        start = self._now()
        before.record(stream)
        self._bindings.write(stream)
        sent.record(stream)
        called = self._now()
        self._launch()
        returned = self._now()
        computed.record(stream)
        self._bindings.read(stream)
        received.record(stream)
        stream.synchronize()
        end = self._now()
        return BatchTimes(
            compute_ms=self.device.elapsed_ms(sent, computed),
            host_to_device_ms=self.device.elapsed_ms(before, sent),
            device_to_host_ms=self.device.elapsed_ms(computed, received),
            end_to_end_ms=(end - start) * 1e3,
            enqueue_ms=(returned - called) * 1e3,
        )

    def _bind(self, feeds: Mapping[str, Array]) -> None:
        if not self._open:
            raise UsageError(f"The {self.precision} runner is closed: use it inside its with block.")
        self._bindings.bind(feeds)
        if not self._graph.wanted:
            return
        if names := self._bindings.data_dependent:
            self._graph.refuse(f"the shape of {', '.join(names)} depends on the data")
            return
        if not self._graph.fits(self._bindings.key):
            self._bindings.write(self._stream)
            self._graph.prepare(self._bindings.key, self._enqueue, self._stream)

    def _launch(self) -> None:
        if self._graph.captured:
            self._graph.launch(self._stream)
        else:
            self._enqueue()

    def _enqueue(self) -> None:
        self._bindings.enqueue(self._stream)

    def profile(self, feeds: Mapping[str, Array], runs: int = 10) -> dict[str, float]:
        """Time of each engine layer, by TensorRT's profiler, without CUDA graph.

        Args:
            feeds: One batch.
            runs: Number of runs, after one that is not counted.

        Returns:
            Layer's name → mean time a run, in milliseconds, in the order of execution.

        Raises:
            UsageError: ``runs`` is below 1.
            ValidationError: As ``infer``.
            EngineError: As ``infer``, or the engine does not tell its layers.
        """
        if runs < 1:
            raise UsageError(f"Profiling needs at least 1 run, got {runs}.")
        if not self._open:
            raise UsageError(f"The {self.precision} runner is closed: use it inside its with block.")
        # A profiler stays with its context, and TensorRT 8.6 lets no second context share a profile of
        # dynamic shapes: so the context is replaced before and after.
        self._replace_bindings()
        try:
            return profile_layers(self._api, self._bindings, feeds, self._stream, runs)
        finally:
            self._replace_bindings()

    def usual_feeds(self) -> dict[str, Array]:
        """A batch of noise in the shapes that the engine was tuned for, to time it without data.

        Raises:
            EngineError: The engine does not tell them.
        """
        return usual_feeds(self._specs)

    def _replace_bindings(self) -> None:
        self._free_bindings()
        self._bindings = self._make_bindings()

    def layers(self, feeds: Mapping[str, Array] | None = None) -> tuple[EngineLayer, ...]:
        """Every engine layer with its precision, as the inspector tells them.

        Args:
            feeds: A batch that tells the shapes, where they are dynamic; None takes those of the last batch.

        Raises:
            ValidationError: As ``infer``.
            EngineError: The inspector's answer cannot be read.
        """
        from calib.engine.inspector import inspect_engine

        if feeds is not None:
            self._bind(feeds)
        found: tuple[EngineLayer, ...] = inspect_engine(self._api, self._engine, self._bindings.context)
        return found

    @property
    def cuda_graph(self) -> bool:
        """Whether the last batch went through a captured CUDA graph."""
        return self._graph.captured

    @property
    def graph_problem(self) -> str:
        """Why there is no CUDA graph though one was asked for; empty otherwise."""
        return self._graph.problem

    @property
    def gpu(self) -> str:
        """The PCI bus id of the GPU, by which NVML knows it."""
        return self.device.pci_bus_id

    @property
    def session_options(self) -> dict[str, str]:
        """Every setting that can change a figure, as text."""
        options = {
            "library": self._api.title,
            "device": self.device.name,
            "memory": self.device.implementation,
            "cuda_graph": self._graph.state,
            "optimization_profile": f"0: {_profile_text(self._specs)}",
            "types": ", ".join(f"{spec.name} {spec.dtype}" for spec in self._specs),
        }
        if self._bindings.casts:
            casts = self._bindings.casts.items()
            options["cast_feeds"] = ", ".join(f"{name}: {how}" for name, how in casts)
        if self._record is not None:
            options |= {"route": self._record.route, "tf32": "on" if self._record.tf32 else "off"}
        return options


def _open_device(stack: ExitStack) -> Device:
    from calib.engine.memory import open_device

    return stack.enter_context(open_device())


def _read_engine(
    engine: Engine | bytes | str | os.PathLike[str],
) -> tuple[bytes, BuildRecord | None, str]:
    """The serialized engine, what is known of it, and its origin for messages."""
    from calib.engine.engine_file import Engine

    if isinstance(engine, (bytes, bytearray, memoryview)):
        return bytes(engine), None, ""
    if not isinstance(engine, Engine):
        engine = Engine.load(engine)
    record = engine.record
    name = str(engine.path) if engine.path is not None else record.model
    return engine.plan, record, f"{name}, built by TensorRT {record.tensorrt} for {record.device}"


def _profile_text(specs: tuple[TensorSpec, ...]) -> str:
    """The shapes of the inputs, as --shapes takes them."""
    parts = []
    for spec in specs:
        if spec.is_input:
            bounds = spec.shapes or (spec.shape,)
            parts.append(":".join((spec.name, *dict.fromkeys(size_text(shape) for shape in bounds))))
    return ", ".join(parts)
