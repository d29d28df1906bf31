"""Weights in a file beside the model, and models that one protocol buffer cannot hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import conv_relu_gemm, model, node, samples, save, weight
from onnx import numpy_helper

from calib.calibrators import CalibrationCache
from calib.errors import ModelError, UsageError
from calib.graph import (
    ObservedSession,
    OnnxModel,
    convert_float16,
    load_model,
    open_session,
    quantize,
    session_options,
)
from calib.graph.external import write_model


def network() -> onnx.ModelProto:
    """A Conv whose weight of 4608 bytes and a MatMul whose weight, in a Constant node, has 4096 bytes."""
    return model(
        [
            node("Conv", ["x", "w"], ["c"], name="conv"),
            node("Constant", [], ["m"], value=numpy_helper.from_array(weight(32, 32, seed=1))),
            node("MatMul", ["c", "m"], ["y"], name="mul"),
        ],
        {"x": [1, 8, 34, 34]},
        {"y": [1, 16, 32, 32]},
        {"w": weight(16, 8, 3, 3)},
    )


def run(source: OnnxModel | Path, **feeds: np.ndarray) -> np.ndarray:
    return np.asarray(open_session(source, session_options(float_qdq=True)).run(None, feeds)[0])


def locations(path: Path) -> set[str]:
    proto = onnx.load(path, load_external_data=False)
    return {e.value for t in proto.graph.initializer for e in t.external_data if e.key == "location"}


@pytest.fixture
def job(tmp_path: Path) -> tuple[Path, Path]:
    """A model with its weights beside it, and a cache."""
    path = tmp_path / "in" / "m.onnx"
    path.parent.mkdir()
    onnx.save(network(), path, save_as_external_data=True, location="m.weights", size_threshold=1024)
    cache = CalibrationCache({"x": 0.03, "c": 0.05}).write(tmp_path / "m.cache")
    return path, Path(cache)


def test_external_weights_stay_external_beside_the_result(job: tuple[Path, Path], tmp_path: Path) -> None:
    path, cache = job
    out = tmp_path / "out" / "q.onnx"
    result = quantize(path, cache, out=out, target="tensorrt-10")
    assert {file.name for file in out.parent.iterdir()} == {"q.onnx", "q.onnx.data"}
    assert locations(out) == {"q.onnx.data"}
    # 16·8·3·3 and 32·32 weights of one byte each; the second has just the 1024 that make it large.
    assert (out.parent / "q.onnx.data").stat().st_size == 4096 + 1024
    onnx.checker.check_model(str(out))
    values = samples(1, 8, 34, 34)
    from_files, in_memory = run(out, x=values), run(result.model, x=values)
    np.testing.assert_array_equal(from_files, in_memory)
    np.testing.assert_array_equal(run(load_model(out), x=values), in_memory)
    moved = tmp_path / "moved"
    out.parent.rename(moved)
    np.testing.assert_array_equal(run(moved / "q.onnx", x=values), in_memory)


def test_a_model_in_one_file_stays_one_file(tmp_path: Path) -> None:
    source = save(conv_relu_gemm(), tmp_path / "m.onnx")
    cache = CalibrationCache({"x": 0.03}).write(tmp_path / "m.cache")
    quantize(source, cache, out=tmp_path / "q" / "q.onnx")
    assert [file.name for file in (tmp_path / "q").iterdir()] == ["q.onnx"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("m.onnx", "is the model itself"), ("m.weights", "is the model itself"), ("n.onnx", "would replace")],
)
def test_the_source_is_never_written_over(tmp_path: Path, name: str, message: str) -> None:
    location = "n.onnx.data" if name == "n.onnx" else "m.weights"
    path = tmp_path / "m.onnx"
    onnx.save(network(), path, save_as_external_data=True, location=location, size_threshold=1024)
    cache = CalibrationCache({"x": 0.03}).write(tmp_path / "m.cache")
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(UsageError, match=message):
        quantize(path, cache, out=tmp_path / name)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_missing_weights_are_named(job: tuple[Path, Path]) -> None:
    path, cache = job
    (path.parent / "m.weights").unlink()
    with pytest.raises(ModelError, match=r"not there: m\.weights\. Copy them into"):
        quantize(path, cache)


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a protocol buffer held 2000 bytes."""
    for module in ("intake", "external", "runtime", "validity"):
        monkeypatch.setattr(f"calib.graph.{module}.PROTOBUF_LIMIT", 2000)


@pytest.mark.usefixtures("small_limit")
def test_a_model_beyond_the_limit_runs_is_quantized_and_is_written(tmp_path: Path) -> None:
    large = OnnxModel(tmp_path / "m.onnx", network())
    assert large.byte_size == 4608 + 4096
    with pytest.raises(ModelError, match="larger than 2 GiB and cannot be one file"):
        large.to_bytes()
    values = samples(1, 8, 34, 34)
    options = session_options()
    expected = open_session(network().SerializeToString(), options).run(None, {"x": values})[0]
    np.testing.assert_array_equal(open_session(large, options).run(None, {"x": values})[0], expected)
    assert set(ObservedSession(large).run({"x": values})) == {"x", "c", "y"}
    result = quantize(large, CalibrationCache({"x": 0.03, "c": 0.05}), out=tmp_path / "q.onnx")
    assert len(result.pairs) == 4
    assert locations(tmp_path / "q.onnx") == {"q.onnx.data"}
    np.testing.assert_array_equal(run(tmp_path / "q.onnx", x=values), run(result.model, x=values))


@pytest.mark.usefixtures("small_limit")
def test_a_model_beyond_the_limit_becomes_float16(tmp_path: Path) -> None:
    large = OnnxModel(tmp_path / "m.onnx", network())
    half = convert_float16(large, out=tmp_path / "h.onnx")
    # 4608 + 4096 bytes of weights, of which float16 takes half.
    assert half.model.byte_size == 4352
    assert locations(tmp_path / "h.onnx") == {"h.onnx.data"}
    values = samples(1, 8, 34, 34)
    np.testing.assert_allclose(run(tmp_path / "h.onnx", x=values), run(large, x=values), atol=0.02)


@pytest.mark.usefixtures("small_limit")
def test_the_data_in_a_large_constant_node_goes_out_too(tmp_path: Path) -> None:
    write_model(OnnxModel(tmp_path / "m.onnx", network()), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size < 1000
    loaded = load_model(tmp_path / "m.onnx")
    assert loaded.external_files == (tmp_path / "m.onnx.data",)
    assert loaded.content_hashes()[1] == OnnxModel(tmp_path / "m.onnx", network()).content_hashes()[1]
    assert loaded.proto.graph.node[1].attribute[0].t.raw_data == weight(32, 32, seed=1).tobytes()
