"""Models with TensorRT's plug-ins: calibrated up to the plug-in's inputs, quantized with it in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import command_line
from networks import conv_relu_gemm, model, node, samples, save, weight
from onnx import TensorProto, helper
from plugin_networks import detector

import calib
from calib.calibrators import read_sidecar
from calib.data import from_arrays
from calib.errors import ModelError
from calib.graph import OnnxModel, load_model, quantize, quantize_model
from calib.graph.runnable import cut_before

DATA = from_arrays("images", {"x": samples(6, 3, 6, 6)})
BEFORE = ["x", "c", "r", "head_b", "boxes", "head_s", "raw", "scores"]
PLUGINS = ("EfficientNMS_TRT", "BatchedNMS_TRT")


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def without_plugin() -> onnx.ModelProto:
    """The same network as it was before the plug-in was put in, written down apart."""
    proto = detector(behind=False)
    del proto.graph.node[-1], proto.graph.output[:]
    shapes = {"boxes": ["n", 18, 4], "scores": ["n", 18, 2]}
    proto.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


@pytest.mark.parametrize("method", ["minmax", "entropy"])
@pytest.mark.parametrize("domain", ["", "TRT"])
@pytest.mark.parametrize("plugin", PLUGINS)
def test_ranges_up_to_the_plugin_are_those_of_the_model_without_it(
    plugin: str, domain: str, method: str
) -> None:
    result = calib.calibrate(in_memory(detector(plugin, domain)), DATA, method=method, batch_size=2)
    expected = calib.calibrate(in_memory(without_plugin()), DATA, method=method, batch_size=2)
    assert list(result.ranges) == BEFORE
    assert result.cache.to_text() == expected.cache.to_text()
    (note,) = (note for note in result.notes if "no kernel" in note)
    assert f"{plugin} 'nms' (domain '{domain or 'ai.onnx'}')" in note
    assert "nor what comes behind: in_pixels, to_corners" in note
    assert "without a range: num_dets, det_boxes, det_scores, det_classes, pixels … (6 tensors)" in note
    assert not any("no kernel" in note for note in expected.notes)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(("plugin", "domain"), [(PLUGINS[0], ""), (PLUGINS[1], ""), (PLUGINS[0], "TRT")])
def test_written_model_keeps_the_plugin_as_it_was(
    plugin: str, domain: str, opset: int, tmp_path: Path
) -> None:
    """Opset 11 is what most models with EfficientNMS_TRT have; it is raised around the plug-in.

    Graph editors leave out the import of a plug-in's domain, which TensorRT's parser does not look at.
    """
    proto = detector(plugin, domain, opset=opset)
    del proto.opset_import[1:]
    source = save(proto, tmp_path / "m.onnx")
    calib.calibrate(source, DATA, out=tmp_path / "m.cache")
    result = quantize(source, tmp_path / "m.cache", out=tmp_path / "q.onnx")
    before, after = (load_model(tmp_path / name).proto for name in ("m.onnx", "q.onnx"))
    (was,) = (item for item in before.graph.node if item.op_type == plugin)
    (now,) = (item for item in after.graph.node if item.op_type == plugin)
    assert now.domain == domain
    was.domain = now.domain = ""  # Left out means the same.
    assert now == was
    assert list(after.graph.output) == list(before.graph.output)
    assert list(after.graph.input) == list(before.graph.input)
    assert {entry.domain for entry in after.opset_import} == {""}
    readers = {reader for pair in result.activations for reader in pair.readers}
    assert readers == {"stem", "box_head", "score_head"}
    assert [(left.node, left.reason) for left in result.left_float] == [
        ("to_corners", "no scale for its input 'pixels'")
    ]


def test_quantized_part_answers_as_the_model_without_the_plugin() -> None:
    """Cut before the plug-in, the written model is the quantized model without it, bit for bit."""
    cache = calib.calibrate(in_memory(detector()), DATA).cache
    whole = quantize_model(in_memory(detector()), cache).model
    part = cut_before(whole, {("EfficientNMS_TRT", "")}).model
    alone = quantize_model(in_memory(without_plugin()), cache).model
    inputs = {"x": samples(3, 3, 6, 6)}
    found = [calib.graph.ObservedSession(network).run(inputs) for network in (part, alone)]
    for name in ("boxes", "scores"):
        np.testing.assert_array_equal(found[0][name], found[1][name])


def test_shards_and_readers_say_it_once() -> None:
    network = in_memory(detector())
    plain = calib.calibrate(network, DATA, batch_size=2)
    sharded = calib.calibrate(network, DATA, batch_size=2, shards=2)
    values = samples(6, 3, 6, 6)
    read = calib.calibrate(network, [values[i : i + 2] for i in range(0, 6, 2)])
    for result in (plain, sharded, read):
        assert sum("no kernel" in note for note in result.notes) == 1
        assert result.cache.to_text() == plain.cache.to_text()


def test_sidecar_is_of_the_whole_model(tmp_path: Path) -> None:
    source = save(detector(), tmp_path / "m.onnx")
    calib.calibrate(source, DATA, out=tmp_path / "m.cache")
    sidecar = read_sidecar(tmp_path / "m.cache")
    assert sidecar is not None
    assert sidecar.model_sha256 == load_model(source).sha256


def test_plugins_of_several_names_and_in_a_subgraph_are_all_left_out() -> None:
    inner = helper.make_graph(
        [helper.make_node("InnerPlugin", ["c"], ["i"], domain="acme")],
        "branch",
        [],
        [helper.make_tensor_value_info("i", TensorProto.FLOAT, None)],
    )
    proto = model(
        [node("Conv", ["x", "w"], ["c"], name="conv"), node("Relu", ["c"], ["y"], name="relu")],
        {"x": ["n", 3, 6, 6]},
        {"y": None},
        {"w": weight(4, 3, 3, 3), "flag": np.array(True)},
    )
    proto.graph.node.extend(
        [
            helper.make_node("FirstPlugin", ["c"], ["p"], domain="acme"),
            helper.make_node("SecondPlugin", ["y"], ["q"], name="second", domain="acme"),
            helper.make_node("If", ["flag"], ["z"], name="either", then_branch=inner, else_branch=inner),
        ]
    )
    proto.opset_import.append(helper.make_opsetid("acme", 1))
    for name in "pqz":
        proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    result = calib.calibrate(in_memory(proto), [samples(2, 3, 6, 6)])
    assert list(result.ranges) == ["x", "c", "y"]
    (note,) = (note for note in result.notes if "no kernel" in note)
    named = ("FirstPlugin 'p' (domain 'acme')", "SecondPlugin 'second' (domain 'acme')", "If 'either'")
    assert all(name in note for name in named)


def test_plugin_in_a_function_of_the_model_is_found() -> None:
    opsets = [helper.make_opsetid(domain, 17 if domain == "" else 1) for domain in ("", "acme", "own")]
    plugin = helper.make_node("Plugin", ["a"], ["b"], domain="acme")
    inner = helper.make_function("own", "Find", ["a"], ["b"], [plugin], opsets)
    find = helper.make_node("Find", ["a"], ["b"], domain="own")
    outer = helper.make_function("own", "Detect", ["a"], ["b"], [find], opsets)
    proto = conv_relu_gemm()
    proto.graph.node.append(helper.make_node("Detect", ["y"], ["z"], name="detect", domain="own"))
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    proto.opset_import.extend([helper.make_opsetid("own", 1), helper.make_opsetid("acme", 1)])
    proto.functions.extend([inner, outer])
    result = calib.calibrate(in_memory(proto), [samples(2, 3, 8, 8)])
    assert list(result.ranges)[-1] == "y"
    assert any("Detect 'detect' (domain 'own')" in note for note in result.notes)


NOTHING_BEFORE = r"Node 'nms' \(operator EfficientNMS_TRT, domain '(TRT|ai\.onnx)'\)"


@pytest.mark.parametrize("domain", ["", "TRT"])
def test_nothing_before_the_plugin_is_refused_by_node_operator_and_domain(domain: str) -> None:
    proto = model([node("Sigmoid", ["x"], ["s"])], {"x": ["n", 18, 4]}, {"s": None})
    found = ["num_dets", "det_boxes", "det_scores", "det_classes"]
    proto.graph.node.append(
        helper.make_node("EfficientNMS_TRT", ["x", "s"], found, name="nms", domain=domain)
    )
    proto.graph.node.append(node("MatMul", ["det_boxes", "w"], ["y"]))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight(4, 4), "w"))
    proto.graph.output[0].name = "y"
    if domain:
        proto.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(ModelError, match=NOTHING_BEFORE) as caught:
        calib.calibrate(in_memory(proto), from_arrays("a", {"x": samples(2, 18, 4)}))
    assert "Nothing that can be quantized comes before it." in str(caught.value)


def test_validation_needs_what_the_plugin_makes_and_refuses(tmp_path: Path) -> None:
    source = save(detector(domain="TRT"), tmp_path / "m.onnx")
    calib.calibrate(source, DATA, out=tmp_path / "m.cache")
    with pytest.raises(ModelError, match=NOTHING_BEFORE + " has no CPU kernel in ONNX Runtime"):
        calib.validate(source, DATA, cache=tmp_path / "m.cache", allow_overlap=True)


def test_a_broken_model_is_no_model_with_a_plugin() -> None:
    """Shapes that do not fit stay an error, and cut nothing."""
    proto = conv_relu_gemm()
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight(4, 2, 3, 3), "w1"))
    with pytest.raises(ModelError, match="ONNX Runtime cannot"):
        calib.calibrate(in_memory(proto), [samples(2, 3, 8, 8)])


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    save(detector(opset=11), tmp_path / "m.onnx")
    np.savez(tmp_path / "s.npz", x=samples(6, 3, 6, 6))
    (tmp_path / "r.yaml").write_text(
        "schema: 1\nname: mine\nsource: {kind: arrays, path: s.npz}\ncalibration: {samples: 4, seed: 0}\n"
    )
    monkeypatch.chdir(tmp_path)

    run = command_line(monkeypatch, capfd)
    status, out, err = run("calibrate", "m.onnx", "--data", "r.yaml")
    assert status == 0, err
    assert "no kernel for it: EfficientNMS_TRT 'nms'" in " ".join((out + err).split())
    assert run("quantize", "m.onnx", "--cache", "m.cache")[0] == 0
    status, _, err = run("validate", "m.onnx", "--data", "r.yaml", "--cache", "m.cache")
    assert status == 2
    assert "operator EfficientNMS_TRT, domain 'ai.onnx'" in " ".join(err.split())
