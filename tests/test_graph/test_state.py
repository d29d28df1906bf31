"""Recurrent state: carried from sample to sample, in calibration and in validation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import calib
from calib.calibrators.partial import merge_partials
from calib.data import Carried, Dataset, Padding, from_arrays
from calib.errors import DatasetError, UsageError
from calib.graph import CalibrationJob, FeedBuilder, TensorSpec, count_range, load_model
from calib.graph.shards import count_sharded

W = np.array([[0.5, -0.25], [1.0, 0.75]], np.float32)
GROUPS = ("a",) * 7 + ("b",) * 5 + ("c",) * 6
X = (
    np.random.default_rng(3).normal(size=(len(GROUPS), 2)) * np.linspace(0.2, 3, len(GROUPS))[:, None]
).astype(np.float32)


@pytest.fixture
def model(tmp_path):
    """h' = tanh(x·g + h W), y = 3 h'; g is fed as a constant."""
    nodes = [
        helper.make_node("Cast", ["gain"], ["g"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "g"], ["xg"]),
        helper.make_node("MatMul", ["h", "W"], ["hW"]),
        helper.make_node("Add", ["xg", "hW"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["hn"]),
        helper.make_node("Mul", ["hn", "three"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "cell",
        [
            value("x", TensorProto.FLOAT, ["batch", 2]),
            value("h", TensorProto.FLOAT, ["batch", 2]),
            value("gain", TensorProto.INT64, []),
        ],
        [value("y", TensorProto.FLOAT, ["batch", 2]), value("hn", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(W, "W"), numpy_helper.from_array(np.array(3, np.float32), "three")],
    )
    path = tmp_path / "cell.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def dataset():
    return replace(
        from_arrays("d", {"x": X}),
        state={"h": Carried("hn")},
        constants={"gain": np.array(2, np.int64)},
        groups=GROUPS,
    )


def expected(x=X, groups=GROUPS):
    """The sums and states, computed by hand."""
    sums, states, state = [], [], np.zeros(2, np.float32)
    for index, row in enumerate(x):
        if index == 0 or groups[index] != groups[index - 1]:
            state = np.zeros(2, np.float32)
        sums.append(row * 2 + state @ W)
        state = np.tanh(sums[-1])
        states.append(state)
    return np.array(sums), np.array(states)


def test_calibration_carries_state_and_begins_each_sequence_with_zeros(model, dataset):
    ranges = calib.calibrate(model, dataset, method="minmax").ranges
    sums, states = expected()
    assert ranges["sum"] == pytest.approx(np.abs(sums).max(), rel=1e-6)
    # All states but the last of each sequence go in again.
    inner = [i for i in range(len(X) - 1) if GROUPS[i] == GROUPS[i + 1]]
    assert ranges["h"] == pytest.approx(np.abs(states[inner]).max(), rel=1e-6)
    # With zeros each time the sum would be another one.
    assert np.abs(sums).max() != pytest.approx(np.abs(X * 2).max(), rel=1e-3)


@pytest.mark.parametrize("method", ["entropy", "minmax"])
def test_ranges_of_batches_begin_with_the_state_of_the_sequence(model, dataset, method):
    job = CalibrationJob(load_model(model), dataset, method, batch_size=1)
    whole = count_range(job, 0, job.batches).partial.calibrator.compute()
    grids = count_range(job, 0, 3).partial.calibrator.grids()
    parts = [count_range(job, a, b, grids=grids).partial for a, b in ((0, 3), (3, 9), (9, 18))]
    merged = merge_partials([(f"part {i}", part) for i, part in enumerate(parts)])
    assert dict(merged.calibrator.compute()) == dict(whole)


def test_shards_give_the_bits_of_one_process(model, dataset):
    job = CalibrationJob(load_model(model), dataset, "entropy", batch_size=1)
    alone = count_range(job, 0, job.batches).partial.calibrator.compute()
    assert dict(count_sharded(job, 2).partial.calibrator.compute()) == dict(alone)


def test_validation_carries_each_precisions_own_state(model, dataset, tmp_path):
    cache = tmp_path / "c.cache"
    calib.calibrate(model, dataset, method="minmax", out=cache)
    results = calib.validate(model, dataset, cache=cache, allow_overlap=True, latency_count=0)
    int8 = next(run for run in results.runs if run.precision == "int8")
    found = {errors.output: errors for errors in int8.outputs}
    assert found["hn"].sqnr_db > 15
    assert found["hn"].verdict == "differs"
    assert "State is carried (h): samples were run one at a time, in order." in results.dataset.notes


def test_fp32_outputs_are_those_of_the_sequence(model, dataset):
    from calib.runners import OnnxRuntimeRunner, carrying

    builder = FeedBuilder(load_model(model).inputs)
    with OnnxRuntimeRunner(load_model(model), "fp32") as plain:
        (runner,) = carrying([plain], dataset.state)
        outputs = [runner.infer(builder.feeds(batch))["hn"][0] for batch in dataset.batches(1)]
        assert carrying([plain], {})[0] is plain
    np.testing.assert_allclose(outputs, expected()[1], rtol=1e-5, atol=1e-6)


class TestFaults:
    def test_larger_batches_are_refused(self, model, dataset):
        with pytest.raises(UsageError, match="batch size must be 1, got 4"):
            calib.calibrate(model, dataset, batch_size=4)
        with pytest.raises(UsageError, match="batch size must be 1, got 2"):
            next(dataset.batches(2))

    def test_an_unknown_output(self, model, dataset):
        wrong = replace(dataset, state={"h": Carried("hx")})
        with pytest.raises(DatasetError, match=r"fed from output 'hx', which .* does not have"):
            calib.calibrate(model, wrong)

    def test_an_unknown_input(self, model, dataset):
        wrong = replace(dataset, state={"hx": Carried("hn")}, constants={})
        with pytest.raises(DatasetError, match=r"missing \['gain', 'h'\], surplus \['hx'\]"):
            calib.calibrate(model, wrong)

    def test_a_shape_that_does_not_fit(self, model, dataset):
        wrong = replace(dataset, state={"h": Carried("hn", (1, 3))})
        with pytest.raises(DatasetError, match=r"State 'h' .* begins with shape \[1, 3\], expected float32"):
            calib.calibrate(model, wrong)

    def test_a_constant_that_does_not_fit(self, model, dataset):
        wrong = replace(dataset, constants={"gain": np.array([1, 2])})
        with pytest.raises(DatasetError, match=r"The constant for input 'gain' .* expected int64 \[\]"):
            calib.calibrate(model, wrong)
        wrong = replace(dataset, constants={"gain": np.array(0.5)})
        with pytest.raises(DatasetError, match=r"The constant for input 'gain' does not fit .*cannot hold"):
            calib.calibrate(model, wrong)


def test_a_constant_without_a_batch_axis_is_repeated():
    specs = [TensorSpec("x", np.dtype("float32"), ("n", 2)), TensorSpec("c", np.dtype("float32"), ("n", 3))]
    dataset = replace(from_arrays("d", {"x": X}), constants={"c": np.arange(3.0)})
    (feeds,) = (FeedBuilder(specs).feeds(batch) for batch in dataset.batches(18))
    np.testing.assert_array_equal(feeds["c"], np.tile(np.arange(3, dtype=np.float32), (18, 1)))


def test_samples_of_an_input_without_a_batch_axis_go_one_by_one():
    # AECMOS's h0 is [4, 1, 96], whatever the batch.
    specs = [TensorSpec("x", np.dtype("float32"), ("n", 2)), TensorSpec("h0", np.dtype("float32"), (4, 1, 3))]
    dataset = from_arrays("d", {"x": X, "h0": np.zeros((len(X), 4, 1, 3), np.float32)})
    feeds = FeedBuilder(specs).feeds(next(dataset.batches(1)))
    assert feeds["h0"].shape == (4, 1, 3)
    message = r"input 'h0' .*expected float32 \[4, 1, 3\], got float32 \[2, 4, 1, 3\].*use batch size 1"
    with pytest.raises(DatasetError, match=message):
        FeedBuilder(specs).feeds(next(dataset.batches(2)))


def test_padded_batches_are_calibrated_with_their_mask(tmp_path):
    """y = Σ x·mask: what was filled up does not count."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "m"], ["xm"]), helper.make_node("ReduceSum", ["xm", "axes"], ["y"])],
        "masked",
        [value("x", TensorProto.FLOAT, ["n", "t"]), value("m", TensorProto.FLOAT, ["n", "t"])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1], np.int64), "axes")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    rows = [np.full(length, 1.0, np.float32) for length in (5, 9, 3)]

    def load(index):
        from calib.data import Sample

        return Sample(f"s{index}", {"x": rows[index]})

    dataset = Dataset("d", ("s0", "s1", "s2"), load, padding={"x": Padding(value=100.0, mask="m")})
    ranges = calib.calibrate(path, dataset, method="minmax", batch_size=2).ranges
    assert ranges["y"] == 9
    assert ranges["x"] == 100
