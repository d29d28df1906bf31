"""What an implementation of device memory must offer: CUDA's driver API, thinly."""

from __future__ import annotations

from typing import Any, Protocol

from calib.data import Array

__all__ = ["CudaDriver"]


class CudaDriver(Protocol):
    """CUDA's driver API as a package offers it; handles are what that package uses.

    Every method but ``push`` expects the context to be current, and raises EngineError where CUDA fails.

    Attributes:
        implementation: The package.
        index: Number of the GPU.
        name: Product name.
        compute_capability: Such as (9, 0).
        pci_bus_id: Where the GPU is in the machine, such as "0000:1B:00.0".
    """

    implementation: str
    index: int
    name: str
    compute_capability: tuple[int, int]
    pci_bus_id: str

    def push(self) -> None:
        """Makes the primary context current."""
        ...

    def pop(self) -> None:
        """Takes it off this thread's stack again."""
        ...

    def synchronize(self) -> None:
        """Waits for the whole GPU."""
        ...

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        ...

    def allocate(self, nbytes: int) -> Any:
        """Device memory; raises MemoryError where there is not enough."""
        ...

    def address(self, memory: Any) -> int:
        """Where device memory lies."""
        ...

    def free(self, memory: Any) -> None:
        """Gives device memory back."""
        ...

    def copy_in(self, address: int, array: Array, stream: Any | None) -> None:
        """From a flat array of bytes to the device."""
        ...

    def copy_out(self, array: Array, address: int, stream: Any | None) -> None:
        """From the device to a flat array of bytes."""
        ...

    def allocate_pinned(self, nbytes: int) -> tuple[Any, int]:
        """Page-locked memory and its address; raises MemoryError where there is not enough."""
        ...

    def free_pinned(self, memory: Any) -> None:
        """Gives page-locked memory back."""
        ...

    def make_stream(self) -> Any:
        """A stream that does not wait for the default stream."""
        ...

    def stream_handle(self, stream: Any) -> int:
        """The CUstream as a number."""
        ...

    def synchronize_stream(self, stream: Any) -> None:
        """Waits for a stream."""
        ...

    def wait_event(self, stream: Any, event: Any) -> None:
        """Lets a stream wait for an event."""
        ...

    def free_stream(self, stream: Any) -> None:
        """Gives a stream back."""
        ...

    def make_event(self) -> Any:
        """An event that takes the time."""
        ...

    def record_event(self, event: Any, stream: Any) -> None:
        """Records an event in a stream."""
        ...

    def synchronize_event(self, event: Any) -> None:
        """Waits for an event."""
        ...

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds between two events that are reached."""
        ...

    def free_event(self, event: Any) -> None:
        """Gives an event back."""
        ...

    def begin_capture(self, stream: Any) -> None:
        """Starts capturing this thread's work on a stream."""
        ...

    def end_capture(self, stream: Any) -> Any | None:
        """A graph to launch; None where the capture was spoilt."""
        ...

    def launch_graph(self, graph: Any, stream: Any) -> None:
        """Launches a graph."""
        ...

    def free_graph(self, graph: Any) -> None:
        """Gives a graph back."""
        ...

    def release(self) -> None:
        """Gives the primary context back, at the end of the process."""
        ...
