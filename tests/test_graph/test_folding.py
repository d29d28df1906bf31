"""Weights and constants that a graph computes from constants: INT8 and FP16 forms of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from half_networks import kept, run_half
from networks import model, node, samples, weight
from onnx import TensorProto, helper, numpy_helper

from calib.graph import (
    OnnxModel,
    convert_float16,
    layer_table,
    open_session,
    quantize_model,
    quantize_part,
    session_options,
)
from calib.graph.folding import computed_constants, computed_weights, fold_constants

W = weight(6, 6)


def one(value: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.full(1, value, np.float32))


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def run(target: OnnxModel, **feeds: np.ndarray) -> list[np.ndarray]:
    return list(open_session(target, session_options(float_qdq=True)).run(None, feeds))


def multiplying(*made_of: onnx.NodeProto, opset: int = 17, **constants: np.ndarray) -> onnx.ModelProto:
    """x [2,6] → · m → y, where nodes compute m from constants."""
    return model(
        [*made_of, node("MatMul", ["x", "m"], ["y"], name="mul")],
        {"x": [2, 6]},
        {"y": None},
        constants,
        opset=opset,
    )


FORMS = {
    "transposed": (multiplying(node("Transpose", ["w"], ["m"]), w=W), W.T),
    "float16": (
        multiplying(node("Cast", ["w"], ["m"], to=TensorProto.FLOAT), w=W.astype(np.float16)),
        W.astype(np.float16).astype(np.float32),
    ),
    "scaled": (multiplying(node("Mul", ["w", "k"], ["m"]), w=W, k=np.float32(0.5)), W / 2),
    "packed": (
        multiplying(
            node("Split", ["w", "parts"], ["a", "b"], axis=0),
            node("Transpose", ["b"], ["m"]),
            w=np.concatenate([weight(6, 6, seed=1), W]),
            parts=np.array([6, 6]),
        ),
        W.T,
    ),
    "in a sequence": (
        multiplying(
            node("Constant", [], ["six"], value_int=6),
            node("SplitToSequence", ["w", "six"], ["all"]),
            node("Constant", [], ["one"], value_int=1),
            node("SequenceAt", ["all", "one"], ["m"]),
            w=np.concatenate([weight(6, 6, seed=1), W]),
        ),
        W,
    ),
    "all alike": (
        multiplying(
            node("ConstantOfShape", ["s"], ["m"], value=one(0.25)),
            s=np.array([6, 6]),
        ),
        np.full((6, 6), 0.25, np.float32),
    ),
}


@pytest.mark.parametrize("target", ["tensorrt-8.6", "tensorrt-11"])
@pytest.mark.parametrize("form", FORMS)
class TestComputedWeights:
    def test_they_are_quantized_as_their_values_are(self, form: str, target: str) -> None:
        """As in a model that has them as constants from the start."""
        proto, values = FORMS[form]
        plain = quantize_model(in_memory(multiplying(m=values)), {"x": 0.02}, target=target)
        result = quantize_model(in_memory(proto), {"x": 0.02}, target=target)
        assert [(pair.tensor, pair.scale) for pair in result.pairs] == [
            (pair.tensor, pair.scale) for pair in plain.pairs
        ]
        assert result.left_float == ()
        assert "weights that nodes computed from constants are constants now: m" in result.notes
        x = samples(2, 6)
        np.testing.assert_array_equal(run(result.model, x=x)[0], run(plain.model, x=x)[0])

    def test_what_made_them_is_gone(self, form: str, target: str) -> None:
        graph = quantize_model(in_memory(FORMS[form][0]), {"x": 0.02}, target=target).model.proto.graph
        assert {item.op_type for item in graph.node} == {"QuantizeLinear", "DequantizeLinear", "MatMul"}
        read = {name for item in graph.node for name in item.input}
        assert {tensor.name for tensor in graph.initializer} <= read


def test_the_model_itself_is_not_changed() -> None:
    proto, _ = FORMS["packed"]
    before = proto.SerializeToString()
    quantize_model(in_memory(proto), {"x": 0.02})
    convert_float16(in_memory(proto))
    layer_table(in_memory(proto))
    assert proto.SerializeToString() == before


def test_parts_and_layer_table_see_the_same_weight() -> None:
    proto, values = FORMS["packed"]
    x = samples(2, 6)
    parts = [quantize_part(in_memory(p), {"x": 0.02}, "weights") for p in (proto, multiplying(m=values))]
    np.testing.assert_array_equal(run(parts[0], x=x)[0], run(parts[1], x=x)[0])
    rows = {row.op: row for row in layer_table(in_memory(proto)).rows}
    assert (rows["MatMul"].quantized, rows["Transpose"].count, rows["Split"].count) == (1, 1, 1)


def test_other_readers_of_the_chain_keep_it() -> None:
    """A packed weight of which another part is read in float, and whose transpose is an output."""
    proto = model(
        [
            node("Split", ["w"], ["a", "b"], axis=0),
            node("MatMul", ["x", "a"], ["y"]),
            node("Add", ["y", "b"], ["z"]),
            node("Transpose", ["w"], ["t"]),
        ],
        {"x": [2, 2]},
        {"z": None, "t": None},
        {"w": weight(4, 2)},
        opset=13,
    )
    result = quantize_model(in_memory(proto), {"x": 0.02})
    assert [pair.tensor for pair in result.pairs] == ["x", "a"]
    x = samples(2, 2)
    exact, ours = run(in_memory(proto), x=x), run(result.model, x=x)
    # Half a step of x (0.01) times |a|, and half a step of a times |x|: far below 0.1.
    np.testing.assert_allclose(ours[0], exact[0], atol=0.1)
    np.testing.assert_array_equal(ours[1], exact[1])


@pytest.mark.parametrize(
    ("made_of", "constants"),
    [
        (node("RandomNormal", [], ["m"], shape=[6, 6]), {}),
        (node("Expand", ["one", "large"], ["m"]), {"one": np.ones((6, 1)), "large": np.array([6, 100_000])}),
    ],
    ids=["random", "blown up"],
)
def test_what_is_not_folded(made_of: onnx.NodeProto, constants: dict[str, np.ndarray]) -> None:
    values = {
        name: value.astype(np.float32) if value.dtype == float else value for name, value in constants.items()
    }
    proto = multiplying(made_of, **values)
    assert computed_weights(proto.graph) == ["m"]
    assert fold_constants(proto, ["m"]) == []
    assert [item.op_type for item in proto.graph.node] == [made_of.op_type, "MatMul"]


def test_a_dead_node_without_one_of_its_outputs_goes() -> None:
    """An output that is left out has the name that an input that is left out has, and is not read by it."""
    proto = model(
        [
            node("MaxPool", ["w"], ["m", ""], kernel_shape=[2, 2]),
            node("Conv", ["x", "m"], ["c"]),
            node("Clip", ["c", "", "six"], ["y"]),
        ],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {"w": weight(4, 4, 2, 2), "six": np.float32(6.0)},
    )
    assert fold_constants(proto, computed_weights(proto.graph)) == ["m"]
    assert [item.op_type for item in proto.graph.node] == ["Conv", "Clip"]


def test_initializers_of_old_models_are_not_added_to_their_inputs() -> None:
    proto = multiplying(node("Transpose", ["w"], ["m"]), w=W, opset=8)
    proto.ir_version = 3
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [6, 6]))
    assert fold_constants(proto, computed_weights(proto.graph)) == ["m"]
    onnx.checker.check_model(proto)
    assert [item.name for item in proto.graph.input] == ["x"]


def test_pytorchs_packed_projection_is_quantized_whole() -> None:
    """The exporter splits and transposes the packed weight of a MultiheadAttention in the graph."""
    torch = pytest.importorskip("torch")
    from calib.graph import export

    class Cross(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, query: object, memory: object) -> object:
            return self.attention(query, memory, memory, need_weights=False)[0]

    torch.manual_seed(0)
    exported = export(Cross().eval(), inputs=["query:1x5x32", "memory:1x7x32"])
    assert computed_weights(exported.model.proto.graph)
    scales = {name: 0.02 for item in exported.model.proto.graph.node for name in item.output}
    result = quantize_model(exported.model, {"query": 0.02, "memory": 0.02, **scales}, attention="int8")
    # Projections of query, key and value (the last two in one product or in two), and of the result; what is
    # left multiplies queries with keys, and their Softmax with values.
    weights = sum(np.prod(pair_shape) for pair_shape in _weight_shapes(result.model))
    assert weights == 4 * 32 * 32
    assert {left.reason for left in result.left_float} == {"it multiplies two activations"}
    assert len(result.left_float) == 2


def _weight_shapes(target: OnnxModel) -> list[tuple[int, ...]]:
    graph = target.proto.graph
    zeros = {item.input[2] for item in graph.node if item.op_type == "QuantizeLinear"}
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    quantized = {item.input[0] for item in graph.node if item.op_type.endswith("eLinear")} & tensors.keys()
    return [tuple(tensors[name].dims) for name in quantized - zeros]


class TestFloat16:
    """Constants beyond float16's range, whatever computes them, keep what reads them in float32."""

    @pytest.mark.parametrize(
        ("made_of", "constants"),
        [
            (node("Transpose", ["w"], ["m"]), {"w": np.full((6, 6), 1e6)}),
            (node("Mul", ["w", "w"], ["m"]), {"w": np.full((6, 6), 1e3)}),
            (node("Constant", [], ["m"], value_floats=[1e6] * 6), {}),
            (
                node(
                    "ConstantOfShape",
                    ["s"],
                    ["m"],
                    value=one(1e6),
                ),
                {"s": np.array([6])},
            ),
        ],
        ids=["transposed", "squared", "plain attribute", "filled"],
    )
    def test_computed_constants(self, made_of: onnx.NodeProto, constants: dict[str, np.ndarray]) -> None:
        values = {name: v.astype(np.float32) if v.dtype == float else v for name, v in constants.items()}
        proto = model(
            [made_of, node("Add", ["x", "m"], ["s2"], name="sum"), node("Sub", ["s2", "m"], ["y"])],
            {"x": [6, 6]},
            {"y": None},
            values,
        )
        result = convert_float16(in_memory(proto), ranges={"x": 4.0, "y": 4.0})
        assert kept(result)["sum"] == "its constant 'm' reaches 1e+06, beyond float16's 65504"
        assert np.isfinite(run_half(result.model, x=samples(6, 6))[0]).all()

    def test_a_mask_filled_to_the_datas_shape(self) -> None:
        proto = model(
            [
                node("Shape", ["x"], ["shape"]),
                node("ConstantOfShape", ["shape"], ["low"], value=one(-1e9)),
                node("Where", ["keep", "x", "low"], ["masked"], name="mask"),
                node("Softmax", ["masked"], ["y"]),
            ],
            {"x": ["n", 6], "keep": ["n", 6]},
            {"y": ["n", 6]},
            types={"keep": TensorProto.BOOL},
        )
        result = convert_float16(in_memory(proto), ranges={"x": 4.0})
        assert kept(result)["mask"] == "its input 'low' reaches 1e+09; the limit here is 32752"
        nothing = np.zeros((1, 6), bool)
        # All masked: the row is uniform in float32, and would be NaN with minus infinity.
        got = run_half(result.model, x=samples(1, 6), keep=nothing)[0]
        np.testing.assert_allclose(got, np.full((1, 6), 1 / 6), rtol=1e-6)

    def test_a_constant_in_a_plain_attribute_becomes_float16(self) -> None:
        proto = model(
            [
                node("Constant", [], ["c"], value_float=0.5),
                node("MatMul", ["x", "w"], ["m"]),
                node("Mul", ["m", "c"], ["y"]),
            ],
            {"x": [2, 6]},
            {"y": None},
            {"w": np.eye(6, dtype=np.float32)},
        )
        result = convert_float16(in_memory(proto), ranges={"x": 4.0, "m": 4.0, "y": 2.0})
        assert result.kept == ()
        x = samples(2, 6)
        np.testing.assert_allclose(run_half(result.model, x=x)[0], x / 2, rtol=2**-10)

    def test_only_what_data_meets_is_looked_at(self) -> None:
        proto = FORMS["packed"][0]
        assert computed_constants(proto.graph) == ["m"]
