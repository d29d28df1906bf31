"""Memory of outputs whose size only the run tells: an allocator that TensorRT calls back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calib.errors import EngineError

if TYPE_CHECKING:
    from calib.engine.memory import Buffer, Device

__all__ = ["GrowingBuffer", "make_output_allocator"]


class GrowingBuffer:
    """Device memory that is used again and again, and replaced by more where it is too small."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffer: Buffer | None = None

    @property
    def buffer(self) -> Buffer:
        """The memory.

        Raises:
            EngineError: None was reserved yet.
        """
        if self._buffer is None:
            raise EngineError(
                "No device memory was reserved for a tensor: it was used before its shape was known."
            )
        return self._buffer

    def reserve(self, nbytes: int) -> Buffer:
        """Makes sure of a number of bytes; empty tensors get an address too, as TensorRT wants one.

        Raises:
            EngineError: The GPU's memory is full.
        """
        if self._buffer is None or self._buffer.nbytes < nbytes:
            self.free()
            self._buffer = self._device.allocate(max(nbytes, 1))
        return self._buffer

    def free(self) -> None:
        """Gives the memory back; a second call does nothing."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.free()


def make_output_allocator(trt: Any, memory: GrowingBuffer) -> Any:
    """An allocator for one output whose shape depends on the data.

    TensorRT swallows what a callback raises and goes on with a null pointer, so the error is kept.

    Args:
        trt: The TensorRT module.
        memory: Where the output goes.

    Returns:
        A ``trt.IOutputAllocator`` with ``shape``, which is None until a run tells it, and ``failure``.
    """

    class OutputAllocator(trt.IOutputAllocator):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.shape: tuple[int, ...] | None = None
            self.failure: Exception | None = None

        def reallocate_output(self, tensor_name: str, memory_now: Any, size: int, alignment: int) -> int:
            try:
                address = memory.reserve(size).address
                if alignment > 1 and address % alignment:
                    raise EngineError(
                        f"Output {tensor_name!r} needs memory aligned to {alignment} bytes, got {address:#x}."
                    )
            except Exception as error:
                self.failure = error
                return 0
            return address

        # TensorRT 10 and later call this one, and the other only where this one is missing.
        def reallocate_output_async(
            self, tensor_name: str, memory_now: Any, size: int, alignment: int, stream: int
        ) -> int:
            return self.reallocate_output(tensor_name, memory_now, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(int(size) for size in shape)

    return OutputAllocator()
