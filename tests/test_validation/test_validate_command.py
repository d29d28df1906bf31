from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from networks import conv_relu_gemm, samples, save
from typer.testing import CliRunner

from calib.cli.validate import validate_command
from calib.errors import ModelError, UsageError
from calib.graph import calibrate, quantize
from calib.validation import Results, read_results

RECIPE = """\
schema: 1
name: noise
task: classification
source: {kind: arrays, path: data.npz, inputs: {x: x}, labels: labels}
calibration: {samples: 12}
"""

app = typer.Typer()
app.command()(validate_command)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("command")
    save(conv_relu_gemm(), made / "net.onnx")
    np.savez(made / "data.npz", x=samples(20, 3, 8, 8), labels=np.arange(20) % 5)
    (made / "data.yaml").write_text(RECIPE)
    calibrate(made / "net.onnx", made / "data.yaml", out=made / "net.cache")
    calibrate(made / "net.onnx", made / "data.yaml", method="minmax", out=made / "wide.cache")
    return made


def arguments(folder: Path, *more: str) -> list[str]:
    given = [str(folder / "net.onnx"), "--data", str(folder / "data.yaml"), "--latency-count", "2"]
    return [*given, *more]


def test_it_prints_table_warnings_and_path(folder: Path, tmp_path: Path) -> None:
    options = ["--cache", str(folder / "net.cache"), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments(folder, *options), catch_exceptions=False)
    assert done.exit_code == 0
    assert "net.onnx on noise, 8 samples" in done.stdout
    for label in ("FP32", "FP16", "INT8"):
        assert label in done.stdout
    assert "CPU simulation" in done.stdout
    assert f"Results: {tmp_path / 'results.json'}" in done.stdout
    assert "warning: FP32 top-1 is" in done.stderr
    assert "warning:" not in done.stdout
    found = read_results(tmp_path / "results.json")
    assert f"--out {tmp_path}" in found.command


@pytest.mark.parametrize(
    "option",
    [["--torch-weights", "n.pt"], ["--torch-device", "cpu"], ["--torch-arg", "a=1"], ["--torch-compile"]],
)
def test_options_of_a_network_that_is_not_given(folder: Path, option: list[str]) -> None:
    done = CliRunner().invoke(app, arguments(folder, *option))
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == f"{option[0]} is for the network of --torch: give that too."


def test_the_command_repeats_a_run_with_several_caches(folder: Path, tmp_path: Path) -> None:
    caches = ["--cache", str(folder / "net.cache"), "--cache", str(folder / "wide.cache")]
    done = CliRunner().invoke(app, arguments(folder, *caches, "--out", str(tmp_path)), catch_exceptions=False)
    for label in ("INT8 entropy", "INT8 minmax", "entropy or min-max: "):
        assert label in done.stdout
    first = read_results(tmp_path / "results.json")
    assert " ".join(caches) in first.command
    words = shlex.split(first.command)
    assert words[:2] == ["calib", "validate"]
    CliRunner().invoke(app, words[2:], catch_exceptions=False)
    again = read_results(tmp_path / "results.json")
    assert [run.outputs for run in again.runs] == [run.outputs for run in first.runs]
    assert (again.calibrations, again.command) == (first.calibrations, first.command)


def test_json_is_all_that_stdout_has(folder: Path) -> None:
    options = ["--precisions", "fp32, fp16", "--batch-size", "3", "--json"]
    done = CliRunner().invoke(app, arguments(folder, *options), catch_exceptions=False)
    found = Results.from_json(done.stdout)
    assert [run.precision for run in found.runs] == ["fp32", "fp16"]
    assert "--batch-size 3" in found.command


def test_errors_are_left_to_the_one_place_that_turns_them_into_a_status(folder: Path) -> None:
    with pytest.raises(UsageError, match="INT8 needs the ranges of a calibration"):
        CliRunner().invoke(app, arguments(folder), catch_exceptions=False)


@pytest.mark.parametrize("precisions", ["fp32", "fp32,fp16", "fp32,int8"])
def test_a_quantized_model_is_no_fp32(folder: Path, tmp_path: Path, precisions: str) -> None:
    quantize(folder / "net.onnx", folder / "net.cache", out=tmp_path / "q.onnx")
    options = [str(tmp_path / "q.onnx"), "--data", str(folder / "data.yaml"), "--precisions", precisions]
    with pytest.raises(ModelError, match=r"q\.onnx already has .* Validate the float model .* with --cache"):
        CliRunner().invoke(app, options, catch_exceptions=False)
