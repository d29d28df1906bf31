"""Where pairs stand: rules on fusion, residual sums and shared scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import model, node, samples, scale_of_pair, weight
from onnx import TensorProto, numpy_helper

from calib.errors import ModelError, UsageError
from calib.graph import (
    TARGETS,
    OnnxModel,
    QuantizedModel,
    find_target,
    open_session,
    quantize_model,
    session_options,
)


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def quantized(
    proto: onnx.ModelProto, scales: Mapping[str, float] | Sequence[str], *, share: bool = False
) -> QuantizedModel:
    known = scales if isinstance(scales, Mapping) else dict.fromkeys(scales, 0.02)
    return quantize_model(in_memory(proto), known, share_scales=share, conv_transpose="int8")


def run(target: OnnxModel, optimize: bool = False, **feeds: np.ndarray) -> list[np.ndarray]:
    options = session_options(float_qdq=True, optimize=optimize)
    return [np.asarray(found) for found in open_session(target, options).run(None, feeds)]


def placed(result: QuantizedModel) -> dict[str, tuple[str, ...]]:
    return {pair.tensor: pair.readers for pair in result.activations}


BN = {name: np.full(4, value, np.float32) for name, value in zip("somv", (1.5, 0.1, 0.2, 0.8), strict=True)}
FOLLOWERS = {
    "BatchNormalization": ([node("BatchNormalization", ["a", "s", "o", "m", "v"], ["y"])], BN),
    "Relu": ([node("Relu", ["a"], ["y"])], {}),
    "Clip": ([node("Clip", ["a", "low", "high"], ["y"])], {"low": 0.0, "high": 6.0}),
    "LeakyRelu": ([node("LeakyRelu", ["a"], ["y"], alpha=0.1)], {}),
    "PRelu": ([node("PRelu", ["a", "slope"], ["y"])], {"slope": np.full((4, 1, 1), 0.25, np.float32)}),
    "SiLU": ([node("Sigmoid", ["a"], ["g"]), node("Mul", ["a", "g"], ["y"])], {}),
    "HardSwish": ([node("HardSwish", ["a"], ["y"])], {}),
    "HardSigmoid and Mul": ([node("HardSigmoid", ["a"], ["g"]), node("Mul", ["a", "g"], ["y"])], {}),
    "BatchNormalization and Relu": (
        [node("BatchNormalization", ["a", "s", "o", "m", "v"], ["b"]), node("Relu", ["b"], ["y"])],
        BN,
    ),
}


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("first", ["Conv", "ConvTranspose"])
def test_nothing_between_a_convolution_and_what_is_fused_into_it(first: str, follower: str) -> None:
    nodes, constants = FOLLOWERS[follower]
    proto = model(
        [node(first, ["x", "w"], ["a"]), *nodes, node("Conv", ["y", "w2"], ["z"])],
        {"x": [1, 4, 6, 6]},
        {"z": None},
        {"w": weight(4, 4, 3, 3), "w2": weight(2, 4, 1, 1), **constants},
    )
    result = quantized(proto, ["x", "a", "b", "g", "y", "z"])
    assert set(placed(result)) == {"x", "y"}
    floats = {group.op for group in result.explanation.float_groups}
    assert floats == {item.op_type for item in nodes}
    for optimize in (False, True):
        assert run(result.model, optimize, x=samples(1, 4, 6, 6))[0].shape[1] == 2


def residual(first: list[onnx.NodeProto], add: list[str], op: str = "Add") -> onnx.ModelProto:
    pads = [1, 1, 1, 1]
    nodes = [
        *first,
        node("Conv", ["x", "w1"], ["c1"], name="conv1", pads=pads),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=pads),
        node("BatchNormalization", ["c2", "s", "o", "m", "v"], ["b2"]),
        node(op, add, ["sum"], name="add"),
        node("Relu", ["sum"], ["y"]),
    ]
    weights = {"w1": weight(4, 4, 3, 3), "w2": weight(4, 4, 3, 3, seed=1), **BN}
    names = {name for item in nodes for name in item.input}
    weights |= {name: weight(4, 4, 1, 1, seed=2) for name in ("w3",) if name in names}
    return model(nodes, {"x": [1, 4, 6, 6]}, {"y": None}, weights)


PROJECTION = [node("Conv", ["x", "w3"], ["p"], name="projection")]


@pytest.mark.parametrize("op", ["Add", "Sum"])
@pytest.mark.parametrize(
    ("first", "add", "skip", "position"),
    [
        ([], ["b2", "x"], "x", 1),
        ([], ["x", "b2"], "x", 0),
        (PROJECTION, ["b2", "p"], "p", 1),
        (PROJECTION, ["p", "b2"], "p", 0),
    ],
)
def test_sum_fuses_into_the_deeper_convolution_through_batch_normalization(
    first: list[onnx.NodeProto], add: list[str], skip: str, position: int, op: str
) -> None:
    result = quantized(residual(first, add, op), ["x", "c1", "r1", "c2", "b2", "p", "sum", "y"])
    node_ = next(item for item in result.model.proto.graph.node if item.op_type == op)
    assert node_.input[position] == f"{skip}_dequantized"
    assert node_.input[1 - position] == "b2"
    assert "add" in placed(result)[skip]
    pair = next(found for found in result.activations if found.tensor == skip)
    assert f"skip input of a residual {op}" in pair.rule


def test_a_sum_of_three_is_no_residual_sum() -> None:
    proto = residual([], ["b2", "x", "c1"], "Sum")
    assert set(placed(quantized(proto, ["x", "c1", "r1", "c2", "b2", "sum"]))) == {"x", "r1"}


@pytest.mark.parametrize(
    ("channels", "skip"),
    [
        (227, "p"),  # 227 · 3 · 3 = 2043 products for each output of conv2, which fuses with the Add
        (228, "b2"),  # 228 · 3 · 3 = 2052, more than 2048: the Add fuses into the projection's 4
    ],
)
def test_sum_fuses_into_the_projection_where_the_main_convolution_sums_long(channels: int, skip: str) -> None:
    proto = residual(PROJECTION, ["b2", "p"])
    for tensor in proto.graph.initializer:
        if tensor.name == "w1":
            tensor.CopyFrom(numpy_helper.from_array(weight(channels, 4, 3, 3), "w1"))
        if tensor.name == "w2":
            tensor.CopyFrom(numpy_helper.from_array(weight(4, channels, 3, 3, seed=1), "w2"))
    result = quantized(proto, ["x", "c1", "r1", "c2", "b2", "p", "sum", "y"])
    assert "add" in placed(result)[skip]
    assert "add" not in placed(result).get("p" if skip == "b2" else "b2", ())


POOLED = {"w1": weight(4, 4, 3, 3), "w2": weight(5, 4, 1, 1, seed=1), "w3": weight(4, 5)}


def pooled(*behind: onnx.NodeProto, beside: Sequence[onnx.NodeProto] = ()) -> QuantizedModel:
    nodes = [
        node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["a"], name="pool"),
        *behind,
        *beside,
    ]
    outputs = {"y": None, **{item.output[0]: None for item in beside}}
    names = ["x", "c", "r", "a", "m", "s", "f"]
    return quantized(model(nodes, {"x": [1, 4, 6, 6]}, outputs, POOLED), names)


def test_average_pooling_between_pairs_gets_one() -> None:
    result = pooled(node("Identity", ["a"], ["m"]), node("Conv", ["m", "w2"], ["y"]))
    assert placed(result)["r"] == ("pool",)


@pytest.mark.parametrize("mover", ["Identity", "Dropout", "Flatten"])
def test_average_pooling_before_what_moves_values_gets_one(mover: str) -> None:
    if mover == "Flatten":
        result = pooled(node("Flatten", ["a"], ["m"]), node("Gemm", ["m", "w3"], ["y"]))
    else:
        result = pooled(node(mover, ["a"], ["m"]), node("Conv", ["m", "w2"], ["y"]))
    assert placed(result)["r"] == ("pool",)


def spatial_mean(axes: Sequence[int], keepdims: int, opset: int) -> QuantizedModel:
    given = {"axes": axes} if opset < 18 else {}
    nodes = [
        node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("ReduceMean", ["r"] if given else ["r", "axes"], ["a"], name="pool", keepdims=keepdims, **given),
        *([node("Flatten", ["a"], ["f"])] if keepdims else []),
        node("Gemm", ["f" if keepdims else "a", "w3"], ["y"]),
    ]
    constants = {"w1": weight(4, 4, 3, 3), "w3": weight(4, 5)}
    constants |= {} if given else {"axes": np.array(axes)}
    proto = model(nodes, {"x": [1, 4, 6, 6]}, {"y": None}, constants, opset=opset)
    scales = dict.fromkeys(("x", "c", "r", "a", "f"), 0.02)
    return quantize_model(in_memory(proto), scales, target="tensorrt-10")


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(2, 3), (-2, -1), (3, 2)])
def test_mean_over_height_and_width_is_an_average_pooling(
    axes: Sequence[int], keepdims: int, opset: int
) -> None:
    result = spatial_mean(axes, keepdims, opset)
    assert placed(result)["r"] == ("pool",)
    x = samples(1, 4, 6, 6)
    simple = pooled(node("Flatten", ["a"], ["f"]), node("Gemm", ["f", "w3"], ["y"]))
    # Both round r, and then what the Gemm reads, in the same way.
    np.testing.assert_allclose(run(result.model, x=x), run(simple.model, x=x), rtol=0, atol=1e-5)


def test_mean_over_other_axes_is_none() -> None:
    proto = model(
        [
            node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
            node("ReduceMean", ["c"], ["a"], axes=[1, 2], keepdims=0),
            node("MatMul", ["a", "w3"], ["y"]),
        ],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {"w1": weight(4, 4, 3, 3), "w3": weight(6, 5)},
    )
    assert set(placed(quantized(proto, ["x", "c", "a"]))) == {"x", "a"}


@pytest.mark.parametrize(
    ("behind", "beside"),
    [
        ([node("Softmax", ["a"], ["y"], axis=1)], []),
        ([node("Softmax", ["a"], ["m"], axis=1), node("Conv", ["m", "w2"], ["y"])], []),
        ([node("Conv", ["a", "w2"], ["y"])], [node("Sigmoid", ["r"], ["s"])]),
        ([node("Conv", ["a", "w2"], ["y"])], [node("Sigmoid", ["a"], ["s"])]),
    ],
    ids=["ends in float", "float between", "input is read in float", "output is read in float"],
)
def test_average_pooling_beside_float_stays_in_float(
    behind: list[onnx.NodeProto], beside: list[onnx.NodeProto]
) -> None:
    result = pooled(*behind, beside=beside)
    assert "r" not in placed(result)


BIASES = {
    "reshaped": [node("Reshape", ["bias", "shape"], ["b"]), node("Add", ["c", "b"], ["s"])],
    "reshaped, first": [node("Reshape", ["bias", "shape"], ["b"]), node("Add", ["b", "c"], ["s"])],
    "reshaped to the data": [
        node("Shape", ["x"], ["wide"], start=1, end=2),
        node("Concat", ["one", "wide", "one", "one"], ["to"], axis=0),
        node("Reshape", ["bias", "to"], ["b"]),
        node("Add", ["b", "c"], ["s"]),
    ],
    "unsqueezed": [node("Unsqueeze", ["bias", "axes"], ["b"]), node("Add", ["c", "b"], ["s"])],
    "one for all": [
        node("Constant", [], ["b"], value=numpy_helper.from_array(np.float32(0.5))),
        node("Add", ["c", "b"], ["s"]),
    ],
}


@pytest.mark.parametrize("name", BIASES)
def test_sum_with_a_constant_is_a_bias_and_no_residual_sum(name: str) -> None:
    """As PaddlePaddle writes the bias of a convolution. A cache may well have a scale for the constant."""
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"], name="conv"),
            *BIASES[name],
            node("Relu", ["s"], ["r"]),
            node("Conv", ["r", "w"], ["y"], name="last"),
        ],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {
            **{"w": weight(4, 4, 1, 1), "bias": weight(4), "shape": np.array([1, 4, 1, 1])},
            **{"axes": np.array([0, 2, 3]), "one": np.array([1])},
        },
    )
    for scales in (["x", "c", "s", "r", "y"], ["x", "c", "b", "bias", "s", "r", "y"]):
        result = quantized(proto, scales)
        assert placed(result) == {"x": ("conv",), "r": ("last",)}
        assert result.left_float == ()
        reasons = {group.op: group.reason for group in result.explanation.float_groups}
        assert reasons["Add"].startswith("adds a constant, as a bias does")


@pytest.mark.parametrize("name", BIASES)
def test_residual_sum_behind_a_bias_fuses_into_the_convolution(name: str) -> None:
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"], name="conv"),
            *BIASES[name],
            node("Dropout", ["s"], ["d"]),
            node("Add", ["d", "x"], ["y"], name="sum"),
        ],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {
            **{"w": weight(4, 4, 1, 1), "bias": weight(4), "shape": np.array([1, 4, 1, 1])},
            **{"axes": np.array([0, 2, 3]), "one": np.array([1])},
        },
    )
    assert placed(quantized(proto, ["x", "c", "s", "d", "y"])) == {"x": ("conv", "sum")}


def test_a_constant_map_is_no_bias() -> None:
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"], name="conv"),
            node("Add", ["c", "map"], ["s"]),
            node("Add", ["s", "x"], ["y"], name="sum"),
        ],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {"w": weight(4, 4, 1, 1), "map": weight(1, 4, 6, 6)},
    )
    assert placed(quantized(proto, ["x", "c", "s", "y"])) == {"x": ("conv",)}


def test_residual_sum_without_a_scale_is_named() -> None:
    result = quantized(residual(PROJECTION, ["b2", "p"]), ["x", "r1"])
    assert [(left.node, left.reason) for left in result.left_float] == [("add", "no scale for its input 'p'")]


@pytest.mark.parametrize("gate", [node("Relu", ["c"], ["m"]), node("Sigmoid", ["c"], ["m"])])
def test_sum_behind_an_activation_is_no_residual_sum(gate: onnx.NodeProto) -> None:
    proto = model(
        [node("Conv", ["x", "w"], ["c"]), gate, node("Add", ["m", "x"], ["y"])],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {"w": weight(4, 4, 1, 1)},
    )
    assert placed(quantized(proto, ["x", "c", "m", "y"])) == {"x": ("c",)}


def test_a_subgraph_that_reads_the_convolution_stops_the_fusion() -> None:
    inner = onnx.helper.make_graph(
        [node("Relu", ["c"], ["inside"])],
        "then",
        [],
        [onnx.helper.make_tensor_value_info("inside", onnx.TensorProto.FLOAT, None)],
    )
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("If", ["flag"], ["z"], then_branch=inner, else_branch=inner),
            node("Add", ["c", "x"], ["y"]),
        ],
        {"x": [1, 4, 6, 6], "flag": []},
        {"y": [1, 4, 6, 6], "z": [1, 4, 6, 6]},
        {"w": weight(4, 4, 1, 1)},
        types={"flag": onnx.TensorProto.BOOL},
    )
    assert placed(quantized(proto, ["x", "c", "y"])) == {"x": ("c",)}


def test_concat_has_one_pair_and_its_branches_its_scale() -> None:
    proto = model(
        [
            node("Relu", ["x"], ["a"]),
            node("Conv", ["a", "w1"], ["b"], name="on_a"),
            node("Concat", ["a", "b"], ["cat"], name="join", axis=1),
            node("Conv", ["cat", "w2"], ["y"], name="on_cat"),
            node("Conv", ["b", "w1"], ["z"], name="on_b"),
        ],
        {"x": [1, 4, 6, 6]},
        {"y": None, "z": None},
        {"w1": weight(4, 4, 1, 1), "w2": weight(2, 8, 3, 3)},
    )
    result = quantized(proto, {"a": 0.02, "b": 0.01, "cat": 0.03, "x": 1.0, "y": 1.0}, share=True)
    # The Concat reads what the convolutions read.
    assert placed(result) == {"a": ("on_a", "join"), "cat": ("on_cat",), "b": ("on_b", "join")}
    # max(0.02, 0.01, 0.03)
    assert {scale_of_pair(result.model.proto, name) for name in ("a", "b", "cat")} == {
        float(np.float32(0.03))
    }
    (group,) = result.explanation.shared
    assert group.tensors == ("a", "cat", "b")
    assert group.own == (0.02, 0.03, 0.01)
    assert {pair.tensor: pair.own_scale for pair in result.activations} == {"a": 0.02, "cat": None, "b": 0.01}
    own = quantize_model(in_memory(proto), {"a": 0.02, "b": 0.01, "cat": 0.03})
    assert scale_of_pair(own.model.proto, "b") == float(np.float32(0.01))
    assert own.explanation.shared == ()


SHAPE = np.array([1, 4, 36], np.int64)
MOVES = {
    "MaxPool": (node("MaxPool", ["x"], ["t"], kernel_shape=[2, 2]), {}, True),
    "Transpose": (node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]), {}, True),
    "Identity": (node("Identity", ["x"], ["t"]), {}, True),
    "Dropout": (node("Dropout", ["x", "ratio"], ["t", "mask"]), {"ratio": 0.5}, True),
    "Dropout in training": (
        node("Dropout", ["x", "ratio", "training"], ["t"]),
        {"ratio": 0.0, "training": np.array(True)},
        False,
    ),
    "DepthToSpace": (node("DepthToSpace", ["x"], ["t"], blocksize=2), {}, True),
    "SpaceToDepth": (node("SpaceToDepth", ["x"], ["t"], blocksize=2), {}, True),
    "Slice": (
        node("Slice", ["x", "from", "to"], ["t"]),
        {"from": np.zeros(4, np.int64), "to": np.array([1, 4, 5, 5])},
        True,
    ),
    "Split": (node("Split", ["x", "parts"], ["t", "u"], axis=2), {"parts": np.array([3, 3])}, True),
    "nearest": (node("Resize", ["x", "", "f"], ["t"]), {"f": [1, 1, 2, 2]}, True),
    "linear": (node("Resize", ["x", "", "f"], ["t"], mode="linear"), {"f": [1, 1, 2, 2]}, False),
    "AveragePool": (node("AveragePool", ["x"], ["t"], kernel_shape=[2, 2]), {}, False),
    "Relu": (node("Relu", ["x"], ["t"]), {}, False),
}


@pytest.mark.parametrize("name", MOVES)
def test_scales_are_shared_across_what_moves_values_and_nothing_else(name: str) -> None:
    mover, constants, shares = MOVES[name]
    channels = {"DepthToSpace": 1, "SpaceToDepth": 16}.get(name, 4)
    proto = model(
        [node("Conv", ["x", "w"], ["c"]), mover, node("Conv", ["t", "w2"], ["y"])],
        {"x": [1, 4, 6, 6]},
        {"c": None, "y": None},
        {"w": weight(4, 4, 1, 1), "w2": weight(4, channels, 1, 1), **constants},
    )
    result = quantized(proto, {"x": 0.02, "t": 0.01}, share=True)
    assert scale_of_pair(result.model.proto, "t") == float(np.float32(0.02 if shares else 0.01))
    assert scale_of_pair(result.model.proto, "x") == float(np.float32(0.02))


def test_reshape_flatten_squeeze_and_unsqueeze_share_too() -> None:
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("Unsqueeze", ["x", "zero"], ["u"]),
            node("Squeeze", ["u", "zero"], ["s"]),
            node("Reshape", ["s", "shape"], ["r"]),
            node("MatMul", ["r", "w2"], ["y"]),
            node("Flatten", ["r"], ["f"]),
            node("Gemm", ["f", "w3"], ["z"]),
        ],
        {"x": [1, 4, 6, 6]},
        {"c": None, "y": None, "z": None},
        {
            "w": weight(4, 4, 1, 1),
            "w2": weight(36, 3),
            "w3": weight(144, 3),
            "zero": np.zeros(1, np.int64),
            "shape": SHAPE,
        },
    )
    result = quantized(proto, {"x": 0.02, "r": 0.03, "f": 0.01}, share=True)
    assert {scale_of_pair(result.model.proto, name) for name in ("x", "r", "f")} == {float(np.float32(0.03))}


def boxes_and_scores(reader: bool) -> onnx.ModelProto:
    return model(
        [
            node("Conv", ["x", "w1"], ["boxes"]),
            node("Conv", ["x", "w1"], ["scores"]),
            node("Concat", ["boxes", "scores"], ["joined"], axis=1, name="join"),
            *([node("Conv", ["joined", "w2"], ["y"])] if reader else []),
        ],
        {"x": [1, 4, 6, 6]},
        {"y" if reader else "joined": None},
        {"w1": weight(4, 4, 1, 1), **({"w2": weight(4, 8, 1, 1)} if reader else {})},
    )


@pytest.mark.parametrize(("reader", "end"), [(True, "--keep-float"), (False, "stays in float here")])
def test_boxes_and_scores_under_one_scale_are_warned_about(reader: bool, end: str) -> None:
    scales = {"x": 0.01, "boxes": 640 / 127, "scores": 1 / 127, "joined": 640 / 127}
    result = quantized(boxes_and_scores(reader), scales)
    (warning,) = result.explanation.warnings
    assert warning in result.notes
    # 127 · 1 / 640 rounds to 0 steps.
    assert "Concat join puts scores (±1) and boxes (±640) under one scale, which leaves 0 steps" in warning
    assert end in warning
    near = dict(scales, scores=41 / 127)
    assert quantized(boxes_and_scores(reader), near).explanation.warnings == ()


def test_ranges_too_far_apart_keep_their_own_scales_and_are_named() -> None:
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("Slice", ["x", "from", "to"], ["t"]),
            node("Conv", ["t", "w"], ["y"]),
        ],
        {"x": [1, 4, 6, 6]},
        {"c": None, "y": None},
        {"w": weight(4, 4, 1, 1), "from": np.zeros(4, np.int64), "to": np.array([1, 4, 5, 5])},
    )
    result = quantized(proto, {"x": 1.0, "t": 0.05}, share=True)
    assert scale_of_pair(result.model.proto, "t") == float(np.float32(0.05))
    assert "keep their own, 20 times apart: x, t" in result.explanation.warnings[0]


def test_attention_softmax_normalization_and_gelu_stay_float_with_reasons() -> None:
    proto = model(
        [
            node("LayerNormalization", ["x", "s"], ["n"]),
            node("MatMul", ["n", "wq"], ["q"]),
            node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
            node("MatMul", ["q", "k"], ["scores"], name="attention"),
            node("Softmax", ["scores"], ["p"]),
            node("MatMul", ["p", "q"], ["mixed"], name="mix"),
            node("Div", ["mixed", "root"], ["d"]),
            node("Erf", ["d"], ["e"]),
            node("Mul", ["mixed", "e"], ["gelu"]),
            node("MatMul", ["gelu", "wq"], ["y"]),
        ],
        {"x": [1, 5, 8]},
        {"y": None},
        {"s": np.ones(8, np.float32), "wq": weight(8, 8), "root": 1.4142135},
    )
    scales = {name: 0.02 for item in proto.graph.node for name in item.output}
    result = quantize_model(in_memory(proto), scales, attention="int8")
    assert set(placed(result)) == {"n", "gelu"}
    assert {left.node for left in result.left_float} == {"attention", "mix"}
    reasons = {group.op: group.reason for group in result.explanation.float_groups}
    assert reasons["Softmax"] == "TensorRT has no INT8 softmax"
    assert reasons["LayerNormalization"] == "normalization is computed in float"
    assert reasons["Erf"] == "GELU and tanh lose too much in INT8"
    run(result.model, x=samples(1, 5, 8))


def test_grouped_transposed_convolution_shares_scales_between_groups() -> None:
    w = weight(8, 4, 2, 2)
    w[:4, 1] *= 10
    proto = model(
        [node("ConvTranspose", ["x", "w"], ["y"], group=2)], {"x": [1, 8, 5, 5]}, {"y": None}, {"w": w}
    )
    result = quantized(proto, ["x"])
    scales = next(
        numpy_helper.to_array(t) for t in result.model.proto.graph.initializer if t.name == "w_scale"
    )
    np.testing.assert_allclose(scales, np.abs(w).max(axis=(0, 2, 3)) / 127, rtol=1e-6)
    assert run(result.model, x=samples(1, 8, 5, 5))[0].shape == (1, 8, 6, 6)


def plain(opset: int) -> onnx.ModelProto:
    return model(
        [node("Conv", ["x", "w"], ["y"])],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {"w": weight(4, 4, 1, 1)},
        opset=opset,
    )


@pytest.mark.parametrize(
    ("target", "opset", "written"),
    [
        ("tensorrt-8.6", 11, 13),
        ("tensorrt-8.6", 17, 17),
        ("tensorrt-10", 20, 20),
        ("tensorrt-11", 23, 23),
        ("onnxruntime", 23, 23),
    ],
)
def test_target_decides_the_opset_and_zero_points_stay_explicit(
    target: str, opset: int, written: int
) -> None:
    result = quantize_model(in_memory(plain(opset)), {"x": 0.02}, target=target)
    assert (result.model.opset, result.target) == (written, target)
    constants = {t.name: numpy_helper.to_array(t) for t in result.model.proto.graph.initializer}
    kinds = ("QuantizeLinear", "DequantizeLinear")
    pairs = [item for item in result.model.proto.graph.node if item.op_type in kinds]
    assert len(pairs) == 3
    for pair in pairs:
        assert constants[pair.input[2]].dtype == np.int8
        assert not constants[pair.input[2]].any()
        assert constants[pair.input[1]].dtype == np.float32
    run(result.model, optimize=True, x=samples(1, 4, 6, 6))


@pytest.mark.parametrize(
    ("target", "opset", "most"), [("tensorrt-8.6", 26, 17), ("tensorrt-10", 23, 22), ("tensorrt-11", 26, 25)]
)
def test_opset_that_the_target_does_not_read_is_refused(target: str, opset: int, most: int) -> None:
    proto = plain(17)
    proto.opset_import[0].version = opset
    with pytest.raises(ModelError, match=rf"has opset {opset}; {target} reads up to {most}, .*={most}\)"):
        quantize_model(in_memory(proto), {"x": 0.02}, target=target)


@pytest.mark.parametrize("opset", [18, 20, 22, 25])
def test_a_higher_opset_is_lowered_for_tensorrt_8(opset: int) -> None:
    """PyTorch's exporter writes 18 or more."""
    proto = plain(17)
    proto.opset_import[0].version = opset
    proto.ir_version = 10
    result = quantize_model(in_memory(proto), {"x": 0.02})
    assert (result.model.opset, result.model.proto.ir_version) == (17, 8)
    assert result.notes == (
        f"opset lowered from {opset} to 17, the highest that tensorrt-8.6 reads",
        "IR version lowered from 10 to 8: opset 17 came with it",
    )
    x = samples(1, 4, 6, 6)
    plain_result = quantize_model(in_memory(plain(17)), {"x": 0.02})
    np.testing.assert_array_equal(run(result.model, x=x)[0], run(plain_result.model, x=x)[0])


def test_types_that_opset_17_does_not_know_are_refused() -> None:
    proto = plain(17)
    proto.opset_import[0].version = 22
    for info in (*proto.graph.input, *proto.graph.output):
        info.type.tensor_type.elem_type = TensorProto.BFLOAT16
    with pytest.raises(ModelError, match=r"opset 22 and cannot be written in opset 17: .*Conv.*bfloat16"):
        quantize_model(in_memory(proto), {"x": 0.02})


def test_opset_that_only_later_releases_read_is_noted() -> None:
    notes = quantize_model(in_memory(plain(22)), {"x": 0.02}, target="tensorrt-10").notes
    assert notes == ("opset 22: the first releases of tensorrt-10 read up to 20",)


@pytest.mark.parametrize(
    ("name", "meant"), [("tensorrt-8", "tensorrt-8.6"), ("TensorRT-10", "tensorrt-10"), ("ort", None)]
)
def test_unknown_target_is_refused_with_the_nearest(name: str, meant: str | None) -> None:
    hint = rf"Did you mean '{meant}'\?" if meant else f"{name}' is unknown"
    with pytest.raises(UsageError, match=hint):
        find_target(name)


def test_all_targets_need_weights_per_channel() -> None:
    # DequantizeLinear has an axis since opset 13.
    assert min(target.least_opset for target in TARGETS.values()) == 13


@pytest.mark.parametrize(("target", "in_float"), [("tensorrt-8.6", True), ("tensorrt-10", False)])
def test_weights_beside_a_matmul_stay_in_float_for_tensorrt_8(target: str, in_float: bool) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Flatten", ["c"], ["f"]),
        node("MatMul", ["f", "m"], ["y"]),
    ]
    weights = {"w": weight(4, 3, 3, 3), "m": weight(4, 6, seed=1)}
    proto = model(nodes, {"x": [1, 3, 3, 3]}, {"y": None}, weights)
    result = quantize_model(in_memory(proto), dict.fromkeys("xf", 0.02), target=target)
    kinds = {tensor.name: tensor.data_type for tensor in result.model.proto.graph.initializer}
    assert {name for name in kinds if name in weights} == ({"w", "m"} if in_float else set())
    # The same values in either form.
    x = samples(1, 3, 3, 3)
    other = quantize_model(in_memory(proto), dict.fromkeys("xf", 0.02), target="onnxruntime")
    np.testing.assert_array_equal(run(result.model, x=x)[0], run(other.model, x=x)[0])
