from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from goldens import NETS, REAL
from networks import conv_relu_gemm, model, node, samples, save, weight

from calib.calibrators import CalibrationCache, read_sidecar
from calib.data import from_arrays
from calib.graph import OnnxModel, calibrate, load_model
from calib.graph.cache_model import compare_names, lint_against_model, lint_provenance

FLOATS = ["x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y"]


def of(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def test_names_of_a_calibration_all_match(tmp_path: Path) -> None:
    path = save(conv_relu_gemm(), tmp_path / "m.onnx")
    made = calibrate(path, from_arrays("noise", {"x": samples(4, 3, 8, 8)}))
    comparison = compare_names(made.cache, load_model(path))
    assert list(comparison.matched) == FLOATS
    assert (comparison.only_cache, comparison.only_model, dict(comparison.apart)) == ((), (), {})


@pytest.mark.parametrize("path", sorted(NETS.glob("*.cache")), ids=lambda path: path.stem)
def test_caches_of_tensorrt_match_but_for_its_unnamed_layers(path: Path) -> None:
    names = list(CalibrationCache.read(path))
    comparison = compare_names(names, load_model(NETS / f"{path.name.split('.')[0]}.onnx"))
    unnamed = [name for name in names if name.startswith("(Unnamed Layer")]
    assert set(comparison.matched) == set(names) - set(unnamed)
    assert list(comparison.apart) == unnamed
    assert (comparison.only_cache, comparison.only_model) == ((), ())


def conv_relu_add() -> onnx.ModelProto:
    return model(
        [
            node("Conv", ["x", "w"], ["conv"], name="conv1", pads=[1, 1, 1, 1]),
            node("Relu", ["conv"], ["relu"], name="relu1"),
            node("Add", ["relu", "x"], ["y"], name="add1"),
        ],
        {"x": ["n", 3, 4, 4]},
        {"y": ["n", 3, 4, 4]},
        {"w": weight(3, 3, 3, 3)},
    )


def test_an_edited_graph_gives_a_three_way_count_with_names() -> None:
    edited = conv_relu_add()
    # Rename the convolution's output; delete the ReLU.
    edited.graph.node[0].output[0] = "stem/out"
    del edited.graph.node[1]
    edited.graph.node[1].input[0] = "stem/out"
    comparison, findings = lint_against_model(["x", "conv", "relu", "y"], of(edited))
    assert comparison.matched == ("x", "y")
    assert comparison.only_cache == ("conv", "relu")
    assert comparison.only_model == ("stem/out",)
    assert [(row.code, row.severity, row.tensor) for row in findings] == [
        ("name-foreign", "warning", "conv"),
        ("name-foreign", "warning", "relu"),
        ("name-missing", "warning", "stem/out"),
    ]


@pytest.mark.parametrize(
    ("entry", "tensor"),
    [("input", "input.1:0"), ("input.1:0", "input"), ("scope/b", "scope/b:0"), ("conv_output_0", "conv")],
)
def test_near_names_are_suggested(entry: str, tensor: str) -> None:
    proto = model([node("Relu", [tensor], ["y"])], {tensor: [1, 2]}, {"y": [1, 2]})
    _, findings = lint_against_model([entry, "y"], of(proto))
    assert f"Did you mean {tensor!r}?" in findings[0].message


def test_far_names_are_not_suggested() -> None:
    proto = model([node("Relu", ["images"], ["y"])], {"images": [1, 2]}, {"y": [1, 2]})
    assert dict(compare_names(["backbone/conv", "y"], of(proto)).nearest) == {}


def test_colons_survive() -> None:
    proto = model(
        [node("Relu", ["a:0"], ["scope/b:0"]), node("Relu", ["scope/b:0"], ["onnx::Conv_12"])],
        {"a:0": [1, 2]},
        {"onnx::Conv_12": [1, 2]},
    )
    assert compare_names(["a:0", "scope/b:0", "onnx::Conv_12"], of(proto)).matched == (
        "a:0",
        "scope/b:0",
        "onnx::Conv_12",
    )


def test_helpers_constants_and_integers_are_set_apart() -> None:
    proto = model(
        [
            node("Constant", [], ["two"], name="two_node", value_float=2.0),
            node("Mul", ["x", "two"], ["m"], name="mul"),
            node("Softmax", ["m"], ["s"], name="soft"),
            node("MatMul", ["s", "w"], ["y"], name="mat"),
            node("Shape", ["x"], ["shape"], name="shape"),
            node("Reshape", ["y", "shape"], ["z"], name="reshape"),
        ],
        {"x": [2, 2]},
        {"z": None},
        {"w": weight(2, 2)},
    )
    entries = [
        "x",
        "(Unnamed Layer* 16) [Matrix Multiply]_output",
        "ONNXTRT_Broadcast_3_output",
        "w",
        "w_output",
        "two",
        "two_output",
        "soft_output",
        "shape",
        "gone_output",
    ]
    comparison = compare_names(entries, of(proto))
    assert dict(comparison.apart) == {
        "(Unnamed Layer* 16) [Matrix Multiply]_output": "layer without a name of its own",
        "ONNXTRT_Broadcast_3_output": "layer that TensorRT's ONNX parser added",
        "w": "a constant of the model",
        "w_output": "output of the layer that TensorRT makes of a constant",
        "two": "a constant of the model",
        "two_output": "output of the layer that TensorRT makes of a constant",
        "soft_output": "output of a layer that TensorRT made of a node",
        "shape": "a tensor that is not float",
    }
    assert comparison.only_cache == ("gone_output",)
    assert comparison.only_model == ("m", "s", "y", "z")


def test_tensors_behind_a_custom_operator_are_of_unknown_type() -> None:
    proto = model([node("Relu", ["x"], ["r"])], {"x": [1, 2]}, {"r": [1, 2]})
    proto.graph.node.append(node("Mystery", ["r"], ["q"], domain="own"))
    proto.graph.node.append(node("Mystery", ["q"], ["p"], domain="own"))
    proto.opset_import.append(onnx.helper.make_opsetid("own", 1))
    comparison, findings = lint_against_model(["x", "r", "q"], of(proto))
    assert comparison.matched == ("x", "r", "q")
    assert comparison.unknown == ("p",)
    assert [(row.code, row.severity) for row in findings] == [("type-unknown", "note")]


def test_names_inside_subgraphs_are_set_apart() -> None:
    loop = load_model(REAL / "models" / "loop.onnx")
    inner = next(
        name
        for outer in loop.proto.graph.node
        for attribute in outer.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
        for inside in attribute.g.node
        for name in inside.output
    )
    assert compare_names([inner], loop).apart == {inner: "a tensor inside an If, Loop or Scan"}


def test_half_precision_and_large_weights_are_understood() -> None:
    half = load_model(REAL / "models" / "matmul.fp16.onnx")
    assert compare_names([], half).only_model == ("a", "matmul_out_0")
    proto = model(
        [node("MatMul", ["x", "big"], ["h"]), node("Relu", ["h"], ["y"])],
        {"x": ["n", 64]},
        {"y": ["n", 64]},
        {"big": weight(64, 64)},
    )
    assert compare_names([], of(proto)).only_model == ("x", "h", "y")


def test_a_cache_of_another_model_is_an_error() -> None:
    for names in (["images", "output0"], ["x", "y", "backbone/conv"]):
        _, findings = lint_against_model(names, of(conv_relu_gemm()))
        assert findings[0].code == "names-of-another-model"
        assert findings[0].severity == "error"


@pytest.mark.parametrize(
    ("edit", "codes"),
    [
        ("nothing", []),
        ("weight", ["weights-changed"]),
        ("node", ["graph-changed"]),
        ("both", ["weights-changed", "graph-changed"]),
    ],
)
def test_changed_weights_and_graph_are_told_apart(tmp_path: Path, edit: str, codes: list[str]) -> None:
    path = save(conv_relu_gemm(), tmp_path / "m.onnx")
    calibrate(path, from_arrays("noise", {"x": samples(4, 3, 8, 8)}), out=tmp_path / "m.cache")
    proto = onnx.load(path)
    if edit in ("weight", "both"):
        changed = onnx.numpy_helper.to_array(proto.graph.initializer[0]) * np.float32(1.5)
        proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(changed, "w1"))
    if edit in ("node", "both"):
        proto.graph.node[0].output[0] = proto.graph.node[1].input[0] = "conv1"
    onnx.save(proto, path)
    sidecar = read_sidecar(tmp_path / "m.cache")
    assert sidecar is not None
    findings = lint_provenance(sidecar, load_model(path))
    assert [row.code for row in findings] == codes
    # Under another name it is no change of the model, but another one.
    other = lint_provenance(sidecar, load_model(save(proto, tmp_path / "other.onnx")))
    assert [row.code for row in other] == (["another-model"] if edit == "both" else codes)
    assert all("m.onnx has changed since" in row.message.replace("have", "has") for row in findings)
