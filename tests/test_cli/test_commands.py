"""The command line as a user meets it: what it prints, what it writes, its exit status."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from command_line import Ran
from goldens import REAL
from networks import conv_relu_gemm, samples, save

from calib.cli.app import app

RECIPE = """\
schema: 1
name: mine
source: {kind: arrays, path: samples.npz}
calibration: {samples: 6, seed: 0}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a recipe and its data."""
    monkeypatch.chdir(tmp_path)
    save(conv_relu_gemm(), tmp_path / "m.onnx")
    np.savez(tmp_path / "samples.npz", x=samples(10, 3, 8, 8))
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path


def test_the_readmes_job_on_an_own_model(project: Path, calib: Callable[..., Ran]) -> None:
    made = calib("calibrate", "m.onnx", "--data", "mine.yaml")
    assert made.status == 0
    assert "9 tensors calibrated by entropy on 6 samples (1 of 1 batches used)." in made.out
    quantized = calib("quantize", "m.onnx", "--cache", "m.cache")
    assert quantized.status == 0
    assert "4 activations and 3 weights quantized." in quantized.out
    validated = calib(
        "validate",
        "m.onnx",
        "--data",
        "mine.yaml",
        "--cache",
        "m.cache",
        "--out",
        "run",
        "--latency-count",
        3,
    )
    assert validated.status == 0, validated.err
    assert "CPU simulation" in validated.out
    reported = calib("report", "run/results.json", "--out", "report")
    assert reported.status == 0, reported.err
    files = {path.name for path in project.iterdir()}
    assert files >= {"m.cache", "m.cache.json", "m.int8.onnx", "run", "report"}
    results = json.loads((project / "run" / "results.json").read_text())
    assert results["dataset"]["samples"] == 4
    assert results["dataset"]["overlap_with_calibration"] == 0


def test_shards_in_files_and_a_merge(project: Path, calib: Callable[..., Ran]) -> None:
    options = ["--data", "mine.yaml", "--batch-size", 2]
    assert calib("calibrate", "m.onnx", *options).status == 0
    for number in (1, 2):
        ran = calib("calibrate", "m.onnx", *options, "--shard", f"{number}/2", "--out", f"part{number}.npz")
        assert ran.status == 0, ran.err
        assert f"Partial calibration: part{number}.npz" in ran.out
    merged = calib("cache", "merge", "part2.npz", "part1.npz", "--out", "merged.cache")
    assert merged.status == 0, merged.err
    assert "3 of 3 batches used" in merged.out
    assert (project / "merged.cache").read_bytes() == (project / "m.cache").read_bytes()
    mixed = calib("cache", "merge", "part1.npz", "m.cache", "--out", "x.cache")
    assert mixed.status == 2
    assert "cannot be merged: part1.npz are partial" in mixed.err


def test_what_changed_is_said_when_a_cache_is_replaced(project: Path, calib: Callable[..., Ran]) -> None:
    calib("calibrate", "m.onnx", "--data", "mine.yaml")
    assert "replaced" not in calib("calibrate", "m.onnx", "--data", "mine.yaml").out
    proto = conv_relu_gemm()
    proto.graph.initializer[0].raw_data = b"\0" * len(proto.graph.initializer[0].raw_data)
    save(proto, project / "m.onnx")
    linted = calib("cache", "lint", "m.cache", "--model", "m.onnx")
    assert linted.status == 1
    assert "weights-changed" in linted.out
    quantized = calib("quantize", "m.onnx", "--cache", "m.cache")
    assert "The weights of m.onnx have changed" in quantized.out
    assert calib("quantize", "m.onnx", "--cache", "m.cache", "--strict").status == 2
    again = calib("calibrate", "m.onnx", "--data", "mine.yaml", "--seed", 5)
    assert "since it was made changed: model weights, calibration data" in again.out


def test_json_is_json(project: Path, calib: Callable[..., Ran]) -> None:
    printed = json.loads(calib("calibrate", "m.onnx", "--data", "mine.yaml", "--json").out)
    assert printed["header"] == "TRT-8600-EntropyCalibration2"
    assert len(printed["ranges"]) == printed["tensors"] == 9
    pairs = json.loads(calib("quantize", "m.onnx", "--cache", "m.cache", "--json").out)["pairs"]
    assert {pair["tensor"] for pair in pairs} == {"x", "p1", "r2", "f", "w1", "w2", "w3"}


def test_explanation_names_every_pair_and_every_node(project: Path, calib: Callable[..., Ran]) -> None:
    calib("calibrate", "m.onnx", "--data", "mine.yaml")
    command = ["quantize", "m.onnx", "--cache", "m.cache", "--keep-float", "fc", "--target", "tensorrt-10"]
    told = calib(*command, "--explain")
    assert told.status == 0, told.err
    assert "Q/DQ model for tensorrt-10: m.int8.onnx" in told.out
    for line in (
        r"p1 +\S+ +\S+ +input of Conv +conv2",
        r"w1 +\S+ +\S+ +weight of Conv, a scale for each channel of axis 0 +conv1",
        r"Gemm +fc +kept by 'fc'",
        r"Relu +2 +fused into the convolution before it, where there is one +relu1, relu2",
        r"GlobalAveragePool +1 +INT8 only with a pair on both sides, which splits fusions +gap",
    ):
        assert re.search(line, told.out), line
    printed = json.loads(calib(*command, "--explain", "--json").out)
    assert printed["target"] == "tensorrt-10"
    assert {entry["op"]: entry["count"] for entry in printed["float_nodes"]}["Relu"] == 2
    assert printed["pairs"][0]["rule"] == "input of Conv"
    assert printed["pairs"][0]["amax"] == pytest.approx(127 * printed["pairs"][0]["scale"])
    # The pool moves values: x has a pair of its own, p1 the only other one.
    assert printed["shared_scales"] == printed["subgraphs"] == printed["warnings"] == []


BAD: dict[str, tuple[list[str], str]] = {
    "unknown target": (
        ["quantize", "m.onnx", "--cache", "m.cache", "--target", "tensorrt-9"],
        "--target 'tensorrt-9' is unknown. Did you mean 'tensorrt-",
    ),
    "no such model": (["calibrate", "gone.onnx", "--data", "mine.yaml"], "No such model: gone.onnx"),
    **{
        f"{command[0]} of the working folder": (
            command,
            "calib: . is a folder. Give the path of an .onnx file.",
        )
        for command in (
            ["calibrate", ".", "--data", "mine.yaml"],
            ["calibrate", ".", "--data", "mine.yaml", "--shard", "1/2"],
            ["quantize", ".", "--cache", "m.cache"],
            ["fp16", "."],
            ["build", "."],
            ["validate", ".", "--data", "mine.yaml", "--precisions", "fp32"],
        )
    },
    "not an ONNX file": (["calibrate", "mine.yaml", "--data", "mine.yaml"], "mine.yaml is not an ONNX model"),
    "no data inputs": (
        ["calibrate", str(REAL / "models/identity_with_initializer.onnx"), "--data", "mine.yaml"],
        "has no data inputs",
    ),
    "no such recipe": (["calibrate", "m.onnx", "--data", "digitz"], "Did you mean 'digits'"),
    "unknown key": (["calibrate", "m.onnx", "--data", "unknown.yaml"], "sampels"),
    "missing file": (["calibrate", "m.onnx", "--data", "missing.yaml"], "nowhere.npz"),
    "zero samples": (["calibrate", "m.onnx", "--data", "mine.yaml", "--samples", "0"], "No samples"),
    "more than there are": (["calibrate", "m.onnx", "--data", "mine.yaml", "--samples", "11"], "11"),
    "wrong shape": (
        ["calibrate", "m.onnx", "--data", "shape.yaml"],
        "expected float32 [batch, 3, 8, 8], got",
    ),
    "NaN": (["calibrate", "m.onnx", "--data", "nan.yaml"], "NaN"),
    "output is a folder": (
        ["calibrate", "m.onnx", "--data", "mine.yaml", "--out", "folder"],
        "it is a folder",
    ),
    "output below a file": (
        ["calibrate", "m.onnx", "--data", "mine.yaml", "--out", "mine.yaml/m.cache"],
        "is a file, not a folder",
    ),
    "percentile as a fraction": (
        ["calibrate", "m.onnx", "--data", "mine.yaml", "--method", "percentile", "--percentile", "0.999"],
        "fraction",
    ),
    "percentile for another method": (
        ["calibrate", "m.onnx", "--data", "mine.yaml", "--percentile", "99.9"],
        "takes no option 'percentile'",
    ),
    "shard that is none": (
        ["calibrate", "m.onnx", "--data", "mine.yaml", "--shard", "3/2"],
        "--shard must read like 2/4",
    ),
    "shard and assessment": (
        ["calibrate", "m.onnx", "--data", "mine.yaml", "--shard", "1/1", "--assess"],
        "--assess and --shard cannot be combined",
    ),
    "no threads": (
        ["calibrate", "m.onnx", "--data", "mine.yaml", "--threads", "0"],
        "Threads must be at least 1, got 0.",
    ),
    "fewer threads than none": (
        ["calibrate", "m.onnx", "--data", "mine.yaml", "--shard", "1/1", "--threads", "-3"],
        "Threads must be at least 1, got -3.",
    ),
    "no such object": (["calibrate", "m.onnx", "--data", "no_such_module:load"], "no_such_module"),
    "no such cache": (["quantize", "m.onnx", "--cache", "gone.cache"], "gone.cache: no such file"),
    "no cache": (["quantize", "m.onnx", "--cache", "mine.yaml"], "is not a calibration cache"),
    "INT8 without a cache": (["validate", "m.onnx", "--data", "mine.yaml"], "calib calibrate"),
    "unknown precision": (
        ["validate", "m.onnx", "--data", "mine.yaml", "--precisions", "fp32,int9"],
        "int9",
    ),
    "no results": (["report", "gone.json"], "gone.json"),
}


@pytest.fixture
def bad_project(project: Path) -> Path:
    (project / "unknown.yaml").write_text(RECIPE.replace("samples: 6", "sampels: 6"))
    (project / "missing.yaml").write_text(RECIPE.replace("samples.npz", "nowhere.npz"))
    (project / "shape.yaml").write_text(RECIPE.replace("samples.npz", "shape.npz"))
    (project / "nan.yaml").write_text(
        RECIPE.replace("samples.npz", "nan.npz").replace("samples: 6", "samples: 10")
    )
    np.savez(project / "shape.npz", x=samples(10, 8, 8, 3))
    values = samples(10, 3, 8, 8)
    values[6] = np.nan
    np.savez(project / "nan.npz", x=values)
    (project / "folder").mkdir()
    return project


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message_status_2_and_nothing_written(
    case: str, bad_project: Path, calib: Callable[..., Ran]
) -> None:
    arguments, expected = BAD[case]
    before = sorted(bad_project.rglob("*"))
    ran = calib(*arguments)
    assert ran.status == 2
    message = " ".join(ran.err.split())
    assert expected in message
    assert "Traceback" not in message
    assert message.count("calib: ") == 1
    assert sorted(bad_project.rglob("*")) == before


def test_unwritable_folder_is_said_before_the_work(
    project: Path, calib: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests may run as root, whom no folder's mode stops.
    monkeypatch.setattr("calib.files.os.access", lambda _, mode: mode == os.R_OK)
    ran = calib("calibrate", "m.onnx", "--data", "mine.yaml")
    assert ran.status == 2
    assert "no permission in" in ran.err
    assert "Calibrating" not in ran.err


def test_importing_calib_is_light() -> None:
    code = (
        "import sys, calib, calib.cli; heavy = {'torch', 'torchvision', 'tensorrt', 'pycuda', 'onnxruntime',"
        " 'onnx', 'sklearn', 'scipy', 'altair'}; print(sorted(heavy & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


@pytest.mark.parametrize(("name", "command"), list(commands(typer.main.get_command(app))))
def test_the_example_of_every_command_is_one(name: str, command: Any) -> None:
    """Its arguments and options are the command's own, and none that it needs is missing."""
    start = f"Example: calib {name} "
    assert command.epilog.startswith(start)
    command.make_context(name, shlex.split(command.epilog.removeprefix(start)))


def test_version_and_help(calib: Callable[..., Ran]) -> None:
    assert calib("--version").out.startswith("calib 0.")
    helped = calib("--help")
    assert helped.status == 0
    for command in ("demo", "calibrate", "quantize", "validate", "report", "doctor"):
        assert command in helped.out
