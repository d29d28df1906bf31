"""Layers of which TensorRT 8.6 computes something else, found in the engine.

A Concat or a Split is no work where the layers around it write and read parts of one buffer. TensorRT 8.6.0
gets two such cases wrong. Kernels called "dense" take a tensor to lie in memory without gaps, and it chooses
them for parts too. And a part of what a Split cuts can begin within a block of channels, of 32 for one, which
no address tells. On an H200 every engine with one of them was wrong (SQNR of −6 to 2 dB), and none without
(reports/tensorrt-8.6.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from calib.engine.inspector import EngineLayer, EngineTensor
from calib.engine.layer_names import short_format

__all__ = ["WrongLayer", "find_wrong_layers"]

_DENSE = "_avdt_dense_"
_BLOCKS = re.compile(r"CD?HW(\d+)")
"""Formats that hold channels in blocks of so many."""

_Shapes = Mapping[str, AbstractSet[tuple[int, ...]]]
"""Tensor → the shapes that layers tell of it; more than one where some write or read a part."""


@dataclass(frozen=True)
class WrongLayer:
    """A layer that computes something else.

    Attributes:
        layer: Its name.
        nodes: The ONNX nodes that it computes; of a copy, those that it copies for.
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
    known = _shapes(tensor for layer in layers for tensor in _tensors(layer))
    written = _shapes(tensor for layer in layers for tensor in layer.outputs)
    found = []
    for layer in layers:
        reason = _dense_part(layer, known) or _split_block(layer, written)
        if reason:
            found.append(WrongLayer(layer.name, _nodes_behind(layer, layers), reason))
    return tuple(found)


def _dense_part(layer: EngineLayer, known: _Shapes) -> str:
    """Why a kernel is wrong that takes a part of a buffer for a whole tensor; empty where it does not."""
    if _DENSE not in layer.tactic:
        return ""
    parts = [
        tensor.name
        for tensor in _tensors(layer)
        if any(_is_part(tensor.shape, whole) for whole in known[tensor.name])
    ]
    if not parts:
        return ""
    return f"takes its part of {parts[0]!r} for a tensor without gaps, by the kernel {layer.tactic}"


def _split_block(layer: EngineLayer, written: _Shapes) -> str:
    """Why a part is read wrong that begins within a block of channels; empty where none does.

    Parts of a Concat, which are read as they were written, are right.
    """
    for tensor in layer.inputs:
        blocks = _BLOCKS.fullmatch(short_format(tensor.format))
        block = int(blocks[1]) if blocks else 1
        shape, buffers = tensor.shape, written.get(tensor.name, frozenset())
        if len(shape) < 2 or shape[1] % block == 0 or shape in buffers:
            continue
        if any(_is_part(shape, whole) and shape[1] < whole[1] for whole in buffers):
            return f"reads {shape[1]} channels of {tensor.name!r}, which holds them in blocks of {block}"
    return ""


def _nodes_behind(layer: EngineLayer, layers: Sequence[EngineLayer]) -> tuple[str, ...]:
    """The nodes that a layer computes; of a copy that computes none, the nodes that it copies for."""
    seen: set[str] = set()
    ahead = [layer]
    while ahead and not any(one.onnx_nodes for one in ahead):
        made = {tensor.name for one in ahead for tensor in one.outputs} - seen
        seen |= made
        ahead = [one for one in layers if any(tensor.name in made for tensor in one.inputs)]
    return tuple(dict.fromkeys(node for one in ahead for node in one.onnx_nodes))


def _tensors(layer: EngineLayer) -> Iterator[EngineTensor]:
    yield from layer.inputs
    yield from layer.outputs


def _shapes(tensors: Iterable[EngineTensor]) -> _Shapes:
    found: dict[str, set[tuple[int, ...]]] = {}
    for tensor in tensors:
        found.setdefault(tensor.name, set()).add(tensor.shape)
    return found


def _is_part(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether one shape is a part of another; where only one of them tells a size, it is not known to be."""
    if shape == whole or len(shape) != len(whole):
        return False
    return all(size == all_ or 0 < size < all_ for size, all_ in zip(shape, whole, strict=True))
