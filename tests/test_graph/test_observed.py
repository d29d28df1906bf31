from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from goldens import REAL
from networks import conv_relu_gemm, model, node, samples, weight
from onnx import TensorProto, helper

from calib.errors import ModelError
from calib.graph import ObservedSession, OnnxModel, load_model

MODELS = REAL / "models"


def observed(proto: onnx.ModelProto) -> ObservedSession:
    return ObservedSession(OnnxModel(Path("m.onnx"), proto))


def test_every_float_activation_in_network_order_and_pools_by_their_input() -> None:
    session = observed(conv_relu_gemm())
    assert session.source_of == {
        "x": "x", "c1": "c1", "r1": "r1", "p1": "r1", "c2": "c2", "r2": "r2", "g": "g", "f": "f", "y": "y",
    }  # fmt: skip
    tensors = session.run({"x": samples(2, 3, 8, 8)})
    assert list(tensors) == ["x", "c1", "r1", "c2", "r2", "g", "f", "y"]
    assert (tensors["r1"] == np.maximum(tensors["c1"], 0)).all()


def test_chained_pools_take_the_first_input() -> None:
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    proto = model(
        [node("MaxPool", ["x"], ["a"], **pool), node("AveragePool", ["a"], ["y"], **pool)],
        {"x": [1, 1, 8, 8]},
        {"y": [1, 1, 2, 2]},
    )
    assert observed(proto).source_of == {"x": "x", "a": "x", "y": "x"}


def test_integers_constants_and_weights_are_not_observed() -> None:
    proto = model(
        [
            node("Shape", ["x"], ["shape"]),
            node("Reshape", ["x", "shape"], ["again"]),
            node("Transpose", ["w"], ["wt"]),
            node("MatMul", ["again", "wt"], ["product"]),
            node("ArgMax", ["product"], ["best"], axis=1),
        ],
        {"x": ["n", 4]},
        {"product": ["n", 3], "best": ["n", 1]},
        {"w": weight(3, 4)},
        types={"best": TensorProto.INT64},
    )
    assert list(observed(proto).source_of) == ["x", "again", "product"]


def test_input_passed_through_as_output() -> None:
    proto = model(
        [node("Identity", ["x"], ["same"]), node("Conv", ["x", "w"], ["y"])],
        {"x": ["n", 2, 4, 4]},
        {"same": ["n", 2, 4, 4], "y": ["n", 3, 2, 2]},
        {"w": weight(3, 2, 3, 3)},
    )
    values = samples(2, 2, 4, 4)
    tensors = observed(proto).run({"x": values})
    assert list(tensors) == ["x", "same", "y"]
    assert (tensors["same"] == values).all()


def test_subgraphs_run_and_outer_tensors_are_observed() -> None:
    def branch(factor: float) -> onnx.GraphProto:
        constant = helper.make_tensor("k", TensorProto.FLOAT, [1], [factor])
        return helper.make_graph(
            [node("Constant", [], ["k"], value=constant), node("Mul", ["x", "k"], ["scaled"])],
            "branch",
            [],
            [helper.make_tensor_value_info("scaled", TensorProto.FLOAT, None)],
        )

    proto = model(
        [
            node("ReduceSum", ["x"], ["sum"], keepdims=0),
            node("Greater", ["sum", "zero"], ["positive"]),
            node("If", ["positive"], ["chosen"], then_branch=branch(2.0), else_branch=branch(3.0)),
            node("Relu", ["chosen"], ["y"]),
        ],
        {"x": ["n", 4]},
        {"y": ["n", 4]},
        {"zero": np.float32(0)},
    )
    session = observed(proto)
    assert list(session.source_of) == ["x", "sum", "chosen", "y"]
    assert session.run({"x": np.ones((1, 4), np.float32)})["chosen"].max() == 2.0


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("dim_param", ["Input:0", "Output:0"]),
        ("loop", ["while_cond_158_while_Less__13_0"]),
        ("multi_output", ["input", "identity_out_0", "split_out_0_2", "split_out_1_3", "identity_out_5"]),
    ],
)
def test_real_odd_models(name: str, tensors: list[str]) -> None:
    assert list(ObservedSession(load_model(MODELS / f"{name}.onnx")).source_of) == tensors


def test_model_of_integers_alone_is_refused() -> None:
    with pytest.raises(ModelError, match=r"nonzero\.onnx has no float activations"):
        ObservedSession(load_model(MODELS / "nonzero.onnx"))


def test_custom_operator_is_named() -> None:
    with pytest.raises(ModelError, match=r"ONNX Runtime cannot load .*custom_op_node\.onnx: .*FAKE|custom"):
        ObservedSession(load_model(MODELS / "custom_op_node.onnx"))


def test_float16_activations() -> None:
    session = ObservedSession(load_model(MODELS / "matmul.fp16.onnx"))
    assert len(session.source_of) >= 2
