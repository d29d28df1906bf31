"""Why an INT8 engine is no faster than one in FP16: where its time goes, from layers and their times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from calib.engine.inspector import EngineLayer
from calib.engine.layer_types import FLOATS
from calib.wording import counted

__all__ = ["explain_slower"]

_LEAST_SHARE = 0.02
_MOST_NAMED = 3


class _Timed(NamedTuple):
    """An engine with the time of each layer in milliseconds."""

    layers: Sequence[EngineLayer]
    times: Mapping[str, float]

    def spent(self, layers: Sequence[EngineLayer]) -> float:
        return sum(self.times.get(name, 0.0) for name in {layer.name for layer in layers})

    @property
    def total(self) -> float:
        return self.spent(self.layers)


class _Finding(NamedTuple):
    milliseconds: float
    text: str


def explain_slower(
    int8: tuple[Sequence[EngineLayer], Mapping[str, float]],
    other: tuple[Sequence[EngineLayer], Mapping[str, float]],
    name: str = "FP16",
) -> tuple[str, ...]:
    """Why an INT8 engine is no faster than another of the same model, as far as its layers tell.

    Args:
        int8: Layers of the INT8 engine, and layer → milliseconds by the profiler.
        other: The same of the other engine.
        name: What to call the other.

    Returns:
        Sentences, the costliest first; what takes less than 2 % of the time is left out. Empty without times.
    """
    mine, theirs = _Timed(*int8), _Timed(*other)
    if not mine.total:
        return ()
    findings = [*_kinds(mine, theirs, name), *_slower_layers(mine, theirs, name)]
    kept = [one for one in findings if one.milliseconds / mine.total >= _LEAST_SHARE]
    return tuple(one.text for one in sorted(kept, key=lambda one: -one.milliseconds))


def _kinds(mine: _Timed, theirs: _Timed, name: str) -> Iterator[_Finding]:
    reformats = [layer for layer in mine.layers if layer.copies and not layer.free]
    before = [layer for layer in theirs.layers if layer.copies and not layer.free]
    beside = f" ({_milliseconds(theirs.spent(before))} in {len(before)} in {name})"
    yield _finding(mine, reformats, "reformat", "changing the format or type between layers", beside)
    elementwise = [layer for layer in mine.layers if layer.type.startswith(("PointWise", "ElementWise"))]
    apart = "which fused into no convolution"
    yield _finding(mine, elementwise, "elementwise layer", apart, _some(elementwise))
    floats = [
        layer
        for layer in mine.layers
        if not layer.copies and layer.precision in FLOATS and layer not in elementwise
    ]
    single = sum(layer.precision in ("FP32", "TF32") for layer in floats)
    # An engine with an FP16 layer was allowed them.
    advice = "" if any(layer.precision == "FP16" for layer in mine.layers) else ": allow FP16 beside INT8"
    rest = f" ({single} in FP32{advice})" if single and name == "FP16" else ""
    yield _finding(mine, floats, "layer", f"that stayed in float{rest}", "")
    convolutions = [layer for layer in mine.layers if layer.precision == "INT8" and layer.channels]
    padded = [layer for layer in convolutions if layer.groups <= 1 and any(n % 32 for n in _channels(layer))]
    yield _finding(mine, padded, "INT8 convolution", "whose channels are padded to a multiple of 32", "")
    wide = [layer for layer in convolutions if _written(layer) in FLOATS]
    yield _finding(mine, wide, "INT8 convolution", "writing float, for what reads float", "")


def _channels(layer: EngineLayer) -> tuple[int, ...]:
    read = [tensor.shape[1] for tensor in layer.inputs[:1] if len(tensor.shape) > 1]
    return tuple(size for size in (*read, layer.channels) if size > 0)


def _written(layer: EngineLayer) -> str:
    return next((tensor.datatype for tensor in layer.outputs if tensor.datatype), layer.writes)


def _finding(timed: _Timed, layers: Sequence[EngineLayer], noun: str, what: str, beside: str) -> _Finding:
    spent = timed.spent(layers)
    share = f"{spent / timed.total:.0%} of the layers' time ({_milliseconds(spent)})"
    return _Finding(spent, f"{share} goes to {counted(len(layers), noun + '[s]')} {what}{beside}.")


def _some(layers: Sequence[EngineLayer]) -> str:
    names = [layer.name for layer in layers[:_MOST_NAMED]]
    rest = f" and {len(layers) - _MOST_NAMED} more" if len(layers) > _MOST_NAMED else ""
    return f": {', '.join(names)}{rest}" if names else ""


def _slower_layers(mine: _Timed, theirs: _Timed, name: str) -> Iterator[_Finding]:
    """INT8 layers that take longer than the layer of the other engine that computes the same nodes."""
    peers = {layer.onnx_nodes: layer for layer in theirs.layers if layer.onnx_nodes and not layer.copies}
    pairs = [
        (layer, mine.times.get(layer.name, 0.0), theirs.times.get(peers[layer.onnx_nodes].name, 0.0))
        for layer in mine.layers
        if layer.precision == "INT8" and not layer.copies and layer.onnx_nodes in peers
    ]
    slower = sorted(
        ((after - before, layer, after, before) for layer, after, before in pairs if after > before > 0),
        key=lambda item: -item[0],
    )
    if not slower:
        return
    lost = sum(item[0] for item in slower)
    _, layer, after, before = slower[0]
    yield _Finding(
        lost,
        f"{len(slower)} of {len(pairs)} INT8 layers take longer than the same nodes in {name}, by "
        f"{_milliseconds(lost)} in all; most of all {layer.name}: {_milliseconds(after)} against "
        f"{_milliseconds(before)}.",
    )


def _milliseconds(value: float) -> str:
    return f"{value:.3g} ms"
