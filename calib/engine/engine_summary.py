"""An engine in a few figures: layers by precision, share of INT8 in layers and in time, and why not more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calib.engine.fusion import Fusion, describe_fusion, node_label
from calib.engine.inspector import EngineLayer
from calib.engine.why_not_int8 import FloatLayer, explain_float_layers, uses_pairs
from calib.engine.wrong_layers import find_wrong_layers

if TYPE_CHECKING:
    from calib.graph import OnnxModel

__all__ = ["NAMES_ALONE", "EngineSummary", "summarize_layers"]

NAMES_ALONE = (
    "The engine tells the names of its layers alone: it was built without DETAILED profiling verbosity, so "
    "precisions and formats are not known. Build it with calib build, or with trtexec "
    "--profilingVerbosity=detailed."
)

_SLOWEST = 5


@dataclass(frozen=True)
class EngineSummary:
    """What the layers of an engine say.

    Attributes:
        layers: Number of layers that compute; copies are not among them.
        int8_layers: How many of these compute in INT8.
        by_precision: Precision → number of layers that compute in it.
        copies: Number of layers that change format or type alone, and take time.
        int8_time_share: INT8 layers' part of the time of all layers, copies among them; None without times.
        copy_time_share: The copies' part of it.
        float_layers: Why each layer that is not INT8 is not; empty for engines that were not built for INT8.
        fusion: What fusion did to the graph.
        slowest: Name, precision and share of time of the slowest layers, the slowest first.
        notes: What to know about these figures.
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
    notes: tuple[str, ...] = ()

    @property
    def int8_share(self) -> float:
        """INT8 layers' part of the layers that compute."""
        return self.int8_layers / self.layers if self.layers else 0.0

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

    It counts as built for INT8 where a layer computes in INT8, scales are given, or it has Q/DQ nodes: an
    engine that was built for INT8 may hold no INT8 layer at all.

    Args:
        layers: Its layers.
        times_ms: Layer → milliseconds, by the profiler.
        model: The model it was built from, for reasons and fusion.
        scales: Tensor → scale, where it was built from a calibration cache.
    """
    computing = [layer for layer in layers if not layer.copies]
    precisions = Counter(layer.precision for layer in computing)
    meant = bool(precisions["INT8"]) or scales is not None or uses_pairs(layers, model)
    shares = _shares(layers, times_ms or {})
    int8 = {layer.name for layer in computing if layer.precision == "INT8"}
    copies = [layer for layer in layers if layer.copies and not layer.free]
    return EngineSummary(
        layers=len(computing),
        int8_layers=precisions["INT8"],
        by_precision=dict(precisions.most_common()),
        copies=len(copies),
        int8_time_share=_part(shares, int8),
        copy_time_share=_part(shares, {layer.name for layer in copies}),
        float_layers=explain_float_layers(layers, model, scales) if meant else (),
        fusion=describe_fusion(layers, model),
        slowest=_slowest(layers, shares),
        notes=(*_notes(layers, times_ms, shares), *_of_another_model(layers, model), *_wrong(layers)),
    )


def _wrong(layers: Sequence[EngineLayer]) -> Iterator[str]:
    for found in find_wrong_layers(layers):
        yield (
            f"{found}: TensorRT 8.6.0 {found.claim} something else there. "
            "calib validate --runner tensorrt compares an INT8 engine with its simulation; calib build "
            "leaves such a node of a float model in float."
        )


def _shares(layers: Sequence[EngineLayer], times_ms: Mapping[str, float]) -> dict[str, float]:
    known = {layer.name: times_ms[layer.name] for layer in layers if layer.name in times_ms}
    total = sum(known.values())
    return {name: value / total for name, value in known.items()} if total > 0 else {}


def _part(shares: Mapping[str, float], names: set[str]) -> float | None:
    return sum(share for name, share in shares.items() if name in names) if shares else None


def _slowest(
    layers: Sequence[EngineLayer], shares: Mapping[str, float]
) -> tuple[tuple[str, str, float], ...]:
    kinds = {layer.name: "copy" if layer.copies else layer.precision for layer in layers}
    ordered = sorted(shares.items(), key=lambda item: -item[1])[:_SLOWEST]
    return tuple((name, kinds[name], share) for name, share in ordered if share > 0)


def _notes(
    layers: Sequence[EngineLayer], times_ms: Mapping[str, float] | None, shares: Mapping[str, float]
) -> tuple[str, ...]:
    found = []
    if not all(layer.detailed for layer in layers):
        found.append(NAMES_ALONE)
    if times_ms and not shares:
        found.append("None of the times is of a layer of this engine: they are of another engine, or zero.")
    return tuple(found)


def _of_another_model(layers: Sequence[EngineLayer], model: OnnxModel | None) -> Iterator[str]:
    named = {name for layer in layers for name in layer.onnx_nodes}
    if model is not None and named and named.isdisjoint(map(node_label, model.proto.graph.node)):
        yield (
            f"No layer names a node of {model.path}: the engine was built from another model, or its nodes "
            "have no names. Reasons and fusions say little then."
        )
