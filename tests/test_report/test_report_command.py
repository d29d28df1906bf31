from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from test_report import report_results as made
from typer.testing import CliRunner

from calib.cli.report import report_command
from calib.errors import ValidationError
from calib.validation.results import write_results

APP = typer.Typer()
APP.command()(report_command)


@pytest.fixture
def results(tmp_path) -> Path:
    return write_results(made.gaps(), tmp_path / "run" / "results.json")


def test_the_report_lies_beside_the_first_results(results):
    outcome = CliRunner().invoke(APP, [str(results)])
    assert outcome.exit_code == 0, outcome.output
    page = results.parent / "report" / "report.html"
    assert page.is_file()
    assert f"html      {page}\n" in outcome.output


def test_paths_as_json(results, tmp_path):
    arguments = [str(results), "--out", str(tmp_path / "there"), "--title", "Mine", "--json"]
    outcome = CliRunner().invoke(APP, arguments)
    assert outcome.exit_code == 0, outcome.output
    paths = json.loads(outcome.output)
    assert set(paths) == {"html", "markdown", "charts", "json", "csv"}
    assert "<h1>Mine</h1>" in Path(paths["html"][0]).read_text(encoding="utf-8")


def test_a_file_that_is_not_there(tmp_path):
    outcome = CliRunner().invoke(APP, [str(tmp_path / "none.json")])
    assert isinstance(outcome.exception, ValidationError)
    assert "none.json" in str(outcome.exception)
    assert not (tmp_path / "report").exists()


def test_no_file_at_all():
    assert CliRunner().invoke(APP, []).exit_code == 2
