"""The model as TensorRT's parser gets it."""

from __future__ import annotations

from pathlib import Path

import onnx
from networks import model, node, weight

from calib.engine.network_source import open_source, with_free_sizes, with_whole_shapes
from calib.graph import OnnxModel, load_model


def sizes(model: OnnxModel) -> list[str]:
    shape = model.proto.graph.input[0].type.tensor_type.shape
    return [axis.dim_param or str(axis.dim_value) for axis in shape.dim]


def network(shape: list[int | str | None]) -> OnnxModel:
    nodes = [node("Conv", ["x", "w"], ["y"])]
    return OnnxModel(Path("m.onnx"), model(nodes, {"x": shape}, {"y": None}, {"w": weight(4, 3, 1, 1)}))


def test_one_name_for_two_sizes_of_an_input_is_no_equation() -> None:
    """PaddlePaddle names height and width "?", which TensorRT takes for one and the same size."""
    assert sizes(with_free_sizes(network(["n", 3, "?", "?"]))) == ["n", "3", "0", "0"]


def test_names_that_tell_sizes_apart_stay() -> None:
    model = network(["n", 3, "h", "w"])
    assert with_free_sizes(model) is model
    assert sizes(model) == ["n", "3", "h", "w"]


def test_a_model_with_weights_beside_it_is_freed_too(tmp_path: Path) -> None:
    """Its file, which the parser would read as it is, has the names."""
    path = tmp_path / "m.onnx"
    proto = network([1, 3, "?", "?"]).proto
    onnx.save(proto, path, save_as_external_data=True, location="m.weights", size_threshold=0)
    model = load_model(path)
    assert model.external_files
    freed = with_free_sizes(model)
    with open_source(freed, unchanged=freed is model) as source:
        assert source.file is None
        assert source.content is not None
        parsed = OnnxModel(path, onnx.load_model_from_string(source.content))
    assert sizes(parsed) == ["1", "3", "0", "0"]
    weight_ = parsed.proto.graph.initializer[0]
    assert not weight_.external_data


def test_a_shape_of_a_part_becomes_one_of_all_and_a_slice() -> None:
    nodes = [node("Shape", ["x"], ["batch"], start=0, end=1), node("Expand", ["w", "batch"], ["y"])]
    given = OnnxModel(Path("m.onnx"), model(nodes, {"x": ["n", 3]}, {"y": None}, {"w": weight(1)}))
    whole = with_whole_shapes(given)
    assert [item.op_type for item in whole.proto.graph.node] == ["Shape", "Slice", "Expand"]
    assert [item.op_type for item in given.proto.graph.node] == ["Shape", "Expand"]
    assert with_whole_shapes(whole) is whole
