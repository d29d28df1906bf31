"""What a command writes never takes the place of what it reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Ran
from networks import conv_relu_gemm, samples, save

RECIPE = """\
schema: 1
name: mine
source: {kind: arrays, path: samples.npz}
calibration: {samples: 6, seed: 0}
"""
CALIBRATE = ("calibrate", "m.onnx", "--data", "mine.yaml", "--batch-size", 2)
QUANTIZE = ("quantize", "m.onnx", "--cache", "m.cache")
BUILD = ("build", "m.onnx", "--rtx", "--precision", "int8", "--cache", "m.cache")
CHECK = ("check", "run/results.json", "--min-sqnr", 1)
# Arguments → the option, the file, and what the message calls it.
REPLACING = {
    "calibrate-model": (CALIBRATE, "--out", "m.onnx", "model"),
    "calibrate-recipe": (CALIBRATE, "--out", "mine.yaml", "recipe"),
    "calibrate-link": (CALIBRATE, "--out", "link.yaml", "recipe"),
    "shard": ((*CALIBRATE, "--shard", "1/3"), "--out", "mine.yaml", "recipe"),
    "grids": ((*CALIBRATE, "--shard", "2/3", "--grids-of", "p.npz"), "--out", "p.npz", "file of --grids-of"),
    "quantize-model": (QUANTIZE, "--out", "m.onnx", "model"),
    "quantize-cache": (QUANTIZE, "--out", "m.cache", "calibration cache"),
    "quantize-sidecar": (QUANTIZE, "--out", "m.cache.json", "calibration cache's provenance"),
    "fp16-ranges": (("fp16", "m.onnx", "--ranges", "m.cache"), "--out", "m.cache", "calibration cache"),
    "fp16-recipe": (("fp16", "m.onnx", "--data", "mine.yaml"), "--out", "mine.yaml", "recipe"),
    "build-model": (BUILD, "--out", "m.onnx", "model"),
    "build-cache": (BUILD, "--out", "m.cache", "calibration cache"),
    "junit": (CHECK, "--junit", "run/results.json", "results file"),
    "markdown": (CHECK, "--markdown", "run/results.json", "results file"),
    "report-on-baseline": ((*CHECK, "--baseline", "base.json"), "--junit", "base.json", "baseline"),
    "report-on-gates": ((*CHECK, "--gates", "gates.yaml"), "--markdown", "gates.yaml", "gates file"),
    "two-reports": ((*CHECK, "--junit", "new"), "--markdown", "new", "file of --junit"),
    "baseline": (
        ("check", "run/results.json", "--update-baseline"),
        "--baseline",
        "run/results.json",
        "results file",
    ),
    "noise": (
        ("check", "run/results.json", "--update-baseline", "--noise", "other.json"),
        "--baseline",
        "other.json",
        "results file",
    ),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calib: Callable[..., Ran]) -> Path:
    """A folder with one of everything that a command reads."""
    monkeypatch.chdir(tmp_path)
    save(conv_relu_gemm(), tmp_path / "m.onnx")
    np.savez(tmp_path / "samples.npz", x=samples(10, 3, 8, 8))
    (tmp_path / "mine.yaml").write_text(RECIPE)
    (tmp_path / "link.yaml").symlink_to("mine.yaml")
    (tmp_path / "gates.yaml").write_text("schema: 1\ngates: [{min_sqnr: 1}]\n")
    validate = ("validate", "m.onnx", "--data", "mine.yaml", "--cache", "m.cache", "--latency-count", 3)
    for command in (CALIBRATE, (*CALIBRATE, "--shard", "1/3", "--out", "p.npz"), (*validate, "--out", "run")):
        assert calib(*command).status == 0
    assert calib("check", "run/results.json", "--update-baseline", "--baseline", "base.json").status == 0
    shutil.copy("run/results.json", "other.json")
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_output_that_is_an_input_is_refused(project: Path, calib: Callable[..., Ran]) -> None:
    before = contents(project)
    for case, (arguments, option, file, what) in REPLACING.items():
        ran = calib(*arguments, option, file)
        expected = f"calib: {option} {file} is the {what} itself. Choose another file.\n"
        assert (case, ran.status, ran.err) == (case, 2, expected)
        assert contents(project) == before, case
