"""A higher opset written as 17: the same values, or a refusal that names the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from networks import node, samples
from onnx import TensorProto, helper, numpy_helper

from calib.errors import ModelError
from calib.graph.lower_opset import lower_to_17
from calib.graph.tensor_types import infer_tensors

X = samples(2, 6, 5, 4, seed=4)
GRID = np.tanh(samples(2, 3, 3, 2))


def built(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], opset: int = 18, **constants: Any
) -> onnx.ModelProto:
    """A model that reads x [2, 6, 5, 4]."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(proto, strict_mode=True)


def run(proto: onnx.ModelProto) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": X}))


@pytest.mark.parametrize(
    "proto",
    [
        built([node("ReduceMean", ["x", "a"], ["y"], keepdims=0)], ["y"], a=np.int64([2, 3])),
        built([node("ReduceMean", ["x", "a"], ["y"], noop_with_empty_axes=0)], ["y"], a=np.int64([-1])),
        built([node("ReduceMax", ["x"], ["y"])], ["y"]),
        built([node("ReduceMax", ["x", "a"], ["y"], noop_with_empty_axes=1)], ["y"], a=np.int64([])),
        built([node("ReduceSum", ["x", "a"], ["y"])], ["y"], a=np.int64([1])),
        built([node("Split", ["x"], ["y", "z"], axis=1, num_outputs=2)], ["y", "z"]),
        # 5 in three parts: 2, 2 and 1.
        built([node("Split", ["x"], ["y", "z", "w"], axis=-2, num_outputs=3)], ["y", "z", "w"]),
        built(
            [node("Split", ["w"], ["a", "b"], num_outputs=2), node("Mul", ["x", "b"], ["y"])],
            ["y"],
            w=np.float32([[2.0], [3.0]]),
        ),
        built([node("Split", ["x", "s"], ["y", "z"], axis=1)], ["y", "z"], s=np.int64([1, 5])),
        built([node("Pad", ["x", "p"], ["y"], mode="reflect")], ["y"], p=np.int64([0, 0, 1, 1, 0, 0, 1, 1])),
        built([node("Mish", ["x"], ["y"], name="mish")], ["y"]),
        built(
            [node("Resize", ["x", "", "f"], ["y"], mode="linear", antialias=0)],
            ["y"],
            f=np.float32([1, 1, 2, 2]),
        ),
        built(
            [node("ScatterElements", ["x", "i", "u"], ["y"], reduction="add", axis=3)],
            ["y"],
            i=np.zeros((2, 6, 5, 1), np.int64),
            u=np.ones((2, 6, 5, 1), np.float32),
        ),
        built([node("Relu", ["x"], ["y"])], ["y"]),
        built([node("Gelu", ["x"], ["y"], name="gelu")], ["y"], 20),
        built([node("Gelu", ["x"], ["y"], approximate="tanh")], ["y"], 20),
        built([node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[1, 1])], ["y"], 22),
        built([node("GridSample", ["x", "g"], ["y"], mode="linear")], ["y"], 20, g=GRID),
        built([node("GridSample", ["x", "g"], ["y"], mode="cubic")], ["y"], 22, g=GRID),
        built([node("GridSample", ["x", "g"], ["y"], mode="nearest")], ["y"], 20, g=GRID),
        built([node("ReduceMax", ["x", "a"], ["y"])], ["y"], 20, a=np.int64([1])),
        built(
            [
                node("Cast", ["x"], ["i"], to=TensorProto.INT64, saturate=1),
                node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
            ],
            ["y"],
            22,
        ),
        built([node("Reshape", ["x", "s"], ["y"])], ["y"], 21, s=np.int64([2, -1])),
    ],
    ids=lambda proto: f"{proto.graph.node[0].op_type}-{proto.opset_import[0].version}",
)
def test_values_stay(proto: onnx.ModelProto) -> None:
    before = run(proto)
    lower_to_17(proto, "net")
    onnx.checker.check_model(proto, full_check=True)
    assert proto.opset_import[0].version == 17
    for now, then in zip(run(proto), before, strict=True):
        np.testing.assert_allclose(now, then, rtol=1e-6, atol=1e-7)


def test_axes_that_became_attributes_leave_no_weight_behind() -> None:
    proto = built(
        [node("ReduceMean", ["x", "a"], ["m"]), node("ReduceSum", ["m", "b"], ["y"])],
        ["y"],
        a=np.int64([2]),
        b=np.int64([1]),
    )
    lower_to_17(proto, "net")
    assert [tensor.name for tensor in proto.graph.initializer] == ["b"]


def test_axes_that_were_inputs_too_need_not_be_fed() -> None:
    """Exporters may list each initializer among the inputs, as a value that can be given otherwise."""
    proto = built([node("ReduceMean", ["x", "a"], ["y"], keepdims=0)], ["y"], a=np.int64([2, 3]))
    proto.graph.input.append(helper.make_tensor_value_info("a", TensorProto.INT64, [2]))
    lower_to_17(proto, "net")
    assert [info.name for info in proto.graph.input] == ["x"]
    np.testing.assert_allclose(run(proto)[0], X.mean((2, 3)), rtol=1e-5, atol=1e-6)


def test_nodes_in_subgraphs_are_lowered_too() -> None:
    then = helper.make_graph(
        [node("ReduceMean", ["x", "a"], ["t"], name="inner")],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [node("Identity", ["x"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )
    proto = built(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        ["y"],
        c=np.array(True),
        a=np.int64([3]),
    )
    (before,) = run(proto)
    lower_to_17(proto, "net")
    branches = {item.name: item.g for item in proto.graph.node[0].attribute}
    inner = branches["then_branch"]
    assert [item.name for item in inner.node[0].attribute] == ["axes"]
    np.testing.assert_allclose(run(proto)[0], before, rtol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "constants", "message", "opset"),
    [
        (
            [node("Resize", ["x", "", "f"], ["y"], mode="linear", antialias=1, name="shrink")],
            {"f": np.float32([1, 1, 0.5, 0.5])},
            r"net: node 'shrink' \(Resize\) cannot be written in opset 17.*it is antialiased.*newer --target",
            18,
        ),
        (
            [node("Pad", ["x", "p", "", "a"], ["y"], name="pad")],
            {"p": np.int64([1, 1]), "a": np.int64([2])},
            r"node 'pad' \(Pad\).*it names the axes that it pads",
            18,
        ),
        (
            [node("Col2Im", ["x", "s", "b"], ["y"])],
            {"s": np.int64([3, 3]), "b": np.int64([1, 1])},
            r"node 'y' \(Col2Im\).*newer than opset 17",
            18,
        ),
        (
            [node("Shape", ["x"], ["s"], start=2, end=3), node("ReduceMean", ["x", "s"], ["y"], name="mean")],
            {},
            r"node 'mean' \(ReduceMean\).*its axes are computed",
            18,
        ),
        (
            [node("ReduceL2", ["x", "a"], ["y"], noop_with_empty_axes=1, name="norm")],
            {"a": np.int64([])},
            r"node 'norm' \(ReduceL2\).*it reduces no axes",
            18,
        ),
        (
            [node("ScatterElements", ["x", "i", "u"], ["y"], reduction="max", name="put")],
            {"i": np.zeros((1, 1, 1, 1), np.int64), "u": np.ones((1, 1, 1, 1), np.float32)},
            r"node 'put' \(ScatterElements\).*its reduction is 'max'",
            18,
        ),
        (
            [node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 2], name="pool")],
            {},
            r"node 'pool' \(AveragePool\).*its attribute 'dilations' is newer",
            19,
        ),
        (
            [node("Resize", ["x", "", "f"], ["y"], coordinate_transformation_mode="half_pixel_symmetric")],
            {"f": np.float32([1, 1, 2, 2])},
            r"node 'y' \(Resize\).*its coordinates are 'half_pixel_symmetric'",
            19,
        ),
        (
            [node("Reshape", ["x", "s"], ["v"]), node("DFT", ["v", "", "a"], ["y"])],
            {"s": np.int64([2, 6, 10, 2]), "a": np.int64(1)},
            r"node 'y' \(DFT\).*was changed after opset 17",
            20,
        ),
        (
            [node("GroupNormalization", ["x", "s", "s"], ["y"], num_groups=2)],
            {"s": np.ones(6, np.float32)},
            r"node 'y' \(GroupNormalization\).*newer than opset 17",
            21,
        ),
    ],
)
def test_what_has_no_form_in_opset_17_is_named(
    nodes: list[onnx.NodeProto], constants: dict[str, Any], message: str, opset: int
) -> None:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with pytest.raises(ModelError, match=message):
        lower_to_17(proto, "net")


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_constants_have_the_type_of_what_they_are_computed_with(approximate: str) -> None:
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        node("Gelu", ["h"], ["g"], approximate=approximate),
        node("Cast", ["g"], ["y"], to=TensorProto.FLOAT),
    ]
    proto = built(nodes, ["y"], 20)
    before = run(proto)
    lower_to_17(proto, "net", types=infer_tensors(proto)[0])
    onnx.checker.check_model(proto, full_check=True)
    # float16 has 11 bits, and a handful of steps round.
    np.testing.assert_allclose(run(proto)[0], before[0], rtol=2**-8, atol=2**-8)


def test_names_of_what_is_added_are_free() -> None:
    nodes = [
        node("Abs", ["x"], ["y_split"]),
        node("Split", ["y_split"], ["y", "z"], axis=1, num_outputs=2),
        node("Neg", ["x"], ["g_erf_1"]),
        node("Gelu", ["g_erf_1"], ["g"]),
    ]
    proto = built(nodes, ["y", "z", "g"], 20)
    before = run(proto)
    lower_to_17(proto, "net")
    onnx.checker.check_model(proto, full_check=True)
    for now, then in zip(run(proto), before, strict=True):
        np.testing.assert_allclose(now, then, rtol=1e-6, atol=1e-7)


def test_functions_have_an_opset_of_their_own() -> None:
    proto = built([node("Relu", ["x"], ["y"])], ["y"])
    body = [node("Relu", ["a"], ["b"])]
    proto.functions.append(
        helper.make_function("own", "Block", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    )
    with pytest.raises(ModelError, match=r"net defines functions \(Block\).*inline_local_functions"):
        lower_to_17(proto, "net")
