"""Q/DQ models whose rest is float16, and Q/DQ models that are converted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from decibels import decibels
from goldens import NETS, digits
from half_networks import in_memory, kept, run, run_half
from networks import conv_relu_gemm, model, node, samples, weight
from onnx import TensorProto, numpy_helper

from calib.calibrators import CalibrationCache
from calib.errors import ModelError, UsageError
from calib.graph import (
    PARTS,
    OnnxModel,
    QuantizedModel,
    convert_float16,
    load_model,
    quantize,
    quantize_model,
    quantize_part,
)
from calib.graph.half_constants import half_values
from calib.graph.weights import quantize_weight

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
NAMES = ("x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y")


def element_types(proto: onnx.ModelProto) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(proto, strict_mode=True).graph
    infos = (*graph.value_info, *graph.input, *graph.output)
    found = {info.name: info.type.tensor_type.elem_type for info in infos}
    return {**found, **{tensor.name: tensor.data_type for tensor in graph.initializer}}


def with_half(net: str, case: str) -> QuantizedModel:
    return quantize(
        NETS / f"{net}.onnx", NETS / f"{net}.{case}.cache", target="tensorrt-11", float_type="fp16"
    )


@pytest.mark.parametrize("case", ["entropy2", "minmax"])
@pytest.mark.parametrize("net", ["plain", "res", "unet"])
def test_trained_nets_lose_nothing_against_a_float32_rest(net: str, case: str) -> None:
    images = digits()["xte"][:64]
    before = load_model(NETS / f"{net}.onnx")
    exact = run(before, input=images)[0]
    plain = quantize(before, NETS / f"{net}.{case}.cache", target="tensorrt-11")
    half = with_half(net, case)
    onnx.checker.check_model(half.model.proto, full_check=True)
    assert half.model.opset == 19
    wanted, found = (decibels(exact, run_half(m.model, input=images)[0]) for m in (plain, half))
    assert found > wanted - 0.5
    assert [pair.tensor for pair in half.pairs] == [pair.tensor for pair in plain.pairs]


@pytest.mark.parametrize("net", ["plain", "res", "unet"])
def test_every_pair_is_typed_as_tensorrt_wants_it(net: str) -> None:
    """A scale has the type of what it quantizes; no cast stands between a pair and what it is for."""
    proto = with_half(net, "minmax").model.proto
    types = element_types(proto)
    made = {name: item for item in proto.graph.node for name in item.output}
    for item in proto.graph.node:
        if item.op_type == "QuantizeLinear":
            assert types[item.input[0]] == types[item.input[1]]
        elif item.op_type == "DequantizeLinear":
            assert types[item.input[1]] == types[item.output[0]] == HALF
        elif item.op_type in ("Conv", "ConvTranspose", "Gemm"):
            assert [made[name].op_type for name in item.input[:2]] == ["DequantizeLinear"] * 2
            assert {types[name] for name in item.input} == {HALF}
    # The input is quantized as it is, in float32: only the output is cast.
    assert sum(item.op_type == "Cast" for item in proto.graph.node) == 1


def test_scales_are_rounded_before_weights_are_quantized_with_them() -> None:
    cache = dict.fromkeys(NAMES, 0.1)
    half = quantize_model(in_memory(conv_relu_gemm()), cache, target="tensorrt-10", float_type="fp16")
    weights = {t.name: numpy_helper.to_array(t) for t in half.model.proto.graph.initializer}
    rounded = {pair.tensor: pair.scale for pair in half.activations}
    # The next float16 above 0.1; the nearest, 0.09998, is below it.
    assert rounded == dict.fromkeys(rounded, float(np.nextafter(np.float16(0.1), np.float16(1))))
    kernel = {t.name: numpy_helper.to_array(t) for t in conv_relu_gemm().graph.initializer}["w1"]
    scale = weights["w1_scale"] if "w1_scale" in weights else weights["w1_scale_float16"]
    assert scale.dtype == np.float16
    step = scale.astype(np.float32)[:, None, None, None]
    assert (np.abs(weights["w1_quantized"] * step - kernel) <= step * 0.5001).all()


def test_rounded_scales_of_tiny_and_dead_channels() -> None:
    values = np.array([[1.0, 0.5], [1e-4, 3e-5], [1e-7, 0.0], [0.0, 0.0]], np.float32)
    found = quantize_weight(values, axis=0, half_scales=True)
    assert np.array_equal(found.scales, found.scales.astype(np.float16))
    # 1e-4 / 127 is 13.2 steps of 2^-24: 14 of them.
    assert found.scales.tolist()[1:3] == [14 * 2.0**-24, 2.0**-24]
    assert np.abs(found.values[1] * found.scales[1] - values[1]).max() <= found.scales[1] / 2
    assert found.values[3].tolist() == [0, 0]


@pytest.mark.parametrize("dead", [False, True])
def test_a_weight_that_is_tiny_as_a_whole_keeps_its_scales(dead: bool) -> None:
    values = np.array([[1e-5, 2e-6], [0.0 if dead else 1e-5, 0.0]], np.float32)
    found = quantize_weight(values, axis=0, half_scales=True)
    assert found.scales[0] == np.float32(1e-5) / np.float32(127)


def test_weights_and_constants_are_the_same_where_numpy_raises_on_underflow() -> None:
    """1e-40 / 127 is a denormal float32, 1e-9 is zero as float16, its next float16 is 2^-24."""
    weight = np.array([[1e-40, -1e-40], [127.0, 1e-9], [1e-9, 0.0]])
    with np.errstate(all="raise"):
        found = quantize_weight(weight, axis=0, half_scales=True)
        assert half_values(np.array([1e-9, 1.0]), saturate=True).tolist() == [0.0, 1.0]
    assert found.values.tolist() == quantize_weight(weight, axis=0, half_scales=True).values.tolist()
    assert found.values[1].tolist() == [127, 0]
    assert found.scales.tolist()[1:] == [1.0, 2.0**-24]


def test_a_weight_with_a_scale_beyond_float16_keeps_its_node_in_float32() -> None:
    proto = conv_relu_gemm()
    kernel = next(t for t in proto.graph.initializer if t.name == "w2")
    kernel.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(kernel) * np.float32(1e-4), "w2"))
    network = in_memory(proto)
    half = quantize_model(network, dict.fromkeys(NAMES, 0.05), target="tensorrt-11", float_type="fp16")
    left = {item.node: item.reason for item in half.kept_float32}
    assert "float16 is too coarse for it" in left["conv2"]
    types = element_types(half.model.proto)
    conv = next(item for item in half.model.proto.graph.node if item.name == "conv2")
    made = {name: item for item in half.model.proto.graph.node for name in item.output}
    assert {types[name] for name in conv.input} == {FLOAT}
    assert [made[name].op_type for name in conv.input] == ["DequantizeLinear"] * 2
    x = samples(4, 3, 8, 8)
    wanted = quantize_model(network, dict.fromkeys(NAMES, 0.05), target="tensorrt-11")
    assert decibels(run(wanted.model, x=x)[0], run_half(half.model, x=x)[0]) > 25


def test_one_pair_for_readers_of_both_types() -> None:
    """Each type has a DequantizeLinear of its own; they give the same values."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="first", pads=[1, 1, 1, 1]),
        node("Conv", ["a", "v"], ["p"], name="left", pads=[1, 1, 1, 1]),
        node("Conv", ["a", "u"], ["q"], name="right", pads=[1, 1, 1, 1]),
    ]
    weights = {"w": weight(4, 3, 3, 3), "v": weight(2, 4, 3, 3, seed=1), "u": weight(2, 4, 3, 3, seed=2)}
    shapes = {"p": ["n", 2, 8, 8], "q": ["n", 2, 8, 8]}
    network = in_memory(model(nodes, {"x": ["n", 3, 8, 8]}, shapes, weights, opset=19))
    quantized = quantize_model(network, {"x": 0.03, "a": 0.02}, target="tensorrt-11").model
    ranges = {"x": 4.0, "a": 3.0, "p": 9000.0, "q": 3.0}
    result = convert_float16(quantized, ranges=ranges)
    assert set(kept(result)) >= {"left"}
    types = element_types(result.model.proto)
    readers = {item.name: [types[name] for name in item.input] for item in result.model.proto.graph.node}
    assert readers["left"] == [FLOAT, FLOAT]
    assert readers["right"] == [HALF, HALF]
    pairs = [
        n for n in result.model.proto.graph.node if n.op_type == "DequantizeLinear" and "a_q" in n.input[0]
    ]
    assert len(pairs) == 2
    x = samples(2, 3, 8, 8)
    exact = run(quantized, x=x)
    for wanted, found in zip(exact, run_half(result.model, x=x), strict=True):
        assert decibels(wanted, found) > 25


def test_below_opset_19_pairs_stay_float32() -> None:
    quantized = quantize_model(in_memory(conv_relu_gemm()), dict.fromkeys(NAMES, 0.05)).model
    result = convert_float16(quantized)
    assert "float16 scales need opset 19; the model has 17" in kept(result)["conv1"]
    assert not [t for t in result.model.proto.graph.initializer if t.data_type == HALF]


@pytest.mark.parametrize(
    ("target", "float_type", "message"),
    [
        (
            "tensorrt-8.6",
            "fp16",
            r"tensorrt-8\.6: it reads Q/DQ scales in float32 alone.*FP16 and INT8 flags",
        ),
        ("tensorrt-11", "bf16", r"--float-type 'bf16' is unknown\. Types: fp32, fp16"),
    ],
)
def test_refusals(target: str, float_type: str, message: str, tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    cache = CalibrationCache(dict.fromkeys(NAMES, 0.05))
    with pytest.raises(UsageError, match=message):
        quantize(in_memory(conv_relu_gemm()), cache, target=target, float_type=float_type, out=out)  # type: ignore[arg-type]
    assert not out.exists()


def typed_half(net: str) -> OnnxModel:
    """A trained net as people export it for TensorRT 11: float16 throughout, inputs and outputs too."""
    ranges = NETS / f"{net}.minmax.cache"
    return convert_float16(NETS / f"{net}.onnx", ranges=ranges, keep_io=False).model


@pytest.mark.parametrize("net", ["plain", "res", "unet"])
class TestFloat16Models:
    """Models that are float16 before they are quantized."""

    def test_pairs_are_those_of_the_float32_model(self, net: str) -> None:
        cache = CalibrationCache.read(NETS / f"{net}.minmax.cache")
        source = typed_half(net)
        plain = quantize_model(load_model(NETS / f"{net}.onnx"), cache, target="tensorrt-11")
        result = quantize_model(source, cache, target="tensorrt-11")
        assert [pair.tensor for pair in result.activations] == [pair.tensor for pair in plain.activations]
        assert len(result.pairs) == len(plain.pairs)
        for ours, theirs in zip(result.activations, plain.activations, strict=True):
            # Rounded up to float16, one step of 2^-10 at most.
            assert theirs.scale <= ours.scale <= theirs.scale * (1 + 2**-10)
        images = digits()["xte"][:64]
        exact = run(load_model(NETS / f"{net}.onnx"), input=images)[0]
        wanted = decibels(exact, run_half(plain.model, input=images)[0])
        found = run_half(result.model, input=images.astype(np.float16))[0]
        assert decibels(exact, found.astype(np.float64)) > wanted - 0.5

    @pytest.mark.parametrize("target", ["tensorrt-10", "tensorrt-11", "onnxruntime"])
    def test_types_and_interface(self, net: str, target: str) -> None:
        source = typed_half(net)
        cache = CalibrationCache.read(NETS / f"{net}.minmax.cache")
        proto = quantize_model(source, cache, target=target).model.proto
        onnx.checker.check_model(proto, full_check=True)
        assert next(entry.version for entry in proto.opset_import) == 19
        types = element_types(proto)
        for item in proto.graph.node:
            if item.op_type in ("QuantizeLinear", "DequantizeLinear"):
                assert types[item.input[1]] == HALF
            assert all(types[name] != FLOAT for name in item.output)
        for before, after in zip(
            (*source.proto.graph.input, *source.proto.graph.output),
            (*proto.graph.input, *proto.graph.output),
            strict=True,
        ):
            assert before == after

    def test_one_part_at_a_time(self, net: str) -> None:
        source, cache = typed_half(net), CalibrationCache.read(NETS / f"{net}.minmax.cache")
        images = digits()["xte"][:16].astype(np.float16)
        exact = run_half(source, input=images)[0].astype(np.float64)
        for part in PARTS:
            found = run_half(quantize_part(source, cache, part), input=images)[0]
            # 20 dB; min-max ranges cut nothing off, so that clipping alone may lose nothing.
            assert ((found - exact) ** 2).sum() < (exact**2).sum() / 100, part


def test_scales_that_float16_does_not_hold_leave_a_float16_node_as_it_is() -> None:
    half, names = HALF, ("x", "a", "b", "y")
    proto = model(
        [
            node("MatMul", ["x", "w"], ["a"], name="good"),
            node("MatMul", ["a", "w"], ["b"], name="small"),
            node("MatMul", ["b", "tiny"], ["y"], name="tiny"),
        ],
        {"x": [2, 4]},
        {"y": [2, 4]},
        {"w": weight(4, 4).astype(np.float16), "tiny": np.full((4, 4), 1e-4, np.float16)},
        opset=20,
        types=dict.fromkeys(names, half),
    )
    # 2^-17 = 7.6e-6 is the least; 1e-4 / 127 = 7.9e-7.
    result = quantize_model(in_memory(proto), {"x": 0.02, "a": 7e-6, "b": 0.02}, target="tensorrt-11")
    reasons = {left.node: left.reason for left in result.left_float}
    coarse = "for which float16 scales are too coarse or too small"
    assert reasons == {
        "small": f"the scale of its float16 input 'a' is 7e-06, {coarse}",
        "tiny": f"its float16 weight 'tiny' is at most 0.0001, {coarse}",
    }


@pytest.mark.parametrize(
    ("scales", "target", "reason"),
    [
        ({"x_float16": 1e-9}, "tensorrt-11", "too coarse or too small.$"),
        ({"y": 0.1}, "tensorrt-11", "no scale for its input 'x_float16'. Does the cache belong"),
        ({"x_float16": 0.1}, "tensorrt-8.6", "'w' is float16, not float32. Give the float32 model"),
    ],
)
def test_another_target_is_advised_only_where_its_scales_would_do(
    scales: dict[str, float], target: str, reason: str
) -> None:
    proto = model(
        [node("MatMul", ["x_float16", "w"], ["y"], name="only")],
        {"x_float16": [2, 4]},
        {"y": [2, 4]},
        {"w": weight(4, 4).astype(np.float16)},
        types={"x_float16": HALF, "y": HALF},
    )
    with pytest.raises(ModelError, match=reason):
        quantize_model(in_memory(proto), scales, target=target)


def test_float16_and_float32_parts_have_scales_of_their_own() -> None:
    proto = model(
        [
            node("Conv", ["x", "w"], ["a"], name="single"),
            node("Cast", ["a"], ["h"], to=HALF),
            node("Conv", ["h", "half"], ["y"], name="half"),
        ],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {"w": weight(4, 4, 1, 1), "half": weight(4, 4, 1, 1).astype(np.float16)},
        types={"y": HALF},
    )
    result = quantize_model(in_memory(proto), {"x": 0.02, "h": 0.02}, target="tensorrt-11")
    types = {t.name: t.data_type for t in result.model.proto.graph.initializer}
    assert {name: types[f"{name}_scale"] for name in ("x", "h", "w", "half")} == {
        **dict.fromkeys(("x", "w"), FLOAT),
        **dict.fromkeys(("h", "half"), HALF),
    }
    x = samples(1, 4, 6, 6)
    found, exact = run_half(result.model, x=x)[0], run_half(in_memory(proto), x=x)[0]
    # Two layers of four terms; half a step of each input is 0.01, weights are below 0.6.
    np.testing.assert_allclose(found, exact, atol=0.1)
