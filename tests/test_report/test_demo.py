"""The whole job of the demonstration, as a newcomer meets it."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from calib.cli.demo import demo_command
from calib.validation.results import read_results

APP = typer.Typer()
APP.command()(demo_command)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    done = CliRunner().invoke(APP, ["--out", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0
    return folder, done.stdout


def test_one_table_has_both_calibrations(demo):
    _, printed = demo
    assert printed.count("digits.onnx on digits") == 1
    starts = [line.split("  ")[0] for line in printed.splitlines()]
    assert [start for start in starts if start in {"FP32", "FP16", "INT8 entropy", "INT8 minmax"}] == [
        "FP32",
        "FP16",
        "INT8 entropy",
        "INT8 minmax",
    ]
    assert "entropy or min-max: " in printed


def test_the_files_are_named_the_report_last(demo):
    folder, printed = demo
    names = ("digits.entropy.cache", "digits.minmax.cache", "digits.int8.onnx", "results.json")
    paths = [folder / name for name in (*names, "report/report.html")]
    assert [line.split(": ")[1].strip() for line in printed.splitlines()[-5:]] == [str(p) for p in paths]
    assert all(path.is_file() for path in paths)


def test_the_report_is_drawn_from_the_results(demo):
    folder, _ = demo
    results = read_results(folder / "results.json")
    assert [record.name for record in results.calibrations] == ["entropy", "minmax"]
    assert results.dataset.overlap_with_calibration == 0
    assert results.warnings == ("Latency is of a CPU simulation: it says nothing of TensorRT's speed.",)
    assert read_results(folder / "report" / "results.json") == results
