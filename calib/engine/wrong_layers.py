"""Layers of which TensorRT 8.6 computes something else, found in the engine.

A Concat or a Split is no work where the layers around it write and read parts of one buffer. In a part the
samples of a batch lie further apart than their own size. Kernels of TensorRT 8.6.0 called "dense" take them
to lie one behind the other all the same, so that every sample but the first is wrong (SQNR of −6 to 2 dB on
an H200). A reformat behind a part can leave its gaps in the copy, which the inspector does not tell: of
engines with the same layers and kernels some are wrong (reports/tensorrt-8.6.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod

from calib.engine.inspector import EngineLayer, EngineTensor

__all__ = ["WrongLayer", "find_wrong_layers"]

_DENSE = "_avdt_dense_"

_Shapes = Mapping[str, AbstractSet[tuple[int, ...]]]
"""Tensor → the shapes that layers tell of it; more than one where some write or read a part."""


@dataclass(frozen=True)
class WrongLayer:
    """A layer that computes something else, or may.

    Attributes:
        layer: Its name.
        nodes: The ONNX nodes that it computes.
        reason: Why, in words.
        sure: Whether it does so in every engine; otherwise in some, and only the answers tell in which.
    """

    layer: str
    nodes: tuple[str, ...]
    reason: str
    sure: bool = True

    @property
    def claim(self) -> str:
        """What can be said of an engine that has it, as a verb."""
        return "computes" if self.sure else "may compute"

    @property
    def often(self) -> str:
        """How often it is wrong, to stand before a verb; empty where always."""
        return "" if self.sure else "sometimes "

    def __str__(self) -> str:
        return f"{self.nodes[0] if self.nodes else self.layer!r} {self.reason}"


def find_wrong_layers(layers: Sequence[EngineLayer]) -> tuple[WrongLayer, ...]:
    """Finds the layers that TensorRT 8.6 gets wrong, or may get wrong.

    Args:
        layers: The layers of an engine, with shapes and kernels, at its largest batch: the parts of a single
            sample have no gaps.

    >>> part, whole = (EngineTensor("c", (4, size, 8, 8), "INT8", "") for size in (16, 32))
    >>> conv = EngineLayer("a", "CaskConvolution", "INT8", outputs=(part,), tactic="xmma_avdt_dense_chw")
    >>> [wrong.layer for wrong in find_wrong_layers([conv, EngineLayer("b", "", "INT8", inputs=(whole,))])]
    ['a']
    """
    known = _shapes(layers)
    copied = _copied_parts(layers, known)
    judged = (_judged(layer, known, copied) for layer in layers if _DENSE in layer.tactic)
    return tuple(filter(None, judged))


def _judged(layer: EngineLayer, known: _Shapes, copied: Mapping[str, str]) -> WrongLayer | None:
    """What is wrong with a layer whose kernel is for tensors without gaps; None where nothing is."""
    of_parts = [tensor.name for tensor in _tensors(layer) if _has_gaps(tensor, known)]
    of_copies = [tensor.name for tensor in _tensors(layer) if tensor.name in copied]
    if of_parts:
        what = f"takes its part of {of_parts[0]!r} for a tensor without gaps"
    elif of_copies:
        what = f"takes a copy of its part of {copied[of_copies[0]]!r} for a tensor without gaps"
    else:
        return None
    reason = f"{what}, by the kernel {layer.tactic}"
    return WrongLayer(layer.name, layer.onnx_nodes, reason, sure=bool(of_parts))


def _copied_parts(layers: Iterable[EngineLayer], known: _Shapes) -> dict[str, str]:
    """Tensors that a reformat makes of a part, or a part of → the tensor of that part.

    The copies of a Concat are no reformats: they are told as that node's.
    """
    found = {}
    for layer in layers:
        if not layer.copies or layer.onnx_nodes:
            continue
        for own, other in ((layer.inputs, layer.outputs), (layer.outputs, layer.inputs)):
            parts = [tensor.name for tensor in own if _has_gaps(tensor, known)]
            found.update({tensor.name: parts[0] for tensor in other if parts})
    return found


def _tensors(layer: EngineLayer) -> Iterator[EngineTensor]:
    yield from layer.inputs
    yield from layer.outputs


def _shapes(layers: Iterable[EngineLayer]) -> _Shapes:
    found: dict[str, set[tuple[int, ...]]] = {}
    for layer in layers:
        for tensor in _tensors(layer):
            found.setdefault(tensor.name, set()).add(tensor.shape)
    return found


def _has_gaps(tensor: EngineTensor, known: _Shapes) -> bool:
    """Whether a tensor is a part of a larger one, and does not lie in one piece of it."""
    return any(
        _is_part(tensor.shape, whole) and prod(tensor.shape[: _axis(tensor.shape, whole)]) != 1
        for whole in known[tensor.name]
    )


def _is_part(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether one shape is a part of another; where only one of them tells a size, it is not known to be."""
    if shape == whole or len(shape) != len(whole):
        return False
    return all(size == all_ or 0 < size < all_ for size, all_ in zip(shape, whole, strict=True))


def _axis(shape: tuple[int, ...], whole: tuple[int, ...]) -> int:
    """The first axis along which a part was cut: with several before it, what they count lies apart."""
    return next(axis for axis, (size, all_) in enumerate(zip(shape, whole, strict=True)) if size != all_)
