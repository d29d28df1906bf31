"""Transposed convolutions, which TensorRT 8.6 fails on, or gets wrong, with an INT8 output."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from networks import model, node, samples, save, weight

import calib
from calib.data import from_arrays
from calib.errors import ModelError, UsageError
from calib.graph import OnnxModel, QuantizedModel, quantize_model
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
    # The convolution behind reads INT8 all the same.
    assert {pair.tensor for pair in result.activations} == {"x", "u"}
    (left,) = result.left_float
    assert (left.op, left.node) == ("ConvTranspose", "up")
    assert "INT8 output" in left.reason
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
    assert {pair.tensor for pair in result.activations} == {"x", "u"}


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
