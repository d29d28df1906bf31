"""``calib doctor --model``."""

from __future__ import annotations

import json
import re

import pytest
from goldens import NETS
from typer.testing import CliRunner, Result

from calib.cli.app import app


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def test_table_of_a_model() -> None:
    found = call("--model", NETS / "res.onnx")
    assert found.exit_code == 0, found.output
    lines = [line.split() for line in found.output.splitlines()]
    convolutions = next(line for line in lines if line[:1] == ["Conv"])
    assert convolutions == ["Conv", "13", "INT8", "INT8", "INT8", "pairs", "13/13"]
    assert "calib quantize, given every scale" in found.output


def test_table_fits_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", "100")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", call("--model", NETS / "res.onnx").output).splitlines()
    assert max(map(len, lines[1:])) <= 100
    header = next(line for line in lines if line.startswith("Operator"))
    assert header.split("  ")[0] == "Operator"
    assert all(name in header for name in ("Nodes", "TRT 8.6", "TRT 10", "TRT 11", "calib", "Why"))


def test_json_of_one_release() -> None:
    found = call("--model", NETS / "unet.onnx", "--target", "tensorrt-11", "--json")
    document = json.loads(found.output)
    assert document["releases"] == ["11"]
    assert {row["op"]: row["count"] for row in document["rows"]}["ConvTranspose"] == 2


def test_target_without_a_model() -> None:
    assert "--target goes with --model" in str(call("--target", "tensorrt-11").exception)
