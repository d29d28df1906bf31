"""An engine in a few figures: layers by precision, share of INT8 in layers and in time, and why not more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calib.engine.fusion import Fusion, describe_fusion
from calib.engine.inspector import EngineLayer
from calib.engine.why_not_int8 import FloatLayer, why_not_int8

if TYPE_CHECKING:
    from calib.graph import OnnxModel

__all__ = ["EngineSummary", "summarize_layers"]

_SLOWEST = 5


@dataclass(frozen=True)
class EngineSummary:
    """What the layers of an engine say.

    Attributes:
        layers: Number of layers that compute; copies are not among them.
        int8_layers: How many of these compute in INT8.
        by_precision: Precision → number of layers that compute in it.
        copies: Number of layers that change format, type or shape alone.
        int8_time_share: INT8 layers' part of the time of all layers, copies among them; None without times.
        copy_time_share: The copies' part of it.
        float_layers: Why each layer that is not INT8 is not.
        fusion: What fusion did to the graph.
        slowest: Name, precision and share of time of the slowest layers, the slowest first.
    """

    layers: int
    int8_layers: int
    by_precision: Mapping[str, int]
    copies: int
    int8_time_share: float | None
    copy_time_share: float | None
    float_layers: tuple[FloatLayer, ...]
    fusion: Fusion
    slowest: tuple[tuple[str, str, float], ...]

    @property
    def reasons(self) -> dict[str, int]:
        """Reason without names → number of layers, the most frequent first."""
        return dict(Counter(layer.kind for layer in self.float_layers).most_common())


def summarize_layers(
    layers: Sequence[EngineLayer],
    times_ms: Mapping[str, float] | None = None,
    model: OnnxModel | None = None,
    scales: Mapping[str, float] | None = None,
) -> EngineSummary:
    """Summarizes an engine.

    Args:
        layers: Its layers.
        times_ms: Layer → milliseconds, by the profiler.
        model: The model it was built from, for reasons and fusion.
        scales: Tensor → scale, where it was built from a calibration cache.
    """
    computing = [layer for layer in layers if not layer.copies]
    precisions = Counter(layer.precision for layer in computing)
    shares = _shares(layers, times_ms or {})
    int8 = {layer.name for layer in computing if layer.precision == "INT8"}
    copies = {layer.name for layer in layers if layer.copies}
    kinds = {layer.name: layer.precision for layer in layers}
    slowest = sorted(shares.items(), key=lambda item: -item[1])[:_SLOWEST]
    return EngineSummary(
        layers=len(computing),
        int8_layers=precisions["INT8"],
        by_precision=dict(precisions.most_common()),
        copies=len(layers) - len(computing),
        int8_time_share=sum(shares[name] for name in int8 & shares.keys()) if shares else None,
        copy_time_share=sum(shares[name] for name in copies & shares.keys()) if shares else None,
        float_layers=why_not_int8(layers, model, scales) if int8 else (),
        fusion=describe_fusion(layers, model),
        slowest=tuple((name, kinds[name], share) for name, share in slowest),
    )


def _shares(layers: Sequence[EngineLayer], times_ms: Mapping[str, float]) -> dict[str, float]:
    known = {layer.name: times_ms[layer.name] for layer in layers if layer.name in times_ms}
    total = sum(known.values())
    return {name: value / total for name, value in known.items()} if total else {}
