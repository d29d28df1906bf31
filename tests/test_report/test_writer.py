from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace

import pytest
from test_report import report_results as made
from test_report.report_results import SETS

from calib.errors import MissingExtraError, OutputError, ValidationError
from calib.report import write_report
from calib.validation.results import read_results


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is not strict JSON")


@pytest.mark.parametrize("name", list(SETS))
def test_json_is_strict(report, name):
    for path in report(name).json:
        json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def test_the_input_is_kept_whole(report):
    (path,) = report("classifier").json
    assert path.name == "results.json"
    assert read_results(path) == made.classifier()


def test_several_inputs_are_kept_side_by_side(report):
    paths = report("merged").json
    assert [path.name for path in paths] == ["results-1.json", "results-2.json"]
    assert [read_results(path) for path in paths] == [made.classifier(), made.gpu()]


def test_a_report_of_a_report_is_the_same(report, tmp_path):
    first = report("classifier")
    again = write_report([read_results(path) for path in first.json], tmp_path)
    assert again.html.read_bytes() == first.html.read_bytes()
    assert again.markdown.read_bytes() == first.markdown.read_bytes()


def rows(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_outputs_csv_is_unrounded(report):
    outputs, _ = report("regressor").csv
    found = rows(outputs)
    assert [(row["output"], row["precision"], float(row["sqnr_db"])) for row in found] == [
        ("boxes", "fp16", 61.3),
        ("scores", "fp16", 66.9),
        ("boxes", "int8", 21.7),
        ("scores", "int8", 33.4),
    ]


def test_latency_csv_has_every_batch(report):
    _, latency = report("merged").csv
    found = rows(latency)
    assert len(found) == 3 * 100 + 3 * 500
    times = made.classifier().runs[0].latency.times_ms
    assert [float(row["latency_ms"]) for row in found if row["run"] == "FP32 · A"] == list(times)


def test_csv_has_no_nan_and_no_formulas(report):
    outputs, _ = report("gaps").csv
    broken = rows(outputs)[-1]
    assert (broken["sqnr_db"], broken["mean_abs"], broken["reference_amax"]) == ("", "", "")
    outputs, _ = report("hostile").csv
    assert rows(outputs)[-1]["output"] == "'=cmd()" + made.HOSTILE


def test_a_title_of_ones_own(tmp_path):
    files = write_report([made.gaps()], tmp_path, title="Before <release>")
    assert "<h1>Before &lt;release&gt;</h1>" in files.html.read_text(encoding="utf-8")
    assert files.markdown.read_text(encoding="utf-8").startswith("# Before &lt;release&gt;\n")


def test_results_without_latency_have_a_report(tmp_path):
    base = made.classifier()
    bare = replace(base, runs=tuple(replace(run, latency=None) for run in base.runs))
    files = write_report([bare], tmp_path)
    assert files.charts == ()
    text = files.markdown.read_text(encoding="utf-8")
    assert "No chart: no run has both a latency and a figure of accuracy." in text
    assert "Latency was not measured." in text


def test_latencies_that_are_not_finite_are_left_out(tmp_path):
    base = made.classifier()
    nan = replace(made.latency(1.0), median_ms=float("nan"))
    odd = replace(made.latency(2.0), p90_ms=float("nan"), times_ms=(float("inf"), 2.0))
    runs = (base.runs[0], replace(base.runs[1], latency=nan), replace(base.runs[2], latency=odd))
    files = write_report([replace(base, runs=runs)], tmp_path)
    text = files.markdown.read_text(encoding="utf-8")
    assert "Not shown, since its latency or accuracy was not measured: FP16." in text
    assert "nan" not in text


def test_unlike_results_write_nothing(tmp_path):
    with pytest.raises(ValidationError, match="different models"):
        write_report([made.classifier(), made.regressor()], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_of_the_folder(tmp_path):
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="is a file, not a folder"):
        write_report([made.classifier()], tmp_path / "out")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("module", ["altair", "vl_convert", "jinja2"])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"needs {module}.*int8-calib\[report\]"):
        write_report([made.classifier()], tmp_path / "out")
    assert not (tmp_path / "out").exists()
