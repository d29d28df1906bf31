from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import conv_relu_gemm, model, node, samples, save

from calib.errors import ModelError, UsageError
from calib.graph import (
    PARTS,
    OnnxModel,
    load_model,
    open_session,
    quantize_model,
    quantize_part,
    session_options,
)

WEIGHT = np.array([[1.0, -0.33], [0.017, 0.25], [-0.5, 0.126]], np.float32)
SCALE = 0.01  # INT8 holds −1.28 to 1.27
X = np.array([[0.5, 2.0, -3.0], [0.006, -0.014, 1.0], [0.015, 0.025, 1.27]], np.float32)


@pytest.fixture
def one_layer(tmp_path: Path) -> OnnxModel:
    """y = x · W."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["N", 3]}, {"y": ["N", 2]}, {"w": WEIGHT})
    return load_model(save(proto, tmp_path / "one.onnx"))


def run(network: OnnxModel, x: np.ndarray = X) -> np.ndarray:
    return np.asarray(open_session(network, session_options(float_qdq=True)).run(None, {"x": x})[0])


def int8_weight() -> np.ndarray:
    """Per output channel, scale amax / 127."""
    scales = np.abs(WEIGHT).max(axis=0) / np.float32(127)
    return np.round(WEIGHT / scales) * scales


EXPECTED = {
    "weights": lambda: X @ int8_weight(),
    "activations": lambda: np.clip(np.round(X / np.float32(SCALE)), -128, 127) * np.float32(SCALE) @ WEIGHT,
    "clipping": lambda: np.clip(X, -1.28, 1.27) @ WEIGHT,
    "rounding": lambda: np.round(X / np.float32(SCALE)) * np.float32(SCALE) @ WEIGHT,
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_by_arithmetic(one_layer: OnnxModel, part: str) -> None:
    found = run(quantize_part(one_layer, {"x": SCALE}, part))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, EXPECTED[part](), rtol=1e-5, atol=1e-6)


def test_clipping_and_rounding_differ_from_float(one_layer: OnnxModel) -> None:
    whole = X @ WEIGHT
    for part in PARTS:
        assert np.abs(EXPECTED[part]() - whole).max() > 1e-3


def test_parts_together_are_the_whole(tmp_path: Path) -> None:
    """Where nothing is clipped, activations alone are rounding alone, bit for bit."""
    network = load_model(save(conv_relu_gemm(), tmp_path / "net.onnx"))
    x = samples(6, 3, 8, 8)
    names = [value for one in network.proto.graph.node for value in one.output] + ["x"]
    wide = dict.fromkeys(names, 10.0 / 127)
    rounded = run(quantize_part(network, wide, "rounding"), x)
    np.testing.assert_array_equal(run(quantize_part(network, wide, "activations"), x), rounded)
    np.testing.assert_array_equal(run(quantize_part(network, wide, "clipping"), x), run(network, x))


def test_parts_stand_where_the_whole_has_its_pairs(tmp_path: Path) -> None:
    network = load_model(save(conv_relu_gemm(), tmp_path / "net.onnx"))
    names = [value for one in network.proto.graph.node for value in one.output] + ["x"]
    scales = dict.fromkeys(names, 0.05)
    pairs = quantize_model(network, scales, target="onnxruntime").activations

    def count(part: str, op: str) -> int:
        proto = quantize_part(network, scales, part).proto  # type: ignore[arg-type]
        onnx.checker.check_model(proto)
        return sum(one.op_type == op for one in proto.graph.node)

    assert count("clipping", "Clip") == count("rounding", "Round") == len(pairs)
    assert count("activations", "QuantizeLinear") == len(pairs)
    assert count("weights", "QuantizeLinear") == 0
    assert count("weights", "DequantizeLinear") == 3


def test_nodes_kept_in_float(one_layer: OnnxModel) -> None:
    with pytest.raises(ModelError, match=r"Nothing in .* can be quantized"):
        quantize_part(one_layer, {"x": SCALE}, "weights", ["^y$"])


def test_unknown_part(one_layer: OnnxModel) -> None:
    with pytest.raises(UsageError, match="Unknown part 'bias'"):
        quantize_part(one_layer, {"x": SCALE}, "bias")  # type: ignore[arg-type]
