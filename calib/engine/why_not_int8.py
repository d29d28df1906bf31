"""Why a layer of an INT8 engine computes in float: in words, from what is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calib.calibrators import unusable_reason
from calib.engine.inspector import EngineLayer

if TYPE_CHECKING:
    import onnx

    from calib.graph import OnnxModel

__all__ = ["FloatLayer", "explain_slower", "why_not_int8"]

_NOT_FLOAT = ("INT32", "INT64", "BOOL", "UINT8")
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Operators of TensorRT's support matrix that run in INT8 where both sides have scales.
_ABLE = frozenset(
    (
        *_WEIGHTED,
        *("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Sum", "Concat", "Slice", "Resize", "Pad"),
        *("AveragePool", "GlobalAveragePool", "MaxPool", "GlobalMaxPool", "LpPool", "Relu", "Clip"),
        *("LeakyRelu", "PRelu", "Elu", "Selu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish"),
        *("Softplus", "Softsign", "BatchNormalization", "Reshape", "Transpose", "Flatten", "Identity"),
        *("Squeeze", "Unsqueeze", "Split"),
    )
)


@dataclass(frozen=True)
class FloatLayer:
    """A layer that is not INT8.

    Attributes:
        layer: Its name.
        precision: What it computes in.
        kind: The reason without names, by which layers are counted.
        detail: What the reason is about: a tensor, operators, channels; may be empty.
    """

    layer: str
    precision: str
    kind: str
    detail: str = ""

    @property
    def reason(self) -> str:
        """The reason in words.

        >>> FloatLayer("/conv", "FP16", "no scale for a tensor", "'x'").reason
        "no scale for a tensor: 'x'"
        """
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


def why_not_int8(
    layers: Sequence[EngineLayer],
    model: OnnxModel | None = None,
    scales: Mapping[str, float] | None = None,
) -> tuple[FloatLayer, ...]:
    """Explains every layer that computes, and not in INT8.

    Args:
        layers: The layers of an engine that was built for INT8.
        model: The model it was built from: float, or with Q/DQ nodes.
        scales: Tensor → scale, where the engine was built from a calibration cache.

    Returns:
        One entry for each such layer, in network order.
    """
    nodes = {} if model is None else _by_label(model.proto)
    pairs = model is not None and bool(model.quantized_nodes)
    return tuple(
        _explain(layer, [nodes[name] for name in layer.onnx_nodes if name in nodes], scales, pairs)
        for layer in layers
        if not layer.copies and layer.precision != "INT8"
    )


def _by_label(proto: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {node.name or node.output[0]: node for node in proto.graph.node if node.name or node.output}


def _explain(
    layer: EngineLayer,
    nodes: Sequence[onnx.NodeProto],
    scales: Mapping[str, float] | None,
    pairs: bool,
) -> FloatLayer:
    kind, detail = (
        _by_layer(layer) or _by_operator(nodes) or _by_scales(nodes, scales, pairs) or _by_kernel(layer)
    )
    return FloatLayer(layer.name, layer.precision, kind, detail)


def _by_layer(layer: EngineLayer) -> tuple[str, str] | None:
    if not layer.detailed:
        return "the engine tells names alone: build it with detailed profiling verbosity", ""
    if layer.precision in _NOT_FLOAT:
        return "integers, shapes or comparisons, which are no INT8 work", ""
    if layer.type.startswith("Plugin"):
        return "a plug-in, which computes in its own type", ""
    if "ForeignNode" in layer.name:
        return "a region compiled as a whole, which TensorRT 8.6 leaves in float under implicit INT8", ""
    return None


def _by_operator(nodes: Sequence[onnx.NodeProto]) -> tuple[str, str] | None:
    unable = sorted({node.op_type for node in nodes} - _ABLE)
    return ("an operator without INT8 kernel", ", ".join(unable)) if unable else None


def _by_scales(
    nodes: Sequence[onnx.NodeProto], scales: Mapping[str, float] | None, pairs: bool
) -> tuple[str, str] | None:
    if pairs:
        read = [node.input[0] for node in nodes if node.op_type in _WEIGHTED]
        bare = [name for name in read if not name.endswith("_dequantized")]
        if bare or not read:
            return "no Q/DQ pair before it", ", ".join(map(repr, bare[:3]))
        return None
    if scales is None:
        return None
    inside = {name for node in nodes for name in node.output}
    needed = [node.input[0] for node in nodes if node.input and node.input[0] not in inside]
    needed += [node.output[0] for node in nodes[-1:]]
    missing = [name for name in needed if name not in scales or unusable_reason(scales[name])]
    return ("no usable scale for a tensor", ", ".join(map(repr, missing[:3]))) if missing else None


def _by_kernel(layer: EngineLayer) -> tuple[str, str]:
    inputs = next((tensor.shape[1] for tensor in layer.inputs if len(tensor.shape) > 1), 0)
    if layer.channels and layer.groups:
        per_group = [size // layer.groups for size in (inputs, layer.channels) if size > 0]
        if any(size % 4 for size in per_group):
            sizes = " and ".join(map(str, per_group))
            return "channels of a group are no multiple of 4, which INT8 kernels pad", f"{sizes} channels"
    return f"TensorRT measured {layer.precision} as faster, or has no INT8 kernel for its form", ""


def explain_slower(
    int8: tuple[Sequence[EngineLayer], Mapping[str, float]],
    other: tuple[Sequence[EngineLayer], Mapping[str, float]],
) -> tuple[str, ...]:
    """Why an INT8 engine is no faster than one in FP16, as far as its layers tell.

    Args:
        int8: Layers of the INT8 engine, and layer → milliseconds by the profiler.
        other: The same of the FP16 engine.

    Returns:
        Sentences, the costliest first; none where nothing stands out.
    """
    layers, times = int8
    total = sum(times.values())
    if not total:
        return ()
    copying = {layer.name for layer in layers if layer.copies}
    before = {layer.name for layer in other[0] if layer.copies}
    unfused = [layer for layer in layers if layer.type.startswith("PointWise")]
    in_float = [layer for layer in layers if not layer.copies and layer.precision != "INT8"]
    padded = [layer for layer in layers if layer.precision == "INT8" and layer.channels % 32]
    found = [
        (_time(times, copying), f"in {len(copying)} reformatting copies ({len(before)} in the other engine)"),
        (
            _time(times, {layer.name for layer in unfused}),
            f"in {len(unfused)} elementwise layers that fused into no convolution",
        ),
        (_time(times, {layer.name for layer in in_float}), f"in {len(in_float)} layers that stayed in float"),
        (
            _time(times, {layer.name for layer in padded}),
            f"in {len(padded)} INT8 convolutions whose channels are padded to a multiple of 32",
        ),
    ]
    return tuple(
        f"{spent / total:.0%} of the layers' time is spent {where}."
        for spent, where in sorted(found, key=lambda item: -item[0])
        if spent / total >= 0.02
    )


def _time(times: Mapping[str, float], names: set[str]) -> float:
    return sum(value for name, value in times.items() if name in names)
