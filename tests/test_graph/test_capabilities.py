"""The layer table: what TensorRT and calib quantize do with each operator."""

from __future__ import annotations

import json

import onnx
import pytest
from goldens import NETS, REAL
from half_networks import attention, branches, in_memory
from networks import conv_relu_gemm, model, node, weight
from onnx import TensorProto, helper

from calib.errors import UsageError
from calib.graph import load_model
from calib.graph.capabilities import LayerRow, layer_table
from calib.graph.capability_table import APART, ELEMENTWISE, FLOAT_ONLY, LISTED_INT8, PARSED, RESTRICTIONS


def rows(proto: onnx.ModelProto, target: str | None = None) -> dict[str, LayerRow]:
    return {row.op: row for row in layer_table(in_memory(proto), target).rows}


@pytest.mark.parametrize(
    ("op", "count", "answers", "doing", "quantized"),
    [
        ("Conv", 2, ("int8", "int8", "int8"), "pairs", 2),
        ("Gemm", 1, ("int8", "int8", "int8"), "pairs", 1),
        ("Relu", 2, ("int8", "pairs", "pairs"), "fuses", 0),
        ("MaxPool", 1, ("int8", "int8", "int8"), "moves", 0),
        ("GlobalAveragePool", 1, ("int8", "pairs", "pairs"), "pairs", 1),
        ("Flatten", 1, ("int8", "int8", "int8"), "moves", 0),
    ],
)
def test_a_convolutional_network(
    op: str, count: int, answers: tuple[str, ...], doing: str, quantized: int
) -> None:
    row = rows(conv_relu_gemm())[op]
    assert (row.count, row.inside, tuple(row.tensorrt.values())) == (count, 0, answers)
    assert (row.doing, row.quantized) == (doing, quantized)


def test_attention() -> None:
    found = rows(attention())
    products = found["MatMul"]
    assert (products.count, products.quantized) == (5, 3)
    assert products.left == ("it multiplies two activations",)
    for op in ("Softmax", "LayerNormalization"):
        assert set(found[op].tensorrt.values()) == {"float"}
        assert found[op].doing == "float"
    assert found["LayerNormalization"].why == "normalization is computed in float"
    assert found["LayerNormalization"].restriction == "the first output"


def test_subgraphs_are_counted_apart() -> None:
    found = rows(branches())
    assert (found["MatMul"].count, found["MatMul"].inside, found["MatMul"].quantized) == (2, 2, 2)
    assert found["If"].left == ("control flow: nodes in its subgraphs stay in float",)


def test_operators_that_some_releases_do_not_parse() -> None:
    nodes = [node("Gelu", ["x"], ["a"]), node("Mish", ["a"], ["b"]), node("Det", ["b"], ["y"])]
    found = rows(model(nodes, {"x": [2, 2]}, {"y": []}, opset=20))
    assert tuple(found["Gelu"].tensorrt.values()) == ("none", "pairs", "pairs")
    assert found["Gelu"].why == "not parsed by 8.6"
    assert found["Det"].why == "not parsed by 8.6 and 10 and 11"
    swish = rows(model([node("Swish", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, opset=24))["Swish"]
    assert swish.why == "not parsed by 8.6 and 10; from 11.0 on"
    assert swish.tensorrt["11"] == "pairs"


def test_plug_ins_and_functions() -> None:
    found = {row.op: row for row in layer_table(load_model(REAL / "models" / "custom_op_node.onnx")).rows}
    custom = next(iter(found.values()))
    assert set(custom.tensorrt.values()) == {"plug-in"}
    assert "a plug-in of its name must be registered" in custom.why
    body = helper.make_function(
        "my", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="my")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    table = rows(helper.make_model(graph, functions=[body], opset_imports=opsets, ir_version=8))
    assert table["Twice"].why == "a function of the model: the parser imports what is in it"
    assert (table["Add"].count, table["Add"].inside) == (0, 1)


def test_a_quantized_model() -> None:
    table = layer_table(load_model(REAL / "models" / "qdq_conv.onnx"))
    assert {row.doing for row in table.rows} == {"refuses"}
    assert any("calib quantize refuses it" in note for note in table.notes)


@pytest.mark.parametrize(
    ("target", "quantized", "told"), [("tensorrt-8.6", 0, True), ("tensorrt-11", 1, False)]
)
def test_a_float16_model(target: str, quantized: int, told: bool) -> None:
    table = layer_table(load_model(REAL / "models" / "matmul.fp16.onnx"), target)
    row = next(row for row in table.rows if row.op == "MatMul")
    assert row.quantized == quantized
    assert any(note.startswith("weights in float16 stay as they are") for note in table.notes) is told


def test_one_release() -> None:
    proto = model([node("Gelu", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, opset=20)
    assert dict(rows(proto, "tensorrt-10")["Gelu"].tensorrt) == {"10": "pairs"}
    assert layer_table(in_memory(proto)).notes == (
        "opset 20: TensorRT 8.6 reads up to 17; calib quantize writes it as 17",
    )
    with pytest.raises(UsageError, match="'onnxruntime' is none of its releases"):
        layer_table(in_memory(proto), "onnxruntime")


def test_interpolation_moves_no_values() -> None:
    def resize(*modes: str) -> LayerRow:
        nodes = [
            node("Resize", [f"t{i}" if i else "x", "", "s"], [f"t{i + 1}"], mode=mode)
            for i, mode in enumerate(modes)
        ]
        shape = [1, 2, 4, 4]
        weights = {"s": [1, 1, 1, 1]}
        return rows(model(nodes, {"x": shape}, {f"t{len(modes)}": shape}, weights))["Resize"]

    assert (resize("nearest").doing, resize("nearest").tensorrt["8.6"]) == ("moves", "int8")
    assert (resize("linear").doing, resize("linear").tensorrt["8.6"]) == ("float", "unknown")
    assert resize("nearest", "linear").doing == "float"


@pytest.mark.parametrize("net", ["plain", "res", "unet"])
def test_pairs_are_those_that_quantize_places(net: str) -> None:
    from calib.graph import quantize

    path = NETS / f"{net}.onnx"
    table = layer_table(load_model(path))
    placed = quantize(path, NETS / f"{net}.minmax.cache", conv_transpose="int8")
    readers = {reader for pair in placed.activations for reader in pair.readers}
    assert sum(row.quantized for row in table.rows) == len(readers)
    assert sum(row.count for row in table.rows) == len(load_model(path).proto.graph.node)
    assert json.loads(json.dumps(table.as_dict()))["rows"][0]["tensorrt"].keys() == {"8.6", "10", "11"}


class TestData:
    def test_releases_only_add(self) -> None:
        assert PARSED["8.6"] < PARSED["10"] < PARSED["11"]
        # Rows of the parser's table of 8.5 that say N, but for those that 8.6 added.
        refused = (
            "Bernoulli BitShift Compress ConvInteger DFT Det DynamicQuantizeLinear Hardmax MatMulInteger"
        )
        refused += " MaxRoiPool MaxUnpool MelWeightMatrix Multinomial QLinearConv QLinearMatMul STFT Unique"
        assert PARSED["8.6"].isdisjoint(refused.split())
        assert {"IsInf", "LayerNormalization", "GroupNormalization"} <= PARSED["8.6"]

    def test_every_operator_has_one_answer(self) -> None:
        assert not FLOAT_ONLY.keys() & (LISTED_INT8 | ELEMENTWISE | APART)
        assert not APART & (LISTED_INT8 | ELEMENTWISE)
        assert PARSED["8.6"] >= (LISTED_INT8 | ELEMENTWISE)
        assert RESTRICTIONS.keys() <= PARSED["11"]
        assert FLOAT_ONLY.keys() <= PARSED["11"]

    def test_against_nvidias_parser(self) -> None:
        """TensorRT-RTX 1.7 has the parser of TensorRT 11, but no plug-ins: DFT and DeformConv are such."""
        trt = pytest.importorskip("tensorrt_rtx_bindings", reason="TensorRT-RTX is not installed")
        logger = trt.Logger(trt.Logger.ERROR)
        network = trt.Builder(logger).create_network(0)
        parser = trt.OnnxParser(network, logger)
        known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
        parsed = {name for name in known | PARSED["11"] if parser.supports_operator(name)}
        assert PARSED["11"] - parsed == {"DFT", "DeformConv"}
        # Of opsets that TensorRT 11 does not read yet.
        assert parsed - PARSED["11"] <= {"CausalConvWithState", "LinearAttention"}


def test_weights_without_constants() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Conv", ["i", "k"], ["y"])]
    shapes = {"x": [2, 4], "w": [4, 4], "i": [1, 3, 4, 4]}
    row = rows(model(nodes, shapes, {"a": [2, 4], "y": [1, 2, 2, 2]}, {"k": weight(2, 3, 3, 3)}))["MatMul"]
    assert (row.doing, row.quantized, row.left) == ("float", 0, ("it multiplies two activations",))
