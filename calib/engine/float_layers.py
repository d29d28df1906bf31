"""Layers that stay in float where the builder chooses types: not INT8 on the implicit route, not FP16."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from calib.engine.api import Api
from calib.engine.build_request import BuildRequest
from calib.engine.layer_names import metadata_nodes
from calib.errors import EngineError, UsageError, first_names
from calib.graph.targets import stays_float, target_of_release
from calib.wording import counted

__all__ = ["floats_transposed", "keep_layers_float"]

# Layers whose type is fixed by what they hold, or that compute sizes.
_TYPED = ("CONSTANT", "SHAPE", "QUANTIZE", "DEQUANTIZE", "CAST")


def keep_layers_float(api: Api, network: Any, config: Any, request: BuildRequest) -> tuple[str, ...]:
    """Binds layers to FP32, or to FP16 where the rest is FP16: by ``--keep-float``, and some that must be.

    Args:
        api: TensorRT with precisions of layers.
        network: The parsed network; changed.
        config: The builder config; changed.
        request: What to build.

    Returns:
        Notes on what was bound.

    Raises:
        UsageError: A regular expression is none, or finds no layer that could be bound.
        EngineError: This TensorRT cannot bind layers, or none that must be float.
    """
    wanted = {pattern: _matching(network, pattern) for pattern in request.keep_float}
    floats = request.quantized and floats_transposed(request.conv_transpose, api.flavour, api.version)
    transposed = list(_transposed(network)) if floats else []
    faulty = [layer for layer in _layers(network) if not _nodes(layer).isdisjoint(request.float_nodes)]
    if not wanted and not transposed and not request.float_nodes:
        return ()
    if not api.has("layer_precision"):
        raise EngineError(
            f"{api.title} cannot bind layers to a type, as --keep-float wants. Use --route explicit, or for "
            "FP16 the model of calib fp16 --keep-float."
        )
    config.set_flag(api.trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    half = request.quantized and request.half
    kind, kept = api.trt.DataType.HALF if half else api.trt.DataType.FLOAT, "FP16" if half else "FP32"
    notes = []
    if request.float_nodes and not _bound(api, faulty, kind):
        raise EngineError(f"no layer of {first_names(request.float_nodes)} can be bound to {kept}")
    if request.keep_float:
        bound = {name for pattern, layers in wanted.items() for name in _keep(api, pattern, layers, kind)}
        notes.append(f"{counted(len(bound), 'layer[s]')} kept in {kept} by --keep-float")
    if transposed:
        count = len(_bound(api, transposed, kind))
        notes.append(
            f"{counted(count, 'transposed convolution[s]')} kept in {kept}: with an INT8 output TensorRT 8 "
            "builds nothing above level 0 (--conv-transpose)"
        )
    return tuple(notes)


def floats_transposed(chosen: str, flavour: str, version: str) -> bool:
    """Whether transposed convolutions are float in an INT8 engine.

    Args:
        chosen: What ``--conv-transpose`` says.
        flavour: "tensorrt" or "tensorrt_rtx".
        version: The version that builds.

    >>> [floats_transposed("auto", "tensorrt", version) for version in ("8.6.1", "10.3.0")]
    [True, False]
    >>> floats_transposed("auto", "tensorrt_rtx", "1.7.1")
    False
    """
    target = target_of_release(flavour, version)
    return stays_float("--conv-transpose", chosen, target.float_conv_transpose)


def _matching(network: Any, pattern: str) -> list[Any]:
    layers = list(_found(network, _compiled(pattern)))
    if not layers:
        raise UsageError(f"--keep-float {pattern!r} finds no layer of the network.")
    return layers


def _keep(api: Api, pattern: str, layers: Sequence[Any], kind: Any) -> set[str]:
    """Binds what a pattern finds; names of what could be bound."""
    if kept := _bound(api, layers, kind):
        return kept
    found = first_names([layer.name for layer in layers])
    raise UsageError(
        f"--keep-float {pattern!r} finds {found} alone: constants, shapes and integers, which never "
        "are INT8. Name the layers that read them."
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--keep-float {pattern!r} is no regular expression: {error}.") from error


def _found(network: Any, expression: re.Pattern[str]) -> Iterator[Any]:
    for layer in _layers(network):
        outputs = (layer.get_output(i).name for i in range(layer.num_outputs))
        if any(expression.search(name) for name in (layer.name, *_nodes(layer), *outputs)):
            yield layer


def _nodes(layer: Any) -> frozenset[str]:
    """The node that a layer is of: by its metadata, since only the first of a node's layers has its name."""
    return frozenset(metadata_nodes(getattr(layer, "metadata", "") or "") or (layer.name,))


def _transposed(network: Any) -> Iterator[Any]:
    return (layer for layer in _layers(network) if _kind(layer) == "DECONVOLUTION")


def _layers(network: Any) -> Iterator[Any]:
    return (network.get_layer(index) for index in range(network.num_layers))


def _kind(layer: Any) -> str:
    return str(layer.type).rpartition(".")[2]


def _bound(api: Api, layers: Iterable[Any], kind: Any) -> set[str]:
    """Binds layers; names of those that could be bound."""
    return {layer.name for layer in layers if _bind(api, layer, kind)}


def _bind(api: Api, layer: Any, kind: Any) -> bool:
    floats = (api.trt.DataType.FLOAT, api.trt.DataType.HALF)
    outputs = [layer.get_output(i) for i in range(layer.num_outputs)]
    typed = _kind(layer) in _TYPED
    if (
        typed
        or not outputs
        or any(output.dtype not in floats or output.is_shape_tensor for output in outputs)
    ):
        return False
    layer.precision = kind
    for index in range(layer.num_outputs):
        layer.set_output_type(index, kind)
    return True
