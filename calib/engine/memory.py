"""Device memory, streams, events and CUDA graphs, whichever package gives access to the driver.

PyCUDA is tried first and cuda-python second; nothing here starts CUDA before ``open_device``.

Both work on the GPU's **primary** context, the one that torch and TensorRT use, so that all three can share
memory and streams. A device is a context manager: the context is current in the thread that entered it
until it is left, and then the thread's context stack is as it was before. Inside, other threads may use the
device too: each call puts the context on that thread's stack and takes it off again. What must not happen
inside is another GPU made current in the same thread (``torch.cuda.set_device(1)`` while device 0 is open).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Protocol

import numpy.typing as npt
from typing_extensions import Self

from calib.data import Array
from calib.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from calib.engine.cuda_driver import CudaDriver

__all__ = ["IMPLEMENTATIONS", "Buffer", "Device", "Event", "Graph", "Stream", "open_device"]

IMPLEMENTATIONS: Mapping[str, str] = MappingProxyType(
    {"pycuda": "calib.engine.pycuda_memory", "cuda-python": "calib.engine.cuda_python_memory"}
)
"""Name → module that implements it, the preferred one first."""


class Event(Protocol):
    """A mark in a stream; two of them measure the GPU's time between them."""

    def record(self, stream: Stream) -> None:
        """Puts the mark behind what is enqueued in a stream."""
        ...

    def synchronize(self) -> None:
        """Waits until the GPU has reached the mark."""
        ...

    def free(self) -> None:
        """Gives the event back; a second call does nothing."""
        ...


class Graph(Protocol):
    """Enqueued work that was captured, to be launched as one."""

    def launch(self, stream: Stream) -> None:
        """Enqueues all of it."""
        ...

    def free(self) -> None:
        """Gives the graph back; a second call does nothing."""
        ...


class Stream(Protocol):
    """A queue of work; it does not wait for CUDA's default stream, nor that one for it."""

    @property
    def handle(self) -> int:
        """The driver's CUstream, as TensorRT takes it."""
        ...

    def synchronize(self) -> None:
        """Waits until everything that is enqueued is done.

        Raises:
            EngineError: A part of it failed.
        """
        ...

    def wait(self, event: Event) -> None:
        """Lets what is enqueued from now on wait for an event."""
        ...

    def begin_capture(self) -> None:
        """Captures what this thread enqueues from now on, and runs none of it.

        Raises:
            EngineError: The driver refuses, or knows no graphs.
        """
        ...

    def end_capture(self) -> Graph | None:
        """Ends the capture.

        Returns:
            The graph; None where something was enqueued that cannot be captured. The stream can then be
            used as before.

        Raises:
            EngineError: The driver cannot make the graph launchable.
        """
        ...

    def free(self) -> None:
        """Gives the stream back; a second call does nothing."""
        ...


class Buffer(Protocol):
    """Device memory."""

    @property
    def address(self) -> int:
        """Where it lies on the GPU.

        Raises:
            EngineError: The buffer is freed.
        """
        ...

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        ...

    def write(self, array: Array, stream: Stream | None = None) -> None:
        """Copies an array to the start of the buffer.

        Args:
            array: At most as large as the buffer.
            stream: Enqueue the copy there; the array must stay as it is until the stream has been
                synchronized, and only pinned memory makes the call return at once. Without a stream the
                copy waits for all work on the GPU and is done when the call returns.

        Raises:
            EngineError: The array is larger, the buffer is freed, or the copy fails.
        """
        ...

    def read(self, array: Array, stream: Stream | None = None) -> None:
        """Fills an array from the start of the buffer.

        Args:
            array: C-contiguous, writable, at most as large as the buffer.
            stream: As for ``write``; the values are there when the stream has been synchronized.

        Raises:
            EngineError: The array does not fit or cannot be filled, the buffer is freed, or the copy fails.
        """
        ...

    def free(self) -> None:
        """Gives the memory back; a second call does nothing."""
        ...


class Device(Protocol):
    """One GPU, used inside ``with``; leaving it frees all that it gave out, also after an error.

    Pinned host memory is the exception: it lives as long as the arrays that show it.

    Attributes:
        index: Number of the GPU, as CUDA counts.
        name: Product name.
        compute_capability: Such as (9, 0).
        pci_bus_id: Where the GPU is in the machine, such as "0000:1B:00.0"; NVML knows it by that too,
            while its numbers may be in another order than CUDA's.
        implementation: "pycuda" or "cuda-python".
    """

    index: int
    name: str
    compute_capability: tuple[int, int]
    pci_bus_id: str
    implementation: str

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def allocate(self, nbytes: int) -> Buffer:
        """Device memory, not initialized.

        Raises:
            EngineError: The GPU has not that much; the message says how much is free.
        """
        ...

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Page-locked host memory as an array, not initialized; it makes copies asynchronous.

        Raises:
            EngineError: The system has not that much.
        """
        ...

    def stream(self) -> Stream:
        """A new stream."""
        ...

    def event(self) -> Event:
        """A new event."""
        ...

    def elapsed_ms(self, start: Event, end: Event) -> float:
        """GPU time between two recorded events, in milliseconds; waits for the later one."""
        ...

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of the GPU's memory."""
        ...

    def synchronize(self) -> None:
        """Waits until all work on the GPU is done."""
        ...


def open_device(index: int = 0, implementation: str | None = None) -> Device:
    """Opens a GPU; starts CUDA.

    Args:
        index: Number of the GPU, as CUDA counts (``CUDA_VISIBLE_DEVICES`` decides what it sees).
        implementation: "pycuda" or "cuda-python"; the first that is installed by default.

    Returns:
        The device, to be used inside ``with``.

    Raises:
        EngineError: There is no such GPU, or its driver is missing, too old or failing.
        MissingExtraError: Neither package is installed.
        UsageError: There is no such implementation.
    """
    from calib.engine.cuda_device import CudaDevice

    return CudaDevice(_open_driver(index, implementation))


def _open_driver(index: int, implementation: str | None) -> CudaDriver:
    from calib.engine.cuda_device import DRIVERS
    from calib.engine.driver_library import load_driver_library

    if implementation is not None and implementation not in IMPLEMENTATIONS:
        raise UsageError(
            f"implementation must be one of {', '.join(IMPLEMENTATIONS)}, got {implementation!r}."
        )
    load_driver_library()
    missing: list[MissingExtraError] = []
    for name in IMPLEMENTATIONS if implementation is None else (implementation,):
        if (name, index) not in DRIVERS:
            try:
                DRIVERS[name, index] = import_module(IMPLEMENTATIONS[name]).open_driver(index)
            except MissingExtraError as error:
                missing.append(error)
                continue
        return DRIVERS[name, index]
    raise missing[0] if len(missing) == 1 else _neither(missing)


def _neither(missing: list[MissingExtraError]) -> MissingExtraError:
    reasons = " ".join(map(str, missing))
    return MissingExtraError(
        f"Using the GPU needs PyCUDA or cuda-python. {reasons} cuda-python comes as wheels; PyCUDA is "
        "compiled on installing and needs a C++ compiler and the CUDA toolkit."
    )
