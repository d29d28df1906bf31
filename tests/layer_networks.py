"""The layers that every user meets, each in a small network, with what becomes of it written down by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from networks import model, node, weight

IMAGE = (8, 8, 8)
SAME = {"pads": [1, 1, 1, 1]}


@dataclass(frozen=True)
class Layer:
    """A network around a layer, from x to y.

    Attributes:
        nodes: Its nodes, all with names.
        weights: Its constants.
        pairs: Tensor or weight that gets a Q/DQ pair → the node that reads it through the pair.
        floats: The other nodes.
        shape: Shape of a sample.
        opset: Its opset.
        noises: How much noise reaches y, in units of a rounding; None for as much as there are pairs.
        floor: The least SQNR of INT8 against FP32, in dB; None for what ``least_sqnr`` says.
        reason: Why another one, or more noise.
        ties: Whether many values lie halfway between two steps, so that how they round is a matter of chance.
        refused: The nodes that TensorRT-RTX, which has no plug-ins, does not parse; none where it builds it.
        time_first: Whether samples lie along the second axis.
    """

    nodes: Sequence[onnx.NodeProto]
    weights: Mapping[str, Any]
    pairs: Mapping[str, str]
    floats: frozenset[str] = frozenset()
    shape: tuple[int, ...] = IMAGE
    opset: int = 17
    noises: int | None = None
    floor: float | None = None
    reason: str = ""
    refused: tuple[str, ...] = ()
    time_first: bool = False
    ties: bool = False

    def proto(self) -> onnx.ModelProto:
        """The model, for any batch size."""
        shape = [self.shape[0], "n", *self.shape[1:]] if self.time_first else ["n", *self.shape]
        proto = model(list(self.nodes), {"x": shape}, {"y": None}, self.weights, opset=self.opset)
        names = [item.name for item in proto.graph.node]
        assert all(names)
        assert len(set(names)) == len(names)
        return proto

    @property
    def least_sqnr(self) -> float:
        """What min-max calibration leaves of a layer's values, in dB.

        A thousand or more values as of a normal distribution lie within ±4 σ or so. With steps of 4 σ / 127,
        the noise of a rounding is (4 σ / 127)² / 12, which is 10·log10(12 · 127² / 4²) = 40.8 dB below
        the signal. The noises of all roundings add up. Half as much again is allowed for small tensors and
        what the network does to signal and noise.
        """
        if self.floor is not None:
            return self.floor
        return 10 * log10(12 * 127**2 / 4**2 / (self.noises or len(self.pairs)) / 1.5)


def alone(
    op: str, w: np.ndarray, *, shape: tuple[int, ...] = IMAGE, bias: int = 0, **attributes: Any
) -> Layer:
    """x → the layer → y."""
    inputs = ["x", "w", "b"] if bias else ["x", "w"]
    constants = {"w": w, **({"b": weight(bias, seed=7)} if bias else {})}
    nodes = [node(op, inputs, ["y"], name="layer", **attributes)]
    return Layer(nodes, constants, {"x": "layer", "w": "layer"}, shape=shape)


def between(
    *nodes: onnx.NodeProto,
    floats: Sequence[str] = ("layer",),
    channels: int = 8,
    pairs: Mapping[str, str] = MappingProxyType({}),
    weights: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Layer:
    """x → Conv → c → the layer → t → Conv → y: the layer stands between nodes in INT8."""
    first = node("Conv", ["x", "w"], ["c"], name="first", **SAME)
    last = node("Conv", ["t", "v"], ["y"], name="last")
    constants = {"w": weight(8, 8, 3, 3), "v": weight(8, channels, 1, 1, seed=1), **weights}
    placed = {"x": "first", "w": "first", "t": "last", "v": "last", **pairs}
    return Layer([first, *nodes, last], constants, placed, frozenset(floats), **more)


def before_gemm(
    *nodes: onnx.NodeProto,
    floats: Sequence[str] = ("layer", "flat"),
    features: int = 8,
    pairs: Mapping[str, str] = MappingProxyType({}),
    weights: Mapping[str, Any] = MappingProxyType({}),
) -> Layer:
    """x → Conv → c → the layer → t → Gemm → y."""
    first = node("Conv", ["x", "w"], ["c"], name="first", **SAME)
    last = node("Gemm", ["t", "v"], ["y"], name="last", transB=1)
    constants = {"w": weight(8, 8, 3, 3), "v": weight(6, features, seed=1), **weights}
    placed = {"x": "first", "w": "first", "t": "last", "v": "last", **pairs}
    return Layer([first, *nodes, last], constants, placed, frozenset(floats))


def layer(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("t",), **attributes: Any) -> Any:
    return node(op, inputs, outputs, name="layer", **attributes)


def flat(source: str) -> onnx.NodeProto:
    return node("Flatten", [source], ["t"], name="flat")


def recurrent(op: str, gates: int, **attributes: Any) -> Layer:
    """Time, batch, features: nothing of the recurrence is quantized, what reads it is."""
    return Layer(
        [
            layer(op, ["x", "w", "r", "b"], ["h"], hidden_size=8, **attributes),
            node("Squeeze", ["h", "one"], ["t"], name="squeeze"),
            node("MatMul", ["t", "v"], ["y"], name="last"),
        ],
        {
            "w": weight(1, gates * 8, 8),
            "r": weight(1, gates * 8, 8, seed=1),
            "b": weight(1, gates * 16, seed=2),
            "one": np.array([1]),
            "v": weight(8, 8, seed=3),
        },
        {"t": "last", "v": "last"},
        frozenset({"layer", "squeeze"}),
        shape=(5, 8),
        time_first=True,
    )


def averaged(*, kernel: int = 3, ties: bool = False, **attributes: Any) -> Layer:
    """A mean of n values has 1/√n of their σ; its scale is theirs, as in TensorRT: n times the noise."""
    pool = layer("AveragePool", ["c"], kernel_shape=[kernel] * 2, **attributes)
    return between(pool, pairs={"c": "layer"}, floats=(), noises=4 + kernel**2, ties=ties)


def pyramid_in_space() -> Layer:
    """SPP as YOLO has it: pools of several sizes with stride 1, side by side."""
    pools = [
        node(
            "MaxPool", ["c"], [f"p{size}"], name=f"pool{size}", kernel_shape=[size] * 2, pads=[size // 2] * 4
        )
        for size in (3, 5, 7)
    ]
    join = node("Concat", ["c", "p3", "p5", "p7"], ["t"], name="layer", axis=1)
    return between(*pools, join, channels=32, pairs={"c": "pool3, pool5, pool7, layer"}, floats=())


def pyramid_of_bins() -> Layer:
    """SPP as He and others have it: 1, 4 and 16 bins of each channel, one vector."""
    nodes = []
    for bins in (1, 2, 4):
        size = [8 // bins] * 2
        nodes.append(
            node("MaxPool", ["c"], [f"p{bins}"], name=f"pool{bins}", kernel_shape=size, strides=size)
        )
        nodes.append(node("Flatten", [f"p{bins}"], [f"f{bins}"], name=f"flat{bins}"))
    join = node("Concat", ["f1", "f2", "f4"], ["t"], name="layer", axis=1)
    floats = ("flat1", "flat2", "flat4", "layer")
    pairs = {"c": "pool1, pool2, pool4"}
    return before_gemm(*nodes, join, pairs=pairs, floats=floats, features=8 * (1 + 4 + 16))


NORM = {
    "s": np.linspace(0.5, 1.5, 8, dtype=np.float32),
    "o": weight(8, seed=4),
    "m": weight(8, seed=5),
    "d": np.linspace(0.8, 1.2, 8, dtype=np.float32),
}
TWICE = {"f": np.array([1, 1, 2, 2], np.float32)}
# Of batch 0: x1, y1, x2, y2.
BOXES = np.array([[0.5, 1, 6, 7], [2, 0, 7.5, 3.5], [1, 1, 5, 5]], np.float32)


def resized(mode: str, coordinates: str = "half_pixel", **attributes: Any) -> Layer:
    attributes |= {"mode": mode, "coordinate_transformation_mode": coordinates}
    return between(layer("Resize", ["c", "", "f"], **attributes), weights=TWICE)


LAYERS: Mapping[str, Layer] = MappingProxyType(
    {
        "convolution, 1D": alone("Conv", weight(8, 8, 3), shape=(8, 32), pads=[1, 1]),
        "convolution": alone("Conv", weight(8, 8, 3, 3), bias=8, **SAME),
        "convolution, 3D": alone("Conv", weight(8, 4, 3, 3, 3), shape=(4, 6, 6, 6)),
        "convolution, 1x1": alone("Conv", weight(8, 8, 1, 1), bias=8),
        "convolution, dilated": alone("Conv", weight(8, 8, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2]),
        "convolution, strided, padded on one side": alone(
            "Conv", weight(8, 8, 3, 3), strides=[2, 2], pads=[0, 0, 1, 1]
        ),
        "convolution, grouped": alone("Conv", weight(8, 4, 3, 3), group=2, **SAME),
        "convolution, groups too thin for INT8": between(
            layer("Conv", ["c", "g"], group=4, **SAME), weights={"g": weight(8, 2, 3, 3, seed=2)}
        ),
        "depthwise": alone("Conv", weight(8, 1, 3, 3), group=8, bias=8, **SAME),
        "depthwise, two outputs a channel": between(
            layer("Conv", ["c", "g"], group=8, **SAME),
            weights={"g": weight(16, 1, 3, 3, seed=2)},
            channels=16,
        ),
        "separable": between(
            layer("Conv", ["c", "g"], group=8, **SAME),
            weights={"g": weight(8, 1, 3, 3, seed=2)},
            pairs={"c": "layer", "g": "layer"},
            floats=(),
        ),
        "transposed": alone("ConvTranspose", weight(8, 4, 2, 2), strides=[2, 2]),
        "transposed, 1D": alone("ConvTranspose", weight(8, 4, 4), shape=(8, 32), strides=[2], pads=[1, 1]),
        "transposed, with output padding": alone(
            "ConvTranspose", weight(8, 4, 3, 3), bias=4, strides=[2, 2], output_padding=[1, 1], **SAME
        ),
        "transposed, grouped": alone("ConvTranspose", weight(8, 4, 2, 2), strides=[2, 2], group=2, bias=8),
        "max pooling": between(layer("MaxPool", ["c"], kernel_shape=[2, 2], strides=[2, 2])),
        "max pooling, rounded up": between(
            layer("MaxPool", ["c"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        ),
        "max pooling, padded": between(layer("MaxPool", ["c"], kernel_shape=[3, 3], **SAME)),
        "max pooling, dilated": between(
            layer("MaxPool", ["c"], kernel_shape=[3, 3], dilations=[2, 2], **SAME), refused=("layer",)
        ),
        "average pooling": averaged(strides=[2, 2]),
        "average pooling, padding counted": averaged(count_include_pad=1, **SAME),
        # 4, 6 or 9 values: a sum of INT8 values over an even number is often a half.
        "average pooling, padding not counted": averaged(ties=True, **SAME),
        "average pooling, rounded up": averaged(strides=[2, 2], ceil_mode=1, ties=True),
        "Lp pooling": between(layer("LpPool", ["c"], kernel_shape=[2, 2], strides=[2, 2], p=2)),
        "global average pooling": before_gemm(
            layer("GlobalAveragePool", ["c"], ["a"]), flat("a"), pairs={"c": "layer"}, floats=("flat",)
        ),
        "global average pooling, as a mean": before_gemm(
            layer("ReduceMean", ["c"], ["t"], axes=[2, 3], keepdims=0), pairs={"c": "layer"}, floats=()
        ),
        "global max pooling": before_gemm(layer("GlobalMaxPool", ["c"], ["a"]), flat("a")),
        "spatial pyramid pooling": pyramid_in_space(),
        "spatial pyramid pooling, bins": pyramid_of_bins(),
        "max unpooling": between(
            node("MaxPool", ["c"], ["p", "i"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
            layer("MaxUnpool", ["p", "i"], kernel_shape=[2, 2], strides=[2, 2]),
            floats=("pool", "layer"),
            refused=("pool", "layer"),
            floor=20,
            reason="where the largest of four values is another one after rounding, it goes elsewhere",
        ),
        "fully connected": alone("Gemm", weight(16, 32), shape=(32,), bias=16, transB=1),
        "fully connected, weight not transposed": alone("Gemm", weight(32, 16), shape=(32,), bias=16),
        "fully connected, scaled": alone(
            "Gemm", weight(16, 32), shape=(32,), bias=16, transB=1, alpha=0.5, beta=2.0
        ),
        "matrix product": alone("MatMul", weight(16, 12), shape=(10, 16)),
        "batch norm alone": Layer(
            [
                layer("BatchNormalization", ["x", "s", "o", "m", "d"]),
                node("Conv", ["t", "v"], ["y"], name="last"),
            ],
            {"v": weight(8, 8, 1, 1), **NORM},
            {"t": "last", "v": "last"},
            frozenset({"layer"}),
        ),
        "batch norm after a convolution": between(
            layer("BatchNormalization", ["c", "s", "o", "m", "d"], ["n"]),
            node("Relu", ["n"], ["t"], name="relu"),
            weights=NORM,
            floats=("layer", "relu"),
        ),
        "instance norm": between(layer("InstanceNormalization", ["c", "s", "o"]), weights=NORM),
        "layer norm": Layer(
            [layer("LayerNormalization", ["x", "s", "o"]), node("MatMul", ["t", "v"], ["y"], name="last")],
            {"v": weight(8, 8), **NORM},
            {"t": "last", "v": "last"},
            frozenset({"layer"}),
            shape=(10, 8),
        ),
        "dropout": between(layer("Dropout", ["c", "ratio"]), weights={"ratio": np.float32(0.5)}),
        "flatten": before_gemm(flat("c"), floats=("flat",), features=8 * 8 * 8),
        "softmax": Layer(
            [
                node("Gemm", ["x", "w"], ["t"], name="first", transB=1),
                node("Softmax", ["t"], ["y"], name="layer", axis=-1),
            ],
            {"w": weight(16, 32)},
            {"x": "first", "w": "first"},
            frozenset({"layer"}),
            shape=(32,),
        ),
        "RoI align": between(
            layer(
                "RoiAlign",
                ["c", "rois", "which"],
                output_height=4,
                output_width=4,
                sampling_ratio=2,
                coordinate_transformation_mode="half_pixel",
            ),
            weights={"rois": BOXES, "which": np.zeros(3, np.int64)},
            refused=("layer",),
        ),
        "RoI pooling": between(
            layer("MaxRoiPool", ["c", "rois"], pooled_shape=[2, 2]),
            weights={"rois": np.concatenate([np.zeros((3, 1), np.float32), np.floor(BOXES)], axis=1)},
            refused=("layer",),
        ),
        "upsampling, nearest": resized("nearest", "asymmetric", nearest_mode="floor"),
        "upsampling, linear": resized("linear"),
        "upsampling, linear, corners aligned": resized("linear", "align_corners"),
        "upsampling, cubic": resized("cubic"),
        "upsampling, of opset 9": between(layer("Upsample", ["c", "f"]), weights=TWICE, opset=9),
        "upsampling, linear, of opset 10": between(
            layer("Resize", ["c", "f"], mode="linear"), weights=TWICE, opset=10
        ),
        "pixel shuffle": between(layer("DepthToSpace", ["c"], blocksize=2, mode="CRD"), channels=2),
        "pixel shuffle, spelled out": between(
            node("Reshape", ["c", "apart"], ["r"], name="split"),
            layer("Transpose", ["r"], ["m"], perm=[0, 1, 4, 2, 5, 3]),
            node("Reshape", ["m", "joined"], ["t"], name="join"),
            weights={"apart": np.array([-1, 2, 2, 2, 8, 8]), "joined": np.array([-1, 2, 16, 16])},
            channels=2,
            floats=("split", "layer", "join"),
        ),
        "space to depth": between(layer("SpaceToDepth", ["c"], blocksize=2), channels=32),
        "relu": between(layer("Relu", ["c"])),
        "relu6": between(layer("Clip", ["c", "low", "high"]), weights={"low": 0.0, "high": 6.0}),
        "leaky relu": between(layer("LeakyRelu", ["c"], alpha=0.1)),
        "PRelu": between(layer("PRelu", ["c", "slope"]), weights={"slope": np.abs(weight(8, 1, 1, seed=6))}),
        "ELU": between(layer("Elu", ["c"], alpha=1.0)),
        "SiLU": between(
            node("Sigmoid", ["c"], ["g"], name="gate"), layer("Mul", ["c", "g"]), floats=("gate", "layer")
        ),
        "hard swish": between(layer("HardSwish", ["c"])),
        "residual sum": Layer(
            [
                node("Conv", ["x", "w"], ["c"], name="first", **SAME),
                layer("Add", ["c", "x"]),
                node("Relu", ["t"], ["y"], name="relu"),
            ],
            {"w": weight(8, 8, 3, 3)},
            {"x": "first, layer", "w": "first"},
            frozenset({"relu"}),
        ),
        "concatenation": Layer(
            [
                node("Conv", ["x", "w"], ["c"], name="first", **SAME),
                layer("Concat", ["c", "x"], axis=1),
                node("Conv", ["t", "v"], ["y"], name="last"),
            ],
            {"w": weight(8, 8, 3, 3), "v": weight(8, 16, 1, 1)},
            {"x": "first, layer", "w": "first", "t": "last", "v": "last"},
            frozenset(),
        ),
        "squeeze and excitation": between(
            node("GlobalAveragePool", ["c"], ["a"], name="pool"),
            node("Conv", ["a", "g"], ["e"], name="excite"),
            node("Sigmoid", ["e"], ["k"], name="gate"),
            layer("Mul", ["c", "k"]),
            weights={"g": weight(8, 8, 1, 1, seed=2)},
            pairs={"a": "excite", "g": "excite"},
            floats=("pool", "gate", "layer"),
        ),
        "padding, reflected": between(
            layer("Pad", ["c", "by"], mode="reflect"), weights={"by": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
        ),
        "attention": Layer(
            [
                node("MatMul", ["x", "wq"], ["q"], name="query"),
                node("MatMul", ["x", "wk"], ["k"], name="key"),
                node("Transpose", ["k"], ["kt"], name="turn", perm=[0, 2, 1]),
                node("MatMul", ["q", "kt"], ["s"], name="scores"),
                node("Softmax", ["s"], ["p"], name="layer", axis=-1),
                node("MatMul", ["p", "x"], ["t"], name="mix"),
                node("MatMul", ["t", "v"], ["y"], name="last"),
            ],
            {"wq": weight(16, 16), "wk": weight(16, 16, seed=1), "v": weight(16, 16, seed=2)},
            {"x": "query, key", "wq": "query", "wk": "key", "t": "last", "v": "last"},
            frozenset({"turn", "scores", "layer", "mix"}),
            shape=(10, 16),
        ),
        "LSTM": recurrent("LSTM", 4),
        "GRU": recurrent("GRU", 3, linear_before_reset=1),
    }
)
