"""Resize and Upsample of opset 10 and below: raised, they answer as ONNX Runtime runs the original."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import model, node, samples, weight
from onnx import TensorProto, helper, numpy_helper

from calib.graph import OnnxModel, open_session, quantize_model, session_options
from calib.graph.opset import raise_opset

GROWS = ((1, 1, 2, 2), (1, 1, 1.5, 2.5), (1, 1, 1, 3))
EVERY_AXIS = (2, 3, 1.2, 1.9)
SHRINKS = ((1, 1, 0.5, 0.5), (1, 1, 0.6, 0.7), (1, 1, 0.3, 1))
BOTH = ((1, 1, 1.3, 0.6), (1, 1, 0.45, 2.2))


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def run(proto: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    return np.asarray(open_session(in_memory(proto), session_options()).run(None, feeds)[0])


def resizing(op: str, opset: int, mode: str, scales: Sequence[float]) -> onnx.ModelProto:
    """Named as ONNX did at each opset: a list of factors until 7, an input from then on."""
    factors = np.array(scales, np.float32)
    listed = {"scales": [float(factor) for factor in scales]} if opset < 9 else {}
    return model(
        [node(op, ["x"] if listed else ["x", "f"], ["y"], mode=mode, **listed)],
        {"x": [1, 2, 7, 9]},
        {"y": [int(np.floor(size * factor)) for size, factor in zip((1, 2, 7, 9), factors, strict=True)]},
        {} if listed else {"f": factors},
        opset=opset,
    )


MODES = ("nearest", "linear")
OLD = [
    *product(("Upsample",), (7, 8, 9), MODES, GROWS),
    *product(("Resize",), (10,), MODES, (*GROWS, *SHRINKS, *BOTH)),
    *(("Upsample", 9, "nearest", EVERY_AXIS), ("Resize", 10, "nearest", EVERY_AXIS)),
]


@pytest.mark.parametrize("to", [13, 19])
@pytest.mark.parametrize(("op", "opset", "mode", "scales"), OLD)
def test_raised_model_computes_what_the_original_does(
    op: str, opset: int, mode: str, scales: Sequence[float], to: int
) -> None:
    before = resizing(op, opset, mode, scales)
    after, notes = raise_opset(in_memory(before), to)
    assert [entry.version for entry in after.opset_import] == [to]
    assert len(notes) == 1
    onnx.checker.check_model(after, full_check=True)
    x = samples(1, 2, 7, 9)
    np.testing.assert_allclose(run(after, x=x), run(before, x=x), rtol=0, atol=1e-6)


def test_a_subgraph_that_reads_what_was_resized_reads_it_still() -> None:
    """The converter calls it otherwise; a cache knows it by its old name."""

    def branch(op: str) -> onnx.GraphProto:
        made = helper.make_tensor_value_info("made", TensorProto.FLOAT, None)
        return helper.make_graph([node(op, ["u"], ["made"])], op, [], [made])

    before = model(
        [
            node("Upsample", ["x", "f"], ["u"], mode="nearest"),
            node("Relu", ["u"], ["r"]),
            node("If", ["flag"], ["z"], then_branch=branch("Tanh"), else_branch=branch("Neg")),
            node("Add", ["r", "z"], ["y"]),
        ],
        {"x": [1, 2, 4, 4], "flag": []},
        {"y": [1, 2, 8, 8]},
        {"f": np.array([1, 1, 2, 2], np.float32)},
        opset=9,
        types={"flag": TensorProto.BOOL},
    )
    after, _ = raise_opset(in_memory(before))
    onnx.checker.check_model(after, full_check=True)
    assert "u" in {name for found in after.graph.node for name in found.output}
    for flag in (True, False):
        feeds = {"x": samples(1, 2, 4, 4), "flag": np.array(flag)}
        np.testing.assert_array_equal(run(after, **feeds), run(before, **feeds))


@pytest.mark.parametrize("scales", [*GROWS, *SHRINKS])
def test_nearest_pixels_are_those_below_or_above(scales: Sequence[float]) -> None:
    """Counted out: pixel ⌊i / scale⌋ where an axis grows, ⌈i / scale⌉ where it shrinks."""
    after, _ = raise_opset(in_memory(resizing("Resize", 10, "nearest", scales)))
    expected = x = samples(1, 2, 7, 9)
    for axis in (2, 3):
        scale = np.float32(scales[axis])
        places = np.arange(int(np.floor(x.shape[axis] * scale))) / scale
        rounded = np.floor(places) if scale >= 1 else np.ceil(places)
        expected = expected.take(np.minimum(rounded, x.shape[axis] - 1).astype(int), axis)
    np.testing.assert_array_equal(run(after, x=x), expected)


def test_linear_pixels_are_weighed_by_their_distance() -> None:
    """Twice as wide: x_old = i / 2, so that every other pixel is the mean of its neighbours."""
    after, _ = raise_opset(in_memory(resizing("Upsample", 9, "linear", (1, 1, 1, 2))))
    x = samples(1, 2, 7, 9)
    expected = np.repeat(x, 2, axis=3)
    expected[..., 1:-1:2] = (x[..., :-1] + x[..., 1:]) / 2
    np.testing.assert_allclose(run(after, x=x), expected, rtol=0, atol=1e-6)


def test_nodes_in_a_subgraph_are_mended_too() -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("Resize", ["x", "f"], [f"{name}_y"], mode=mode)],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
        )
        for name, mode in (("then", "nearest"), ("else", "linear"))
    }
    before = model(
        [node("If", ["flag"], ["y"], **branches)],
        {"x": [1, 2, 6, 6], "flag": []},
        {"y": [1, 2, 9, 4]},
        {"f": np.array([1, 1, 1.5, 0.7], np.float32)},
        opset=10,
        types={"flag": TensorProto.BOOL},
    )
    after, _ = raise_opset(in_memory(before))
    x = samples(1, 2, 6, 6)
    for flag in (True, False):
        feeds = {"x": x, "flag": np.array(flag)}
        np.testing.assert_allclose(run(after, **feeds), run(before, **feeds), rtol=0, atol=1e-6)


def test_computed_scales_are_taken_for_an_enlargement_and_named() -> None:
    before = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Cast", ["s"], ["sizes"], to=TensorProto.FLOAT),
            node("Div", ["wanted", "sizes"], ["f"]),
            node("Resize", ["x", "f"], ["y"], mode="nearest", name="up"),
        ],
        {"x": [1, 2, 6, 6]},
        {"y": [1, 2, 15, 9]},
        {"wanted": np.array([1, 2, 15, 9], np.float32)},
        opset=10,
    )
    after, notes = raise_opset(in_memory(before))
    assert notes[1] == "scales are computed, and taken to be 1 or more: up"
    x = samples(1, 2, 6, 6)
    np.testing.assert_array_equal(run(after, x=x), run(before, x=x))


def test_quantized_model_is_the_originals_with_rounded_values() -> None:
    before = model(
        [node("Upsample", ["x", "f"], ["u"], mode="linear"), node("Conv", ["u", "w"], ["y"])],
        {"x": [1, 3, 4, 4]},
        {"y": [1, 2, 6, 6]},
        {"f": np.array([1, 1, 2, 2], np.float32), "w": weight(2, 3, 3, 3)},
        opset=9,
    )
    x = samples(1, 3, 4, 4)
    after = quantize_model(in_memory(before), {"u": float(np.abs(x).max()) / 127}).model.proto
    assert [numpy_helper.to_array(t).shape for t in after.graph.initializer if t.name == "u_scale"] == [()]
    exact, coarse = run(before, x=x), run(after, x=x)
    # Half a step of each of 27 values, times weights of 0.2 on average, and of each weight.
    step = float(np.abs(x).max()) / 127
    assert 0 < np.abs(exact - coarse).max() < 27 * step * 0.2


def test_node_keeps_its_name_and_nothing_is_left_of_the_conversion() -> None:
    before = model(
        [
            node("Upsample", ["x", "f"], ["u"], name="grow"),
            node("Conv", ["u", "w"], ["y"], name="conv"),
        ],
        {"x": [1, 3, 4, 4]},
        {"y": [1, 2, 6, 6]},
        {"f": np.array([1, 1, 2, 2], np.float32), "w": weight(2, 3, 3, 3)},
        opset=9,
    )
    after, _ = raise_opset(in_memory(before))
    assert [(item.op_type, item.name) for item in after.graph.node] == [("Resize", "grow"), ("Conv", "conv")]
    assert list(after.graph.node[0].input) == ["x", "", "f"]
    kept = quantize_model(in_memory(before), {"u": 0.02}, ["grow"])
    assert [pair.tensor for pair in kept.activations] == ["u"]
