"""Engines and their records, the engine cache and the timing cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_fakes import InstallTensorRT

import calib
from calib.calibrators import CalibrationCache
from calib.engine import Engine, load_api
from calib.engine.target_device import TargetDevice
from calib.engine.timing_cache import timing_cache_path
from calib.errors import EngineError


@pytest.fixture
def built(install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path) -> Engine:
    install_tensorrt("8.6.0")
    return calib.build(network, out=tmp_path / "net.engine")


def test_an_engine_comes_back_as_it_was(built: Engine) -> None:
    assert built.path is not None
    assert Engine.load(built.path) == built


def test_an_engine_without_a_record_is_read(tmp_path: Path) -> None:
    (tmp_path / "other.engine").write_bytes(b"made by trtexec")
    engine = Engine.load(tmp_path / "other.engine")
    assert engine.plan == b"made by trtexec"
    assert (engine.record.precision, engine.record.tensorrt) == ("unknown", "unknown")
    assert engine.record.notes == ("no record beside the engine: built by another program",)


def test_engines_that_cannot_be_read(built: Engine, tmp_path: Path) -> None:
    assert built.path is not None
    with pytest.raises(
        EngineError, match=r"Cannot read engine .*none\.engine: no such file. Build one: calib build"
    ):
        Engine.load(tmp_path / "none.engine")
    (tmp_path / "empty.engine").touch()
    with pytest.raises(EngineError, match=r"empty\.engine is empty"):
        Engine.load(tmp_path / "empty.engine")
    built.path.write_bytes(built.plan[:-1])
    with pytest.raises(EngineError, match=r"is the record of another engine than .*: hashes differ"):
        Engine.load(built.path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[1]", "is no record of schema 1"),
        ('{"schema": 2}', r"is no record of schema 1 \(it says 2\)"),
        ('{"schema": 1, "precision": 8}', "cannot be read"),
    ],
)
def test_records_that_cannot_be_read(built: Engine, content: str, message: str) -> None:
    assert built.path is not None
    Path(f"{built.path}.json").write_text(content)
    with pytest.raises(EngineError, match=message):
        Engine.load(built.path)


def test_what_was_built_once_is_not_built_again(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path, tmp_path: Path
) -> None:
    trt = install_tensorrt("8.6.0")
    options = {"precision": "int8", "cache": cache, "engine_cache": tmp_path / "engines"}
    first = calib.build(network, **options)
    second = calib.build(network, **options, out=tmp_path / "net.engine")
    assert len(trt.builds) == 1
    assert (first.record.from_cache, second.record.from_cache) == (False, True)
    assert second.plan == first.plan
    assert second.record.key == first.record.key
    assert second.path == tmp_path / "net.engine"
    assert len(list((tmp_path / "engines").iterdir())) == 2  # an engine and its record


def test_whatever_makes_another_engine_makes_another_key(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path
) -> None:
    install_tensorrt("8.6.0")
    other_scales = CalibrationCache({**CalibrationCache.read(cache), "x": 0.03})
    keys = [
        calib.build(network, **options).record.key
        for options in (
            {},
            {"level": 1},
            {"tf32": True},
            {"workspace_mib": 1},
            {"shapes": ["x:1x3x8x8"]},
            {"version_compatible": True},
            {"hardware_compatible": True},
            {"precision": "fp16"},
            {"precision": "int8", "cache": cache},
            {"precision": "int8", "cache": other_scales},
            {"precision": "int8", "cache": cache, "keep_float": ["conv1"]},
            {"precision": "int8", "cache": cache, "route": "explicit"},
        )
    ]
    install_tensorrt("8.6.1")
    keys.append(calib.build(network).record.key)
    changed = bytearray(network.read_bytes())
    changed[changed.index(b"relu2")] += 1
    network.write_bytes(changed)
    keys.append(calib.build(network).record.key)
    assert len(set(keys)) == len(keys) == 14
    assert all(len(key) == 64 for key in keys)


def test_the_name_of_the_route_makes_no_other_engine(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path
) -> None:
    install_tensorrt("8.6.0")
    auto, implicit = (
        calib.build(network, precision="int8", cache=cache, route=route).record.key
        for route in ("auto", "implicit")
    )
    assert auto == implicit


@pytest.mark.parametrize(
    ("damage", "note"),
    [
        (lambda file: file.write_bytes(b"cut"), "the engine that was kept is damaged"),
        (lambda file: Path(f"{file}.json").unlink(), "does not say what made it"),
    ],
)
def test_a_damaged_engine_is_built_anew(
    install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path, damage: object, note: str
) -> None:
    trt = install_tensorrt("8.6.0")
    first = calib.build(network, engine_cache=tmp_path)
    damage(tmp_path / f"{first.record.key}.engine")  # type: ignore[operator]
    second = calib.build(network, engine_cache=tmp_path)
    assert len(trt.builds) == 2
    assert any(note in line for line in second.record.notes)
    assert calib.build(network, engine_cache=tmp_path).record.from_cache


def test_timings_are_kept_for_each_gpu_and_release(
    install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path
) -> None:
    trt = install_tensorrt("8.6.0")
    first = calib.build(network, timing_cache=tmp_path / "t.timing")
    file = tmp_path / "t.nvidia-h200-sm90-trt8.6.0.timing"
    assert file.read_bytes() == b"new timings"
    file.write_bytes(b"old timings")
    second = calib.build(network, timing_cache=tmp_path / "t.timing")
    assert [told["timing"] for told in trt.builds] == ["new timings", "old timings"]
    assert not any("timing" in note for note in first.record.notes)
    assert f"timings from {file}" in second.record.notes


def test_refused_timings_are_told_and_replaced(
    install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path
) -> None:
    trt = install_tensorrt("8.6.0")
    trt.refuse_timing = True
    file = tmp_path / "nvidia-h200-sm90-trt8.6.0.timing"
    file.write_bytes(b"timings of another machine")
    record = calib.build(network, timing_cache=tmp_path).record
    assert trt.builds[0]["timing"] == "new timings"
    assert file.read_bytes() == b"new timings"
    assert (
        f"timing cache {file} was refused (The timing cache will not be used!); new timings are taken"
        in record.notes
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("folder/", "folder/tesla-t4-sm75-trt8.6.0.timing"),
        ("timings", "timings.tesla-t4-sm75-trt8.6.0.timing"),
        ("a.cache", "a.tesla-t4-sm75-trt8.6.0.cache"),
    ],
)
def test_the_file_of_timings(install_tensorrt: InstallTensorRT, given: str, expected: str) -> None:
    install_tensorrt("8.6.0")
    assert timing_cache_path(given, load_api(), TargetDevice("Tesla T4", (7, 5))) == Path(expected)


def test_records_are_plain_json(built: Engine) -> None:
    assert json.loads(json.dumps(built.record.as_dict())) == json.loads(
        Path(f"{built.path}.json").read_text()
    )
