"""Layers and times from files, and from engines on a fake of TensorRT."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from goldens import NETS
from layer_answers import answer, conv, golden, golden_bytes

from calib.engine import read_layers, read_times
from calib.engine.layer_files import set_largest_shapes
from calib.errors import EngineError


@pytest.mark.parametrize("name", ["layers.json", "layers.json.gz", "layers.txt"])
def test_json_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(
        (NETS / "res.minmax.layers.json.gz").read_bytes() if "gz" in name else golden_bytes("res.minmax")
    )
    assert read_layers(path) == golden("res.minmax")


def test_json_after_spaces(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("\n  " + answer("conv"), encoding="utf-8")
    assert [one.name for one in read_layers(path)] == ["conv"]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("none.json", None, "Cannot read .*none.json: no such file"),
        ("a.json", b"", "a.json is empty"),
        ("m.onnx", b"\x08\x08", r"m.onnx is an ONNX model, not an engine. Build one: calib build .*m.onnx"),
        (
            "m.cache",
            b"TRT-8600-Entropy",
            r"m.cache is a calibration cache, not an engine. .* calib cache show .*m.cache",
        ),
        ("m.engine.json", b'{"schema": 1, "route": "float"}', "m.engine.json has no list of layers"),
    ],
)
def test_other_files(tmp_path: Path, name: str, content: bytes | None, match: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match=match):
        read_layers(path)


def test_times_of_trtexec(tmp_path: Path) -> None:
    """As --exportProfile writes them; a layer that runs in two iterations of a loop is there twice."""
    path = tmp_path / "profile.json"
    path.write_text(
        '[\n  { "count" : 7075 }\n'
        ', { "name" : "conv", "timeMs" : 83.9859, "averageMs" : 0.0118708, "percentage" : 2.91 }\n'
        ', { "name" : "conv", "timeMs" : 1, "averageMs" : 0.001, "percentage" : 0.1 }\n'
        ', { "name" : "copy", "timeMs" : 0, "averageMs" : 0, "percentage" : 0 }\n]\n',
        encoding="utf-8",
    )
    assert read_times(path) == {"conv": pytest.approx(0.0128708), "copy": 0.0}


def test_times_as_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"a": 1, "b": 0.5}', encoding="utf-8")
    assert read_times(path) == {"a": 1.0, "b": 0.5}


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "3",
        '[{"count": 3}]',
        '[{"name": "a"}]',
        '{"a": "fast"}',
        '{"a": -1}',
        '{"a": true}',
        '{"a": NaN}',
    ],
)
def test_what_are_no_times(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(EngineError, match=r"t\.json must map layers to milliseconds"):
        read_times(path)


def test_times_that_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"a": 1', encoding="utf-8")
    with pytest.raises(EngineError, match=r"t\.json is not JSON, or cut off"):
        read_times(path)
    with pytest.raises(EngineError, match=r"Cannot read .*none\.json: no such file"):
        read_times(tmp_path / "none.json")


class FakeEngine:
    """Two inputs, one of a dynamic batch, and an output; TensorRT's own names of what it is asked."""

    def __init__(self) -> None:
        self.names = ["x", "size", "y"]
        self.num_io_tensors = 3

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_mode(self, name: str) -> str:
        return "out" if name == "y" else "in"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return {"x": (-1, 3, 8, 8), "size": (4,), "y": (-1, 5)}[name]

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, ...]]:
        assert (name, profile) == ("x", 0)
        return [(1, 3, 8, 8), (8, 3, 8, 8), (32, 3, 8, 8)]

    def create_execution_context(self) -> FakeContext:
        return FakeContext()

    def create_engine_inspector(self) -> FakeInspector:
        return FakeInspector()


class FakeContext:
    active_optimization_profile = 0

    def __init__(self, takes: bool = True) -> None:
        self.takes, self.shapes = takes, {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = shape
        return self.takes


class FakeInspector:
    execution_context: Any = None

    def get_engine_information(self, form: str) -> str:
        batch = self.execution_context.shapes["x"][0]
        shape = (batch, 3, 8, 8)
        return answer(conv("c", "Row major Int8 format", "Row major linear FP32", shapes=(shape, shape)))


API = SimpleNamespace(
    title="TensorRT 8.6.0",
    trt=SimpleNamespace(
        TensorIOMode=SimpleNamespace(INPUT="in", OUTPUT="out"),
        LayerInformationFormat=SimpleNamespace(JSON="json"),
    ),
)


def test_dynamic_inputs_take_the_largest_shape() -> None:
    context = FakeContext()
    set_largest_shapes(API, FakeEngine(), context)  # type: ignore[arg-type]
    assert context.shapes == {"x": (32, 3, 8, 8)}


def test_a_shape_that_is_refused() -> None:
    with pytest.raises(EngineError, match=r"refuses shape \(32, 3, 8, 8\) of input 'x'"):
        set_largest_shapes(API, FakeEngine(), FakeContext(takes=False))  # type: ignore[arg-type]


class FakeDevice:
    name = "NVIDIA H200"

    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def test_an_engine_is_loaded_where_tensorrt_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.engine"
    path.write_bytes(b"ftrt plan")
    asked: dict[str, Any] = {}

    def load(api: Any, plan: bytes, log: Any, **more: Any) -> tuple[Any, Any]:
        asked.update(plan=plan, **more)
        return object(), FakeEngine()

    monkeypatch.setattr("calib.engine.api.load_api", lambda flavour: asked.update(flavour=flavour) or API)
    monkeypatch.setattr("calib.engine.api.capture_log", lambda api: SimpleNamespace(lines=[]))
    monkeypatch.setattr("calib.engine.memory.open_device", FakeDevice)
    monkeypatch.setattr("calib.engine.loading.load_engine", load)
    (found,) = read_layers(path, host_code=True)
    assert (found.precision, found.inputs[0].shape) == ("INT8", (32, 3, 8, 8))
    assert asked == {
        "plan": b"ftrt plan",
        "origin": str(path),
        "here": "NVIDIA H200",
        "flavour": "tensorrt",
        "host_code": True,
    }
    read_layers(path)
    assert asked["host_code"] is False


def test_a_context_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.engine"
    path.write_bytes(b"ftrt plan")
    monkeypatch.setattr("calib.engine.api.load_api", lambda flavour: API)
    monkeypatch.setattr("calib.engine.api.capture_log", lambda api: SimpleNamespace(lines=[]))
    monkeypatch.setattr("calib.engine.memory.open_device", FakeDevice)
    bare = SimpleNamespace(create_execution_context=lambda: None)
    monkeypatch.setattr("calib.engine.loading.load_engine", lambda *_, **__: (object(), bare))
    with pytest.raises(EngineError, match=r"TensorRT 8\.6\.0 can make no context of .*m\.engine"):
        read_layers(path)


def test_the_answers_here_are_json() -> None:
    assert json.loads(answer("a", conv("c", "x", "y")), strict=False)["Bindings"] == ["x", "y"]
