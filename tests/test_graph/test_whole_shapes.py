from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from networks import model, node
from onnx import TensorProto, helper

from calib.graph.whole_shapes import has_shape_ranges, split_shape_ranges


def run(proto: onnx.ModelProto, x: np.ndarray) -> list[int]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x})[0])


def shape_model(**attributes: int) -> onnx.ModelProto:
    return model(
        [node("Shape", ["x"], ["sizes"], **attributes)],
        {"x": ["n", "c", "h", "w"]},
        {"sizes": None},
        types={"sizes": TensorProto.INT64},
    )


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"start": 0, "end": 1}, [2]),
        ({"start": 1}, [3, 5, 7]),
        ({"end": -1}, [2, 3, 5]),
        ({"start": -2}, [5, 7]),
        ({"start": -3, "end": 9}, [3, 5, 7]),
        ({"start": -9, "end": 2}, [2, 3]),
        ({"start": 3, "end": 1}, []),
    ],
)
def test_a_part_of_a_shape_stays_that_part(attributes: dict[str, int], expected: list[int]) -> None:
    proto = shape_model(**attributes)
    x = np.zeros((2, 3, 5, 7), np.float32)
    assert run(proto, x) == expected
    assert split_shape_ranges(proto) == 1
    onnx.checker.check_model(proto)
    assert run(proto, x) == expected
    assert not has_shape_ranges(proto.graph)
    assert [(item.op_type, len(item.attribute)) for item in proto.graph.node] == [("Shape", 0), ("Slice", 0)]


@pytest.mark.parametrize("attributes", [{}, {"start": 0}])
def test_a_whole_shape_is_left_alone(attributes: dict[str, int]) -> None:
    proto = shape_model(**attributes)
    before = proto.SerializeToString()
    assert split_shape_ranges(proto) == 0
    assert proto.SerializeToString() == before


def test_nodes_in_branches_are_found() -> None:
    sizes = helper.make_tensor_value_info("batch", TensorProto.INT64, None)
    branches = {
        name: helper.make_graph([helper.make_node("Shape", ["x"], ["batch"], **part)], name, [], [sizes])
        for name, part in {"then_branch": {"end": 1}, "else_branch": {"start": 3}}.items()
    }
    for flag, expected in ((True, [2]), (False, [7])):
        proto = model(
            [
                node("Constant", [], ["flag"], value=helper.make_tensor("", TensorProto.BOOL, [], [flag])),
                node("If", ["flag"], ["sizes"], **branches),
            ],
            {"x": ["n", "c", "h", "w"]},
            {"sizes": None},
            types={"sizes": TensorProto.INT64},
        )
        assert split_shape_ranges(proto) == 2
        onnx.checker.check_model(proto)
        assert run(proto, np.zeros((2, 3, 5, 7), np.float32)) == expected
