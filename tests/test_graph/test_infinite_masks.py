"""Minus infinity of attention masks and paddings: no range, no scale, and no reason to stop a calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import calib
from calib.errors import NonFiniteError
from calib.graph import load_model
from calib.graph.cache_model import compare_names
from calib.graph.infinite_masks import infinite_masks

RNG = np.random.default_rng(5)
WEIGHT = RNG.standard_normal((4, 3)).astype(np.float32)
X = RNG.standard_normal((6, 4)).astype(np.float32)
KEEP = np.array([[True, True, True, False]] * 3 + [[True, False, False, True]] * 3)
# The tensors that PyTorch's masked_fill, and the scaling and views after it, leave infinite.
MASKED = ["filled", "scores", "scaled", "viewed"]


def _model(
    path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[object]]], **constants: object
) -> Path:
    graph = helper.make_graph(
        nodes,
        "masks",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def _attention(path: Path) -> Path:
    nodes = [
        helper.make_node("Where", ["keep", "zero", "never"], ["filled"]),
        helper.make_node("Add", ["x", "filled"], ["scores"]),
        helper.make_node("Div", ["scores", "two"], ["scaled"]),
        helper.make_node("Identity", ["scaled"], ["viewed"]),
        helper.make_node("Softmax", ["viewed"], ["weights"]),
        helper.make_node("MatMul", ["weights", "w"], ["y"]),
    ]
    inputs: dict[str, tuple[int, list[object]]] = {
        "x": (TensorProto.FLOAT, ["n", 4]),
        "keep": (TensorProto.BOOL, ["n", 4]),
    }
    constants = {"zero": np.float32(0), "never": np.float32(-np.inf), "two": np.float32(2), "w": WEIGHT}
    return _model(path, nodes, inputs, **constants)


@pytest.mark.parametrize("method", ["entropy", "minmax", "percentile", "mse"])
def test_attention_mask_gets_no_scale_and_everything_else_does(tmp_path: Path, method: str) -> None:
    path = _attention(tmp_path / "attention.onnx")
    result = calib.calibrate(path, [{"x": X, "keep": KEEP}], method=method, out=tmp_path / "a.cache")
    assert list(result.cache) == ["x", "weights", "y"]
    (note,) = [note for note in result.notes if "minus infinity" in note]
    assert "4 tensors hold a mask's minus infinity" in note
    assert all(name in note for name in MASKED)
    if method == "minmax":
        scores = np.where(KEEP, X, -np.inf) / 2
        weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        assert result.ranges["weights"] == pytest.approx(weights.max(), rel=1e-6)
        assert result.ranges["y"] == pytest.approx(np.abs(weights @ WEIGHT).max(), rel=1e-5)


def test_a_cache_without_the_masks_fits_the_model_whole(tmp_path: Path) -> None:
    path = _attention(tmp_path / "attention.onnx")
    result = calib.calibrate(path, [{"x": X, "keep": KEEP}], method="minmax", out=tmp_path / "a.cache")
    assert compare_names(result.cache, load_model(path)).only_model == ()
    quantized = calib.quantize(path, tmp_path / "a.cache", target="tensorrt-10", strict=True)
    assert [pair.tensor for pair in quantized.pairs] == ["weights", "w"]


def test_pool_of_what_was_padded_with_minus_infinity_has_its_own_range(tmp_path: Path) -> None:
    """Frameworks pad so before a MaxPool. The pool is finite, though what it reads is not."""
    nodes = [
        helper.make_node("Pad", ["x", "pads", "never"], ["padded"]),
        helper.make_node("MaxPool", ["padded"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Relu", ["pooled"], ["y"]),
    ]
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    path = _model(
        tmp_path / "pad.onnx",
        nodes,
        {"x": (TensorProto.FLOAT, ["n", 1, 2, 2])},
        pads=pads,
        never=np.float32(-np.inf),
    )
    # Each window holds one element of x: the pool's range is that of x.
    x = np.array([[[[1.0, -3.0], [2.0, 0.5]]]], np.float32)
    result = calib.calibrate(path, [{"x": x}], method="minmax")
    assert {name: result.ranges[name] for name in result.ranges} == {"x": 3.0, "pooled": 3.0, "y": 2.0}


@pytest.mark.parametrize(
    ("node", "constant"),
    [
        (helper.make_node("Add", ["x", "c"], ["y"]), np.inf),  # plus infinity is no mask
        (helper.make_node("Log", ["x"], ["y"]), 0.0),  # the data make it
    ],
)
def test_other_infinities_stop_the_calibration(tmp_path: Path, node: onnx.NodeProto, constant: float) -> None:
    path = _model(tmp_path / "m.onnx", [node], {"x": (TensorProto.FLOAT, ["n", 4])}, c=np.float32(constant))
    with pytest.raises(NonFiniteError, match=r"Tensor 'y' has values that are not finite"):
        calib.calibrate(path, [{"x": np.zeros((2, 4), np.float32)}])


@pytest.mark.parametrize(
    "maker",
    [
        helper.make_node("Constant", [], ["c"], value_float=float("-inf")),
        helper.make_node("Constant", [], ["c"], value_floats=[0.0, float("-inf"), 0.0, 0.0]),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float16([-np.inf]))),
        helper.make_node(
            "ConstantOfShape", ["s"], ["c"], value=numpy_helper.from_array(np.float32([-np.inf]))
        ),
    ],
)
def test_constants_of_every_form_are_found_and_softmax_ends_them(maker: onnx.NodeProto) -> None:
    nodes = [
        maker,
        helper.make_node("Add", ["x", "c"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"]),
        helper.make_node("Add", ["p", "x"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [], [])
    assert infinite_masks(graph) == {"c", "scores"}
