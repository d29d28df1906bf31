"""What fusion did: on engines of TensorRT 8.6.0, and on layers in its words."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from goldens import NETS
from layer_answers import FP16, FP32, INT8, conv, golden, layer, parsed, pointwise, reformat, tensor
from onnx import TensorProto, helper

from calib.engine import describe_fusion
from calib.graph import OnnxModel, load_model


def model(*nodes: onnx.NodeProto) -> OnnxModel:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    graph = helper.make_graph(list(nodes), "g", ends[:1], ends[1:])
    return OnnxModel(Path("g.onnx"), helper.make_model(graph))


# Counted by eye: "a + b" layers, Reformat layers, and ONNX nodes that no computing layer names.
@pytest.mark.parametrize(
    ("name", "nodes", "layers", "vertical", "reformats", "free", "gone"),
    [
        ("plain.entropy2", 13, 9, 4, 1, 3, {}),
        ("plain.fp32", 13, 8, 4, 0, 4, {"/Flatten": "another view of the same memory"}),
        ("res.best_l3", 31, 15, 11, 2, 9, {}),
        ("res.minmax", 31, 15, 11, 1, 2, {}),
        ("unet.entropy2", 15, 8, 5, 7, 0, {"/Concat": "copies", "/Concat_1": "copies"}),
        ("unet.minmax", 15, 8, 5, 4, 0, {"/Concat": "written in place", "/Concat_1": "copies"}),
        ("unet.fp32", 15, 8, 5, 5, 1, {"/Concat": "written in place", "/Concat_1": "copies"}),
    ],
)
def test_real_engines(
    name: str, nodes: int, layers: int, vertical: int, reformats: int, free: int, gone: dict[str, str]
) -> None:
    found = describe_fusion(golden(name), load_model(NETS / f"{name.split('.')[0]}.onnx"))
    assert (found.onnx_nodes, found.layers, found.vertical) == (nodes, layers, vertical)
    assert (found.reformats, found.free, found.horizontal, found.regions) == (reformats, free, 0, 0)
    assert {one.name: one.way for one in found.gone} == gone


def test_in_words() -> None:
    found = describe_fusion(golden("unet.minmax"), load_model(NETS / "unet.onnx")).sentences()
    assert found == (
        "15 ONNX nodes became 8 engine layers: 5 vertical fusions; 4 reformats.",
        "2 nodes have no layer of their own: 1 Concat (written in place); 1 Concat (copies).",
    )


def test_without_the_model_the_nodes_are_those_that_layers_name() -> None:
    found = describe_fusion(golden("unet.minmax"))
    assert (found.onnx_nodes, found.gone) == (14, ())


def test_side_by_side() -> None:
    layers = parsed(
        conv("q || k || v", INT8, FP16, onnx=("q", "k", "v")),
        conv("a || b + relu", INT8, FP16, onnx=("a", "b", "relu")),
    )
    found = describe_fusion(layers)
    assert (found.horizontal, found.vertical) == (2, 1)
    assert found.sentences() == ("6 ONNX nodes became 2 engine layers: 1 vertical fusion, 2 horizontal.",)
    alone = describe_fusion(layers[:1]).sentences()
    assert alone == ("3 ONNX nodes became 1 engine layer: 1 horizontal fusion.",)


def test_nodes_without_names_are_those_that_the_parser_names_by_their_outputs() -> None:
    """As TensorRT's parser writes them, 8.6's and TensorRT-RTX's alike."""
    network = model(helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"]))
    layers = parsed(conv("node_of_c + node_of_y", INT8, INT8, onnx=("node_of_c", "node_of_y")))
    found = describe_fusion(layers, network)
    assert (found.vertical, found.gone) == (1, ())


def test_folded_weights_and_pairs_are_no_fusion() -> None:
    network = model(
        helper.make_node("Constant", [], ["w"], name="make_w", value_float=1.0),
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], name="quant"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], name="dequant"),
        helper.make_node("Conv", ["d", "w"], ["c"], name="conv"),
        helper.make_node("Identity", ["c"], ["i"]),
        helper.make_node("BatchNormalization", ["i", "a", "b", "m", "v"], ["n"], name="bn"),
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    )
    layers = parsed(
        reformat("quant", FP32, INT8, "QDQ"),
        conv("w + quant + conv", INT8, FP32, onnx=("quant", "conv")),
        pointwise("PWN(relu)", FP32, FP32, ["relu"]),
    )
    found = describe_fusion(layers, network)
    assert (found.vertical, found.quantizing) == (0, 1)
    assert found.sentences() == (
        "7 ONNX nodes became 2 engine layers; 1 reformat (1 to quantize or dequantize).",
        "4 nodes have no layer of their own: 1 Constant (folded into constants); 1 DequantizeLinear (inside "
        "kernels, or folded into weights); 1 Identity (without work); 1 BatchNormalization (folded into "
        "weights).",
    )
    assert [one.name for one in found.gone] == ["make_w", "dequant", "node_of_i", "bn"]


def test_a_region_that_names_its_ends_alone_hides_what_is_gone() -> None:
    network = model(*(helper.make_node("Relu", [a], [b], name=b) for a, b in ("xa", "ab", "by")))
    region = layer("{ForeignNode[a...y]}", "Myelin", [tensor("x", FP16)], [tensor("y", FP16)])
    found = describe_fusion(parsed(region), network)
    assert found.sentences() == (
        "3 ONNX nodes became 1 engine layer.",
        "1 region compiled as a whole (ForeignNode).",
    )
    assert found.gone == ()
    told = layer("{ForeignNode[a...y]}", "Myelin", onnx=("a", "y"))
    assert [one.name for one in describe_fusion(parsed(told), network).gone] == ["b"]


def test_names_alone_tell_fusion_too() -> None:
    copy = "Reformatting CopyNode for Input Tensor 0 to z"
    layers = parsed("w1 + conv1 + relu1", "PWN(PWN(sigmoid), mul)", copy)
    found = describe_fusion(layers)
    assert (found.layers, found.vertical, found.reformats) == (2, 2, 1)
