"""``calib inspect`` on answers of TensorRT 8.6.0, which need no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from goldens import NETS
from layer_answers import FP32, INT8, answer, conv, reformat
from typer.testing import CliRunner

from calib.cli.inspect import inspect_command
from calib.errors import CacheError, EngineError, UsageError

app = typer.Typer()
app.command()(inspect_command)
RES = [str(NETS / "res.minmax.layers.json.gz"), "--model", str(NETS / "res.onnx")]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_table_and_the_figures() -> None:
    text = run(*RES, "--cache", str(NETS / "res.minmax.cache"))
    rows = [line.split() for line in text.splitlines()]
    assert ["/l/l.1/sc/sc.0/Conv", "INT8"] in [row[:2] for row in rows]
    assert ["/ReduceMean", "FP32"] in [row[:2] for row in rows]
    assert ["reshape_before_/fc/Gemm", "no-op"] in [row[:2] for row in rows]
    assert "INT8 → FP32" in next(line for line in text.splitlines() if "/l/l.3/sc/sc.0/Conv" in line)
    assert "8 of 15 layers compute in INT8, 7 in FP32." in text
    assert "31 ONNX nodes became 15 engine layers: 11 vertical fusions; 1 reformat." in text
    assert "not INT8: 1 × no INT8 kernel for ReduceMean: the Reduce layer has float types" in text
    assert "TensorRT found FP32 faster" in flat(text)


def test_times(tmp_path: Path) -> None:
    times = tmp_path / "t.json"
    times.write_text(json.dumps({"/ReduceMean": 0.75, "/l/l.1/sc/sc.0/Conv": 0.25}), encoding="utf-8")
    text = run(*RES, "--times", str(times))
    assert "INT8 layers take 25.0% of the time, reformats 0.0%." in text
    assert "slowest: 75.0% FP32 /ReduceMean" in text
    assert "0.7500" in next(line for line in text.splitlines() if line.startswith("/ReduceMean"))


def test_json() -> None:
    found = json.loads(run(*RES, "--cache", str(NETS / "res.minmax.cache"), "--json"))
    assert (found["layers"], found["int8_layers"], found["by_precision"]) == (15, 8, {"INT8": 8, "FP32": 7})
    assert len(found["layer_list"]) == 18
    first = found["layer_list"][0]
    assert (first["precision"], first["evidence"], first["copies"], first["ms"]) == (
        "FP32",
        "kernel",
        False,
        None,
    )
    assert first["onnx_nodes"] == ["/stem/stem.0/Conv", "/stem/stem.2/Relu"]
    assert "raw" not in first
    assert found["float_layers"][0]["reason"].endswith("multiple of 32: 1 → 16 channels")
    assert sum(found["reasons"].values()) == 7
    assert found["fusion"]["sentences"] == [
        "31 ONNX nodes became 15 engine layers: 11 vertical fusions; 1 reformat."
    ]


def test_why_it_is_no_faster(tmp_path: Path) -> None:
    files = {
        "int8.json": answer(reformat("r", FP32, INT8), conv("c", INT8, INT8)),
        "fp16.json": answer(conv("c", "Channel major FP16 format", "Channel major FP16 format")),
        "int8.times.json": '{"r": 0.5, "c": 0.5}',
        "fp16.times.json": '{"c": 0.6}',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    int8, fp16, times, others = (str(tmp_path / name) for name in files)
    text = run(int8, "--times", times, "--against", fp16, "--against-times", others)
    assert "no faster: 50% of the layers' time (0.5 ms) goes to 1 reformat" in text
    assert "INT8 CHW32 → INT8 CHW32" in text
    for options in (
        ["--against", fp16],
        ["--against", fp16, "--against-times", others],
        ["--against-times", others],
    ):
        with pytest.raises(UsageError, match="--against needs --times and --against-times"):
            run(int8, *options)


def test_names_alone(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text(answer("conv + relu"), encoding="utf-8")
    assert "note: The engine tells the names of its layers alone" in run(str(path))


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text(answer(conv("conv\x1b[31m", INT8, INT8)), encoding="utf-8")
    text = run(str(path))
    assert "\x1b" not in text
    assert "conv\\x1b[31m" in text


def test_faults_are_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no such file"):
        run(str(tmp_path / "none.json"))
    with pytest.raises(CacheError, match="no such file"):
        run(*RES, "--cache", str(tmp_path / "none.cache"))


def test_it_is_registered_and_faults_are_exit_status_2(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text('{"Layers": [', encoding="utf-8")
    command = [sys.executable, "-m", "calib", "inspect", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "not the JSON of TensorRT's engine inspector, or cut off" in result.stderr
    assert "Traceback" not in result.stderr
