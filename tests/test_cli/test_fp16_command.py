"""``calib fp16`` and ``calib quantize --float-type``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from goldens import NETS
from half_networks import large_in_the_middle
from networks import save
from typer.testing import CliRunner, Result

from calib.cli.app import app
from calib.graph import load_model

_READER = """
import numpy as np

def images():
    values = np.random.default_rng(0)
    return [{"input": values.random((4, 1, 32, 32), np.float32)} for _ in range(4)]
"""
PLAIN = str(NETS / "plain.onnx")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_text(tmp_path: Path) -> None:
    path = save(large_in_the_middle(), tmp_path / "m.onnx")
    found = call("fp16", path)
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert lines[0] == "2 nodes in float16, 3 in float32, 2 casts added."
    assert "kept in float32: 1 Mul, square: no range is known of its output 'c', which can be large" in (
        line.replace("2 Mul", "1 Mul") for line in lines
    )
    assert lines[-1] == f"FP16 model: {tmp_path / 'm.fp16.onnx'}"
    assert load_model(tmp_path / "m.fp16.onnx").inputs[0].dtype == "float32"


def test_explain_lists_every_node(tmp_path: Path) -> None:
    path = save(large_in_the_middle(), tmp_path / "m.onnx")
    found = call("fp16", path, "--explain", "--out", tmp_path / "h.onnx")
    rows = [line for line in found.output.splitlines() if line.strip().startswith(("Mul", "MatMul"))]
    assert [line.split()[:2] for line in rows] == [["Mul", "square"], ["Mul", "shrink"], ["MatMul", "last"]]


@pytest.mark.parametrize("how", ["--ranges", "--data"])
def test_json(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fp16_reader.py").write_text(_READER)
    monkeypatch.syspath_prepend(str(tmp_path))
    value = NETS / "plain.minmax.cache" if how == "--ranges" else "fp16_reader:images"
    found = call("fp16", PLAIN, how, value, "--out", tmp_path / "h.onnx", "--json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.output)
    assert (document["converted"], document["kept"], document["casts"]) == (13, [], 2)
    assert ("sqnr_db" in document) is (how == "--data")
    if how == "--data":
        assert 50 < document["sqnr_db"]["logits"] < 90


def test_half_inputs_and_outputs(tmp_path: Path) -> None:
    out = tmp_path / "h.onnx"
    assert call("fp16", PLAIN, "--half-io", "--out", out).exit_code == 0
    assert [spec.dtype for spec in (*load_model(out).inputs, *load_model(out).outputs)] == ["float16"] * 2


def test_quantize_with_a_float16_rest(tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    options = ["--cache", NETS / "plain.minmax.cache", "--target", "tensorrt-11", "--float-type", "fp16"]
    found = call("quantize", PLAIN, *options, "--out", out, "--json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.output)
    assert document["opset"] == 19
    assert [left["op"] for left in document["kept_float32"]] == ["QuantizeLinear"]
    refused = call("quantize", PLAIN, "--cache", NETS / "plain.minmax.cache", "--float-type", "fp16")
    assert refused.exception is not None
    assert "reads Q/DQ scales in float32 alone" in str(refused.exception)
