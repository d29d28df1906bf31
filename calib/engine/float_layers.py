"""Layers that stay in float on the implicit route, where the builder would make them INT8."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from calib.engine.api import Api
from calib.engine.build_request import BuildRequest
from calib.errors import EngineError, UsageError

__all__ = ["floats_transposed", "keep_layers_float"]

# Layers whose type is fixed by what they hold, or that compute sizes.
_TYPED = ("CONSTANT", "SHAPE", "QUANTIZE", "DEQUANTIZE", "CAST")
_SOUND_SINCE = 10


def keep_layers_float(api: Api, network: Any, config: Any, request: BuildRequest) -> tuple[str, ...]:
    """Binds layers to FP32, or to FP16 where that is asked for: by ``--keep-float``, and transposed ones.

    Args:
        api: TensorRT with precisions of layers.
        network: The parsed network; changed.
        config: The builder config; changed.
        request: What to build.

    Returns:
        Notes on what was bound.

    Raises:
        UsageError: A regular expression is none, or finds no layer.
        EngineError: This TensorRT cannot bind layers.
    """
    wanted = [layer for pattern in request.keep_float for layer in _matching(network, pattern)]
    floats = floats_transposed(request.conv_transpose, api.flavour, api.version)
    transposed = list(_transposed(network)) if floats else []
    if not wanted and not transposed:
        return ()
    if not api.has("layer_precision"):
        raise EngineError(
            f"{api.title} cannot keep layers float on the implicit route. Use --route explicit."
        )
    config.set_flag(api.trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    kept = f"kept in {'FP16' if request.half else 'FP32'}"
    notes = []
    if wanted:
        notes.append(f"{_bind_all(api, wanted, request)} layers {kept} by --keep-float")
    if transposed:
        notes.append(
            f"{_bind_all(api, transposed, request)} transposed convolutions {kept}: with an INT8 output "
            "TensorRT 8 fails on them, or computes something else (--conv-transpose)"
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
    if chosen != "auto":
        return chosen == "float"
    return flavour == "tensorrt" and int(version.split(".")[0]) < _SOUND_SINCE


def _matching(network: Any, pattern: str) -> list[Any]:
    layers = list(_found(network, _compiled(pattern)))
    if not layers:
        raise UsageError(f"--keep-float {pattern!r} finds no layer of the network.")
    return layers


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--keep-float {pattern!r} is no regular expression: {error}.") from error


def _found(network: Any, expression: re.Pattern[str]) -> Iterator[Any]:
    for layer in _layers(network):
        outputs = (layer.get_output(i).name for i in range(layer.num_outputs))
        if any(expression.search(name) for name in (layer.name, *outputs)):
            yield layer


def _transposed(network: Any) -> Iterator[Any]:
    return (layer for layer in _layers(network) if _kind(layer) == "DECONVOLUTION")


def _layers(network: Any) -> Iterator[Any]:
    return (network.get_layer(index) for index in range(network.num_layers))


def _kind(layer: Any) -> str:
    return str(layer.type).rpartition(".")[2]


def _bind_all(api: Api, layers: Iterable[Any], request: BuildRequest) -> int:
    """Binds layers, and says how many of different names it could bind."""
    kind = api.trt.DataType.HALF if request.half else api.trt.DataType.FLOAT
    return len({layer.name for layer in layers if _bind(api, layer, kind)})


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
