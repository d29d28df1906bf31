"""Reading the inspector's answers: those of TensorRT 8.6.0 on an H200, and other releases' forms."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from goldens import NETS
from layer_answers import (
    FP16,
    FP32,
    INT8,
    UNTOLD,
    answer,
    conv,
    golden,
    golden_bytes,
    layer,
    parsed,
    pointwise,
    reformat,
    tensor,
)

from calib.engine import EngineLayer, inspect_engine, parse_layers
from calib.errors import EngineError

INDICES = "Row major linear Int32"

# Read by eye from the files: types of weights, names of kernels, and between which layers the others stand.
PRECISIONS = {
    "plain.fp32": {"FP32": 8},
    "plain.fp16": {"FP16": 6, "FP32": 3},
    "plain.entropy2": {"INT8": 7, "FP32": 2},
    "plain.minmax": {"INT8": 6, "FP32": 3},
    "res.fp32": {"FP32": 15},
    "res.fp32_l3": {"FP32": 15},
    "res.fp16": {"FP16": 11, "FP32": 4},
    "res.fp16_l3": {"FP16": 12, "FP32": 3},
    "res.best_l3": {"FP16": 13, "FP32": 2},
    "res.entropy2": {"INT8": 10, "FP32": 5},
    "res.minmax": {"INT8": 8, "FP32": 7},
    "unet.fp32": {"FP32": 8},
    "unet.fp16": {"FP16": 4, "FP32": 4},
    "unet.entropy2": {"INT8": 5, "FP32": 3},
    "unet.minmax": {"INT8": 7, "FP32": 1},
}


def computing(layers: tuple[EngineLayer, ...]) -> list[EngineLayer]:
    return [one for one in layers if not one.copies]


def test_every_golden_is_here() -> None:
    names = {path.name.removesuffix(".layers.json.gz") for path in NETS.glob("*.layers.json.gz")}
    assert names == set(PRECISIONS)


@pytest.mark.parametrize("name", list(PRECISIONS))
def test_precisions_of_real_engines(name: str) -> None:
    assert Counter(one.precision for one in computing(golden(name))) == PRECISIONS[name]


@pytest.mark.parametrize("name", list(PRECISIONS))
def test_weights_and_kernels_agree_in_real_engines(name: str) -> None:
    """Of layers with weights TensorRT states their type as well: another witness than the kernel's name."""
    stated = {"Int8": "INT8", "Half": "FP16", "Float": "FP32"}
    weighted = [one for one in golden(name) if "Weights" in one.raw]
    assert len(weighted) >= 5
    assert [one.precision for one in weighted] == [stated[one.raw["Weights"]["Type"]] for one in weighted]


def test_what_tells_the_precision() -> None:
    found = {one.name: one.evidence for one in computing(golden("plain.entropy2"))}
    assert found["/f/f.3/MaxPool"] == "kernel"
    assert found["/Flatten + reshape_before_/fc1/Gemm"] == "neighbours"
    assert set(found.values()) == {"kernel", "neighbours"}


def test_onnx_nodes_are_set_apart_by_control_characters() -> None:
    first = golden("res.minmax")[2]
    assert first.name == "/l/l.0/b/b.0/Conv + /l/l.0/Add + /l/l.0/Relu"
    assert first.onnx_nodes == ("/l/l.0/b/b.0/Conv", "/l/l.0/Add", "/l/l.0/Relu")
    assert b"\x1e" in golden_bytes("res.minmax")


def test_doc_strings_are_no_part_of_the_names_of_nodes() -> None:
    told = ("conv | File 'net.py', line 12 | return self.conv(x[0])", "relu")
    (found,) = parsed(conv("conv + relu", INT8, INT8, onnx=told))
    assert found.onnx_nodes == ("conv", "relu")


def test_a_reshape_for_a_gemm_is_not_the_gemm() -> None:
    found = next(one for one in golden("plain.fp32") if one.name.startswith("/Flatten"))
    assert (found.onnx_nodes, found.copies, found.free) == (("/Flatten",), True, True)


def test_text_bytes_and_gzip_say_the_same() -> None:
    data = golden_bytes("unet.minmax")
    assert parse_layers(data) == parse_layers(data.decode()) == parse_layers(gzip.compress(data))


def test_formats_of_static_shapes() -> None:
    (found,) = parsed(conv("c", INT8, FP16))
    assert (found.precision, found.inputs[0].datatype, found.outputs[0].datatype) == ("INT8", "INT8", "FP16")
    assert found.inputs[0].format == INT8
    assert (found.inputs[0].shape, found.channels, found.groups) == ((1, 64, 8, 8), 64, 1)


def test_the_form_of_tensorrt_11() -> None:
    """``Format/Datatype`` is two fields there, and ``Bindings`` became ``I/O Tensors``."""
    split = {"Dimensions": [1, 64], "Format": "Row major linear format (kLINEAR)"}
    gemm = {
        "Name": "gemm",
        "LayerType": "gemm",
        "Inputs": [{"Name": "a", "Datatype": "Int8", **split}],
        "Outputs": [{"Name": "b", "DataType": "Half", **split}],
        "Metadata": "[ONNX Layer: g]\x1f[ONNX Layer: r]",
    }
    document = {
        "Layers": [gemm],
        "I/O Tensors": [{"Name": "a", "IOMode": "Input", "DataType": "Int8", "Dimensions": [1, 64]}],
    }
    (found,) = parse_layers(json.dumps(document))
    assert (found.precision, found.evidence, found.onnx_nodes) == ("INT8", "tensors", ("g", "r"))
    assert (found.inputs[0].datatype, found.outputs[0].datatype) == ("INT8", "FP16")


def test_layers_as_names_alone() -> None:
    """What an engine with ProfilingVerbosity.LAYER_NAMES_ONLY tells."""
    found = parsed(
        "conv1.weight + QuantizeLinear_7 + Conv_9 + PWN(Clip_13)",
        "Reformatting CopyNode for Input Tensor 0 to GlobalAveragePool_747",
        "[trainStation1]",
        "x copy",
        "PWN((Unnamed Layer* 112) [ElementWise], PWN(sigmoid, mul))",
    )
    assert [one.copies for one in found] == [False, True, True, True, False]
    assert not any(one.detailed for one in found)
    assert {one.precision for one in found} == {"unknown"}
    assert found[0].onnx_nodes == ("conv1.weight", "QuantizeLinear_7", "Conv_9", "Clip_13")
    assert found[4].onnx_nodes == ("sigmoid", "mul")


def test_a_list_of_layers_without_bindings() -> None:
    assert [one.name for one in parse_layers('["a", "b"]')] == ["a", "b"]


def test_nodes_by_name_where_there_are_no_metadata() -> None:
    """TensorRT 8.4 and 8.5 have none."""
    raw = conv("w + Conv_9 + Relu_10", INT8, INT8)
    del raw["Metadata"]
    assert parsed(raw)[0].onnx_nodes == ("w", "Conv_9", "Relu_10")


@pytest.mark.parametrize(
    ("raw", "precision", "evidence"),
    [
        (conv("c", UNTOLD, UNTOLD, Weights={"Type": "Int8"}), "INT8", "weights"),
        (conv("c", FP16, FP16, Weights={"Type": "Int8", "Count": 9}), "FP16", "tensors"),
        (conv("c", FP32, FP32, TacticName="sm80_xmma_fprop_tf32f32_tf32f32_f32_nhwc"), "TF32", "kernel"),
        (pointwise("add", INT8, FP16), "INT8", "tensors"),
        (layer("g", "Gather", [tensor("x", FP16), tensor("i", INDICES)]), "FP16", "tensors"),
        (layer("s", "Shape", [], [tensor("n", INDICES)]), "INT32", "tensors"),
        (layer("a", "ElementWise", [tensor("x", INT8), tensor("y", FP16)], [tensor("z", FP16)]),
         "FP16", "tensors"),
        (layer("k", "kgen", [tensor("x", "BFloat16")], [tensor("y", "BFloat16")]), "BF16", "tensors"),
        (layer("p", "CaskPooling", TacticName="sm50_pooling_coalescedC_NHWC_kMAX"), "unknown", ""),
    ],
    ids=["weights", "only weights", "TF32", "reads", "indices", "integers", "writes", "Myelin", "none"],
)  # fmt: skip
def test_the_rule_of_precisions(raw: dict[str, Any], precision: str, evidence: str) -> None:
    (found,) = parsed(raw)
    assert (found.precision, found.evidence) == (precision, evidence)


def test_neighbours_do_not_speak_across_a_reformat() -> None:
    pool = layer("pool", "CaskPooling", [tensor("b", UNTOLD)], [tensor("c", UNTOLD)])
    middle = layer("r", "Reformat", [tensor("a", UNTOLD)], [tensor("b", UNTOLD)], Origin="REFORMAT")
    last = layer("conv", "CaskConvolution", [tensor("a", UNTOLD)], TacticName="k_i8i8_i8i32_f32_x")
    assert [one.precision for one in parsed(last, middle, pool)] == ["INT8", "unknown", "unknown"]
    empty = layer("n", "NoOp", [tensor("a", UNTOLD)], [tensor("b", UNTOLD)])
    assert [one.precision for one in parsed(last, empty, pool)] == ["INT8", "INT8", "INT8"]


def test_reformats_that_quantize() -> None:
    found = parsed(reformat("QuantizeLinear_2", FP32, INT8, "QDQ"))[0]
    assert (found.copies, found.free, found.origin) == (True, False, "QDQ")


def test_layers_of_one_profile() -> None:
    layers = [conv("c", INT8, INT8), conv("c [profile 1]", FP16, FP16), conv("d [profile 1]", FP16, FP16)]
    assert [one.name for one in parse_layers(answer(*layers))] == ["c"]
    assert len(parse_layers(answer(*layers), profile=1)) == 2
    with pytest.raises(EngineError, match="has no layers of optimization profile 2"):
        parse_layers(answer(*layers), "e.json", profile=2)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (golden_bytes("plain.fp32")[:500], "e.json is not the JSON of TensorRT's .* or cut off"),
        ("", "not the JSON"),
        ("[" * 100_000, "not the JSON"),
        (gzip.compress(golden_bytes("plain.fp32"))[:300], "e.json is a damaged gzip file"),
        (b"\x1f\x8bnot gzip", "damaged gzip"),
        ('{"Bindings": []}', "has no list of layers: expected what TensorRT's inspector answers"),
        ('{"Layers": [1]}', "has no list of layers"),
        ('{"Layers": "conv"}', "has no list of layers"),
        ('{"Layers": []}', "tells no layers: the engine was built with ProfilingVerbosity.NONE"),
    ],
    ids=["cut", "empty", "deep", "cut gzip", "no gzip", "no layers", "numbers", "text", "verbosity none"],
)
def test_what_is_no_answer(text: str | bytes, match: str) -> None:
    with pytest.raises(EngineError, match=match):
        parse_layers(text, "e.json")


def test_odd_fields_are_taken_as_not_told() -> None:
    odd = {"Name": None, "LayerType": None, "Inputs": "x", "Outputs": [None, "y"], "Weights": 3}
    odd["Groups"] = "many"
    (found,) = parse_layers(json.dumps({"Layers": [odd]}))
    assert (found.precision, found.inputs, found.groups) == ("unknown", (), 0)
    assert [one.name for one in found.outputs] == ["", "y"]


class Inspector:
    execution_context: Any = None

    def get_engine_information(self, form: str) -> str:
        assert form == "JSON"
        if self.execution_context is None:
            return answer("c")
        return answer(conv("c", UNTOLD, UNTOLD), conv("c [profile 1]", FP16, FP16))


def test_an_engine_is_asked_with_its_context() -> None:
    api = SimpleNamespace(trt=SimpleNamespace(LayerInformationFormat=SimpleNamespace(JSON="JSON")))
    engine = SimpleNamespace(create_engine_inspector=Inspector)
    assert inspect_engine(api, engine)[0].detailed is False
    context = SimpleNamespace(active_optimization_profile=1)
    assert [one.precision for one in inspect_engine(api, engine, context)] == ["FP16"]


def test_an_engine_without_an_inspector() -> None:
    engine = SimpleNamespace(create_engine_inspector=lambda: None)
    with pytest.raises(EngineError, match="no inspector"):
        inspect_engine(SimpleNamespace(), engine)
