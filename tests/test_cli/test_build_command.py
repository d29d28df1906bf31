"""``calib build``, on a fake of TensorRT 8.6 and, where it is installed, on TensorRT-RTX."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from engine_fakes import TENSORS, FakeDevice
from fake_tensorrt import Behaviour, make_tensorrt
from networks import conv_relu_gemm, save
from typer.testing import CliRunner

from calib.calibrators import CalibrationCache
from calib.cli.build import build_command
from calib.engine import target_device
from calib.engine.detect import detect_gpus
from calib.errors import UsageError

app = typer.Typer()
app.command()(build_command)


@pytest.fixture
def trt(monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    module: Any = make_tensorrt("8.6.0")
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    monkeypatch.setattr(target_device, "_open_device", lambda index: FakeDevice())
    return module.behaviour  # type: ignore[no-any-return]


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return save(conv_relu_gemm(), tmp_path / "net.onnx")


def test_every_option_reaches_the_builder(trt: Behaviour, network: Path, tmp_path: Path) -> None:
    cache = CalibrationCache(dict.fromkeys(TENSORS, 0.02)).write(tmp_path / "net.cache")
    arguments = [
        *(str(network), "--precision", "best", "--cache", str(cache), "--out", str(tmp_path / "a.engine")),
        *("--shapes", "x:1x3x8x8:2x3x8x8:4x3x8x8", "--level", "2", "--workspace", "128", "--tf32"),
        *("--route", "implicit", "--keep-float", "fc", "--timing-cache", str(tmp_path / "timing" / "t")),
        *("--engine-cache", str(tmp_path / "engines"), "--version-compatible", "--hardware-compatible"),
    ]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    (told,) = trt.builds
    assert told["flags"] == ["FP16", "INT8", "OBEY_PRECISION_CONSTRAINTS", "TF32", "VERSION_COMPATIBLE"]
    assert told["shapes"] == {"x": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))}
    assert (told["level"], told["pools"], told["hardware"]) == (2, {"WORKSPACE": 128 << 20}, "AMPERE_PLUS")
    assert told["bound"] == {"fc": "HALF"}
    assert (tmp_path / "timing" / "t.nvidia-h200-sm90-trt8.6.0.timing").exists()
    lines = result.stdout.splitlines()
    assert lines[0].startswith("best engine (implicit INT8) of net.onnx, built in ")
    assert lines[0].endswith(" with TensorRT 8.6.0 for NVIDIA H200")
    assert lines[1] == "shapes: x:1x3x8x8:2x3x8x8:4x3x8x8"
    assert lines[-1] == f"Engine of 0.00 MiB: {tmp_path / 'a.engine'}"
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ", found in the engine cache with TensorRT" in again.stdout


def test_json_and_the_engine_beside_the_model(trt: Behaviour, network: Path, tmp_path: Path) -> None:
    trt.says = [("WARNING", "this is slow")]
    result = CliRunner().invoke(app, [str(network), "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["engine"] == str(tmp_path / "net.engine")
    assert (found["precision"], found["route"], found["tensorrt"]) == ("fp32", "float", "8.6.0")
    assert found["warnings"] == ["this is slow"]
    assert (tmp_path / "net.engine.json").exists()


@pytest.mark.parametrize("text", ["86", "8.x", "8", ""])
def test_a_compute_capability_that_is_none(network: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"--compute-capability must look like 8\.6, got"):
        CliRunner().invoke(app, [str(network), "--rtx", "--compute-capability", text], catch_exceptions=False)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``calib build`` in a process of its own, where no tensorrt is."""
    return subprocess.run(
        [sys.executable, "-m", "calib", "build", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["/nowhere", *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="TensorRT is installed")
def test_without_tensorrt_one_line_says_what_to_install(network: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "net.onnx")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "calib: Building engines needs tensorrt, which is not installed. "
        "Install it with: pip install 'int8-calib[tensorrt]'"
    )
    assert done.stderr.count("\n") == 1
    assert ("It needs an NVIDIA GPU too" in done.stderr) is (not detect_gpus())
    assert not (tmp_path / "net.engine").exists()


@pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx_bindings") is None, reason="TensorRT-RTX is not installed"
)
def test_with_tensorrt_rtx_and_no_gpu(network: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "net.onnx", "--rtx", "--compute-capability", "8.9", "--out", "n.engine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "for any GPU of compute capability 8.9" in done.stdout
    assert (tmp_path / "n.engine").stat().st_size > 1000
    failed = run(tmp_path, "net.onnx", "--rtx", "--shapes", "y:1x3x8x8")
    assert failed.returncode == 2
    assert failed.stderr.startswith("calib: --shapes 'y:1x3x8x8': 'y' is no input. Inputs: x.")
