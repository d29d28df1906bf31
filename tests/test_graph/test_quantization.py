from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from goldens import REAL
from networks import conv_relu_gemm, model, node, samples, save, weight
from onnx import numpy_helper

from calib.calibrators import CalibrationCache, RangeTable
from calib.errors import ModelError, UsageError
from calib.graph import (
    OnnxModel,
    QuantizedModel,
    load_model,
    open_session,
    quantize,
    quantize_model,
    quantize_part,
    session_options,
    to_float16,
)

MODELS = REAL / "models"


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def quantized(proto: onnx.ModelProto, names: Sequence[str], scale: float = 0.02) -> QuantizedModel:
    return quantize_model(in_memory(proto), dict.fromkeys(names, scale), conv_transpose="int8")


def run(target: OnnxModel, **feeds: np.ndarray) -> np.ndarray:
    options = session_options(float_qdq=True)
    return np.asarray(open_session(target, options).run(None, feeds)[0])


def rounded(values: np.ndarray, scale: float) -> np.ndarray:
    """Q and DQ: clamp(round-half-even(x / scale), −128, 127) · scale."""
    return np.clip(np.rint(values / np.float32(scale)), -128, 127) * np.float32(scale)


def rounded_weight(values: np.ndarray, axis: int) -> np.ndarray:
    others = tuple(i for i in range(values.ndim) if i != axis)
    scale = np.abs(values).max(axis=others, keepdims=True) / 127
    return (np.rint(values / scale) * scale).astype(np.float32)


def initializers(result: QuantizedModel) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in result.model.proto.graph.initializer}


def test_pairs_stand_on_the_inputs_of_conv_gemm_and_the_pooling_between_and_nowhere_else() -> None:
    proto = conv_relu_gemm()
    result = quantized(proto, ["x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y"])
    assert [pair.tensor for pair in result.activations] == ["x", "p1", "f", "r2"]
    assert {pair.tensor for pair in result.pairs if pair.weight} == {"w1", "w2", "w3"}
    assert result.left_float == ()
    kinds = [item.op_type for item in result.model.proto.graph.node]
    assert kinds.count("QuantizeLinear") == 4
    assert kinds.count("DequantizeLinear") == 7


def test_a_table_of_ranges_is_not_taken_for_scales() -> None:
    """Its numbers are 127 times the scales: every pair would cut nothing and round all."""
    ranges = RangeTable({"x": 2.54})
    network = in_memory(conv_relu_gemm())
    for wrong in (
        lambda: quantize_model(network, ranges),
        lambda: quantize_part(network, ranges, "rounding"),
    ):
        with pytest.raises(UsageError, match=r"RangeTable holds ranges.*Give its \.scales"):
            wrong()
    (pair,) = quantize_model(network, ranges.scales).activations
    assert (pair.tensor, float(np.float32(2.54) / np.float32(127))) == ("x", ranges.scales["x"])


def test_every_zero_point_is_int8_zero_and_bias_stays_float() -> None:
    result = quantized(conv_relu_gemm(), ["x", "p1", "f"])
    constants = initializers(result)
    for item in result.model.proto.graph.node:
        if item.op_type in ("QuantizeLinear", "DequantizeLinear"):
            zero_point = constants[item.input[2]]
            assert zero_point.dtype == np.int8
            assert not zero_point.any()
            assert constants[item.input[1]].dtype == np.float32
            assert (constants[item.input[1]] > 0).all()
    assert constants["b1"].dtype == constants["b3"].dtype == np.float32
    assert not {"w1", "w2", "w3"} & constants.keys()


def test_inputs_and_outputs_are_untouched() -> None:
    proto = conv_relu_gemm()
    result = quantized(proto, ["x", "p1", "f"]).model.proto
    assert list(result.graph.input) == list(proto.graph.input)
    assert list(result.graph.output) == list(proto.graph.output)
    assert result.ir_version == proto.ir_version
    assert result.opset_import[0].version == proto.opset_import[0].version


@pytest.mark.parametrize(
    ("op", "shape", "axis", "attributes", "data"),
    [
        ("Conv", (5, 3, 3, 3), 0, {}, (2, 3, 5, 5)),
        ("Conv", (6, 1, 3, 3), 0, {"group": 6}, (2, 6, 5, 5)),
        ("ConvTranspose", (3, 5, 3, 3), 1, {}, (2, 3, 4, 4)),
        ("MatMul", (4, 6), 1, {}, (2, 4)),
        ("Gemm", (6, 4), 0, {"transB": 1}, (2, 4)),
        ("Gemm", (4, 6), 1, {"transB": 0}, (2, 4)),
    ],
)
def test_weights_are_rounded_along_their_channel_axis(
    op: str, shape: tuple[int, ...], axis: int, attributes: dict[str, int], data: tuple[int, ...]
) -> None:
    w = weight(*shape)
    proto = model([node(op, ["x", "w"], ["y"], **attributes)], {"x": data}, {"y": None}, {"w": w})
    values = samples(data[0], *data[1:])
    result = quantized(proto, ["x"], scale=0.03)
    restored = next(n for n in result.model.proto.graph.node if n.input[0] == "w_quantized")
    assert next(a.i for a in restored.attribute if a.name == "axis") == axis
    assert len(initializers(result)["w_scale"]) == shape[axis]
    same = model(
        [node(op, ["x", "w"], ["y"], **attributes)], {"x": data}, {"y": None}, {"w": rounded_weight(w, axis)}
    )
    expected = run(in_memory(same), x=rounded(values, 0.03))
    np.testing.assert_allclose(run(result.model, x=values), expected, rtol=1e-4, atol=1e-5)


def test_zero_channel_gets_a_positive_scale_and_stays_zero() -> None:
    w = weight(5, 3, 3, 3)
    w[2] = 0
    proto = model([node("Conv", ["x", "w"], ["y"])], {"x": [1, 3, 5, 5]}, {"y": None}, {"w": w})
    result = quantized(proto, ["x"])
    constants = initializers(result)
    assert (constants["w_scale"] > 0).all()
    assert not constants["w_quantized"][2].any()
    assert not run(result.model, x=samples(1, 3, 5, 5))[:, 2].any()


def residual(projection: bool) -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w2"], ["b"], pads=[1, 1, 1, 1]),
        *([node("Conv", ["x", "w3"], ["skip"])] if projection else []),
        node("Add", ["b", "skip" if projection else "x"], ["sum"]),
        node("Relu", ["sum"], ["y"]),
    ]
    weights = {"w1": weight(4, 4, 3, 3), "w2": weight(4, 4, 3, 3, seed=1), "w3": weight(4, 4, 1, 1, seed=2)}
    if not projection:
        del weights["w3"]
    return model(nodes, {"x": ["n", 4, 6, 6]}, {"y": ["n", 4, 6, 6]}, weights)


@pytest.mark.parametrize("projection", [False, True])
def test_residual_add_takes_its_skip_input_alone(projection: bool) -> None:
    result = quantized(residual(projection), ["x", "a", "r", "b", "skip", "sum", "y"])
    add = next(item for item in result.model.proto.graph.node if item.op_type == "Add")
    assert add.input[0] == "b"
    assert add.input[1] == ("skip_dequantized" if projection else "x_dequantized")
    assert "b" not in {pair.tensor for pair in result.pairs}


def test_tensor_read_by_int8_and_float_nodes_keeps_the_original_for_the_float_ones() -> None:
    proto = model(
        [
            node("Conv", ["x", "w"], ["y"]),
            node("Softmax", ["x"], ["s"]),
            node("Shape", ["x"], ["shape"]),
        ],
        {"x": [1, 3, 5, 5]},
        {"y": None, "s": None, "shape": None},
        {"w": weight(2, 3, 3, 3)},
        types={"shape": onnx.TensorProto.INT64},
    )
    by_op = {item.op_type: item for item in quantized(proto, ["x"]).model.proto.graph.node}
    assert by_op["Conv"].input[0] == "x_dequantized"
    assert by_op["Softmax"].input[0] == by_op["Shape"].input[0] == "x"


def test_shared_weight_is_quantized_once_and_serves_both() -> None:
    proto = model(
        [node("Conv", ["x", "w", "b"], ["a"]), node("Conv", ["a", "w", "b"], ["y"])],
        {"x": [1, 2, 7, 7]},
        {"y": None},
        {"w": weight(2, 2, 3, 3), "b": weight(2)},
    )
    result = quantized(proto, ["x", "a"], 0.05)
    shared = [pair for pair in result.pairs if pair.weight]
    assert len(shared) == 1
    assert len(shared[0].readers) == 2
    values = samples(1, 2, 7, 7)
    exact, coarse = run(in_memory(proto), x=values), run(result.model, x=values)
    # Two roundings of activations by half a step of 0.05, and of weights by half of 1/127 of their maximum.
    assert np.abs(exact - coarse).max() < 0.2


def test_weight_in_a_constant_node_and_in_float_data() -> None:
    w = weight(2, 3, 3, 3)
    typed = onnx.helper.make_tensor(
        "w2", onnx.TensorProto.FLOAT, [2, 2, 1, 1], weight(2, 2, 1, 1).ravel().tolist()
    )
    proto = model(
        [
            node("Constant", [], ["w"], value=numpy_helper.from_array(w)),
            node("Conv", ["x", "w"], ["a"]),
            node("Conv", ["a", "w2"], ["y"]),
        ],
        {"x": [1, 3, 5, 5]},
        {"y": None},
        {"w2": weight(2, 2, 1, 1)},
    )
    proto.graph.initializer[0].CopyFrom(typed)
    result = quantized(proto, ["x", "a"])
    assert {pair.tensor for pair in result.pairs if pair.weight} == {"w", "w2"}
    assert all(item.op_type != "Constant" for item in result.model.proto.graph.node)
    run(result.model, x=samples(1, 3, 5, 5))


def test_nodes_without_a_usable_scale_stay_float_and_are_named() -> None:
    scales = {"x": 0.02, "p1": 0.0}
    result = quantize_model(in_memory(conv_relu_gemm()), scales)
    reasons = {left.node: left.reason for left in result.left_float}
    assert reasons == {
        "conv2": "the scale of its input 'p1' is zero",
        "fc": "no scale for its input 'f'",
    }
    run(result.model, x=samples(2, 3, 8, 8))


def test_weights_that_are_no_constants_stay_float() -> None:
    proto = model(
        [
            node("MatMul", ["x", "x"], ["square"]),
            node("MatMul", ["square", "w"], ["y"]),
        ],
        {"x": [4, 4]},
        {"y": None},
        {"w": weight(4, 3)},
    )
    result = quantized(proto, ["x", "square"])
    assert [left.reason for left in result.left_float] == ["it multiplies two activations"]


def test_keep_float_by_node_and_by_output_name() -> None:
    result = quantize_model(
        in_memory(conv_relu_gemm()), dict.fromkeys("xf", 0.02) | {"p1": 0.02}, ["^conv1$", "^y$"]
    )
    assert [pair.tensor for pair in result.activations] == ["p1"]
    assert {left.node: left.reason for left in result.left_float} == {
        "conv1": "kept by '^conv1$'",
        "fc": "kept by '^y$'",
    }


def test_keep_float_may_be_a_single_pattern() -> None:
    """Taken letter by letter, conv1 would keep every node whose name has a c, an o or a 1."""
    one, several = (
        quantize_model(in_memory(conv_relu_gemm()), dict.fromkeys(["x", "p1", "f"], 0.02), pattern)
        for pattern in ("conv1", ["conv1"])
    )
    assert [left.node for left in one.left_float] == ["conv1"]
    assert one.model.proto == several.model.proto


@pytest.mark.parametrize(
    ("pattern", "message"), [("nothing_here", "finds no node"), ("(", "is no regular expression")]
)
def test_keep_float_that_cannot_be_meant(pattern: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        quantize_model(in_memory(conv_relu_gemm()), {"x": 0.02}, [pattern])


def test_model_with_pairs_is_refused() -> None:
    with pytest.raises(ModelError, match=r"qdq_conv\.onnx already has \d+ QuantizeLinear"):
        quantize_model(load_model(MODELS / "qdq_conv.onnx"), {"x": 1.0})
    twice = quantized(conv_relu_gemm(), ["x"]).model
    # Q and DQ of x, and DQ alone of the INT8 weight.
    with pytest.raises(ModelError, match=r"already has 3 .* nodes, on 2 tensors, the first of them 'x'"):
        quantize_model(twice, {"x": 0.02})


def test_cache_of_another_model_is_refused() -> None:
    with pytest.raises(ModelError, match=r"no scale for its input 'x'\. Does the cache belong to this model"):
        quantized(conv_relu_gemm(), ["other"])


def test_opset_below_13_is_converted_and_computes_the_same() -> None:
    proto = model(
        [node("Conv", ["x", "w"], ["a"]), node("Clip", ["a"], ["y"], min=0.0, max=6.0)],
        {"x": [1, 3, 5, 5]},
        {"y": [1, 2, 3, 3]},
        {"w": weight(2, 3, 3, 3)},
        opset=9,
    )
    result = quantized(proto, ["x"], 0.03)
    assert result.model.opset == 13
    assert result.notes == ("opset raised from 9 to 13: Q/DQ per channel needs it",)
    values = samples(1, 3, 5, 5)
    np.testing.assert_allclose(run(result.model, x=values), run(in_memory(proto), x=values), atol=0.05)


def test_an_operator_that_the_converter_would_change_is_refused() -> None:
    """Hardmax of opset 11 is over all axes from its own on, later over that one alone."""
    proto = model(
        [node("Conv", ["x", "w"], ["c"]), node("Hardmax", ["c"], ["y"], name="pick")],
        {"x": [1, 3, 4, 4]},
        {"y": [1, 2, 4, 4]},
        {"w": weight(2, 3, 1, 1)},
        opset=11,
    )
    with pytest.raises(ModelError, match=r"has opset 11; .* 13, where Hardmax \(pick\) means something else"):
        quantized(proto, ["x"])
    proto.opset_import[0].version = 13
    assert [pair.tensor for pair in quantized(proto, ["x"]).activations] == ["x"]


def test_names_that_are_taken_get_a_number() -> None:
    proto = model(
        [node("Relu", ["x"], ["x_quantized"]), node("Conv", ["x", "w"], ["x_dequantized"])],
        {"x": [1, 3, 5, 5]},
        {"x_quantized": None, "x_dequantized": None},
        {"w": weight(2, 3, 3, 3)},
    )
    result = quantized(proto, ["x"])
    outputs = [name for item in result.model.proto.graph.node for name in item.output]
    assert len(outputs) == len(set(outputs))
    run(result.model, x=samples(1, 3, 5, 5))


def test_optional_empty_inputs_are_left_alone() -> None:
    proto = model(
        [
            node("Clip", ["x", "", "six"], ["c"]),
            node("Resize", ["c", "", "scales"], ["r"]),
            node("Conv", ["r", "w"], ["y"]),
        ],
        {"x": [1, 3, 4, 4]},
        {"y": None},
        {"six": np.float32(6), "scales": np.array([1, 1, 2, 2], np.float32), "w": weight(2, 3, 3, 3)},
    )
    result = quantized(proto, ["x", "c", "r"])
    by_op = {item.op_type: item for item in result.model.proto.graph.node}
    assert list(by_op["Clip"].input) == ["x", "", "six"]
    assert list(by_op["Resize"].input) == ["c", "", "scales"]
    run(result.model, x=samples(1, 3, 4, 4))


def test_public_function_writes_a_file_that_runs(tmp_path: Path) -> None:
    source = save(conv_relu_gemm(), tmp_path / "m.onnx")
    cache = CalibrationCache(dict.fromkeys(["x", "p1", "f"], 0.02)).write(tmp_path / "m.cache")
    result = quantize(source, cache, out=tmp_path / "m.int8.onnx")
    assert len(result.activations) == 3
    assert run(load_model(tmp_path / "m.int8.onnx"), x=samples(2, 3, 8, 8)).shape == (2, 5)
    with pytest.raises(UsageError, match="is the model itself"):
        quantize(source, cache, out=source)
    with pytest.raises(UsageError, match=r"m\.cache is the .*cache itself"):
        quantize(source, cache, out=cache)


def test_float16_form_keeps_the_interface() -> None:
    proto = conv_relu_gemm()
    half = to_float16(in_memory(proto))
    assert half.inputs == in_memory(proto).inputs
    assert half.outputs == in_memory(proto).outputs
    kinds = {tensor.data_type for tensor in half.proto.graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kinds
    values = samples(4, 3, 8, 8)
    np.testing.assert_allclose(run(half, x=values), run(in_memory(proto), x=values), atol=5e-3)


@pytest.mark.parametrize(("kind", "shape"), [("Conv", (4, 3, 3, 5)), ("ConvTranspose", (3, 4, 3, 5))])
def test_a_kernel_shape_left_to_the_weight_is_written_down(kind: str, shape: tuple[int, ...]) -> None:
    # TensorRT 8.6.0: "The input tensor shape misaligns with the input kernel shape" without the attribute.
    proto = model(
        [node(kind, ["x", "w"], ["y"], name="layer")],
        {"x": ["n", 3, 8, 8]},
        {"y": None},
        {"w": weight(*shape)},
    )
    before = run(in_memory(proto), x=samples(2, 3, 8, 8))
    made = quantized(proto, ["x"], 0.04)
    (layer,) = (item for item in made.model.proto.graph.node if item.op_type == kind)
    assert {a.name: list(a.ints) for a in layer.attribute}["kernel_shape"] == [3, 5]
    after = run(made.model, x=samples(2, 3, 8, 8))
    assert after.shape == before.shape
    assert np.abs(after - before).max() < 0.2


@pytest.mark.parametrize(("target", "parts"), [("tensorrt-8.6", 1), ("tensorrt-11", 0)])
def test_a_shape_of_a_part_is_split_for_the_parser_that_reads_whole_ones(target: str, parts: int) -> None:
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"], name="conv", kernel_shape=[1, 1]),
            node("Shape", ["c"], ["batch"], start=0, end=1),
            node("Concat", ["batch", "rest"], ["size"], axis=0),
            node("Reshape", ["c", "size"], ["y"]),
        ],
        {"x": ["n", 3, 4, 4]},
        {"y": None},
        {"w": weight(8, 3, 1, 1), "rest": np.array([-1], np.int64)},
    )
    made = quantize_model(in_memory(proto), {"x": 0.02}, target=target)
    kinds = [item.op_type for item in made.model.proto.graph.node]
    assert kinds.count("Slice") == parts
    assert any("Shape nodes" in note for note in made.notes) == bool(parts)
    assert run(made.model, x=samples(2, 3, 4, 4)).shape == (2, 128)


def test_a_node_that_becomes_two_gives_its_name_once() -> None:
    """The converter writes a Softmax of opset 12 as a Softmax and a Reshape."""
    proto = model(
        [node("Gemm", ["x", "w"], ["g"], name="fc"), node("Softmax", ["g"], ["y"], name="soft", axis=1)],
        {"x": ["n", 4]},
        {"y": ["n", 3]},
        {"w": weight(4, 3)},
        opset=11,
    )
    made = quantized(proto, ["x"], 0.04)
    names = [item.name for item in made.model.proto.graph.node if item.name]
    assert len(names) == len(set(names))
    assert "soft" in names
    assert np.allclose(run(made.model, x=samples(2, 4)), run(in_memory(proto), x=samples(2, 4)), atol=0.05)


def test_ir_version_3_lists_what_is_added_among_the_inputs() -> None:
    """It knows no other initializers, whatever the opset."""
    w = weight(8, 3, 1, 1)
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]),
            node("Shape", ["c"], ["batch"], end=1),
            node("Concat", ["batch", "rest"], ["size"], axis=0),
            node("Reshape", ["c", "size"], ["y"]),
        ],
        {"x": ["n", 3, 4, 4]},
        {"y": None},
        {"w": w, "rest": np.array([-1], np.int64)},
    )
    proto.ir_version = 3
    for tensor in proto.graph.initializer:
        proto.graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    made = quantized(proto, ["x"], 0.03).model
    onnx.checker.check_model(made.proto, full_check=True)
    assert [spec.name for spec in made.inputs] == ["x"]
    x = samples(2, 3, 4, 4)
    products = np.einsum("oi,nihw->nohw", rounded_weight(w, 0)[:, :, 0, 0], rounded(x, 0.03))
    np.testing.assert_allclose(run(made, x=x), products.reshape(2, -1), rtol=1e-4, atol=1e-5)
