"""The plug-in as a user's own test suite meets it: pytest in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from networks import conv_relu_gemm, samples, save
from test_report import report_results as made

from calib.pytest_plugin import assert_gates
from calib.validation import make_baseline, write_baseline, write_results

ROOT = Path(__file__).parents[2]
Runner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with results of a good and of a spoiled model, and a baseline."""
    good = made.classifier()
    good = replace(good, runs=good.runs[:2])
    write_results(good, tmp_path / "good.json")
    write_baseline(make_baseline(good), tmp_path / "base.json")
    spoiled = replace(good.runs[1], predictions=(0,) * 360, metrics=good.runs[1].metrics[:1])
    write_results(made.restated(replace(good, runs=(good.runs[0], spoiled))), tmp_path / "spoiled.json")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.fixture
def run(suite: Path) -> Runner:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        installed = any(point.value == "calib.pytest_plugin" for point in entry_points(group="pytest11"))
        plugin = [] if installed else ["-p", "calib.pytest_plugin"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *plugin, *arguments],
            cwd=suite,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


REGRESSION = """\
from calib.pytest_plugin import assert_gates

def test_int8():
    assert_gates("{results}", max_drop="2%", baseline="base.json")
"""


def test_a_good_model_passes_and_a_spoiled_one_is_explained(suite: Path, run: Runner) -> None:
    (suite / "test_good.py").write_text(REGRESSION.format(results="good.json"))
    (suite / "test_spoiled.py").write_text(REGRESSION.format(results="spoiled.json"))
    ran = run("--calib-out", "out")
    assert ran.returncode == 1
    assert "1 failed, 1 passed" in ran.stdout
    assert "max_drop top1: FP16 against baseline, at most 2 percentage points (0.02)" in ran.stdout
    assert "digits on digits, 360 samples" in ran.stdout  # the table
    assert "Samples that moved most:" in ran.stdout
    # Of the run that failed; those of INT8, which is not judged here, are left out.
    assert "FP16: digits:0101, label 1, 1 → 1, SQNR 55.2 dB" in ran.stdout
    assert "INT8 entropy: digits:0008" not in ran.stdout
    (report,) = (suite / "out").glob("*/report/report.html")
    assert f"Report: {report}" in ran.stdout
    assert "Traceback" not in ran.stdout


def test_gates_of_yaml_files_are_collected(suite: Path, run: Runner) -> None:
    for name in ("good", "spoiled"):
        (suite / f"{name}.calib.yaml").write_text(
            f"schema: 1\nresults: {name}.json\nbaseline: base.json\ngates:\n  - max_drop: 2%\n"
        )
    (suite / "calib-gates.yaml").write_text((suite / "good.calib.yaml").read_text())
    ran = run("-rA", "--calib-out", "out")
    assert ran.returncode == 1
    assert "PASSED good.calib.yaml::gates" in ran.stdout
    assert "PASSED calib-gates.yaml::gates" in ran.stdout
    assert "FAILED spoiled.calib.yaml::gates" in ran.stdout
    assert "FAIL: 1 failed" in ran.stdout


MISTAKES = {
    "threshold": ("results: good.json\ngates: [{max_drop: nan}]", "would switch the gate off"),
    "nothing": ("gates: [{max_drop: 1%}]", "give one of results: FILE and validate:"),
    "incomplete": ("validate: {model: m}\ngates: [{max_drop: 1%}]", "validate needs model and data"),
    "misspelt": ("validate: {model: m, data: d, sampels: 3}\ngates: [{max_drop: 1%}]", "has no sampels"),
    "missing": ("results: none.json\ngates: [{max_drop: 1%}]", "Cannot read results"),
}


def test_mistakes_are_one_message(suite: Path, run: Runner) -> None:
    for name, (text, _) in MISTAKES.items():
        (suite / f"{name}.calib.yaml").write_text(f"schema: 1\n{text}\n")
    ran = run()
    assert ran.returncode == 1
    assert f"{len(MISTAKES)} failed" in ran.stdout
    for _, message in MISTAKES.values():
        assert message in ran.stdout
    assert "Traceback" not in ran.stdout


VALIDATING = """\
from calib.pytest_plugin import assert_gates

OPTIONS = {"cache": "m.cache", "precisions": ["int8"], "latency_count": 0}

def test_int8(calib_validate):
    assert_gates(calib_validate("m.onnx", "mine.yaml", **OPTIONS), min_sqnr=10)

def test_once(calib_validate):
    first = calib_validate("m.onnx", "mine.yaml", **OPTIONS)
    assert calib_validate("m.onnx", "mine.yaml", **OPTIONS) is first
"""

RECIPE = """\
schema: 1
name: mine
source: {kind: arrays, path: samples.npz}
calibration: {samples: 20, seed: 0}
"""


def test_a_model_is_validated_in_several_processes(suite: Path, run: Runner) -> None:
    """With pytest-xdist: a Python test and a YAML file that validate the same model."""
    from calib.graph import calibrate

    save(conv_relu_gemm(), suite / "m.onnx")
    np.savez(suite / "samples.npz", x=samples(40, 3, 8, 8))
    (suite / "mine.yaml").write_text(RECIPE)
    calibrate(suite / "m.onnx", suite / "mine.yaml", out=suite / "m.cache")
    (suite / "test_int8.py").write_text(VALIDATING)
    described = "{model: m.onnx, data: mine.yaml, cache: m.cache, precisions: [int8], latency_count: 0}"
    (suite / "net.calib.yaml").write_text(f"schema: 1\nvalidate: {described}\ngates: [{{min_sqnr: 10}}]\n")
    ran = run("-n", "2", "-q")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_the_plugin_imports_no_stage_until_it_is_needed() -> None:
    code = "import sys, calib.pytest_plugin; print([m for m in sys.modules if m.startswith('calib.')])"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert ran.stdout.strip() == "['calib.lazy', 'calib.errors', 'calib.pytest_plugin']"


def test_the_entry_point_is_declared() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"calib": "calib.pytest_plugin"}


def test_the_helper_returns_the_report() -> None:
    good = made.classifier()
    report = assert_gates(replace(good, runs=good.runs[:2]), max_drop="2%")
    assert report.passed
