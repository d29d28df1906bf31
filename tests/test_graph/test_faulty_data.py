"""Data that do not fit the model: told by sample, with what was wanted and what came, before any work."""

from __future__ import annotations

import numpy as np
import pytest
from networks import model, node, save
from onnx import TensorProto

import calib
from calib.data import load_recipe
from calib.errors import DatasetError, UsageError


@pytest.fixture
def network(tmp_path):
    """A convolution over [n, 3, 8, 8]."""
    weights = {"w": np.ones((2, 3, 3, 3), np.float32)}
    proto = model([node("Conv", ["x", "w"], ["y"])], {"x": ["n", 3, 8, 8]}, {"y": ["n", 2, 6, 6]}, weights)
    return save(proto, tmp_path / "m.onnx")


@pytest.fixture
def recipe(tmp_path):
    def write(text):
        path = tmp_path / "r.yaml"
        path.write_text(f"schema: 1\nname: t\n{text}")
        return load_recipe(path)

    return write


def test_three_samples_and_batches_of_eight(network, recipe, tmp_path):
    x = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x)
    loaded = recipe("source: {kind: arrays, path: a.npz}\ncalibration: {samples: 3}")
    result = calib.calibrate(network, loaded, method="minmax", batch_size=8)
    assert result.batches_used == 1
    assert result.ranges["x"] == np.abs(x).max()
    assert any("Only 3 calibration samples" in note for note in result.notes)
    with pytest.raises(UsageError, match="8 calibration samples are wanted, but dataset 't' has 3"):
        calib.calibrate(network, loaded, samples=8)


@pytest.mark.parametrize("kind", ["images", "arrays", "audio"])
def test_an_empty_folder_is_told_before_the_samples_are_wanted(network, recipe, tmp_path, kind):
    (tmp_path / "data").mkdir()
    more = ", sample_rate: 8000" if kind == "audio" else ""
    loaded = recipe(f"source: {{kind: {kind}, path: data{more}}}")
    with pytest.raises(DatasetError, match=r"No samples: .*/data "):
        calib.calibrate(network, loaded)


@pytest.mark.parametrize("shape", [(8, 8, 3), (3, 1, 8), (1, 3, 8, 8, 1)])
def test_axes_in_another_order_name_the_sample(network, recipe, tmp_path, shape):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "s7.npy", np.zeros(shape, np.float32))
    loaded = recipe("source: {kind: arrays, path: data}\ncalibration: {samples: 1}")
    got = str(list((1, *shape))).replace("[", r"\[").replace("]", r"\]")
    message = rf"data/s7\.npy does not fit input 'x' .*expected float32 \[n, 3, 8, 8\], got float32 {got}"
    with pytest.raises(DatasetError, match=message):
        calib.calibrate(network, loaded)


class TestTypes:
    @pytest.fixture
    def whole(self, tmp_path):
        """A model with an int32 input."""
        nodes = [node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), node("Relu", ["f"], ["y"])]
        proto = model(nodes, {"x": ["n", 2]}, {"y": ["n", 2]}, types={"x": TensorProto.INT32})
        return save(proto, tmp_path / "i.onnx")

    def run(self, network, recipe, tmp_path, values):
        np.savez(tmp_path / "a.npz", x=values)
        loaded = recipe("source: {kind: arrays, path: a.npz}\ncalibration: {samples: 2}")
        return calib.calibrate(network, loaded, method="minmax")

    def test_float64_for_float32(self, network, recipe, tmp_path):
        result = self.run(network, recipe, tmp_path, np.full((2, 3, 8, 8), 0.1))
        assert result.ranges["x"] == np.float32(0.1)
        assert any("stored as float64 and cast to float32" in note for note in result.notes)

    def test_int64_for_int32(self, whole, recipe, tmp_path):
        result = self.run(whole, recipe, tmp_path, np.array([[1, -5], [2, 3]]))
        assert result.ranges["f"] == 5
        assert "input 'x': int64 converted to int32" in result.notes

    @pytest.mark.parametrize("values", [np.array([[1 << 40, 0], [0, 0]]), np.array([[0.5, 0], [0, 0]])])
    def test_what_would_lose_values_is_refused(self, whole, recipe, tmp_path, values):
        with pytest.raises(DatasetError, match=r"a\.npz: x\[.* expected int32 \[n, 2\], got .*cannot hold"):
            self.run(whole, recipe, tmp_path, values)
