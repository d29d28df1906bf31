"""Time of each engine layer, by TensorRT's profiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calib.errors import EngineError

if TYPE_CHECKING:
    from calib.data import Array
    from calib.engine.api import Api
    from calib.engine.memory import Stream
    from calib.runners.tensorrt_io import Bindings

__all__ = ["profile_layers"]


def profile_layers(
    api: Api, bindings: Bindings, feeds: Mapping[str, Array], stream: Stream, runs: int
) -> dict[str, float]:
    """Runs a batch several times under a profiler, after one run without.

    The profiler puts events between the layers and waits for them, so the sum is above the latency.

    Args:
        api: TensorRT.
        bindings: Of a context that is not used for anything else afterwards: the profiler stays with it.
        feeds: The batch.
        stream: The stream to run on.
        runs: Number of runs.

    Returns:
        Layer's name → mean time a run in ms, in the order of execution. A layer that runs several times
        in one run, as in a loop, counts with all of them.

    Raises:
        EngineError: The engine tells no layers, or fails.
    """
    total: dict[str, float] = {}
    profiler = _make_profiler(api.trt, total)
    bindings.bind(feeds)
    bindings.write(stream)
    bindings.enqueue(stream)
    stream.synchronize()
    bindings.context.profiler = profiler
    for _ in range(runs):
        bindings.enqueue(stream)
        stream.synchronize()
    if not total:
        raise EngineError(
            f"{api.title} reported no layer's time for this engine. Build it with calib build, which keeps "
            "the layers' names and times (ProfilingVerbosity.DETAILED)."
        )
    return {name: milliseconds / runs for name, milliseconds in total.items()}


def _make_profiler(trt: Any, total: dict[str, float]) -> Any:
    class LayerProfiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            total[layer_name] = total.get(layer_name, 0.0) + ms

    return LayerProfiler()
