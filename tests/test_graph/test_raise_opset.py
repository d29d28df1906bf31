"""What onnx's converter cannot raise to a later opset, or would leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import pytest
from networks import model, node, samples, weight
from onnx import helper, numpy_helper

from calib.errors import ModelError
from calib.graph import OnnxModel, open_session, quantize_model, session_options


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = open_session(in_memory(proto), session_options(float_qdq=True))
    return np.asarray(session.run(None, {"x": x})[0])


def calling_a_function(opset: int) -> onnx.ModelProto:
    """x → Conv → Twice, a function of the model that adds a tensor to itself → y."""
    proto = model(
        [node("Conv", ["x", "w"], ["c"]), node("Identity", ["c"], ["y"])],
        {"x": [2, 3, 4, 4]},
        {"y": [2, 2, 4, 4]},
        {"w": weight(2, 3, 1, 1)},
        opset=opset,
    )
    proto.graph.node[1].op_type, proto.graph.node[1].domain = "Twice", "own"
    proto.opset_import.append(helper.make_opsetid("own", 1))
    body = [node("Add", ["a", "a"], ["b"])]
    proto.functions.append(
        helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", opset)])
    )
    return proto


@pytest.mark.parametrize(
    ("opset", "options"), [(11, {}), (17, {"target": "tensorrt-10", "float_type": "fp16"})]
)
def test_functions_are_refused_since_the_converter_drops_them(opset: int, options: dict[str, Any]) -> None:
    proto, cache = calling_a_function(opset), {"x": 0.03, "c": 0.03, "y": 0.06}
    assert not onnx.version_converter.convert_version(proto, 19).functions
    with pytest.raises(ModelError, match=r"defines functions \(Twice\).*inline_local_functions"):
        quantize_model(in_memory(proto), cache, **options)
    inlined = onnx.inliner.inline_local_functions(proto)
    found = quantize_model(in_memory(inlined), cache, **options).model.proto
    values = samples(2, 3, 4, 4)
    np.testing.assert_allclose(run(found, values), run(proto, values), atol=0.1)


def test_opset_that_needs_no_raising_keeps_the_functions() -> None:
    found = quantize_model(in_memory(calling_a_function(17)), {"x": 0.03, "c": 0.03}).model.proto
    assert [function.name for function in found.functions] == ["Twice"]


def test_what_the_converter_cannot_read_is_said_in_one_message() -> None:
    """Sparse constants are none of its errors' usual kind."""
    kept = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([0.5, -0.25], np.float32), "s"),
        numpy_helper.from_array(np.array([0, 3])),
        [4],
    )
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("Constant", [], ["s"], sparse_value=kept),
            node("Add", ["c", "s"], ["y"]),
        ],
        {"x": [1, 3, 4, 4]},
        {"y": [1, 2, 4, 4]},
        {"w": weight(2, 3, 1, 1)},
        opset=11,
    )
    with pytest.raises(ModelError, match=r"m\.onnx has opset 11; .* converting it failed: Sparse tensors"):
        quantize_model(in_memory(proto), {"x": 0.03})


@pytest.mark.parametrize("mode", ["reflect", "edge", "constant"])
def test_a_pad_with_a_value_that_its_mode_does_not_use(mode: str) -> None:
    """numpy pads alike; in opset 9 pads and value are attributes."""
    proto = model(
        [
            node("Pad", ["x"], ["p"], mode=mode, pads=[0, 0, 1, 2, 0, 0, 1, 2], value=3.0),
            node("Conv", ["p", "w"], ["y"]),
        ],
        {"x": [1, 1, 4, 4]},
        {"y": [1, 1, 6, 8]},
        {"w": np.full((1, 1, 1, 1), 2, np.float32)},
        opset=9,
    )
    found = quantize_model(in_memory(proto), {"x": 0.05, "p": 0.05, "y": 0.1}).model.proto
    values = samples(1, 1, 4, 4)
    more = {"constant_values": 3} if mode == "constant" else {}
    expected = 2 * np.pad(values, ((0, 0), (0, 0), (1, 1), (2, 2)), mode=mode, **more)  # type: ignore[call-overload]
    # Half a step of the activation, twice.
    np.testing.assert_allclose(run(found, values), expected, atol=0.051)
