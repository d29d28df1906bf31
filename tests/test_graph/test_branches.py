"""Tensors that several quantized branches read get one pair, and are written in INT8 once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import model, node, samples, scale_of_pair, weight
from rtx_kernels import Kernel, kernels

from calib.graph import OnnxModel, QuantizedModel, open_session, placement, quantize_model, session_options

POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
WEIGHTS = {
    "w1": weight(8, 3, 3, 3),
    "w2": weight(8, 8, 1, 1, seed=1),
    "w3": weight(4, 16, 1, 1, seed=2),
}
SCALES = {"x": 0.04, "c": 0.03, "t": 0.02, "p": 0.015, "d": 0.02, "u": 0.02, "cat": 0.025}


def unet(
    *beside: onnx.NodeProto,
    outputs: tuple[str, ...] = ("y",),
    channels: int = 8,
    axis: int = 1,
    entry: int = 3,
) -> onnx.ModelProto:
    """t goes through a pooling to a convolution, and through a Concat to another."""
    nodes = [
        node("Conv", ["x", "w1"], ["c"], name="first", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["t"]),
        node("MaxPool", ["t"], ["p"], name="pool", **POOL),
        node("Conv", ["p", "w2"], ["d"], name="deep"),
        node("Resize", ["d", "", "double"], ["u"], name="up"),
        node("Concat", ["u", "t"], ["cat"], name="join", axis=axis),
        node("Conv", ["cat", "w3"], ["y"], name="last"),
        *beside,
    ]
    weights = {
        "w1": weight(channels, entry, 3, 3),
        "w2": weight(channels, channels, 1, 1, seed=1),
        "w3": weight(4, 2 * channels if axis in (1, -3) else channels, 1, 1, seed=2),
    }
    constants = {**weights, "double": np.array([1, 1, 2, 2], np.float32)}
    return model(nodes, {"x": ["n", entry, 8, 8]}, dict.fromkeys(outputs), constants)


def quantized(
    proto: onnx.ModelProto, scales: Mapping[str, float] = SCALES, keep_float: tuple[str, ...] = ()
) -> QuantizedModel:
    return quantize_model(OnnxModel(Path("m.onnx"), proto), scales, keep_float)


def placed(result: QuantizedModel) -> dict[str, tuple[str, ...]]:
    return {pair.tensor: pair.readers for pair in result.activations}


def test_a_pooling_and_a_concat_read_one_pair() -> None:
    result = quantized(unet())
    assert placed(result) == {
        "x": ("first",),
        "p": ("deep",),
        "cat": ("last",),
        "t": ("pool", "join"),
    }
    rules = {pair.tensor: pair.rule for pair in result.activations}
    assert rules["t"] == "branch through MaxPool, branch through Concat"
    # What the pooling hands on has the scale of t; the Concat, which joins t with others, keeps its own.
    (shared,) = result.explanation.shared
    assert (shared.tensors, shared.scale, shared.own) == (("t", "p"), 0.02, (0.02, 0.015))
    assert (
        scale_of_pair(result.model.proto, "p")
        == scale_of_pair(result.model.proto, "t")
        == float(np.float32(0.02))
    )
    assert scale_of_pair(result.model.proto, "cat") == float(np.float32(0.025))


@pytest.mark.parametrize("axis", [1, -3])
def test_a_concat_of_whole_blocks_of_channels_has_one_scale_with_what_it_reads(axis: int) -> None:
    """32 and 32 channels: TensorRT writes both where the convolution behind reads them."""
    result = quantized(unet(channels=32, axis=axis, entry=32))
    # t and what the pooling hands on have that of the Concat, which is the larger one.
    (shared,) = result.explanation.shared
    assert (shared.tensors, shared.scale) == (("t", "p", "cat"), 0.025)
    assert shared.own == (0.02, 0.015, 0.025)
    scales = {scale_of_pair(result.model.proto, name) for name in ("t", "p", "cat")}
    assert scales == {float(np.float32(0.025))}


@pytest.mark.parametrize(
    "proto",
    [
        unet(channels=16, entry=32),
        unet(channels=48, entry=32),
        unet(channels=32, entry=32, axis=2),
        # Few channels in front: TensorRT 8.6.0 may write the part by a kernel that takes it for a whole.
        unet(channels=32, entry=16),
    ],
    ids=["16", "48", "rows", "few"],
)
def test_a_concat_of_other_parts_keeps_its_own(proto: onnx.ModelProto) -> None:
    (shared,) = quantized(proto).explanation.shared
    assert shared.tensors == ("t", "p")


@pytest.mark.parametrize(
    "scales",
    [
        {"cat": 0.041},  # more than twice t's
        {"p": 0.012},  # 0.025 is more than twice as coarse, t's 0.02 is not
        {"t": 0.045, "p": 0.03, "cat": 0.022},  # t's is the coarser one, more than twice that of the Concat
    ],
)
def test_a_concat_keeps_a_scale_that_would_be_too_coarse_for_what_it_reads(scales: dict[str, float]) -> None:
    own = {**SCALES, **scales}
    result = quantized(unet(channels=32, entry=32), own)
    assert scale_of_pair(result.model.proto, "cat") == float(np.float32(own["cat"]))
    assert not any("cat" in group.tensors for group in result.explanation.shared)


def test_a_concat_takes_the_scale_of_what_it_reads_where_that_is_larger() -> None:
    """The maximum of a part is one of the whole; entropy can clip the whole at less."""
    result = quantized(unet(channels=32, entry=32), {**SCALES, "t": 0.03, "p": 0.03, "cat": 0.02})
    (shared,) = result.explanation.shared
    assert (shared.tensors, shared.scale, shared.own) == (("t", "p", "cat"), 0.03, (0.03, 0.03, 0.02))


def test_a_scale_is_not_raised_where_a_concat_of_other_parts_comes_to_a_much_finer_one() -> None:
    """The rows keep their own scale, 0.012, and get what the pair on t left: 0.02 is fine enough for them."""
    beside = [
        node("Concat", ["t", "t"], ["rows"], name="stack", axis=2),
        node("Conv", ["rows", "w2"], ["z"], name="tall"),
    ]
    proto = unet(*beside, outputs=("y", "z"), channels=32, entry=32)
    result = quantized(proto, {**SCALES, "p": 0.02, "cat": 0.035, "rows": 0.012})
    assert placed(result)["t"] == ("pool", "join", "stack", "stack")
    (shared,) = result.explanation.shared
    assert (shared.tensors, shared.scale) == (("t", "p"), 0.02)
    # As fine as t's own, they leave it the scale of the Concat.
    (shared,) = quantized(proto, {**SCALES, "p": 0.02, "cat": 0.035, "rows": 0.02}).explanation.shared
    assert (shared.tensors, shared.scale) == (("t", "p", "cat"), 0.035)


def test_a_concat_without_an_axis_is_left_to_what_checks_a_model() -> None:
    proto = unet(channels=32, entry=32)
    del next(n for n in proto.graph.node if n.op_type == "Concat").attribute[:]
    (shared,) = quantized(proto).explanation.shared
    assert shared.tensors == ("t", "p")


def test_a_weight_without_axes_is_left_to_what_checks_a_model() -> None:
    proto = unet(channels=32, entry=32)
    first = next(tensor for tensor in proto.graph.initializer if tensor.name == "w1")
    first.CopyFrom(onnx.numpy_helper.from_array(np.float32(2), "w1"))
    (shared,) = quantized(proto).explanation.shared
    assert shared.tensors == ("t", "p")


def test_a_custom_operator_that_is_called_as_one_with_a_weight_has_none() -> None:
    proto = unet(channels=32, entry=32)
    first = next(n for n in proto.graph.node if n.name == "first")
    first.CopyFrom(node("Conv", ["x"], ["c"], name="first", domain="custom"))
    proto.opset_import.append(onnx.helper.make_opsetid("custom", 1))
    assert placed(quantized(proto)) == {"p": ("deep",), "cat": ("last",), "t": ("pool", "join")}


def test_scales_do_not_creep_from_concat_to_concat() -> None:
    """Each is 1.6 times that before: the second may have the first's place, the third not."""
    nodes, scales = [node("Conv", ["x", "w0"], ["t0"], name="first")], {"x": 0.04, "t0": 0.01}
    weights = {"w0": weight(32, 32, 1, 1)}
    for k in range(1, 4):
        before, new, joined = f"t{k - 1}", f"n{k}", f"t{k}"
        weights[f"w{k}"] = weight(32, 32 * k, 1, 1, seed=k)
        nodes += [
            node("Conv", [before, f"w{k}"], [new], name=f"conv{k}"),
            node("Concat", [before, new], [joined], name=f"join{k}", axis=1),
        ]
        scales |= {new: 0.01 * 1.6**k, joined: 0.01 * 1.6**k}
    weights["w4"] = weight(4, 128, 1, 1, seed=4)
    nodes.append(node("Conv", ["t3", "w4"], ["y"], name="last"))
    result = quantized(model(nodes, {"x": ["n", 32, 4, 4]}, {"y": None}, weights), scales)
    shared = {group.tensors: group.scale for group in result.explanation.shared}
    assert shared == {("t0", "t1"): scales["t1"], ("t2", "t3"): scales["t3"]}


def test_what_a_pooling_hands_on_is_rounded_once() -> None:
    proto = model(
        [
            node("Relu", ["x"], ["t"]),
            node("Conv", ["t", "w1"], ["y"], name="head"),
            node("MaxPool", ["t"], ["p"], name="pool", **POOL),
            node("Conv", ["p", "w1"], ["z"], name="next"),
        ],
        {"x": ["n", 3, 8, 8]},
        {"y": None, "z": None},
        {"w1": WEIGHTS["w1"]},
    )
    exposed = quantized(proto).model.proto
    read = next(n for n in exposed.graph.node if n.name == "next").input[0]
    exposed.graph.output.append(onnx.helper.make_tensor_value_info(read, onnx.TensorProto.FLOAT, None))
    x = samples(2, 3, 8, 8)
    session = open_session(OnnxModel(Path("m.onnx"), exposed), session_options(float_qdq=True))
    got = np.asarray(session.run([read], {"x": x})[0])
    scale = np.float32(0.02)
    rounded = np.round(np.maximum(x, 0) / scale).clip(-128, 127) * scale
    assert np.array_equal(got, rounded.reshape(2, 3, 4, 2, 4, 2).max((3, 5)))


NEVER = {
    "an output of the model": (unet(outputs=("y", "t")), SCALES, ()),
    "a float node reads it too": (
        unet(node("Sigmoid", ["t"], ["z"]), outputs=("y", "z")),
        SCALES,
        (),
    ),
    "the pooling is kept float": (unet(), SCALES, ("^pool$",)),
    "no scale": (unet(), {name: scale for name, scale in SCALES.items() if name != "t"}, ()),
    # 0.015 has 16 steps where 0.25 has one: the pooled values would lose more than they gain.
    "a scale that is too coarse": (unet(), {**SCALES, "t": 0.25}, ()),
    # Two and a half times as coarse: 8 dB of the pooled values' SQNR.
    "a scale that is somewhat too coarse": (unet(), {**SCALES, "p": 0.008}, ()),
    "the same of what the Concat makes": (unet(), {**SCALES, "cat": 0.008}, ()),
}


@pytest.mark.parametrize("why", NEVER)
def test_it_is_left_alone(why: str) -> None:
    proto, scales, keep_float = NEVER[why]
    result = quantized(proto, scales, keep_float)
    assert placed(result) == {"x": ("first",), "p": ("deep",), "cat": ("last",)}
    assert result.explanation.shared == ()


def test_a_tensor_with_one_reader_is_left_to_tensorrt() -> None:
    """Its Q fuses into the convolution before it: nothing else needs the tensor in float."""
    proto = model(
        [
            node("Conv", ["x", "w1"], ["c"], name="first"),
            node("MaxPool", ["c"], ["p"], name="pool", **POOL),
            node("Conv", ["p", "w2"], ["y"], name="deep"),
        ],
        {"x": ["n", 3, 8, 8]},
        {"y": None},
        {"w1": WEIGHTS["w1"], "w2": WEIGHTS["w2"]},
    )
    assert placed(quantized(proto)) == {"x": ("first",), "p": ("deep",)}


def test_what_holds_the_factors_of_a_resizing_is_no_branch() -> None:
    """Two Resize nodes read factors that the graph computes of sizes, for which a cache has a range."""
    proto = model(
        [
            node("Conv", ["x", "w1"], ["c"], name="first", pads=[1, 1, 1, 1]),
            node("Shape", ["c"], ["sizes"]),
            node("Cast", ["sizes"], ["f"], to=onnx.TensorProto.FLOAT),
            node("Div", ["f", "f"], ["ones"]),
            node("Mul", ["ones", "double"], ["factors"]),
            node("Resize", ["c", "", "factors"], ["u"], name="up"),
            node("Conv", ["u", "w2"], ["y"], name="left"),
            node("Conv", ["c", "w2"], ["d"], name="right"),
            node("Resize", ["d", "", "factors"], ["v"], name="up2"),
            node("Conv", ["v", "w2"], ["z"], name="last"),
        ],
        {"x": ["n", 3, 8, 8]},
        {"y": None, "z": None},
        {**WEIGHTS, "double": np.array([1, 1, 2, 2], np.float32)},
    )
    scales = dict.fromkeys(("x", "c", "u", "d", "v", "f", "ones", "factors"), 0.02)
    assert placed(quantized(proto, scales)) == {
        "x": ("first",),
        "u": ("left",),
        "c": ("right", "up"),
        "v": ("last",),
    }


def test_a_long_row_of_views_is_walked_through() -> None:
    views = [node("Identity", [f"t{index}"], [f"t{index + 1}"]) for index in range(1500)]
    proto = model(
        [
            node("Relu", ["x"], ["t0"]),
            *views,
            node("Conv", ["t1500", "w1"], ["y"], name="far"),
            node("Conv", ["t0", "w1"], ["z"], name="near"),
        ],
        {"x": ["n", 3, 8, 8]},
        {"y": None, "z": None},
        {"w1": WEIGHTS["w1"]},
    )
    result = quantized(proto, {"t0": 0.02, "t1500": 0.019})
    (shared,) = result.explanation.shared
    assert (shared.tensors, shared.scale) == (("t0", "t1500"), 0.02)


def test_a_concat_of_one_tensor_twice_is_no_branch() -> None:
    proto = model(
        [
            node("Relu", ["x"], ["t"]),
            node("Concat", ["t", "t"], ["cat"], name="join", axis=1),
            node("Conv", ["cat", "w6"], ["y"], name="last"),
        ],
        {"x": ["n", 3, 8, 8]},
        {"y": None},
        {"w6": weight(4, 6, 1, 1)},
    )
    assert placed(quantized(proto)) == {"cat": ("last",)}


def test_spatial_pyramid_pooling_reads_its_input_once() -> None:
    """Three poolings and a Concat read t, as in YOLO's SPP; views between are walked through."""
    pools = [
        node(
            "MaxPool",
            ["t"],
            [f"p{k}"],
            name=f"pool{k}",
            kernel_shape=[k, k],
            pads=[k // 2] * 4,
            strides=[1, 1],
        )
        for k in (3, 5)
    ]
    proto = model(
        [
            node("Conv", ["x", "w1"], ["t"], name="first", pads=[1, 1, 1, 1]),
            *pools,
            node("Identity", ["p5"], ["i"], name="view"),
            node("Concat", ["t", "p3", "i"], ["cat"], name="join", axis=1),
            node("Conv", ["cat", "w3"], ["y"], name="last"),
        ],
        {"x": ["n", 3, 8, 8]},
        {"y": None},
        {"w1": WEIGHTS["w1"], "w3": weight(4, 24, 1, 1)},
    )
    assert placed(quantized(proto)) == {
        "x": ("first",),
        "cat": ("last",),
        "t": ("pool3", "pool5", "join"),
    }


def row_of_poolings(channels: int = 8, **scales: float) -> QuantizedModel:
    """YOLO's SPPF: each pooling reads the one before, and a Concat reads all."""
    entry = 3 if channels < 32 else channels
    pool = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    proto = model(
        [
            node("Conv", ["x", "w1"], ["t"], name="first", pads=[1, 1, 1, 1]),
            node("MaxPool", ["t"], ["p"], name="pool1", **pool),
            node("MaxPool", ["p"], ["p2"], name="pool2", **pool),
            node("MaxPool", ["p2"], ["p3"], name="pool3", **pool),
            node("Concat", ["t", "p", "p2", "p3"], ["cat"], name="join", axis=1),
            node("Conv", ["cat", "w4"], ["y"], name="last"),
        ],
        {"x": ["n", entry, 8, 8]},
        {"y": None},
        {"w1": weight(channels, entry, 3, 3), "w4": weight(4, 4 * channels, 1, 1)},
    )
    return quantized(proto, {**SCALES, "p2": 0.02, "p3": 0.02, **scales})


def test_a_row_of_poolings_has_one_scale() -> None:
    result = row_of_poolings(t=0.02, p=0.019, p2=0.018)
    assert {"t": ("pool1", "join"), "p": ("pool2", "join"), "p2": ("pool3", "join")}.items() <= placed(
        result
    ).items()
    (shared,) = result.explanation.shared
    assert (shared.tensors, shared.scale, shared.own) == (("t", "p", "p2"), 0.02, (0.02, 0.019, 0.018))
    assert [scale_of_pair(result.model.proto, name) for name in ("t", "p", "p2")] == [
        float(np.float32(0.02))
    ] * 3


def test_what_is_too_far_apart_to_share_is_handed_scales_all_the_same() -> None:
    proto = unet()
    scales = {**SCALES, "cat": 0.5}
    made = quantize_model(OnnxModel(Path("m.onnx"), proto), scales, share_scales=True)
    (shared,) = made.explanation.shared
    assert (shared.tensors, shared.scale) == (("t", "p"), 0.02)
    assert any("33.3 times apart" in text for text in made.explanation.warnings)  # 0.5 / 0.015


def test_a_scale_is_not_handed_on_to_what_lies_far_behind() -> None:
    """Each is not twice as coarse as the next, t more than twice as coarse as p2."""
    result = row_of_poolings(t=0.03, p=0.02, p2=0.014, cat=0.03)
    assert set(placed(result)) == {"x", "p", "p2", "cat"}
    (shared,) = result.explanation.shared
    assert (shared.tensors, shared.scale) == (("p", "p2"), 0.02)


def test_a_row_of_poolings_and_what_joins_them_have_one_scale() -> None:
    (shared,) = row_of_poolings(32, t=0.02, p=0.019, p2=0.018, cat=0.02).explanation.shared
    assert (shared.tensors, shared.scale) == (("t", "p", "p2", "cat"), 0.02)


def test_parts_of_a_tensor_keep_a_scale_that_is_much_finer() -> None:
    """Channels that are a tenth of the others in size would keep 13 of 127 steps."""
    cut = {
        name: np.array([value], np.int64)
        for name, value in {"zero": 0, "two": 2, "eight": 8, "one": 1}.items()
    }
    proto = model(
        [
            node("Relu", ["x"], ["t"]),
            node("Slice", ["t", "zero", "two", "one"], ["p"], name="few"),
            node("Slice", ["t", "two", "eight", "one"], ["d"], name="rest"),
            node("Conv", ["p", "w5"], ["y"], name="fine"),
            node("Conv", ["d", "w6"], ["z"], name="coarse"),
        ],
        {"x": ["n", 8, 8, 8]},
        {"y": None, "z": None},
        {**cut, "w5": weight(4, 2, 1, 1), "w6": weight(4, 6, 1, 1)},
    )
    assert placed(quantized(proto, {"t": 0.02, "p": 0.002, "d": 0.02})) == {"p": ("fine",), "d": ("coarse",)}
    close = placed(quantized(proto, {"t": 0.02, "p": 0.018, "d": 0.02}))
    assert close == {"p": ("fine",), "d": ("coarse",), "t": ("few", "rest")}


def test_a_node_that_reads_sizes_is_no_branch() -> None:
    """PyTorch's exporter writes interpolate(size=t.shape[2:]) so; the engine writes nothing for it."""
    beside = [node("Shape", ["t"], ["sizes"]), node("Cast", ["sizes"], ["z"], to=onnx.TensorProto.FLOAT)]
    result = quantized(unet(*beside, outputs=("y", "z")))
    assert placed(result)["t"] == ("pool", "join")
    graph = result.model.proto.graph
    assert next(n for n in graph.node if n.op_type == "Shape").input[0] == "t"


def test_a_convolution_and_a_pooling_read_one_pair() -> None:
    """An SSD's feature map: the head reads it directly, the next stage through a pooling."""
    proto = model(
        [
            node("Conv", ["x", "w1"], ["c"], name="first"),
            node("Relu", ["c"], ["t"]),
            node("Conv", ["t", "w2"], ["y"], name="head"),
            node("MaxPool", ["t"], ["p"], name="pool", **POOL),
            node("Conv", ["p", "w2"], ["z"], name="next"),
        ],
        {"x": ["n", 3, 8, 8]},
        {"y": None, "z": None},
        {"w1": WEIGHTS["w1"], "w2": WEIGHTS["w2"]},
    )
    result = quantized(proto)
    assert placed(result) == {"x": ("first",), "t": ("head", "pool"), "p": ("next",)}
    (rule,) = (pair.rule for pair in result.activations if pair.tensor == "t")
    assert rule == "input of Conv, branch through MaxPool"
    assert scale_of_pair(result.model.proto, "p") == scale_of_pair(result.model.proto, "t")


UNET = unet()
for axis in (2, 3):
    UNET.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = 64


@pytest.fixture(scope="module")
def built() -> dict[str, list[Kernel]]:
    """The kernels that NVIDIA's current builder makes of a U-Net, with the rule and without it."""
    pytest.importorskip("tensorrt_rtx_bindings", reason="extra [tensorrt-rtx] is not installed")
    scales = dict.fromkeys([name for n in UNET.graph.node for name in (*n.input, *n.output)], 0.02)
    # Scales of their own, as they have in a cache.
    scales |= {"cat": 0.03, "p": 0.015}
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for form in ("one pair", "two pairs"):
            made = quantize_model(OnnxModel(Path("m.onnx"), UNET), scales, target="tensorrt-10")
            found[form] = kernels(made.model, 16)
            patch.setattr(placement, "branch_places", lambda *_: {})
    return found


def test_an_engine_moves_less(built: dict[str, list[Kernel]]) -> None:
    moved = {form: sum(sum(one.bytes_of.values()) for one in found) for form, found in built.items()}
    # t has 16 x 8 x 64 x 64 values of 4 bytes, which are no longer written in float for the Concat and read
    # again; in INT8 they were written for the pooling before.
    assert moved["two pairs"] - moved["one pair"] >= 16 * 8 * 64 * 64 * 4


def test_an_engine_has_no_more_kernels(built: dict[str, list[Kernel]]) -> None:
    assert len(built["one pair"]) <= len(built["two pairs"])
    # All three convolutions read INT8 in either form.
    for found in built.values():
        assert sum(one.kind == "correlation" and "Int8" in one.bytes_of for one in found) == 3
