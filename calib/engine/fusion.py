"""What TensorRT's fusion made of a graph: which ONNX nodes run in one layer, and which are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calib.engine.inspector import EngineLayer

if TYPE_CHECKING:
    from calib.graph import OnnxModel

__all__ = ["Fusion", "describe_fusion"]

_HORIZONTAL = " || "


@dataclass(frozen=True)
class Fusion:
    """How ONNX nodes became engine layers.

    Attributes:
        onnx_nodes: Nodes of the model, or those that the layers name where no model is given.
        layers: Layers that compute.
        copies: Layers that change format, type or shape alone.
        vertical: Layers that compute several ONNX nodes one after another.
        horizontal: Layers that compute several ONNX nodes side by side.
        regions: Layers that Myelin, TensorRT's second compiler, made of a whole region.
        gone: Nodes of the model that no layer names: folded, or without work.
    """

    onnx_nodes: int
    layers: int
    copies: int
    vertical: int
    horizontal: int
    regions: int
    gone: tuple[str, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """The same in words.

        >>> Fusion(5, 2, 1, 1, 0, 0, ("a",)).sentences()[0]
        '5 ONNX nodes became 2 engine layers and 1 reformatting copy.'
        """
        found = [
            f"{self.onnx_nodes} ONNX nodes became {_count(self.layers, 'engine layer')} and "
            f"{_count(self.copies, 'reformatting copy', 'reformatting copies')}."
        ]
        if self.vertical:
            found.append(f"{_count(self.vertical, 'layer')} of several nodes in a row (vertical fusion).")
        if self.horizontal:
            found.append(f"{_count(self.horizontal, 'layer')} of nodes side by side (horizontal fusion).")
        if self.regions:
            found.append(f"{_count(self.regions, 'region')} compiled as a whole (ForeignNode).")
        if self.gone:
            shown = ", ".join(self.gone[:3]) + (", …" if len(self.gone) > 3 else "")
            found.append(f"{_count(len(self.gone), 'node')} without a layer: {shown}.")
        return tuple(found)


def describe_fusion(layers: Sequence[EngineLayer], model: OnnxModel | None = None) -> Fusion:
    """Counts what fusion did.

    Args:
        layers: The engine's layers.
        model: The model it was built from; without it nodes that are gone are not known.
    """
    computing = [layer for layer in layers if not layer.copies]
    named = {node for layer in layers for node in layer.onnx_nodes}
    nodes = [] if model is None else [n for n in model.proto.graph.node if n.op_type != "Constant"]
    labels = [node.name or next(iter(node.output), "") for node in nodes]
    horizontal = [layer for layer in computing if _HORIZONTAL in layer.name]
    regions = [layer for layer in computing if "ForeignNode" in layer.name]
    known = bool(named) and not regions
    return Fusion(
        onnx_nodes=len(nodes) if model is not None else len(named),
        layers=len(computing),
        copies=len(layers) - len(computing),
        vertical=sum(
            len(layer.onnx_nodes) > 1 for layer in computing if layer not in (*horizontal, *regions)
        ),
        horizontal=len(horizontal),
        regions=len(regions),
        gone=tuple(label for label in labels if label not in named) if known else (),
    )


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
