"""The model as TensorRT's parser gets it."""

from __future__ import annotations

from pathlib import Path

import onnx
from networks import model, node, weight

from calib.engine.network_source import open_source
from calib.graph import OnnxModel


def sizes(content: bytes | None) -> list[str]:
    assert content is not None
    shape = onnx.load_model_from_string(content).graph.input[0].type.tensor_type.shape
    return [axis.dim_param or str(axis.dim_value) for axis in shape.dim]


def network(shape: list[int | str | None]) -> OnnxModel:
    nodes = [node("Conv", ["x", "w"], ["y"])]
    return OnnxModel(Path("m.onnx"), model(nodes, {"x": shape}, {"y": None}, {"w": weight(4, 3, 1, 1)}))


def test_one_name_for_two_sizes_of_an_input_is_no_equation() -> None:
    """PaddlePaddle names height and width "?", which TensorRT takes for one and the same size."""
    with open_source(network(["n", 3, "?", "?"]), unchanged=False) as source:
        assert sizes(source.content) == ["n", "3", "0", "0"]


def test_names_that_tell_sizes_apart_stay() -> None:
    with open_source(network(["n", 3, "h", "w"]), unchanged=False) as source:
        assert sizes(source.content) == ["n", "3", "h", "w"]
