"""Layers of which TensorRT 8.6 computes something else, found in the engine.

A Concat or a Split is no work where the layers around it write and read parts of one buffer. TensorRT 8.6.0
gets two such cases wrong. Kernels called "dense" take a tensor to lie in memory without gaps, and it chooses
them for parts too. And a part of what a Split cuts can begin within a block of channels, of 32 for one, which
no address tells. On an H200 every engine with one of them was wrong (SQNR of −6 to 2 dB), and none without
(reports/tensorrt-8.6.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from calib.engine.inspector import EngineLayer, EngineTensor

__all__ = ["WrongLayer", "find_wrong_layers"]

_DENSE = "_avdt_dense_"
_BLOCKS = {"Two wide": 2, "Four wide": 4, "Eight wide": 8, "Sixteen wide": 16, "Thirty-two wide": 32}
"""How formats begin that hold channels in blocks → channels of a block."""


@dataclass(frozen=True)
class WrongLayer:
    """A layer that computes something else.

    Attributes:
        layer: Its name.
        nodes: The ONNX nodes that it computes.
        reason: Why, in words.
    """

    layer: str
    nodes: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.nodes[0] if self.nodes else self.layer!r} {self.reason}"


def find_wrong_layers(layers: Sequence[EngineLayer]) -> tuple[WrongLayer, ...]:
    """Finds the layers that TensorRT 8.6 gets wrong.

    Args:
        layers: The layers of an engine, with shapes, formats and kernels.

    >>> part, whole = (EngineTensor("c", (1, size, 8, 8), "INT8", "") for size in (16, 32))
    >>> conv = EngineLayer("a", "CaskConvolution", "INT8", outputs=(part,), tactic="xmma_avdt_dense_chw")
    >>> [wrong.layer for wrong in find_wrong_layers([conv, EngineLayer("b", "", "INT8", inputs=(whole,))])]
    ['a']
    """
    largest = _largest(tensor for layer in layers for tensor in _tensors(layer))
    cut = _largest(tensor for layer in layers for tensor in layer.outputs)
    found = []
    for layer in layers:
        reason = _dense_part(layer, largest) or _split_block(layer, cut)
        if reason:
            found.append(WrongLayer(layer.name, layer.onnx_nodes, reason))
    return tuple(found)


def _dense_part(layer: EngineLayer, largest: dict[str, int]) -> str:
    """Why a kernel is wrong that takes a part of a buffer for a whole tensor; empty where it does not."""
    if _DENSE not in layer.tactic:
        return ""
    parts = [tensor.name for tensor in _tensors(layer) if _elements(tensor) < largest[tensor.name]]
    if not parts:
        return ""
    return f"takes its part of {parts[0]!r} for a tensor without gaps, by the kernel {layer.tactic}"


def _split_block(layer: EngineLayer, cut: dict[str, int]) -> str:
    """Why a part is read wrong that begins within a block of channels; empty where none does."""
    for tensor in layer.inputs:
        block = next((size for word, size in _BLOCKS.items() if tensor.format.startswith(word)), 1)
        part = _elements(tensor) < cut.get(tensor.name, 0)
        if part and len(tensor.shape) > 1 and tensor.shape[1] % block:
            return (
                f"reads {tensor.shape[1]} channels of {tensor.name!r}, which holds them in blocks of {block}"
            )
    return ""


def _tensors(layer: EngineLayer) -> Iterator[EngineTensor]:
    yield from layer.inputs
    yield from layer.outputs


def _largest(tensors: Iterable[EngineTensor]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in tensors:
        found[tensor.name] = max(found.get(tensor.name, 0), _elements(tensor))
    return found


def _elements(tensor: EngineTensor) -> int:
    """Elements of a tensor; a size that is not known counts as one everywhere."""
    return prod(max(1, size) for size in tensor.shape)
