"""What TensorRT's fusion made of a graph: which ONNX nodes run in one layer, and which are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calib.engine.inspector import EngineLayer
from calib.engine.layer_names import fused_names
from calib.wording import inflected

if TYPE_CHECKING:
    import onnx

    from calib.graph import OnnxModel

__all__ = ["Fusion", "GoneNode", "describe_fusion", "node_label"]

_BESIDE = " || "
_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand")
_CONSTANTS = ("Constant", "ConstantOfShape", "Shape", "Size", "Range")
_PAIRS = ("QuantizeLinear", "DequantizeLinear")
_NOTHING = ("Identity", "Dropout", "Cast")
_WAYS = (
    (_CONSTANTS, "folded into constants"),
    (_VIEWS, "another view of the same memory"),
    (_PAIRS, "inside kernels, or folded into weights"),
    (_NOTHING, "without work"),
    (("Concat", "Split", "Slice"), "written in place"),
    (("BatchNormalization",), "folded into weights"),
)


@dataclass(frozen=True)
class GoneNode:
    """An ONNX node without a layer that computes it.

    Attributes:
        name: What TensorRT calls it.
        op: Its operator.
        way: What became of it: "folded into constants", "copies", …; empty where nothing tells.
    """

    name: str
    op: str
    way: str


@dataclass(frozen=True)
class Fusion:
    """How ONNX nodes became engine layers.

    Attributes:
        onnx_nodes: Nodes of the model, or those that the layers name where no model is given.
        layers: Layers that compute.
        reformats: Layers that change format or type alone, and take time.
        free: Layers that do nothing when the engine runs.
        vertical: Layers that compute several ONNX nodes one after another.
        horizontal: Layers that compute several ONNX nodes side by side.
        regions: Layers that Myelin, TensorRT's second compiler, made of a whole region.
        gone: Nodes of the model without a layer; empty where that cannot be told.
        quantizing: Those of the reformats that quantize or dequantize.
    """

    onnx_nodes: int
    layers: int
    reformats: int = 0
    free: int = 0
    vertical: int = 0
    horizontal: int = 0
    regions: int = 0
    gone: tuple[GoneNode, ...] = ()
    quantizing: int = 0

    def sentences(self) -> tuple[str, ...]:
        """The same in words.

        >>> Fusion(73, 21, reformats=4, vertical=15, horizontal=2).sentences()
        ('73 ONNX nodes became 21 engine layers: 15 vertical fusions, 2 horizontal; 4 reformats.',)
        """
        found = [self._first()]
        if self.regions:
            found.append(f"{_count(self.regions, 'region')} compiled as a whole (ForeignNode).")
        if self.gone:
            count = len(self.gone)
            verb = inflected(count, "[has no layer of its|have no layer of their] own")
            found.append(f"{_count(count, 'node')} {verb}: {'; '.join(_kinds(self.gone))}.")
        return tuple(found)

    def _first(self) -> str:
        nodes, layers = _count(self.onnx_nodes, "ONNX node"), _count(self.layers, "engine layer")
        parts = [f"{nodes} became {layers}"]
        fused = [_count(self.vertical, "vertical fusion")] if self.vertical else []
        if self.horizontal:
            word = "horizontal" if fused else inflected(self.horizontal, "horizontal fusion[s]")
            fused.append(f"{self.horizontal} {word}")
        if fused:
            parts = [f"{parts[0]}: {', '.join(fused)}"]
        if self.reformats:
            some = f" ({self.quantizing} to quantize or dequantize)" if self.quantizing else ""
            parts.append(_count(self.reformats, "reformat") + some)
        return "; ".join(parts) + "."


def describe_fusion(layers: Sequence[EngineLayer], model: OnnxModel | None = None) -> Fusion:
    """Counts what fusion did.

    A fusion is vertical where a layer computes several ONNX nodes in a row ("conv + relu"), horizontal where
    it computes nodes side by side ("a || b"); a layer can be both.

    Args:
        layers: The engine's layers.
        model: The model it was built from; without it nodes that are gone are not known.
    """
    copies = [layer for layer in layers if layer.copies]
    computing = [layer for layer in layers if not layer.copies]
    regions = [layer for layer in computing if "ForeignNode" in layer.name]
    fused = [layer for layer in computing if layer not in regions]
    nodes = {} if model is None else {node_label(node): node for node in model.proto.graph.node}
    named = {node for layer in layers for node in layer.onnx_nodes}
    told = bool(named) and all(region.onnx_nodes for region in regions)
    return Fusion(
        onnx_nodes=len(nodes) or len(named),
        layers=len(computing),
        reformats=sum(not layer.free for layer in copies),
        free=sum(layer.free for layer in copies),
        vertical=sum(_in_a_row(layer, nodes) > 1 for layer in fused),
        horizontal=sum(_BESIDE in layer.name for layer in fused),
        regions=len(regions),
        gone=tuple(_gone(nodes, computing, copies)) if told else (),
        quantizing=sum(layer.origin == "QDQ" for layer in copies),
    )


def node_label(node: onnx.NodeProto) -> str:
    """What TensorRT's parser calls a node: its name, or one made of its first output's.

    >>> from onnx.helper import make_node
    >>> node_label(make_node("Relu", ["x"], ["y"], name="relu")), node_label(make_node("Relu", ["x"], ["y"]))
    ('relu', 'node_of_y')
    """
    return node.name or (f"node_of_{node.output[0]}" if node.output else "")


def _in_a_row(layer: EngineLayer, nodes: dict[str, onnx.NodeProto]) -> int:
    """The most ONNX nodes one after another in a layer; folded weights and constants do not count."""
    branches = layer.name.split(_BESIDE)
    apart = [fused_names(branch) for branch in branches]
    rows = apart if len(branches) > 1 else [layer.onnx_nodes]
    counted = [[name for name in row if not nodes or name in nodes] for row in rows]
    return max(len([name for name in row if not _is_pair(name, nodes)]) for row in counted)


def _is_pair(name: str, nodes: dict[str, onnx.NodeProto]) -> bool:
    return name in nodes and nodes[name].op_type in (*_PAIRS, *_CONSTANTS)


def _gone(
    nodes: dict[str, onnx.NodeProto], computing: Sequence[EngineLayer], copies: Sequence[EngineLayer]
) -> Iterator[GoneNode]:
    computed = {name for layer in computing for name in layer.onnx_nodes}
    copied = {name: layer for layer in copies for name in layer.onnx_nodes}
    for name, node in nodes.items():
        if name in computed:
            continue
        layer = copied.get(name)
        way = "copies" if layer is not None and not layer.free else _way(node.op_type)
        yield GoneNode(name, node.op_type, way)


def _way(op: str) -> str:
    return next((way for ops, way in _WAYS if op in ops), "")


def _kinds(gone: Sequence[GoneNode]) -> list[str]:
    counts = Counter((node.way, node.op) for node in gone)
    ways = dict.fromkeys(way for way, _ in counts)
    return [
        ", ".join(f"{number} {op}" for (of, op), number in counts.most_common() if of == way)
        + (f" ({way})" if way else "")
        for way in ways
    ]


def _count(number: int, word: str) -> str:
    return f"{number:,} {inflected(number, word + '[s]')}"
