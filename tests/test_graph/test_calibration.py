from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from goldens import NETS, REAL, digits
from networks import conv_relu_gemm, model, node, samples, save, weight

import calib
from calib.calibrators import CalibrationCache, read_sidecar
from calib.data import Dataset, from_arrays
from calib.errors import (
    CacheError,
    CalibError,
    DatasetError,
    ModelError,
    NonFiniteError,
    OutputError,
    UsageError,
)


def dataset(count: int = 10, name: str = "set") -> Dataset:
    return from_arrays(name, {"x": samples(count, 3, 8, 8)})


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return save(conv_relu_gemm(), tmp_path / "m.onnx")


def test_cache_and_sidecar_say_what_made_them(network: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.cache"
    result = calib.calibrate(network, dataset(), batch_size=4, out=out, tensorrt="10.3")
    assert result.batches_asked == result.batches_used == 3
    cache = CalibrationCache.read(out)
    assert cache.header == "TRT-100300-EntropyCalibration2"
    assert dict(cache) == dict(result.cache) == result.ranges.scales
    assert list(cache) == ["x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y"]
    assert cache["p1"] == cache["r1"]
    sidecar = read_sidecar(out)
    assert sidecar is not None
    assert (sidecar.method, sidecar.samples, sidecar.batch_size) == ("entropy", 10, 4)
    assert (sidecar.batches_asked, sidecar.batches_used) == (3, 3)
    assert sidecar.sample_ids == result.sample_ids == dataset().ids
    assert json.loads((tmp_path / "m.cache.json").read_text())["schema"] == 1


def test_a_cache_does_not_replace_what_it_is_made_from(network: Path, tmp_path: Path) -> None:
    """Nor does its sidecar, m.json of a cache m: a recipe may be called so, for JSON is YAML."""
    np.savez(tmp_path / "data.npz", x=samples(4, 3, 8, 8))
    recipe = tmp_path / "m.json"
    recipe.write_text('{"schema": 1, "name": "d", "source": {"kind": "arrays", "path": "data.npz"}}')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for out in (network, recipe, tmp_path / "m", tmp_path / "data.npz"):
        with pytest.raises(UsageError, match=r"is the (model|recipe|data) itself\. Choose another file"):
            calib.calibrate(network, recipe, samples=2, out=out)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("out", ["", "/", ".."])
def test_a_folder_is_no_cache_even_where_its_path_ends_without_a_name(out: str, network: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder"):
        calib.calibrate(network, dataset(), out=out)
    with pytest.raises(CacheError, match=r"Cannot read calibration cache .*: Is a directory"):
        calib.quantize(network, out)


def test_minmax_equals_tensorrts_cache_of_the_same_samples(tmp_path: Path) -> None:
    images = from_arrays("digits32", {"input": digits()["xtr"]})
    result = calib.calibrate(NETS / "plain.onnx", images, method="minmax", out=tmp_path / "plain.cache")
    golden = CalibrationCache.read(NETS / "plain.minmax.cache")
    for name, scale in result.cache.items():
        assert scale == pytest.approx(golden[name], rel=1e-6)
    assert result.cache.header == golden.header


def test_minmax_does_not_depend_on_the_batch_size(network: Path) -> None:
    found = [
        calib.calibrate(network, dataset(), method="minmax", batch_size=size).ranges for size in (1, 3, 10)
    ]
    # Convolutions of another batch size may round their last bit differently.
    for other in found[1:]:
        assert dict(other) == pytest.approx(dict(found[0]), rel=1e-6)


def test_python_dataset_takes_its_first_samples() -> None:
    result = calib.calibrate(calib_model(), dataset(), samples=4)
    assert result.sample_ids == dataset().ids[:4]
    with pytest.raises(UsageError, match="Asked for 11 samples, dataset 'set' has 10"):
        calib.calibrate(calib_model(), dataset(), samples=11)


def calib_model() -> calib.graph.OnnxModel:
    from calib.graph import OnnxModel

    return OnnxModel(Path("m.onnx"), conv_relu_gemm())


def test_few_samples_leave_a_note() -> None:
    result = calib.calibrate(calib_model(), dataset(3), batch_size=8)
    assert "only 3 samples: one partial batch (batch size 8)" in result.notes


def test_tensor_that_is_zero_throughout_is_zero_and_reported(tmp_path: Path) -> None:
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("Sub", ["c", "big"], ["low"]),
            node("Relu", ["low"], ["dead"]),
            node("Add", ["dead", "c"], ["y"]),
        ],
        {"x": ["n", 3, 8, 8]},
        {"y": ["n", 2, 6, 6]},
        {"w": weight(2, 3, 3, 3), "big": np.float32(1e4)},
    )
    path = save(proto, tmp_path / "m.onnx")
    result = calib.calibrate(path, dataset(8), out=tmp_path / "m.cache")
    assert result.zero_tensors == ("dead",)
    assert result.cache.bits("dead") == "0"
    assert any("1 tensor is zero on all 8 samples" in note and "dead" in note for note in result.notes)
    assert result.cache["c"] > 0


@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_tensor_that_leaves_the_finite_numbers_is_named_with_its_first_sample(
    bad: str, tmp_path: Path
) -> None:
    nodes = [node("Log", ["x"], ["y"])] if bad == "nan" else [node("Exp", ["x"], ["y"])]
    path = save(model(nodes, {"x": ["n", 2]}, {"y": ["n", 2]}), tmp_path / "m.onnx")
    values = np.ones((9, 2), np.float32)
    values[7, 1] = -1.0 if bad == "nan" else 1000.0
    out = tmp_path / "m.cache"
    with pytest.raises(
        NonFiniteError, match=r"Tensor 'y' has .* first at sample .*\(id 'set#7'\), after 1 good"
    ):
        calib.calibrate(path, from_arrays("set", {"x": values}), batch_size=4, out=out)
    assert list(tmp_path.iterdir()) == [path]


def test_real_model_with_an_infinite_output() -> None:
    values = from_arrays("set", {"A": samples(4, 4)})
    with pytest.raises((NonFiniteError, DatasetError), match=r"'B'|shape|expected"):
        calib.calibrate(REAL / "models" / "add_infinity.onnx", values)


def test_nan_in_a_sample_stops_before_the_model_runs(network: Path, tmp_path: Path) -> None:
    values = samples(8, 3, 8, 8)
    values[6, 0, 0, 0] = np.nan
    with pytest.raises(DatasetError, match=r"id 'set#6'\) holds 1 NaN"):
        calib.calibrate(network, from_arrays("set", {"x": values}), out=tmp_path / "m.cache")
    assert not (tmp_path / "m.cache").exists()


def test_fixed_batch_is_obeyed_or_refused(tmp_path: Path) -> None:
    path = save(model([node("Relu", ["x"], ["y"])], {"x": [4, 2]}, {"y": [4, 2]}), tmp_path / "m.onnx")
    result = calib.calibrate(path, from_arrays("set", {"x": samples(8, 2)}), batch_size=32)
    assert result.batches_used == 2
    with pytest.raises(
        UsageError, match=r"insists on batches of 4, but 6 samples do not divide by it\. Use --samples 4"
    ):
        calib.calibrate(path, from_arrays("set", {"x": samples(6, 2)}))


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("identity_with_initializer", ModelError, "has no data inputs"),
        ("qdq_conv", ModelError, r"already has \d+ QuantizeLinear"),
        ("custom_op_node", ModelError, "ONNX Runtime cannot load"),
        ("ext_weights", ModelError, "ext_weights.data"),
    ],
)
def test_odd_models_end_in_one_message(name: str, error: type[CalibError], message: str) -> None:
    with pytest.raises(error, match=message):
        calib.calibrate(REAL / "models" / f"{name}.onnx", dataset())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "entropie"}, "Did you mean 'entropy'"),
        ({"tensorrt": "eight"}, "must look like 8.6.0"),
        ({"tensorrt": "11.0.0"}, "reads no calibration cache.*calib quantize"),
        ({"batch_size": 0}, "Batch size must be at least 1, got 0"),
    ],
)
def test_options_that_cannot_be_meant(network: Path, arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        calib.calibrate(network, dataset(), **arguments)


def test_workers_read_the_same_samples(network: Path) -> None:
    plain = calib.calibrate(network, dataset())
    assert calib.calibrate(network, dataset(), workers=2).cache == plain.cache


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": -1}, "--workers must be from 0 to 256, got -1"),
        ({"workers": 2, "shards": 2}, "--workers and --shards cannot be combined"),
    ],
)
def test_workers_that_cannot_be_meant(network: Path, arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        calib.calibrate(network, dataset(), **arguments)


def test_a_reader_has_no_workers(network: Path) -> None:
    with pytest.raises(UsageError, match="--workers needs a recipe or a dataset"):
        calib.calibrate(network, ({"x": np.zeros((1, 3, 8, 8), np.float32)} for _ in range(3)), workers=2)


def test_failing_write_leaves_nothing_behind(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "out" / "m.cache"
    monkeypatch.setattr("calib.files.os.fsync", no_space)
    with pytest.raises(CalibError, match=r"Cannot write .*m\.cache: No space left on device"):
        calib.calibrate(network, dataset(), out=out)
    assert list(out.parent.iterdir()) == []


def test_weights_hash_and_graph_hash_are_apart(network: Path, tmp_path: Path) -> None:
    proto = conv_relu_gemm()
    changed = onnx.numpy_helper.from_array(weight(4, 3, 3, 3, seed=5), "w1")
    proto.graph.initializer[0].CopyFrom(changed)
    other = save(proto, tmp_path / "other.onnx")
    sidecars = []
    for path in (network, other):
        calib.calibrate(path, dataset(), out=path.with_suffix(".cache"))
        sidecars.append(read_sidecar(path.with_suffix(".cache")))
    first, second = sidecars
    assert first is not None
    assert second is not None
    assert first.graph_sha256 == second.graph_sha256
    assert first.weights_sha256 != second.weights_sha256
    assert first.dataset_fingerprint == second.dataset_fingerprint
