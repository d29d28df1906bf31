"""Models as people have them: subgraphs, custom operators, no names, float16, old opsets."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import pytest
from goldens import NETS, REAL
from networks import conv_relu_gemm, model, node, samples, save, weight
from onnx import TensorProto, helper, numpy_helper

from calib.calibrators import CalibrationCache
from calib.errors import ModelError
from calib.graph import (
    TARGETS,
    OnnxModel,
    layer_table,
    load_model,
    open_session,
    quantize,
    quantize_model,
    session_options,
)


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def run(target: OnnxModel, optimize: bool = False, **feeds: np.ndarray) -> np.ndarray:
    options = session_options(float_qdq=True, optimize=optimize)
    return np.asarray(open_session(target, options).run(None, feeds)[0])


def branch(name: str, seed: int) -> onnx.GraphProto:
    return helper.make_graph(
        [node("Conv", ["c", f"w_{name}"], [f"{name}_c"]), node("Relu", [f"{name}_c"], [f"{name}_y"])],
        name,
        [],
        [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight(2, 4, 1, 1, seed=seed), f"w_{name}")],
    )


def with_branches() -> onnx.ModelProto:
    return model(
        [
            node("Conv", ["x", "w"], ["c"], name="outside"),
            node(
                "If", ["flag"], ["y"], name="either", then_branch=branch("a", 1), else_branch=branch("b", 2)
            ),
        ],
        {"x": [1, 4, 6, 6], "flag": []},
        {"y": [1, 2, 6, 6]},
        {"w": weight(4, 4, 1, 1)},
        types={"flag": TensorProto.BOOL},
    )


@pytest.mark.parametrize("flag", [True, False])
def test_nodes_in_subgraphs_are_counted_and_left_in_float(flag: bool) -> None:
    proto = with_branches()
    result = quantize_model(in_memory(proto), {"x": 0.02, "c": 0.02})
    (inside,) = result.explanation.subgraphs
    assert (inside.node, inside.op, inside.count, inside.weighted) == ("either", "If", 4, 2)
    assert any("4 nodes inside If either stay in float, 2 of them with a weight" in n for n in result.notes)
    feeds = {"x": samples(1, 4, 6, 6), "flag": np.array(flag)}
    for optimize in (False, True):
        found = run(result.model, optimize, **feeds)
        np.testing.assert_allclose(found, run(in_memory(proto), **feeds), atol=0.05)


def test_pairs_in_a_subgraph_are_found() -> None:
    proto = with_branches()
    inner = proto.graph.node[1].attribute[0].g
    inner.node.insert(0, node("QuantizeLinear", ["c", "s", "z"], ["q"]))
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(0.1), "s"))
    proto.graph.initializer.append(numpy_helper.from_array(np.int8(0), "z"))
    with pytest.raises(
        ModelError, match=r"already has 1 QuantizeLinear.* on 1 tensor, the first of them 'c'"
    ):
        quantize_model(in_memory(proto), {"x": 0.02})


def test_integer_operators_count_as_quantized() -> None:
    proto = model(
        [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])],
        {"x": [2, 2]},
        {"q": None, "s": None, "z": None},
        types={"q": TensorProto.UINT8, "z": TensorProto.UINT8},
    )
    with pytest.raises(ModelError, match=r"already has 1 .*integer nodes, on 1 tensor.*'x'"):
        quantize_model(in_memory(proto), {"x": 0.02})


@pytest.mark.parametrize(
    ("operator", "domain"),
    [
        ("QLinearAdd", "com.microsoft"),
        ("QGemm", "com.microsoft"),
        ("DynamicQuantizeMatMul", "com.microsoft"),
        ("TRT_INT8QuantizeLinear", "trt"),
        ("TRT_FP8DequantizeLinear", "trt"),
    ],
)
def test_quantized_forms_of_other_tools_are_known(operator: str, domain: str) -> None:
    """ONNX Runtime's fused operators, and the plug-ins by which ModelOpt writes FP8."""
    proto = model(
        [node("Conv", ["x", "w"], ["c"])], {"x": [1, 4, 6, 6]}, {"c": None}, {"w": weight(4, 4, 1, 1)}
    )
    proto.graph.node.append(helper.make_node(operator, ["c", "w"], ["y"], domain=domain))
    proto.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(ModelError, match=r"already has 1 .*integer nodes, on 1 tensor.*'c'"):
        quantize_model(in_memory(proto), {"x": 0.02, "c": 0.02})


def test_pairs_in_a_function_are_found() -> None:
    proto = model(
        [node("Conv", ["x", "w"], ["c"])], {"x": [1, 4, 6, 6]}, {"c": None}, {"w": weight(4, 4, 1, 1)}
    )
    body = [node("QuantizeLinear", ["a", "s"], ["q"]), node("DequantizeLinear", ["q", "s"], ["b"])]
    proto.functions.append(
        helper.make_function("own", "Rounded", ["a", "s"], ["b"], body, [helper.make_opsetid("", 17)])
    )
    proto.graph.node.append(helper.make_node("Rounded", ["c", "w"], ["y"], domain="own"))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(ModelError, match="already has 2 QuantizeLinear"):
        quantize_model(in_memory(proto), {"x": 0.02})


@pytest.mark.parametrize("domain", ["TRT", ""])
def test_custom_operators_stay_float_and_are_named(domain: str) -> None:
    proto = model(
        [node("Conv", ["x", "w"], ["c"])], {"x": [1, 4, 6, 6]}, {"c": None}, {"w": weight(4, 4, 1, 1)}
    )
    proto.graph.node.append(helper.make_node("EfficientNMS_TRT", ["c"], ["y"], name="nms", domain=domain))
    proto.graph.output[0].name = "y"
    if domain:
        proto.opset_import.append(helper.make_opsetid(domain, 1))
    result = quantize_model(in_memory(proto), {"x": 0.02})
    assert any(
        f"EfficientNMS_TRT (nms) stays in float: custom operator of domain '{domain or 'ai.onnx'}'" in note
        for note in result.notes
    )
    assert result.model.proto.graph.node[-1].domain == domain
    assert [entry.domain for entry in result.model.proto.opset_import] == ["", domain][: 1 + bool(domain)]


def test_a_models_own_function_is_no_custom_operator() -> None:
    body = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    proto = model(
        [node("Conv", ["x", "w"], ["c"])], {"x": [1, 4, 6, 6]}, {"c": None}, {"w": weight(4, 4, 1, 1)}
    )
    proto.graph.node.append(helper.make_node("Twice", ["c"], ["y"], domain="own"))
    proto.graph.output[0].name = "y"
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.append(body)
    result = quantize_model(in_memory(proto), {"x": 0.02})
    reasons = {group.op: group.reason for group in result.explanation.float_groups}
    assert reasons == {"Twice": "a function of the model: nodes in it stay in float"}
    assert result.notes == (
        "1 node inside Twice y stays in float, 0 of them with a weight: pairs go into the main graph alone.",
    )
    assert run(result.model, x=samples(1, 4, 6, 6)).shape == (1, 4, 6, 6)


def test_a_function_may_have_the_name_of_an_operator_in_it() -> None:
    """As torch.onnx.export names them after modules: Softmax of torch's domain holds ONNX's Softmax."""
    softmax = node("Softmax", ["a"], ["b"])
    body = helper.make_function("torch", "Softmax", ["a"], ["b"], [softmax], [helper.make_opsetid("", 17)])
    conv, plain = node("Conv", ["x", "w"], ["c"]), node("Softmax", ["s"], ["y"])
    proto = model([conv], {"x": [1, 4, 6, 6]}, {"c": None}, {"w": weight(4, 4, 1, 1)})
    proto.graph.node.extend([helper.make_node("Softmax", ["c"], ["s"], domain="torch"), plain])
    proto.graph.output[0].name = "y"
    proto.opset_import.append(helper.make_opsetid("torch", 1))
    proto.functions.append(body)
    explanation = quantize_model(in_memory(proto), {"x": 0.02}).explanation
    assert {(group.domain, group.reason) for group in explanation.float_groups} == {
        ("torch", "a function of the model: nodes in it stay in float"),
        ("", "TensorRT has no INT8 softmax"),
    }
    assert [(inside.op, inside.count) for inside in explanation.subgraphs] == [("Softmax", 1)]
    rows = {row.domain: row for row in layer_table(in_memory(proto)).rows if row.op == "Softmax"}
    assert [(rows[domain].count, rows[domain].inside) for domain in ("torch", "")] == [(1, 0), (1, 1)]
    assert "function of the model" in rows["torch"].why
    assert "function of the model" not in rows[""].why


def test_a_custom_operator_called_add_is_no_residual_add() -> None:
    proto = model(
        [node("Conv", ["x", "w"], ["c"])], {"x": [1, 4, 6, 6]}, {"c": None}, {"w": weight(4, 4, 1, 1)}
    )
    proto.graph.node.append(helper.make_node("Add", ["x", "c", "c"], ["y"], name="sum", domain="own"))
    proto.graph.output[0].name = "y"
    proto.opset_import.append(helper.make_opsetid("own", 1))
    result = quantize_model(in_memory(proto), {"x": 0.02, "c": 0.02})
    assert [pair.tensor for pair in result.activations] == ["x"]
    assert any(note.startswith("Add (sum) stays in float: custom operator") for note in result.notes)


def test_weights_in_functions_alone_are_pointed_at() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": [1, 4, 6, 6]}, {"y": None}, {"w": weight(4, 4, 1, 1)})
    body = [node("Conv", ["a", "b"], ["c"])]
    proto.functions.append(
        helper.make_function("own", "Block", ["a", "b"], ["c"], body, [helper.make_opsetid("", 17)])
    )
    proto.graph.node[0].CopyFrom(helper.make_node("Block", ["x", "w"], ["y"], domain="own"))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(ModelError, match=r"but in its functions \(Block\).*inline_local_functions"):
        quantize_model(in_memory(proto), {"x": 0.02})
    inlined = onnx.inliner.inline_local_functions(proto)
    assert quantize_model(in_memory(inlined), {"x": 0.02}).left_float == ()


def test_weights_in_subgraphs_alone_are_pointed_at() -> None:
    proto = with_branches()
    del proto.graph.node[0]
    proto.graph.input[0].name = "c"
    with pytest.raises(
        ModelError, match="no Conv, ConvTranspose, Gemm or MatMul but inside If, Loop or Scan"
    ):
        quantize_model(in_memory(proto), {"c": 0.02})


@pytest.mark.parametrize("opset", [11, 17])
def test_outputs_without_a_shape_are_no_fault_of_ours(opset: int) -> None:
    """ONNX's checker refuses such a model, which runtimes take."""
    proto = conv_relu_gemm()
    proto.opset_import[0].version = opset
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(onnx.checker.ValidationError, match="shape"):
        onnx.checker.check_model(proto)
    x = samples(2, 3, 8, 8)
    result = quantize_model(in_memory(proto), dict.fromkeys(["x", "p1", "f"], 0.03))
    np.testing.assert_allclose(run(result.model, x=x), run(in_memory(proto), x=x), atol=0.1)


def test_nodes_without_names_get_unique_helpers() -> None:
    proto = conv_relu_gemm()
    for item in proto.graph.node:
        item.ClearField("name")
    result = quantize_model(in_memory(proto), dict.fromkeys(("x", "p1", "f"), 0.02))
    names = [item.name for item in result.model.proto.graph.node if item.name]
    assert len(names) == len(set(names)) == 3 * 2 + 3
    before = {name for item in proto.graph.node for name in item.output}
    after = {name for item in result.model.proto.graph.node for name in item.output}
    assert before <= after
    assert [pair.readers for pair in result.activations] == [("c1",), ("c2",), ("y",)]


def test_weights_that_cannot_be_quantized_are_named_with_their_tensor() -> None:
    proto = model(
        [
            node("Identity", ["x"], ["turned"]),
            node("Conv", ["x", "turned"], ["a"], name="computed"),
            node("RandomNormal", [], ["random"], shape=[6, 3]),
            node("MatMul", ["x", "random"], ["f"], name="random"),
            node("Conv", ["x", "broken"], ["g"], name="broken"),
            node("MatMul", ["left", "x"], ["h"], name="left"),
            node("MatMul", ["x", "sparse"], ["i"], name="sparse"),
            node("Conv", ["x", "given"], ["b"], name="outside"),
            node("Conv", ["x", "w"], ["c"], name="good"),
            node("MatMul", ["x", "none"], ["d"], name="empty"),
            node("MatMul", ["x", "line"], ["e"], name="vector"),
        ],
        {"x": [1, 4, 6, 6], "given": [4, 4, 1, 1]},
        dict.fromkeys("abcdefghi"),
        {
            "w": weight(4, 4, 1, 1),
            "none": np.zeros((6, 0), np.float32),
            "line": weight(6),
            "broken": np.full((4, 4, 1, 1), np.nan, np.float32),
            "left": weight(6, 6),
            "sparse": weight(6, 6),
        },
    )
    values, places = np.float32([1, 2]), np.int64([0, 7])
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(values, "sparse"), numpy_helper.from_array(places, "places"), [6, 6]
        )
    )
    del proto.graph.initializer[[tensor.name for tensor in proto.graph.initializer].index("sparse")]
    result = quantize_model(in_memory(proto), {"x": 0.02})
    assert {left.node: left.reason for left in result.left_float} == {
        "computed": "its weight 'turned' is no constant: Identity computes it",
        "random": "its weight 'random' is no constant: RandomNormal computes it",
        "broken": "its weight 'broken' holds infinities or NaN",
        "left": "its first input 'left' is a constant; pairs go on a weight that is the second",
        "sparse": "its weight 'sparse' is no constant: it is stored as a sparse tensor",
        "outside": "its weight 'given' is no constant: it is an input of the model",
        "empty": "its weight 'none' has no elements",
        "vector": "its weight 'line' is a vector",
    }


def test_weight_behind_identities_is_quantized_and_its_float_form_is_gone() -> None:
    proto = model(
        [
            node("Identity", ["w"], ["w_a"]),
            node("Identity", ["w_a"], ["w_b"]),
            node("Identity", ["b"], ["b_a"]),
            node("Conv", ["x", "w_a", "b_a"], ["c"]),
            node("Conv", ["c", "w_b", "b"], ["y"]),
        ],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {"w": weight(4, 4, 1, 1), "b": weight(4)},
    )
    result = quantize_model(in_memory(proto), {"x": 0.03, "c": 0.02})
    assert {pair.tensor for pair in result.pairs if pair.weight} == {"w_a", "w_b"}
    kept = {t.name for t in result.model.proto.graph.initializer if t.data_type == TensorProto.FLOAT}
    assert kept == {"b", "x_scale", "c_scale", "w_a_scale", "w_b_scale"}
    assert [n.op_type for n in result.model.proto.graph.node].count("Identity") == 1
    values = samples(1, 4, 6, 6)
    np.testing.assert_allclose(run(result.model, x=values), run(in_memory(proto), x=values), atol=0.1)


def test_float16_model_is_refused_with_the_way_out() -> None:
    proto = model(
        [node("Conv", ["x", "w"], ["y"])],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {"w": weight(4, 4, 1, 1).astype(np.float16)},
        types={"x": TensorProto.FLOAT16, "y": TensorProto.FLOAT16},
    )
    with pytest.raises(ModelError, match=r"weight .* is float16, not float32.*Give the float32 model"):
        quantize_model(in_memory(proto), {"x": 0.02})


def test_float16_part_of_a_model_stays_as_it_is() -> None:
    proto = model(
        [
            node("Conv", ["x", "w"], ["a"], name="single"),
            node("Cast", ["a"], ["h"], to=TensorProto.FLOAT16),
            node("Conv", ["h", "half"], ["y"], name="half"),
        ],
        {"x": [1, 4, 6, 6]},
        {"y": None},
        {"w": weight(4, 4, 1, 1), "half": weight(4, 4, 1, 1).astype(np.float16)},
        types={"y": TensorProto.FLOAT16},
    )
    result = quantize_model(in_memory(proto), {"x": 0.02, "h": 0.02})
    assert [left.node for left in result.left_float] == ["half"]
    assert run(result.model, x=samples(1, 4, 6, 6)).dtype == np.float16


@pytest.mark.parametrize("times", [1, 2])
def test_upsample_is_converted_and_keeps_its_tensors_names(times: int) -> None:
    names = ["x", "u1", "u2"][: times + 1]
    pairs = pairwise(names)
    proto = model(
        [
            *(node("Upsample", [source, "f"], [made], mode="nearest") for source, made in pairs),
            node("Conv", [names[-1], "w"], ["y"]),
        ],
        {"x": [1, 3, 4, 4]},
        {"y": [1, 2, 4 * 2**times - 2, 4 * 2**times - 2]},
        {"f": np.array([1, 1, 2, 2], np.float32), "w": weight(2, 3, 3, 3)},
        opset=9,
    )
    result = quantize_model(in_memory(proto), dict.fromkeys(names, 0.03))
    assert [pair.tensor for pair in result.activations] == [names[-1]]
    assert result.notes == ("opset raised from 9 to 13: Q/DQ per channel needs it",)
    values = samples(1, 3, 4, 4)
    # ONNX Runtime reads Upsample of opset 9 itself. 27 products are off by half a step of 0.03 at most.
    np.testing.assert_allclose(run(result.model, x=values), run(in_memory(proto), x=values), atol=0.1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("custom_op_node", "It has no Conv, ConvTranspose, Gemm or MatMul"),
        ("loop", "It has no Conv, ConvTranspose, Gemm or MatMul"),
        ("qdq_conv", "already has 2 QuantizeLinear.* on 1 tensor, the first of them 'x'"),
    ],
)
def test_real_files_that_cannot_be_quantized_are_named_with_the_reason(name: str, message: str) -> None:
    source = load_model(REAL / "models" / f"{name}.onnx")
    scales = {name: 0.1 for item in source.proto.graph.node for name in (*item.input, *item.output)}
    with pytest.raises(ModelError, match=rf"{name}\.onnx.*{message}"):
        quantize_model(source, scales, target="onnxruntime")


def test_a_real_float16_file_is_quantized_where_scales_may_be_float16() -> None:
    source = load_model(REAL / "models" / "matmul.fp16.onnx")
    with pytest.raises(
        ModelError, match=r"its weight 'b' is float16, not float32.*choose --target tensorrt-10"
    ):
        quantize_model(source, {"a": 0.01}, target="tensorrt-8.6", attention="int8")
    result = quantize_model(source, {"a": 0.01}, target="tensorrt-10")
    assert [pair.tensor for pair in result.pairs] == ["a", "b"]
    assert any(note.startswith("opset raised from") for note in result.notes)
    assert [str(spec) for spec in result.model.inputs] == [str(spec) for spec in source.inputs]
    a = np.linspace(-1, 1, 128, dtype=np.float16).reshape(8, 16)
    exact, found = run(source, a=a), run(result.model, a=a)
    # 16 products: half a step of a (0.005) times 3, and half a step of b (3/254) times 1; 16 · 0.027 = 0.43.
    np.testing.assert_allclose(found, exact, atol=0.45)


TRAINED = sorted(NETS.glob("*.onnx"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.stem)
def test_trained_nets_stay_valid_and_run_for_every_target(path: Path, target: str) -> None:
    source = load_model(path)
    names = {name for item in source.proto.graph.node for name in item.output} | {"input"}
    result = quantize_model(source, dict.fromkeys(names, 0.1), target=target)
    written = result.model.proto
    onnx.checker.check_model(written)
    assert list(written.graph.input) == list(source.proto.graph.input)
    assert list(written.graph.output) == list(source.proto.graph.output)
    constants = {t.name: numpy_helper.to_array(t) for t in written.graph.initializer}
    pairs = [n for n in written.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert len(pairs) == 2 * len(result.activations) + sum(pair.weight for pair in result.pairs)
    for item in pairs:
        assert constants[item.input[2]].dtype == np.int8
        assert not constants[item.input[2]].any()
    for optimize in (False, True):
        for float_qdq in (False, True):
            options = session_options(optimize=optimize, float_qdq=float_qdq)
            assert open_session(result.model, options).get_outputs()[0].name == source.outputs[0].name


def test_explanation_lists_every_node_once() -> None:
    proto = conv_relu_gemm()
    result = quantize_model(in_memory(proto), {"x": 0.02, "f": 0.5})
    found = result.explanation
    readers = [reader for pair in found.pairs if not pair.weight for reader in pair.readers]
    floats = [name for group in found.float_groups for name in group.nodes]
    left = [item.node for item in found.left_float]
    assert sorted([*readers, *floats, *left]) == sorted(item.name for item in proto.graph.node)
    assert {group.op: group.count for group in found.float_groups}["Relu"] == 2
    x = next(pair for pair in found.pairs if pair.tensor == "x")
    assert x.amax == np.float32(127 * np.float32(0.02))
    assert x.rule == "input of Conv"
    w3 = next(pair for pair in found.pairs if pair.tensor == "w3")
    assert w3.rule == "weight of Gemm, a scale for each channel of axis 0"
    assert json.loads(json.dumps(found.as_dict()))["pairs"][0]["amax"] == x.amax


def test_target_goes_through_the_public_function(tmp_path: Path) -> None:
    source = save(conv_relu_gemm(), tmp_path / "m.onnx")
    cache = CalibrationCache(dict.fromkeys(["x", "p1", "f"], 0.02)).write(tmp_path / "m.cache")
    assert quantize(source, cache, target="tensorrt-11").target == "tensorrt-11"
