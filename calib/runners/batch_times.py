"""The times that make up one batch on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BatchTimes"]


@dataclass(frozen=True)
class BatchTimes:
    """One batch, in milliseconds, as trtexec tells the parts apart; one batch in flight at a time.

    Attributes:
        compute_ms: GPU compute: CUDA events around the enqueue.
        host_to_device_ms: Copying the inputs from pinned memory, by CUDA events.
        device_to_host_ms: Copying the outputs to pinned memory, by CUDA events.
        end_to_end_ms: Host clock from before the first copy until every output is complete in host memory.
        enqueue_ms: Host clock around the call that enqueues the network, or launches its CUDA graph.
    """

    compute_ms: float
    host_to_device_ms: float
    device_to_host_ms: float
    end_to_end_ms: float
    enqueue_ms: float

    @property
    def with_transfers_ms(self) -> float:
        """Host to device, compute and device to host; what trtexec calls Latency.

        >>> BatchTimes(2.0, 0.5, 0.25, 3.0, 0.1).with_transfers_ms
        2.75
        """
        return self.host_to_device_ms + self.compute_ms + self.device_to_host_ms
