"""What was measured of speed and of engines, as plain frozen records; part of the results' schema."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "HOST_DOUBT",
    "EngineRecord",
    "Latency",
    "LatencyPart",
    "LatencyRatio",
    "Telemetry",
    "is_host_bound",
]

HOST_DOUBT = "the host may be what was measured: time CUDA graphs, or a larger batch"

_HOST_BOUND = 0.8


def is_host_bound(enqueue_ms: float, compute_ms: float) -> bool:
    """Whether launching takes so long that the host may be what is measured: trtexec's (sampleReporting.cpp).

    >>> is_host_bound(0.81, 1.0), is_host_bound(0.8, 1.0)
    (True, False)
    """
    return enqueue_ms > _HOST_BOUND * compute_ms


@dataclass(frozen=True)
class LatencyPart:
    """One of the times that make up a batch on a GPU, in milliseconds.

    Attributes:
        name: "host to device", "device to host", "enqueue" or "end to end"; and of "GPU compute" and "with
            transfers" (host to device + GPU compute + device to host) the one that is not the latency.
        median_ms: Median.
        p90_ms: 90th percentile.
        p99_ms: 99th percentile.
    """

    name: str
    median_ms: float
    p90_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Latency:
    """Time for one batch, in milliseconds, warm-up apart, precisions timed in turn.

    Attributes:
        batch_size: Samples a batch.
        count: Number of timed batches.
        warmup: Number of batches run before, not counted.
        median_ms: Median.
        p90_ms: 90th percentile.
        p99_ms: 99th percentile.
        mean_ms: Mean.
        min_ms: Smallest.
        first_ms: The very first batch, warm-up included.
        throughput_per_s: Samples a second at the median.
        clock: How it was measured.
        simulated: True where the figure says nothing of TensorRT's speed.
        times_ms: Every timed batch, in order.
        warmup_ms: Every batch run before, in order; the first is ``first_ms``.
        parts: The other times of the same batches: transfers, enqueue, end to end. Empty on a CPU.
        cuda_graph: Whether a captured CUDA graph was launched.
        device: What ran the batches: the GPU's name, or "CPU"; empty where results do not say.
        on_gpu: Whether that is a GPU; None where results do not say.
    """

    batch_size: int
    count: int
    warmup: int
    median_ms: float
    p90_ms: float
    p99_ms: float
    mean_ms: float
    min_ms: float
    first_ms: float
    throughput_per_s: float
    clock: str
    simulated: bool
    times_ms: tuple[float, ...] = ()
    warmup_ms: tuple[float, ...] = ()
    parts: tuple[LatencyPart, ...] = ()
    cuda_graph: bool = False
    device: str = ""
    on_gpu: bool | None = None

    @property
    def host_bound(self) -> bool:
        """Whether the host takes so long to launch a batch that it may be what was measured, not the GPU."""
        known = {part.name: part.median_ms for part in self.parts}
        return is_host_bound(known.get("enqueue", 0.0), known.get("GPU compute", self.median_ms))


@dataclass(frozen=True)
class LatencyRatio:
    """How the median latencies of two runs of one measurement compare.

    Attributes:
        candidate: Label of the run.
        against: Label of the run that it is divided by.
        ratio: Median of ``candidate`` divided by median of ``against``; below 1 is faster.
        low: Lower end of the interval; None where it could not be made.
        high: Upper end of the interval.
        confidence: The interval's confidence.
        method: How the interval was made.
    """

    candidate: str
    against: str
    ratio: float
    low: float | None
    high: float | None
    confidence: float = 0.95
    method: str = "percentile bootstrap of rounds"


@dataclass(frozen=True)
class Telemetry:
    """What NVML said of the GPU while latency was measured.

    Attributes:
        samples: Number of readings.
        sm_clock_mhz: Lowest, median and highest clock of the multiprocessors, in MHz.
        memory_clock_mhz: The same of the memory.
        power_w: The same of the power, in W.
        temperature_c: The same of the temperature, in °C.
        throttle_reasons: Names of every reason for lowered clocks that was seen, idle apart.
        problem: Why there are no readings; empty where there are.
    """

    samples: int = 0
    sm_clock_mhz: tuple[float, float, float] | None = None
    memory_clock_mhz: tuple[float, float, float] | None = None
    power_w: tuple[float, float, float] | None = None
    temperature_c: tuple[float, float, float] | None = None
    throttle_reasons: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class EngineRecord:
    """The engine of a run: what was built, and what the inspector says of it.

    Attributes:
        tensorrt: Version that built it.
        device: GPU that it was built for.
        route: "float", "implicit INT8" (calibration cache) or "explicit INT8" (Q/DQ model).
        level: Builder optimization level; None for the builder's default.
        build_seconds: Time of the build; None where the engine came from a file or cache.
        engine_bytes: Size.
        layers: Number of engine layers.
        int8_layers: Number of layers that compute in INT8.
        by_precision: Number of layers of each precision; "copies" are reformats, which are no layers here.
        int8_time_share: Share of the layers' time spent in INT8 layers; None where not profiled.
        reasons: Why layers are not INT8: reason → number of layers.
        fusion: What fusion did to the graph, in words.
        slowest: Names of the layers that took most time, each with precision and share of the time.
        costs: Of an INT8 engine beside one in FP16: what its time goes to, in words, the costliest first.
        nodes: ONNX node → precision of the layer that computes it, as far as the inspector tells.
    """

    tensorrt: str
    device: str
    route: str
    level: int | None
    build_seconds: float | None
    engine_bytes: int
    layers: int
    int8_layers: int
    by_precision: dict[str, int]
    int8_time_share: float | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    fusion: tuple[str, ...] = ()
    slowest: tuple[tuple[str, str, float], ...] = ()
    costs: tuple[str, ...] = ()
    nodes: dict[str, str] = field(default_factory=dict)
