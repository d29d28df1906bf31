"""The FP16 form of a model, as typed ONNX: what TensorRT 11 builds an FP16 engine from.

Three converters exist, and none serves here. The one of ``onnxruntime.transformers`` and its origin in
onnxconverter-common clip weights to ±65504; cast what a blocked node makes to float16 and back, so that it
overflows nevertheless; write casts at the graph's end, which onnx.checker refuses; and know tensors only
where shape inference gets to. Of a normalization with an epsilon of 1e-12 they make NaN. Model Optimizer's
autocast keeps nodes by their values, but needs torch and more, and takes no calibration cache. So the types
are assigned here, tensor by tensor: ``half_plan`` decides, ``half_writer`` writes, ``half_check`` proves.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from calib.calibrators.provenance import cache_files
from calib.data import Array
from calib.errors import ModelError, UsageError
from calib.files import check_apart, check_writable
from calib.graph.external import check_model_path, write_model
from calib.graph.folding import computed_constants, fold_constants, state_constants
from calib.graph.half_check import Feeds, HalfError, compare_half, observe
from calib.graph.half_graph import HalfGraph
from calib.graph.half_plan import HalfPlan, plan_half
from calib.graph.half_ranges import LARGEST, KnownRanges, Ranges, known_ranges
from calib.graph.half_writer import HalfWriter
from calib.graph.intake import OnnxModel, load_model
from calib.graph.placement import LeftFloat
from calib.graph.validity import check_valid
from calib.wording import as_several, counted

__all__ = ["DEFAULT_MARGIN", "HalfModel", "convert_float16", "to_float16"]

DEFAULT_MARGIN = 2.0
"""How many times as large as on the calibration data values may become."""

_ROUNDS = 20
_MASK = 1e9


@dataclass(frozen=True)
class HalfModel:
    """A model in float16, and what was left in float32.

    Attributes:
        model: The model.
        kept: Nodes that compute in float32, with the reason, in network order.
        converted: Number of nodes that compute in float16.
        casts: Number of casts added.
        notes: What is worth knowing.
        error: What it gets wrong on the samples that it was checked with; None where there were none.
    """

    model: OnnxModel
    kept: tuple[LeftFloat, ...]
    converted: int
    casts: int
    notes: tuple[str, ...]
    error: HalfError | None = None


@dataclass(frozen=True)
class _Request:
    """How to convert."""

    keep_float: tuple[str, ...]
    margin: float
    keep_io: bool


def convert_float16(
    model: str | os.PathLike[str] | OnnxModel,
    *,
    ranges: Ranges | None = None,
    check: Sequence[Mapping[str, Array]] = (),
    out: str | os.PathLike[str] | None = None,
    keep_float: Sequence[str] = (),
    margin: float = DEFAULT_MARGIN,
    keep_io: bool = True,
) -> HalfModel:
    """Converts weights and activations to float16 where their values allow it.

    A node stays in float32, behind casts, where a tensor of it is known to leave float16's range, where its
    constants do not fit or vanish, where it sums more than float16 can hold, or where its operator needs
    float32 whatever the values are. Nothing is clipped but the bounds of Clip.

    Args:
        model: The float32 model, or its path.
        ranges: Tensor → largest absolute value; or a calibration cache, or its path. Without any, operators
            whose results may be large stay in float32, and the rest is taken on trust.
        check: Batches to run it on, one array for each input. Ranges are measured on them as well, and what
            overflows nevertheless is put back to float32.
        out: Where to write the model; None writes nothing.
        keep_float: Regular expressions of nodes (or their outputs) that stay in float32.
        margin: How many times as large as known the values may become.
        keep_io: Keep the float32 inputs and outputs; otherwise they become float16 too, where they can.

    Returns:
        The model, what was kept in float32 and why.

    Raises:
        UsageError: A regular expression finds nothing, or the margin is below 1.
        ModelError: The model has no float32 tensors, or gives infinities whatever is kept.
        CalibError: Model or cache cannot be read, or the result cannot be written; nothing is written then.
    """
    if not margin >= 1:
        raise UsageError(f"margin must be ≥ 1, got {margin}.")
    if out is not None:
        check_writable(out)
        check_apart(out, cache_files(ranges))
    network = model if isinstance(model, OnnxModel) else load_model(model)
    if out is not None:
        check_model_path(out, network)
    known = known_ranges(ranges)
    request = _Request(as_several(keep_float), margin, keep_io)
    result = _checked(network, known, check, request) if check else _convert(network, known, request)
    check_valid(result.model, "FP16", network)
    if out is not None:
        write_model(result.model, out)
    return result


def to_float16(
    model: OnnxModel,
    *,
    ranges: Ranges | None = None,
    check: Sequence[Mapping[str, Array]] = (),
) -> OnnxModel:
    """The model of ``convert_float16``, with what it does by default.

    Args:
        model: The float32 model.
        ranges: As there.
        check: As there.

    Raises:
        CalibError: As there.
    """
    return convert_float16(model, ranges=ranges, check=check).model


def _convert(model: OnnxModel, known: KnownRanges, request: _Request) -> HalfModel:
    graph = HalfGraph(_with_plain_constants(model))
    ranges = replace(known, amax=dict(known.amax), suspects=set())
    inputs, outputs = ((), ()) if request.keep_io else _half_ends(model, graph, ranges, request.margin)
    plan = plan_half(graph, ranges, keep_float=request.keep_float, half_inputs=inputs, margin=request.margin)
    kept = plan.kept(graph)
    casts = HalfWriter(graph, plan, outputs).apply()
    converted = sum(bool(slots.inputs or slots.outputs) for slots in plan.slots)
    notes = tuple(_notes(model, graph, plan, known, kept))
    result = OnnxModel(model.path.with_suffix(".fp16.onnx"), graph.proto, model.external_files)
    return HalfModel(result, kept, converted, casts, notes)


def _with_plain_constants(model: OnnxModel) -> onnx.ModelProto:
    """A copy of a model whose constants can be judged: none is computed from others."""
    proto = model.edited()
    state_constants(proto.graph)
    fold_constants(proto, computed_constants(proto.graph))
    return proto


def _half_ends(
    model: OnnxModel, graph: HalfGraph, ranges: KnownRanges, margin: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Inputs and outputs that can be float16: those that fit and that no subgraph reads as float32."""

    def able(name: str) -> bool:
        reach = ranges.reach(name)
        fits = reach is None or reach * margin <= LARGEST
        return fits and graph.is_float(name) and name not in graph.captured and name not in graph.constants

    inputs = tuple(spec.name for spec in model.inputs if able(spec.name))
    return inputs, tuple(spec.name for spec in model.outputs if able(spec.name))


def _checked(model: OnnxModel, known: KnownRanges, feeds: Feeds, request: _Request) -> HalfModel:
    """Converts with ranges measured on the samples, until nothing overflows on them."""
    before = observe(model, feeds)
    # What was measured counts itself; what a cache says of other data may be more.
    amax = {name: max(value, (known.reach(name) or 0.0)) for name, value in before.amax.items()}
    amax = {**{name: known.amax[name] * known.slack for name in known.amax}, **amax}
    ranges = KnownRanges(amax, 1.0, known.notes)
    back: list[str] = []
    first = ""
    for _ in range(_ROUNDS):
        result = _convert(model, ranges, request)
        error = compare_half(model, result.model, feeds, before)
        if not error.overflows:
            notes = (
                *result.notes,
                *(f"put back to float32, for it overflowed on a sample: {n}" for n in back),
            )
            return replace(result, error=error, notes=notes)
        first = error.overflows[0]
        if first in back:
            break
        back.append(first)
        ranges.amax[first] = float("inf")
    raise ModelError(
        f"The FP16 form of {model.path} gives infinities on the samples, first in {first!r}, "
        "whatever is kept in float32. Name the nodes before it with --keep-float."
    )


def _notes(
    model: OnnxModel,
    graph: HalfGraph,
    plan: HalfPlan,
    known: KnownRanges,
    kept: Sequence[LeftFloat],
) -> Iterator[str]:
    if not any(kind == 1 for kind in graph.types.values()):
        yield f"{model.path} has no float32 tensors: nothing was converted"
    yield from known.notes
    if not known.amax:
        yield (
            "no ranges were given: whether values stay within float16's range is not known. "
            "Give a min-max calibration cache or data"
        )
    elif plan.without_range:
        names = ", ".join(plan.without_range[:5])
        yield f"{counted(len(plan.without_range), 'float activation[s] [has|have]')} no range: {names}"
    for name, value in plan.beyond.items():
        if value >= _MASK:
            yield (
                f"constant {name!r} ({value:.3g}) stands for minus infinity and keeps its readers in "
                "float32; -65504 in its place would not"
            )
    for name, share in plan.lossy.items():
        if share > 0.01:
            yield f"{share:.0%} of the values of {name!r} are below 3e-08 and become 0"
    inside = Counter(left.op for left in kept if left.op in ("If", "Loop", "Scan"))
    if inside:
        listed = ", ".join(f"{count} {op}" for op, count in inside.items())
        yield f"what is inside {listed} stays in float32"
