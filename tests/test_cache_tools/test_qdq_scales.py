from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from goldens import REAL
from networks import conv_relu_gemm, model, node, samples, save
from onnx import TensorProto, helper, numpy_helper

from calib.calibrators import CalibrationCache
from calib.errors import ModelError
from calib.graph import OnnxModel, load_model, quantize_model
from calib.graph.qdq_scales import read_qdq_scales

FLOATS = ["x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y"]


def of(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.int8.onnx"), proto)


def test_scales_of_calibs_own_model_come_back_bit_for_bit() -> None:
    cache = CalibrationCache({name: 0.0101 * (i + 1) for i, name in enumerate(FLOATS)})
    quantized = quantize_model(OnnxModel(Path("m.onnx"), conv_relu_gemm()), cache)
    found = read_qdq_scales(quantized.model)
    assert dict(found.scales) == {pair.tensor: cache[pair.tensor] for pair in quantized.activations}
    assert found.weights == len(quantized.pairs) - len(quantized.activations) == 3


def quantized_by_runtime(tmp_path: Path, **options: Any) -> OnnxModel:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches = iter([{"x": samples(4, 3, 8, 8)}])

        def get_next(self) -> Any:
            return next(self._batches, None)

    path = save(conv_relu_gemm(), tmp_path / "m.onnx")
    extra = {"ActivationSymmetric": True, "WeightSymmetric": True, **options.pop("extra", {})}
    chosen = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8, "per_channel": True}
    quantize_static(
        str(path),
        str(tmp_path / "q.onnx"),
        Reader(),
        quant_format=QuantFormat.QDQ,
        extra_options=extra,
        **{**chosen, **options},
    )
    return load_model(tmp_path / "q.onnx")


def test_scales_of_onnx_runtimes_model(tmp_path: Path) -> None:
    quantized = quantized_by_runtime(tmp_path)
    found = read_qdq_scales(quantized)
    known = {t.name: numpy_helper.to_array(t) for t in quantized.proto.graph.initializer}
    written = {
        quantizer.input[0]: float(known[quantizer.input[1]])
        for quantizer in quantized.proto.graph.node
        if quantizer.op_type == "QuantizeLinear" and quantizer.input[0] not in known
    }
    assert sorted(found.scales.values()) == sorted(written.values())
    assert {name: found.scales[name] for name in written if name in FLOATS}.items() <= written.items()
    # ONNX Runtime renames the tensor before an output's pair; the cache wants the output's own name.
    assert {"x", "r1", "y"} <= set(found.scales) <= set(FLOATS)
    assert found.weights >= 3


def test_asymmetric_models_are_refused_by_tensor(tmp_path: Path) -> None:
    skewed = quantized_by_runtime(tmp_path, extra={"ActivationSymmetric": False})
    with pytest.raises(ModelError, match=r"q\.onnx: tensor '\w+' has the zero point .* not symmetric.*QInt8"):
        read_qdq_scales(skewed)


_ZERO = np.int8(0)


def pair(
    scale: Any = 0.5,
    zero_point: Any = _ZERO,
    weights: dict[str, Any] | None = None,
    extra: list[onnx.NodeProto] | None = None,
) -> OnnxModel:
    constants = {"s": np.asarray(scale, np.float32), **(weights or {})}
    inputs = ["x", "s"]
    if zero_point is not None:
        constants["z"] = np.asarray(zero_point)
        inputs.append("z")
    proto = model(
        [
            node("QuantizeLinear", inputs, ["q"]),
            node("DequantizeLinear", ["q", *inputs[1:]], ["d"]),
            node("Relu", ["d"], ["y"]),
            *(extra or []),
        ],
        {"x": [1, 2]},
        {"y": [1, 2]},
        constants,
    )
    return of(proto)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zero_point": np.uint8(0)}, "tensor 'x' is quantized to uint8, not int8"),
        ({"zero_point": np.uint8(128)}, "tensor 'x' has the zero point 128: its range is not symmetric"),
        ({"zero_point": np.int8(-3)}, "tensor 'x' has the zero point -3"),
        ({"zero_point": None}, "tensor 'x' is quantized to uint8"),
        ({"scale": [0.5, 0.25], "zero_point": np.zeros(2, np.int8)}, "tensor 'x' is quantized per channel"),
        ({"scale": 0.0}, r"tensor 'x' has the scale 0\.0; it must be finite and > 0"),
        ({"scale": float("inf")}, "tensor 'x' has the scale inf"),
    ],
)
def test_what_no_cache_can_hold_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_qdq_scales(pair(**options))


def test_plain_pair_is_taken() -> None:
    assert dict(read_qdq_scales(pair()).scales) == {"x": 0.5}


def test_two_scales_for_one_tensor_are_refused_and_one_twice_is_fine() -> None:
    def again(scale: float) -> OnnxModel:
        extra = [
            node("QuantizeLinear", ["x", "t", "z"], ["q2"]),
            node("DequantizeLinear", ["q2", "t"], ["d2"]),
        ]
        return pair(weights={"t": scale}, extra=extra)

    assert dict(read_qdq_scales(again(0.5)).scales) == {"x": 0.5}
    with pytest.raises(ModelError, match=r"tensor 'x' is quantized twice, with scales 0\.5 and 0\.25"):
        read_qdq_scales(again(0.25))


def test_computed_scales_are_refused() -> None:
    proto = pair().proto
    proto.graph.node.insert(0, node("ReduceMax", ["x"], ["computed"], keepdims=0))
    proto.graph.node[1].input[1] = "computed"
    with pytest.raises(ModelError, match="tensor 'x': its scale 'computed' is computed, not constant"):
        read_qdq_scales(of(proto))


def test_output_type_of_newer_operator_sets() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=TensorProto.INT8),
            helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.float32(0.5), "s")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert dict(read_qdq_scales(of(proto)).scales) == {"x": 0.5}


@pytest.mark.parametrize("name", ["dim_param.onnx", "qdq_conv.onnx"])
def test_models_without_quantized_activations_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="has no QuantizeLinear on an activation"):
        read_qdq_scales(load_model(REAL / "models" / name))
