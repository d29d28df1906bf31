"""Layers that stay in float where the builder chooses types: not INT8 on the implicit route, not FP16."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from calib.engine.api import Api
from calib.engine.build_request import BuildRequest
from calib.errors import EngineError, UsageError, first_names

__all__ = ["keep_layers_float"]

# Layers whose type is fixed by what they hold, or that compute sizes.
_TYPED = ("CONSTANT", "SHAPE", "QUANTIZE", "DEQUANTIZE", "CAST")


def keep_layers_float(api: Api, network: Any, config: Any, request: BuildRequest) -> str:
    """Binds the layers that ``--keep-float`` finds to FP32, or to FP16 where INT8's rest is FP16.

    Args:
        api: TensorRT with precisions of layers.
        network: The parsed network; changed.
        config: The builder config; changed.
        request: What to build.

    Returns:
        A note on what was bound.

    Raises:
        UsageError: A regular expression is none, or finds no layer that could be bound.
        EngineError: This TensorRT cannot bind layers.
    """
    if not api.has("layer_precision"):
        raise EngineError(
            f"{api.title} cannot bind layers to a type, as --keep-float wants. Use --route explicit, or for "
            "FP16 the model of calib fp16 --keep-float."
        )
    half = request.quantized and request.half
    kind = api.trt.DataType.HALF if half else api.trt.DataType.FLOAT
    bound: set[str] = set()
    for pattern in request.keep_float:
        layers = list(_found(network, _compiled(pattern)))
        if not layers:
            raise UsageError(f"--keep-float {pattern!r} finds no layer of the network.")
        kept = {layer.name for layer in layers if _bind(api, layer, kind)}
        if not kept:
            found = first_names([layer.name for layer in layers])
            raise UsageError(
                f"--keep-float {pattern!r} finds {found} alone: constants, shapes and integers, which never "
                "are INT8. Name the layers that read them."
            )
        bound |= kept
    config.set_flag(api.trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    return f"{len(bound)} layers kept in {'FP16' if half else 'FP32'} by --keep-float"


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--keep-float {pattern!r} is no regular expression: {error}.") from error


def _found(network: Any, expression: re.Pattern[str]) -> Iterator[Any]:
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        outputs = (layer.get_output(i).name for i in range(layer.num_outputs))
        if any(expression.search(name) for name in (layer.name, *outputs)):
            yield layer


def _bind(api: Api, layer: Any, kind: Any) -> bool:
    floats = (api.trt.DataType.FLOAT, api.trt.DataType.HALF)
    outputs = [layer.get_output(i) for i in range(layer.num_outputs)]
    typed = str(layer.type).rpartition(".")[2] in _TYPED
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
