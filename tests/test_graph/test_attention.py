from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import model, node, samples, save, weight

import calib
from calib.data import from_arrays
from calib.errors import ModelError, UsageError
from calib.graph import OnnxModel, QuantizedModel, open_session, quantize_model, session_options
from calib.graph.capabilities import layer_table


def transformer(*, stem: bool = False, softmax: bool = True) -> onnx.ModelProto:
    """Patches of 4 x 4, one attention head, a linear layer; with a stem, a convolution before the patches."""
    head = [node("Conv", ["x", "ws"], ["s"], name="stem", pads=[1, 1, 1, 1])] if stem else []
    channels = 8 if stem else 3
    scored = [node("Softmax", ["scores"], ["shares"])] if softmax else []
    return model(
        [
            *head,
            node("Conv", ["s" if stem else "x", "wp"], ["p"], name="patches", strides=[4, 4]),
            node("Reshape", ["p", "flat"], ["f"]),
            node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
            node("MatMul", ["t", "wq"], ["q"], name="query"),
            node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
            node("MatMul", ["q", "k"], ["scores"], name="scoring"),
            *scored,
            node("MatMul", ["shares" if softmax else "scores", "q"], ["mixed"], name="mixing"),
            node("ReduceMean", ["mixed"], ["m"], axes=[1], keepdims=0),
            node("Gemm", ["m", "wh"], ["y"], name="head"),
        ],
        {"x": ["n", 3, 16, 16]},
        {"y": None},
        {
            **({"ws": weight(8, 3, 3, 3)} if stem else {}),
            "wp": weight(16, channels, 4, 4),
            "wq": weight(16, 16, seed=1),
            "wh": weight(16, 5, seed=2),
            "flat": np.array([0, 16, -1], np.int64),
        },
    )


def quantized(proto: onnx.ModelProto, **options: str) -> QuantizedModel:
    scales = dict.fromkeys([name for item in proto.graph.node for name in (*item.input, *item.output)], 0.05)
    return quantize_model(OnnxModel(Path("m.onnx"), proto), scales, **options)  # type: ignore[arg-type]


def reasons(result: QuantizedModel) -> dict[str, str]:
    return {left.node: left.reason for left in result.left_float}


def test_the_multiplications_of_attention_stay_float_for_tensorrt_8_6() -> None:
    result = quantized(transformer(stem=True))
    assert {pair.tensor for pair in result.activations} == {"x", "s"}
    left = reasons(result)
    for name in ("query", "head"):
        assert "one FP16 kernel" in left[name]
        assert "--attention int8" in left[name]
    # Eight channels are enough for an INT8 convolution.
    assert "patches" not in left


@pytest.mark.parametrize(
    "options", [{"attention": "int8"}, {"target": "tensorrt-11"}, {"target": "onnxruntime"}]
)
def test_they_are_quantized_where_that_is_asked_for_or_no_loss(options: dict[str, str]) -> None:
    result = quantized(transformer(), **options)
    readers = {reader for pair in result.activations for reader in pair.readers}
    assert readers == {"patches", "query", "head"}


def test_float_is_had_for_any_target() -> None:
    result = quantized(transformer(stem=True), attention="float", target="tensorrt-11")
    assert {pair.tensor for pair in result.activations} == {"x", "s"}


def test_products_without_a_softmax_are_no_attention() -> None:
    readers = {r for pair in quantized(transformer(softmax=False)).activations for r in pair.readers}
    assert readers == {"patches", "query", "head"}


def test_a_transformer_alone_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(
        ModelError, match=r"Conv 'patches': a patch embedding of few channels .*--precision fp16"
    ):
        quantized(transformer())


def test_an_attention_that_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match=r"--attention must be one of auto, int8, float, got 'fp8'"):
        quantized(transformer(), attention="fp8")


def test_what_stays_float_computes_the_same(tmp_path: Path) -> None:
    proto = transformer(stem=True)
    save(proto, tmp_path / "m.onnx")
    x = samples(2, 3, 16, 16) * 0.5
    plain = open_session(OnnxModel(Path("m.onnx"), proto), session_options()).run(None, {"x": x})[0]
    found = open_session(quantized(proto).model, session_options(float_qdq=True)).run(None, {"x": x})[0]
    assert np.abs(found - plain).max() < 0.1 * np.abs(plain).max()


@pytest.mark.parametrize(("target", "told"), [("tensorrt-8.6", True), ("tensorrt-11", False), (None, True)])
def test_the_table_of_layers_says_so(target: str | None, told: bool) -> None:
    for proto, attention in ((transformer(stem=True), True), (transformer(softmax=False), False)):
        notes = layer_table(OnnxModel(Path("m.onnx"), proto), target).notes
        # The query and the head.
        expected = ["2 nodes of attention"] if told and attention else []
        assert [note[:20] for note in notes if "attention" in note] == expected


def test_validation_says_what_tensorrt_8_6_gets_instead(tmp_path: Path) -> None:
    for proto, told in ((transformer(stem=True), True), (transformer(softmax=False), False)):
        path = save(proto, tmp_path / "m.onnx")
        data = from_arrays("noise", {"x": samples(24, 3, 16, 16)})
        calib.calibrate(path, data, samples=8, out=tmp_path / "m.cache")
        results = calib.validate(path, data, cache=tmp_path / "m.cache", precisions=["int8"], latency_count=0)
        warnings = [text for text in results.warnings if "simulated as TensorRT 10 and 11" in text]
        assert len(warnings) == told
        assert not told or "leaves 2 nodes of attention" in warnings[0]
