from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from calib.data import Array
from calib.demo import DEMO_MODEL
from calib.demo import train as training
from calib.errors import MissingExtraError, ModelError, OutputError


@pytest.fixture
def few() -> tuple[Array, Array]:
    """64 bright bars, one row band for each class: learnt in moments."""
    labels = np.arange(64, dtype=np.int64) % 10
    images = np.zeros((64, 1, 32, 32), dtype=np.float32)
    for image, label in zip(images, labels, strict=True):
        image[0, 3 * label : 3 * label + 3] = 1.0
    return images, labels


HOW = training.Training(epochs=2, batch_size=32)


def test_training_is_repeatable_and_exports_what_it_trained(few: tuple[Array, Array]) -> None:
    pytest.importorskip("torch")
    images, labels = few
    model, again = (training._export(training.train(images, labels, HOW)) for _ in range(2))
    assert model.SerializeToString() == again.SerializeToString()
    network = training.train(images, labels, HOW)
    expected = training._run_torch(network, images)
    np.testing.assert_allclose(training._run_onnx(model, images), expected, atol=1e-4)
    assert expected.shape == (64, 10)


def test_another_seed_gives_another_network(few: tuple[Array, Array]) -> None:
    pytest.importorskip("torch")
    networks = [training.train(*few, training.Training(seed, 1, 32)) for seed in (0, 1)]
    first, second = (training._run_torch(network, few[0]) for network in networks)
    assert np.abs(first - second).max() > 1e-3


def test_the_shipped_network_is_of_this_architecture(few: tuple[Array, Array]) -> None:
    pytest.importorskip("torch")
    fresh = training._export(training.train(*few, HOW))
    shipped = onnx.load(DEMO_MODEL)
    nodes = [[(node.op_type, node.name) for node in m.graph.node] for m in (fresh, shipped)]
    assert nodes[0] == nodes[1]
    shapes = [{w.name: list(w.dims) for w in m.graph.initializer} for m in (fresh, shipped)]
    assert shapes[0] == shapes[1]


def test_an_untrained_network_can_be_exported() -> None:
    # Its equal biases are shared by the exporter, which must not confuse their names.
    pytest.importorskip("torch")
    network = training.build_network().eval()
    images = np.random.default_rng(0).random((2, 1, 32, 32), dtype=np.float32)
    got = training._run_onnx(training._export(network), images)
    np.testing.assert_allclose(got, training._run_torch(network, images), atol=1e-5)


@pytest.mark.parametrize("wrong", [1.5, float("nan")])
def test_an_export_that_answers_otherwise_is_refused(wrong: float) -> None:
    expected = np.ones((2, 10), dtype=np.float32)
    with pytest.raises(ModelError, match=r"differs from the trained one.*Nothing was written"):
        training._check_same(expected, np.full_like(expected, wrong))


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'int8-calib\[torch\]'"):
        training.build_network()


def test_an_unwritable_target_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder"):
        training.main(["--out", str(tmp_path)])
