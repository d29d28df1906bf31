"""Rows for the helper layers that TensorRT's network has and the ONNX model has not.

TensorRT's parser makes several layers of some nodes: a Gemm becomes a constant for the weights, a matrix
multiplication, a constant for the bias, a shuffle that gives it its axes, and a sum. Their tensors have rows
in TensorRT's own caches, under names like ``(Unnamed Layer* 31) [Matrix Multiply]_output``; calib, which sees
ONNX, has none. TensorRT 8.6.0 built the same engine without them, so completing a cache is no duty; it keeps
TensorRT from reporting missing scales, and helps where it would leave such layers in float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calib.calibrators import CalibrationCache, make_calibrator, scale_of
from calib.data import Array
from calib.engine.api import Api

__all__ = ["HelperScales", "NetworkLayer", "complete_cache", "find_helper_scales", "read_network"]

_COPIES = frozenset({"SHUFFLE", "IDENTITY", "POOLING"})
_SUMS = frozenset({"SUM", "SUB"})


@dataclass(frozen=True)
class NetworkLayer:
    """A layer of TensorRT's network, as far as scales depend on it.

    Attributes:
        name: Its name.
        kind: Name of its ``trt.LayerType``, such as "MATRIX_MULTIPLY".
        inputs: Names of its input tensors.
        outputs: Names of those of its output tensors that hold floats; others have no scale.
        operation: Name of the ``trt.ElementWiseOperation`` of an ELEMENTWISE layer; else empty.
        values: The values of a CONSTANT layer of floats; else None.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operation: str = ""
    values: Array | None = None


@dataclass(frozen=True)
class HelperScales:
    """What was found for the tensors that a cache has no row for.

    Attributes:
        scales: Tensor → scale.
        rules: Tensor → how that was found: "constant", "copy of TENSOR", "near TENSOR".
        missing: Tensors that no rule gives a scale.
    """

    scales: Mapping[str, float]
    rules: Mapping[str, str]
    missing: tuple[str, ...]


def read_network(api: Api, network: Any) -> tuple[NetworkLayer, ...]:
    """Reads the layers of a network that the ONNX parser made.

    Args:
        api: TensorRT.
        network: The ``trt.INetworkDefinition``.
    """
    return tuple(_layer(api.trt, network.get_layer(index)) for index in range(network.num_layers))


def _layer(trt: Any, layer: Any) -> NetworkLayer:
    kind = layer.type.name
    inputs = (layer.get_input(index) for index in range(layer.num_inputs))
    outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
    floats = [tensor for tensor in outputs if tensor.dtype in (trt.DataType.FLOAT, trt.DataType.HALF)]
    return NetworkLayer(
        name=layer.name,
        kind=kind,
        # An optional input that is left out is None.
        inputs=tuple(tensor.name for tensor in inputs if tensor is not None),
        outputs=tuple(tensor.name for tensor in floats if not tensor.is_shape_tensor),
        operation=_as(trt.IElementWiseLayer, layer).op.name if kind == "ELEMENTWISE" else "",
        values=_values(_as(trt.IConstantLayer, layer)) if kind == "CONSTANT" and floats else None,
    )


def _as(kind: Any, layer: Any) -> Any:
    # TensorRT hands out every layer as the base class, without what its kind alone has.
    if isinstance(kind, type) and not isinstance(layer, kind):
        layer.__class__ = kind
    return layer


def _values(layer: Any) -> Array:
    weights = layer.weights
    # Types that numpy does not have come as trt.Weights.
    return np.asarray(weights.numpy() if hasattr(weights, "numpy") else weights, np.float32)


def complete_cache(
    cache: CalibrationCache, network: Sequence[NetworkLayer] | CalibrationCache
) -> CalibrationCache:
    """A cache with rows for the helper layers that it lacks.

    Args:
        cache: A cache with ONNX names.
        network: The layers of TensorRT's network; or a cache that TensorRT made for the same model, whose
            further rows are taken over.

    Returns:
        The same header and rows, and the further rows behind them. Tensors that no rule gives a scale
        get none.

    Raises:
        CacheError: A scale to be written is infinite.
    """
    if isinstance(network, CalibrationCache):
        further: Mapping[str, float] = {name: scale for name, scale in network.items() if name not in cache}
    else:
        further = find_helper_scales(cache, network).scales
    return cache.replaced({**cache, **further}) if further else cache


def find_helper_scales(cache: CalibrationCache, network: Sequence[NetworkLayer]) -> HelperScales:
    """Scales for the float tensors of a network that a cache has no row for.

    - A constant's values are calibrated as TensorRT does it, by the algorithm in the cache's header: exact.
    - A shuffle, an identity and a pooling take their input's scale.
    - What a constant is added to, such as a matrix multiplication before its bias, takes the scale of the
      sum: near, as far as the bias is small beside it.

    Args:
        cache: The cache.
        network: The layers, in the network's order.
    """
    search = _Search(cache, network)
    search.run()
    return HelperScales(search.scales, search.rules, tuple(search.missing()))


class _Search:
    """One pass over the network forwards, and one backwards from sums."""

    def __init__(self, cache: CalibrationCache, network: Sequence[NetworkLayer]) -> None:
        self._cache = cache
        self._network = network
        self._constant = _constant_tensors(network)
        self.scales: dict[str, float] = {}
        self.rules: dict[str, str] = {}

    def run(self) -> None:
        self._constants()
        self._copies()
        for layer in reversed(self._network):
            self._take_from_sum(layer)
        # What is copied from these.
        self._copies()

    def missing(self) -> Iterable[str]:
        names = (name for layer in self._network for name in layer.outputs)
        return (name for name in names if self._known(name) is None)

    def _known(self, name: str) -> float | None:
        return self._cache[name] if name in self._cache else self.scales.get(name)

    def _put(self, name: str, scale: float, rule: str) -> None:
        if self._known(name) is None:
            self.scales[name], self.rules[name] = scale, rule

    def _constants(self) -> None:
        minmax = self._cache.algorithm == "MinMaxCalibration"
        for layer in self._network:
            if layer.values is not None and layer.values.size:
                for name in layer.outputs:
                    self._put(name, _constant_scale(layer.values, minmax), "constant")

    def _copies(self) -> None:
        for layer in self._network:
            if layer.kind in _COPIES and layer.inputs:
                scale = self._known(layer.inputs[0])
                for name in layer.outputs if scale is not None else ():
                    self._put(name, scale or 0.0, f"copy of {layer.inputs[0]}")

    def _take_from_sum(self, layer: NetworkLayer) -> None:
        if layer.kind != "ELEMENTWISE" or layer.operation not in _SUMS or not layer.outputs:
            return
        scale = self._known(layer.outputs[0])
        added = [name for name in layer.inputs if name in self._constant]
        if scale is None or len(added) != len(layer.inputs) - 1:
            return
        for name in layer.inputs:
            if name not in added:
                self._put(name, scale, f"near {layer.outputs[0]}")


def _constant_tensors(network: Sequence[NetworkLayer]) -> frozenset[str]:
    """Tensors that are the same for every sample: constants, and copies of them."""
    found: set[str] = set()
    for layer in network:
        if layer.kind == "CONSTANT" or (layer.kind in _COPIES and layer.inputs and layer.inputs[0] in found):
            found.update(layer.outputs)
    return frozenset(found)


def _constant_scale(values: Array, minmax: bool) -> float:
    """The scale that TensorRT gives a constant, from its values.

    >>> _constant_scale(np.array([-2.54, 1.27], np.float32), minmax=True)  # 2.54 / 127
    0.01999...
    """
    calibrator = make_calibrator("minmax" if minmax else "entropy")
    calibrator.collect({"constant": values.copy()})
    return scale_of(calibrator.compute()["constant"])
