"""What the inspector and the profiler say of the engines of a run, as records for its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from calib.data import Array
from calib.validation.speed_records import EngineRecord
from calib.validation.variants import Variant

if TYPE_CHECKING:
    from calib.engine import BuildRecord, EngineLayer
    from calib.graph import OnnxModel

__all__ = ["inspect_variants"]


class _Inspected(NamedTuple):
    """Layers of a run's engine, and layer → milliseconds; no times where it was not profiled."""

    variant: Variant
    built: BuildRecord
    layers: tuple[EngineLayer, ...]
    times: Mapping[str, float]


def inspect_variants(
    variants: Sequence[Variant], model: OnnxModel, feeds: Mapping[str, Array], profile: bool
) -> tuple[EngineRecord | None, ...]:
    """Asks every engine for its layers, and each INT8 engine where its time goes beside that in FP16.

    Args:
        variants: The runs, their runners open.
        model: The FP32 model.
        feeds: A batch, which gives dynamic shapes their sizes.
        profile: Whether layers are timed.

    Returns:
        An entry for each run; None where it has no engine.

    Raises:
        EngineError: TensorRT does not tell, or what it tells cannot be read.
    """
    inspected = [_inspect(variant, feeds, profile) for variant in variants]
    fp16 = next((one for one in inspected if one and one.variant.name.precision == "fp16"), None)
    return tuple(None if one is None else _record(one, model, fp16) for one in inspected)


def _inspect(variant: Variant, feeds: Mapping[str, Array], profile: bool) -> _Inspected | None:
    if variant.engine is None:
        return None
    runner: Any = variant.runner
    times = runner.profile(feeds) if profile else {}
    return _Inspected(variant, variant.engine.record, runner.layers(feeds), times)


def _record(one: _Inspected, model: OnnxModel, fp16: _Inspected | None) -> EngineRecord:
    from calib.engine import explain_slower, summarize_layers

    built = one.built
    summary = summarize_layers(one.layers, one.times, model, one.variant.scales)
    copies = {"copies": summary.copies} if summary.copies else {}
    costs: tuple[str, ...] = ()
    if one.variant.name.precision == "int8" and fp16 is not None:
        costs = explain_slower((one.layers, one.times), (fp16.layers, fp16.times))
    return EngineRecord(
        tensorrt=built.tensorrt,
        device=built.device,
        route=built.route,
        level=built.level,
        build_seconds=None if built.from_cache else built.build_seconds,
        engine_bytes=built.plan_bytes,
        layers=summary.layers,
        int8_layers=summary.int8_layers,
        by_precision={**summary.by_precision, **copies},
        int8_time_share=summary.int8_time_share,
        reasons=summary.reasons,
        fusion=summary.fusion.sentences(),
        slowest=summary.slowest,
        costs=costs,
        nodes={
            node: layer.precision
            for layer in one.layers
            if not layer.copies and layer.detailed
            for node in layer.onnx_nodes
        },
    )
