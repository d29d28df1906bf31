"""``calib.build`` on a real TensorRT: ``python -m pytest -m gpu -s tests/test_gpu/test_build_on_tensorrt.py``.

Run by hand on a machine with an NVIDIA GPU, TensorRT below 11 and PyCUDA or cuda-python.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import conv_relu_gemm, save

import calib
from calib.calibrators import CalibrationCache
from calib.data import load_recipe, open_calibration
from calib.demo import DEMO_MODEL
from calib.engine import Api, Engine, capture_log, detect_gpus, load_api
from calib.errors import CacheError, EngineError
from calib.graph import load_model, quantize

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

SHAPES = ["image:1x1x32x32:32x1x32x32:32x1x32x32"]


@pytest.fixture(scope="session")
def api() -> Api:
    return load_api()


@pytest.fixture(scope="session")
def cache(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's own cache, for this TensorRT."""
    file = tmp_path_factory.mktemp("cache") / "digits.cache"
    data = open_calibration(load_recipe("digits"))
    calib.calibrate(DEMO_MODEL, data, tensorrt=api.version, out=file)
    return file


def layers(api: Api, engine: Engine) -> list[str]:
    """What the inspector says of each layer."""
    runtime = api.trt.Runtime(capture_log(api))
    loaded = runtime.deserialize_cuda_engine(engine.plan)
    inspector = loaded.create_engine_inspector()
    inspector.execution_context = context = loaded.create_execution_context()
    context.set_input_shape(loaded.get_tensor_name(0), (32, 1, 32, 32))
    text = inspector.get_engine_information(api.trt.LayerInformationFormat.JSON)
    return [json.dumps(layer) for layer in json.loads(text, strict=False)["Layers"]]


def build(**options: Any) -> Engine:
    return calib.build(DEMO_MODEL, shapes=SHAPES, level=0, **options)


@pytest.mark.parametrize(
    ("precision", "route", "expected"),
    [
        ("fp32", "auto", "float"),
        ("fp16", "auto", "float"),
        ("int8", "implicit", "implicit INT8"),
        ("int8", "explicit", "explicit INT8"),
        ("best", "implicit", "implicit INT8"),
        ("best", "explicit", "explicit INT8"),
    ],
)
def test_every_precision(api: Api, cache: Path, precision: str, route: str, expected: str) -> None:
    quantized = precision in ("int8", "best")
    engine = build(precision=precision, route=route, cache=cache if quantized else None)
    record = engine.record
    found = layers(api, engine)
    int8 = sum("Int8" in layer for layer in found)
    half = sum("Half" in layer for layer in found)
    print(f"\n{precision} {route}: {len(found)} layers, {int8} touch INT8, {half} touch FP16, "
          f"{record.plan_bytes} bytes, {record.build_seconds:.1f} s; warnings {record.warnings}; notes {record.notes}")  # fmt: skip
    assert record.route == expected
    assert record.level == 0
    # With FP16 allowed and the choice its own, the builder may find FP16 faster everywhere.
    if (precision, route) != ("best", "implicit"):
        assert (int8 > 0) is quantized
    if precision in ("fp32", "int8"):
        assert half == 0
    assert record.compute_capability == detect_gpus()[0].compute_capability
    assert record.tensorrt == api.version
    # Named layers: the engine was built with detailed profiling.
    assert all("Name" in layer for layer in found)


def test_tf32_is_off_unless_asked_for(api: Api) -> None:
    off, on = build(), build(tf32=True)
    print(f"\nTF32 off {off.record.plan_bytes} bytes, on {on.record.plan_bytes} bytes")
    assert (off.record.tf32, on.record.tf32) == (False, True)
    assert not any("tf32" in layer.lower() for layer in layers(api, off))


def test_an_engine_is_built_once(cache: Path, tmp_path: Path) -> None:
    options = {"precision": "int8", "cache": cache, "engine_cache": tmp_path}
    first, second = build(**options), build(**options)
    assert (first.record.from_cache, second.record.from_cache) == (False, True)
    assert second.plan == first.plan
    assert not build(**options, tf32=True).record.from_cache


def test_timings_are_kept_and_read(tmp_path: Path) -> None:
    first = build(precision="fp16", timing_cache=tmp_path)
    (file,) = tmp_path.iterdir()
    second = build(precision="fp16", timing_cache=tmp_path)
    print(f"\n{file.name}, {file.stat().st_size} bytes: {first.record.build_seconds:.1f} s, then "
          f"{second.record.build_seconds:.1f} s; {second.record.notes}")  # fmt: skip
    assert file.stat().st_size > 0
    # 8.6.0 refused its own on an H200; then the build goes on, and says so.
    assert any(str(file) in note for note in second.record.notes)


def test_timings_that_are_none_are_refused_and_replaced(tmp_path: Path) -> None:
    build(timing_cache=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"no timing cache" * 20)
    record = build(timing_cache=tmp_path).record
    print(f"\n{record.notes}")
    assert any("was refused" in note for note in record.notes)
    assert not file.read_bytes().startswith(b"no timing cache")


def test_the_cache_of_another_version_is_refused_before_the_build(cache: Path, tmp_path: Path) -> None:
    other = CalibrationCache.read(cache).replaced(version="7.2.3").write(tmp_path / "old.cache")
    with pytest.raises(
        CacheError, match=r"old\.cache is headed for TensorRT 7\.2\.3, but this is .*calib cache convert"
    ):
        build(precision="int8", cache=other)
    assert build(precision="int8", cache=other, route="explicit").record.route == "explicit INT8"


def test_a_minmax_cache_goes_to_its_calibrator(api: Api, tmp_path: Path) -> None:
    data = open_calibration(load_recipe("digits"))
    result = calib.calibrate(DEMO_MODEL, data, method="minmax", tensorrt=api.version)
    assert result.cache.algorithm == "MinMaxCalibration"
    assert any("Int8" in layer for layer in layers(api, build(precision="int8", cache=result.cache)))


def test_layers_are_kept_float(api: Api, cache: Path) -> None:
    everything = layers(api, build(precision="int8", cache=cache))
    kept = build(precision="int8", cache=cache, keep_float=["^/stem/"])
    found = layers(api, kept)
    print(f"\n{kept.record.notes}")
    stem = [layer for layer in found if "/stem/conv/Conv" in json.loads(layer)["Name"]]
    assert stem
    assert not any("Int8" in json.dumps(json.loads(layer)["Inputs"]) for layer in stem)
    assert sum("Int8" in layer for layer in everything) > 0


def test_layers_of_an_fp16_engine_are_kept_in_fp32(api: Api) -> None:
    kept = build(precision="fp16", keep_float=["^/stem/"])
    print(f"\n{kept.record.notes}")
    assert any("kept in FP32 by --keep-float" in note for note in kept.record.notes)
    stem = [
        json.loads(layer) for layer in layers(api, kept) if "/stem/conv/Conv" in json.loads(layer)["Name"]
    ]
    assert stem
    told = json.dumps([layer["Inputs"] for layer in stem])
    assert "FP16" not in told
    assert "Half" not in told


def test_missing_scales_are_counted(cache: Path) -> None:
    rows = dict(CalibrationCache.read(cache))
    dropped = list(rows)[3:6]
    partly = CalibrationCache.read(cache).replaced({name: rows[name] for name in rows if name not in dropped})
    record = build(precision="int8", cache=partly).record
    print(f"\ndropped {dropped}: {record.notes}")
    assert any("have no usable scale" in note for note in record.notes)
    assert not any("Missing scale" in line for line in record.warnings)


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(conv_relu_gemm(), path, save_as_external_data=True, location="net.data", size_threshold=0)
    assert calib.build(path, level=0).plan


def test_a_qdq_file_is_built_as_it_is(api: Api, cache: Path, tmp_path: Path) -> None:
    quantize(DEMO_MODEL, cache, out=tmp_path / "qdq.onnx")
    engine = calib.build(tmp_path / "qdq.onnx", precision="best", shapes=SHAPES, level=0)
    assert engine.record.route == "explicit INT8"
    assert any("Int8" in layer for layer in layers(api, engine))


def test_parser_errors_name_nodes(tmp_path: Path) -> None:
    proto = conv_relu_gemm()
    proto.graph.node[1].op_type, proto.graph.node[1].domain = "SwishOfAcme", "acme"
    proto.opset_import.append(onnx.helper.make_opsetid("acme", 1))
    with pytest.raises(EngineError) as caught:
        calib.build(save(proto, tmp_path / "net.onnx"))
    print(f"\n{caught.value}")
    assert "SwishOfAcme 'relu1' (node 1)" in str(caught.value)
    assert "Try: The parser has no such operator" in str(caught.value)


def test_a_small_workspace_and_another_level() -> None:
    record = calib.build(DEMO_MODEL, precision="fp16", shapes=SHAPES, level=1, workspace_mib=64).record
    print(f"\n{record.build_seconds:.1f} s; {record.warnings}")
    assert record.level == 1


def test_engines_go_through_files(api: Api, tmp_path: Path) -> None:
    engine = build(out=tmp_path / "digits.engine", version_compatible=False)
    assert Engine.load(tmp_path / "digits.engine") == engine
    runtime = api.trt.Runtime(capture_log(api))
    assert runtime.deserialize_cuda_engine(np.frombuffer(engine.plan, np.uint8).tobytes()) is not None
    assert load_model(DEMO_MODEL).sha256 == engine.record.model_sha256


def outcome(**options: Any) -> Engine | str:
    try:
        return build(**options)
    except EngineError as error:
        return str(error)


@pytest.mark.parametrize("option", ["version_compatible", "hardware_compatible"])
def test_compatible_engines(option: str) -> None:
    """The lean runtime of a version-compatible engine is a library of its own, which may not be there."""
    found = outcome(**{option: True})
    print(f"\n{option}: {found if isinstance(found, str) else found.record.plan_bytes}")
    assert found.plan if isinstance(found, Engine) else found.startswith("TensorRT")
