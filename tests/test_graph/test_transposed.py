"""Transposed convolutions, which TensorRT 8.6 builds at level 0 alone with an INT8 output."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from networks import model, node, samples, save, weight

import calib
from calib.data import from_arrays
from calib.errors import ModelError, UsageError
from calib.graph import OnnxModel, QuantizedModel, count_transposed, quantize_model
from calib.graph.capabilities import layer_table


def decoder(*, alone: bool = False) -> onnx.ModelProto:
    """A convolution, a transposed one, and a convolution behind it; or the transposed one alone."""
    up = node(
        "ConvTranspose", ["x" if alone else "a", "wu"], ["y" if alone else "u"], name="up", strides=[2, 2]
    )
    around = (
        [] if alone else [node("Conv", ["x", "wa"], ["a"], name="before"), node("Conv", ["u", "wy"], ["y"])]
    )
    nodes = [*around[:1], up, *around[1:]]
    constants = {"wa": weight(8, 8, 1, 1), "wu": weight(8, 8, 2, 2, seed=1), "wy": weight(4, 8, 1, 1, seed=2)}
    return model(nodes, {"x": ["n", 8, 6, 6]}, {"y": None}, {"wu": constants["wu"]} if alone else constants)


def quantized(proto: onnx.ModelProto, **options: str) -> QuantizedModel:
    return quantize_model(OnnxModel(Path("m.onnx"), proto), dict.fromkeys("xauy", 0.05), **options)  # type: ignore[arg-type]


def test_they_stay_float_for_tensorrt_8_6_with_the_reason_and_the_way_out() -> None:
    result = quantized(decoder())
    # The convolution behind reads INT8 all the same, and that before writes INT8.
    assert {pair.tensor: pair.readers for pair in result.activations} == {
        "x": ("before",),
        "a": ("up",),
        "u": ("y",),
    }
    rules = {pair.tensor: pair.rule for pair in result.activations}
    assert rules["a"] == "input of ConvTranspose in float, of what INT8 layers make"
    (left,) = result.left_float
    assert (left.op, left.node) == ("ConvTranspose", "up")
    assert "builds no engine where a transposed convolution has an INT8 output" in left.reason
    assert "--conv-transpose int8" in left.reason
    weights = {tensor.name for tensor in result.model.proto.graph.initializer}
    assert "wu" in weights
    assert "wa" not in weights


@pytest.mark.parametrize(
    "options", [{"conv_transpose": "int8"}, {"target": "tensorrt-10"}, {"target": "onnxruntime"}]
)
def test_they_are_quantized_where_that_is_asked_for_or_right(options: dict[str, str]) -> None:
    result = quantized(decoder(), **options)
    assert {pair.tensor for pair in result.activations} == {"x", "a", "u"}
    assert result.left_float == ()


def test_float_is_had_for_any_target() -> None:
    result = quantized(decoder(), target="tensorrt-11", conv_transpose="float")
    assert {pair.tensor for pair in result.activations} == {"x", "a", "u"}
    assert [left.node for left in result.left_float] == ["up"]


def reading(*around: onnx.NodeProto, outputs: tuple[str, ...] = ("y",), **scales: float) -> set[str]:
    """The tensors with a pair of a network whose transposed convolution reads ``a``."""
    up = node("ConvTranspose", ["a", "wu"], ["u"], name="up", strides=[2, 2])
    nodes = [*around, up, node("Conv", ["u", "wy"], ["y"], name="last")]
    constants = {
        "wa": weight(8, 8, 1, 1),
        "wb": weight(8, 8, 1, 1, seed=3),
        "wu": weight(8, 8, 2, 2, seed=1),
        "wy": weight(4, 8, 1, 1, seed=2),
    }
    proto = model(nodes, {"x": ["n", 8, 6, 6]}, dict.fromkeys(outputs), constants)
    names = {name for found in nodes for name in found.output} | {"x"}
    return {
        pair.tensor
        for pair in quantize_model(
            OnnxModel(Path("m.onnx"), proto), {**dict.fromkeys(names, 0.05), **scales}
        ).activations
    } - {"u"}


CONV = node("Conv", ["x", "wa"], ["c"], name="before")


def test_what_int8_layers_make_is_rounded_for_them() -> None:
    assert reading(CONV, node("Relu", ["c"], ["a"])) == {"x", "a"}
    gate = [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["a"])]
    assert reading(CONV, *gate) == {"x", "a"}
    pool = node("MaxPool", ["c"], ["a"], kernel_shape=[2, 2], strides=[2, 2])
    assert reading(CONV, pool) == {"x", "a"}
    # Of a residual Add the skip input has a pair, and the Add is part of the convolution.
    skip = [node("Add", ["c", "x"], ["a"], name="add")]
    assert reading(CONV, *skip) == {"x", "a"}
    # Another quantized reader.
    beside = node("Conv", ["a", "wb"], ["z"], name="beside")
    assert reading(CONV, node("Relu", ["c"], ["a"]), beside, outputs=("y", "z")) == {"x", "a"}


def test_a_tensor_that_branches_read_too_has_one_pair_for_all() -> None:
    """As in U-Net++: a MaxPool, a Concat and a transposed convolution read it."""
    pool = node("MaxPool", ["a"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2])
    behind = node("Conv", ["p", "wb"], ["z"], name="behind")
    assert reading(CONV, node("Relu", ["c"], ["a"]), pool, behind, outputs=("y", "z")) == {"x", "a", "p"}
    # Not where one of them comes to float: nothing reads it through a pair then.
    tanh = node("Tanh", ["p"], ["z"])
    assert reading(CONV, node("Relu", ["c"], ["a"]), pool, tanh, outputs=("y", "z")) == {"x"}


def test_what_is_float_stays_float_for_them() -> None:
    # Nothing with a weight makes it.
    assert reading(node("Relu", ["x"], ["a"])) == set()
    # Made by what has no INT8 form, or read by what is float.
    assert reading(CONV, node("Softmax", ["c"], ["a"])) == {"x"}
    relu = node("Relu", ["c"], ["a"])
    assert reading(CONV, relu, outputs=("y", "a")) == {"x"}
    assert reading(CONV, relu, node("Tanh", ["a"], ["z"]), outputs=("y", "z")) == {"x"}
    # A scale that cannot be used.
    assert reading(CONV, relu, a=0.0) == {"x"}


def test_the_inputs_of_one_that_the_user_keeps_float_are_left_alone() -> None:
    result = quantize_model(OnnxModel(Path("m.onnx"), decoder()), dict.fromkeys("xauy", 0.05), ["^up$"])
    assert {pair.tensor for pair in result.activations} == {"x", "u"}
    assert [left.reason for left in result.left_float] == ["kept by '^up$'"]


def test_a_custom_operator_of_that_name_is_none() -> None:
    proto = decoder()
    up = next(n for n in proto.graph.node if n.name == "up")
    up.domain = "custom"
    proto.opset_import.append(onnx.helper.make_opsetid("custom", 1))
    result = quantized(proto)
    assert {pair.tensor for pair in result.activations} == {"x", "u"}
    assert result.left_float == ()
    assert count_transposed(OnnxModel(Path("m.onnx"), proto)) == 0


def test_one_alone_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ModelError, match=r"ConvTranspose 'up': .*--precision fp16.*another --target"):
        quantized(decoder(alone=True))


def test_a_word_that_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match=r"--conv-transpose must be one of auto, int8, float, got 'fp16'"):
        quantized(decoder(), conv_transpose="fp16")


@pytest.mark.parametrize(("target", "told"), [("tensorrt-8.6", 1), ("tensorrt-10", 0), (None, 1)])
def test_the_table_of_layers_says_so(target: str | None, told: int) -> None:
    notes = layer_table(OnnxModel(Path("m.onnx"), decoder()), target).notes
    assert [note[:27] for note in notes if "transposed" in note] == ["1 transposed convolution st"] * told


def test_validation_says_what_tensorrt_8_6_gets_instead(tmp_path: Path) -> None:
    path = save(decoder(), tmp_path / "m.onnx")
    data = from_arrays("noise", {"x": samples(24, 8, 6, 6)})
    calib.calibrate(path, data, samples=8, out=tmp_path / "m.cache")
    results = calib.validate(path, data, cache=tmp_path / "m.cache", precisions=["int8"], latency_count=0)
    (warning,) = (text for text in results.warnings if "simulated as TensorRT 10 and 11" in text)
    assert "leaves 1 transposed convolution in float" in warning
