"""Reasons for float layers, each from its own evidence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from goldens import NETS
from layer_answers import FP16, FP32, INT8, UNTOLD, conv, golden, layer, parsed, pointwise, reformat, tensor
from onnx import TensorProto, helper, numpy_helper

from calib.calibrators import CalibrationCache
from calib.engine import FloatLayer, explain_float_layers
from calib.graph import OnnxModel, load_model, quantize_model

PADDED = "TensorRT found FP32 faster; INT8 would pad its channels to a multiple of 32"
FASTER = "TensorRT found FP32 faster, or has no INT8 kernel for its form"
REDUCE = "no INT8 kernel for ReduceMean: the Reduce layer has float types"


def model(*nodes: onnx.NodeProto, held: tuple[str, ...] = ()) -> OnnxModel:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    weights = [numpy_helper.from_array(np.ones((64, 64, 1, 1), np.float32), name) for name in held]
    graph = helper.make_graph(list(nodes), "g", ends[:1], ends[1:], weights)
    return OnnxModel(Path("g.onnx"), helper.make_model(graph))


def one(raw: dict[str, Any], *arguments: Any) -> FloatLayer:
    (found,) = explain_float_layers(parsed(raw), *arguments)
    return found


# By eye: stem and first block of the residual net have 1 and 16 channels, its Gemm 10 outputs; the U-Net's
# first convolution 1 and 16, its last ConvTranspose 32 and 16, the one before 64 and 32.
@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("plain.entropy2", {PADDED: 1, FASTER: 1}),
        ("plain.minmax", {PADDED: 2, FASTER: 1}),
        ("res.entropy2", {PADDED: 4, REDUCE: 1}),
        ("res.minmax", {PADDED: 4, FASTER: 2, REDUCE: 1}),
        ("unet.entropy2", {PADDED: 2, FASTER: 1}),
        ("unet.minmax", {PADDED: 1}),
    ],
)
def test_real_engines(name: str, reasons: dict[str, int]) -> None:
    network = load_model(NETS / f"{name.split('.')[0]}.onnx")
    scales = CalibrationCache.read(NETS / f"{name}.cache")
    found = explain_float_layers(golden(name), network, scales)
    assert Counter(one.kind for one in found) == reasons
    assert {one.precision for one in found} == {"FP32"}


def test_a_scale_taken_out_of_a_real_cache_is_found_missing() -> None:
    network = load_model(NETS / "res.onnx")
    scales = dict(CalibrationCache.read(NETS / "res.minmax.cache"))

    def reasons() -> dict[str, str]:
        found = explain_float_layers(golden("res.minmax"), network, scales)
        return {one.layer: one.reason for one in found}

    before = reasons()
    del scales["/l/l.4/Add_output_0"]  # inside a fused layer: TensorRT asks for none there
    assert reasons() == before
    del scales["/l/l.4/Relu_output_0"]
    after = reasons()
    changed = {name: reason for name, reason in after.items() if reason != before[name]}
    assert changed == {
        "/l/l.4/b/b.0/Conv + /l/l.4/Add + /l/l.4/Relu": "no usable scale for a tensor: '/l/l.4/Relu_output_0'"
    }


def test_an_fp16_engine_with_int8_allowed() -> None:
    """At level 3 with FP16 allowed, TensorRT made the residual net without INT8."""
    network, scales = load_model(NETS / "res.onnx"), CalibrationCache.read(NETS / "res.best_l3.cache")
    found = explain_float_layers(golden("res.best_l3"), network, scales)
    assert len(found) == 15
    assert Counter(one.kind.split(";")[0].split(",")[0] for one in found) == {
        "TensorRT found FP16 faster": 13,
        "TensorRT found FP32 faster": 1,
        "no INT8 kernel for ReduceMean: the Reduce layer has float types": 1,
    }


RELU = model(helper.make_node("Relu", ["x"], ["y"], name="c"))


@pytest.mark.parametrize(
    ("scales", "reason"),
    [
        ({"x": 0.1}, "no usable scale for a tensor: 'y'"),
        ({}, "no usable scale for a tensor: 'x', 'y'"),
        ({"x": 0.0, "y": 0.1}, "no usable scale for a tensor: 'x' (zero)"),
        ({"x": 0.1, "y": float("inf")}, "no usable scale for a tensor: 'y' (infinite)"),
        ({"x": 0.1, "y": 0.1}, FASTER),
        (None, "TensorRT found FP32 faster, has no INT8 kernel for its form, or had no scale"),
    ],
)
def test_scales(scales: dict[str, float] | None, reason: str) -> None:
    assert one(pointwise("c", FP32, FP32), RELU, scales).reason == reason


def test_only_tensors_that_int8_needs_must_have_scales() -> None:
    network = model(
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        helper.make_node("Add", ["c", "skip"], ["s"], name="add"),
        helper.make_node("Reshape", ["s", "shape"], ["y"], name="view"),
        held=("w", "b"),
    )
    raw = conv("conv + add + view", FP32, FP32, onnx=("conv", "add", "view"))
    assert one(raw, network, {"x": 0.1, "skip": 0.1, "y": 0.1}).kind == FASTER
    assert one(raw, network, {"x": 0.1, "y": 0.1}).detail == "'skip'"
    inputs = [f"i{number}" for number in range(6)]
    joined = model(helper.make_node("Concat", inputs, ["y"], name="c", axis=1))
    assert one(pointwise("c", FP32, FP32), joined, {"y": 0.1}).detail == "'i0', 'i1', 'i2' and 3 more"


@pytest.mark.parametrize(
    ("op", "domain", "kind"),
    [
        ("Softmax", "", "no INT8 kernel for Softmax: SoftMax has float types"),
        (
            "LayerNormalization",
            "",
            "no INT8 kernel for LayerNormalization: normalization is computed in float",
        ),
        ("Einsum", "", "NVIDIA documents no INT8 for Einsum"),
        ("Mish", "com.acme", "an operator that is not ONNX's own"),
        ("Resize", "", FASTER),
    ],
)
def test_operators(op: str, domain: str, kind: str) -> None:
    network = model(helper.make_node(op, ["x"], ["y"], name="c", domain=domain))
    assert one(pointwise("c", FP32, FP32), network, {"x": 0.1, "y": 0.1}).kind == kind


def test_a_product_of_two_activations() -> None:
    network = model(helper.make_node("MatMul", ["x", "k"], ["y"], name="c"))
    scales = {"x": 0.1, "k": 0.1, "y": 0.1}
    product = "MatMul of two activations, which runs in INT8 by Q/DQ pairs alone"
    assert one(pointwise("c", FP32, FP32), network, scales).kind == product
    weighted = model(helper.make_node("MatMul", ["x", "k"], ["y"], name="c"), held=("k",))
    assert one(pointwise("c", FP32, FP32), weighted, scales).kind == FASTER


def test_what_is_computed_from_constants_needs_no_scale() -> None:
    """PyTorch's exporter transposes a large Linear's weight in the graph; others shape a bias there."""
    network = model(
        helper.make_node("Transpose", ["w"], ["turned"], name="turn"),
        helper.make_node("MatMul", ["x", "turned"], ["p"], name="product"),
        helper.make_node("Reshape", ["b", "size"], ["row"], name="row"),
        helper.make_node("Add", ["p", "row"], ["y"], name="sum"),
        held=("w", "b", "size"),
    )
    raw = pointwise("product + sum", FP32, FP32, ("product", "sum"))
    assert one(raw, network, {"x": 0.1, "p": 0.1, "y": 0.1}).kind == FASTER
    assert one(raw, network, {"p": 0.1, "y": 0.1}).reason == "no usable scale for a tensor: 'x'"


INTEGERS = "integers, shapes or comparisons, which are no INT8 work"
MYELIN = (
    "a region that Myelin compiled as a whole, which TensorRT leaves in float where scales come from a cache"
)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (layer("s", "Shape", [], [tensor("n", "Row major linear Int32")]), INTEGERS),
        (layer("e", "ElementWise", [tensor("n", "Row major linear BOOL")]), INTEGERS),
        (layer("p", "PluginV2DynamicExt", [tensor("x")]), "a plug-in, which computes in its own type"),
        (layer("{ForeignNode[a...b]}", "Myelin", [tensor("x", FP16)]), MYELIN),
        (layer("t", "Shuffle", [tensor("x")]), "it moves values, in the type in which they come"),
        (layer("s", "CaskSoftMaxV2", [tensor("x")]), "no INT8 kernel: SoftMax has float types"),
        (
            layer("p", "CaskPooling", [tensor("x", UNTOLD)]),
            "its precision is not told: give the inspector a context with input shapes",
        ),
        (
            pointwise("a", FP32, FP32),
            "not told by the engine alone: give the model, and the cache it was built with",
        ),
    ],
)
def test_what_the_layer_alone_tells(raw: dict[str, Any], kind: str) -> None:
    assert one(raw).kind == kind


def test_names_alone() -> None:
    (found,) = explain_float_layers(parsed("conv"))
    assert found.kind == "the engine tells names alone: it was built without detailed profiling verbosity"


@pytest.mark.parametrize(
    ("groups", "channels", "kind"),
    [
        (1, 64, "TensorRT found FP16 faster, has no INT8 kernel for its form, or had no scale"),
        (1, 48, "TensorRT found FP16 faster; INT8 would pad its channels to a multiple of 32"),
        (8, 48, "no INT8 kernel for groups whose channels are no multiple of 4"),
        (8, 64, "TensorRT found FP16 faster, has no INT8 kernel for its form, or had no scale"),
        (64, 64, "TensorRT found FP16 faster, has no INT8 kernel for its form, or had no scale"),
    ],
)
def test_channels(groups: int, channels: int, kind: str) -> None:
    shapes = ((1, 64, 8, 8), (1, channels, 8, 8))
    found = one(conv("c", FP16, FP16, shapes=shapes, Groups=groups), RELU)
    assert found.kind == kind
    if "padd" in kind or "groups" in kind:
        assert found.detail.startswith(f"64 → {channels} channels")


def test_int8_layers_and_copies_need_no_reason() -> None:
    assert explain_float_layers(parsed(conv("c", INT8, INT8), reformat("r", FP32, FP32))) == ()


def residual_with_pairs() -> OnnxModel:
    """Our own Q/DQ model of the residual net, its last convolution left float."""
    scales = CalibrationCache.read(NETS / "res.entropy2.cache")
    return quantize_model(load_model(NETS / "res.onnx"), scales, ["^/l/l.4/b/b.0/Conv$"]).model


def test_a_convolution_without_pairs() -> None:
    network = residual_with_pairs()
    raw = conv("last", FP32, FP32, onnx=("/l/l.4/b/b.0/Conv", "/l/l.4/Add", "/l/l.4/Relu"))
    assert one(raw, network).reason == "no Q/DQ pair before it: '/l/l.4/a/a.2/Relu_output_0'"
    paired = conv("other", FP32, FP32, onnx=("/l/l.4/a/a.0/Conv", "/l/l.4/a/a.2/Relu"))
    assert one(paired, network).kind == FASTER


def test_a_pooling_without_pairs_on_both_sides() -> None:
    network = model(
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], name="d"),
        helper.make_node("AveragePool", ["d"], ["y"], name="pool", kernel_shape=[2, 2]),
    )
    raw = layer("pool", "CaskPooling", [tensor("d", FP16)], [tensor("y", FP16)], ["pool"])
    assert one(raw, network).kind == "no weights, and so INT8 only between Q/DQ pairs on both sides"


def test_scales_say_nothing_of_an_engine_with_pairs() -> None:
    """``calib validate`` hands the FP32 model and the cache of both routes: the layers tell the route."""
    network = model(
        helper.make_node("Conv", ["x", "w"], ["c"], name="first"),
        helper.make_node("Conv", ["c", "w"], ["y"], name="second"),
        held=("w",),
    )
    layers = parsed(
        reformat("x_QuantizeLinear", FP32, INT8, "QDQ"),
        conv("w + first", INT8, FP32, onnx=("w_QuantizeLinear", "first")),
        conv("second", FP32, FP32),
    )
    (found,) = explain_float_layers(layers, network, {"x": 0.1})
    assert found.reason == "no Q/DQ pair before it: 'c'"
    (found,) = explain_float_layers(layers[2:], network, {"x": 0.1})
    assert found.reason == "no usable scale for a tensor: 'c', 'y'"
