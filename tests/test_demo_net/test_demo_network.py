from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from calib.data import Array, Dataset, load_recipe, open_calibration, open_validation
from calib.demo import DEMO_MODEL
from calib.demo.train import ids_digest


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(DEMO_MODEL, load_external_data=False)


@pytest.fixture(scope="module")
def facts(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(DEMO_MODEL, options, providers=["CPUExecutionProvider"])


def attribute(node: onnx.NodeProto, name: str) -> object:
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def test_file_is_small_valid_and_old_enough(model: onnx.ModelProto) -> None:
    assert DEMO_MODEL.stat().st_size < 400 * 1024
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]
    assert model.ir_version <= 9
    assert all(not weight.external_data for weight in model.graph.initializer)


def test_input_and_output(model: onnx.ModelProto) -> None:
    def form(value: onnx.ValueInfoProto) -> tuple[str, list[str | int]]:
        shape = value.type.tensor_type.shape.dim
        return value.name, [dim.dim_param or dim.dim_value for dim in shape]

    assert [form(value) for value in model.graph.input] == [("image", ["batch", 1, 32, 32])]
    assert [form(value) for value in model.graph.output] == [("logits", ["batch", 10])]


def test_holds_what_makes_quantisation_hard(model: onnx.ModelProto) -> None:
    nodes = model.graph.node
    counts = Counter(node.op_type for node in nodes)
    for op in ("HardSwish", "HardSigmoid", "Clip", "MaxPool", "GlobalAveragePool", "Gemm"):
        assert counts[op] >= 1, op
    weights = {weight.name: weight for weight in model.graph.initializer}
    depthwise = [
        node
        for node in nodes
        if node.op_type == "Conv" and (attribute(node, "group") or 1) == weights[node.input[1]].dims[0] > 1
    ]
    assert len(depthwise) == 6
    assert all(weights[node.input[1]].dims[1:] == [1, 3, 3] for node in depthwise)


def test_squeeze_excite_and_residual_blocks(model: onnx.ModelProto) -> None:
    producer = {name: node for node in model.graph.node for name in node.output}
    gates = [node for node in model.graph.node if node.op_type == "Mul"]
    assert len(gates) == 4
    for gate in gates:
        path = [producer[gate.input[1]]]
        while path[-1].op_type != "GlobalAveragePool":
            path.append(producer[path[-1].input[0]])
        assert [node.op_type for node in path] == [
            "HardSigmoid",
            "Conv",
            "Relu",
            "Conv",
            "GlobalAveragePool",
        ]
        assert path[-1].input[0] == gate.input[0]
    adds = [node for node in model.graph.node if node.op_type == "Add"]
    assert len(adds) == 4
    assert all(producer[add.input[1]].op_type == "Conv" for add in adds)


def test_nodes_and_weights_are_named_after_their_layers(model: onnx.ModelProto) -> None:
    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)
    assert "/block3/depthwise/conv/Conv" in names
    weights = {weight.name for weight in model.graph.initializer}
    assert {"stem.conv.weight", "block3.excite.reduce.bias", "classifier.weight"} <= weights
    assert not [name for name in weights if "::" in name]


@pytest.mark.parametrize("batch_size", [1, 32])
def test_runs_at_any_batch_size(session: ort.InferenceSession, batch_size: int) -> None:
    images = np.random.default_rng(0).random((batch_size, 1, 32, 32), dtype=np.float32)
    (logits,) = session.run(None, {"image": images})
    assert logits.shape == (batch_size, 10)
    assert logits.dtype == np.float32
    one_by_one = [session.run(None, {"image": image[None]})[0][0] for image in images[:3]]
    np.testing.assert_allclose(logits[:3], one_by_one, rtol=1e-4, atol=1e-4)


def accuracy(session: ort.InferenceSession, dataset: Dataset) -> float:
    right = []
    for batch in dataset.batches(128):
        (images,) = batch.inputs.values()
        logits: Array = session.run(None, {"image": images})[0]
        right += list(logits.argmax(axis=1) == np.asarray(batch.labels))
    return float(np.mean(right))


def test_accuracy_is_that_of_its_metadata(session: ort.InferenceSession, facts: dict[str, str]) -> None:
    recipe = load_recipe("digits")
    calibration, validation = open_calibration(recipe), open_validation(recipe)
    assert not set(validation.ids) & set(calibration.ids)
    assert facts["trained_on"] == f"the {len(calibration)} calibration samples"
    assert facts["validation_samples"] == str(len(validation))
    assert facts["trained_on_ids_sha256"] == ids_digest(calibration.ids)
    claimed = float(facts["accuracy"])
    assert claimed > 0.95
    assert accuracy(session, validation) >= claimed - 0.005


def test_it_learnt_the_calibration_samples_of_this_recipe(session: ort.InferenceSession) -> None:
    # A recipe that prepares samples otherwise than in training would show here.
    assert accuracy(session, open_calibration(load_recipe("digits"))) > 0.99


def test_metadata_says_how_to_make_it_again(facts: dict[str, str]) -> None:
    assert facts["trained_by"] == "python -m calib.demo.train"
    assert facts["dataset"].startswith("scikit-learn digits")
    assert {"seed", "epochs", "torch"} <= set(facts)
