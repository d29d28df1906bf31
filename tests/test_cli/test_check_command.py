"""``calib check`` and ``calib plan`` as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command_line import Ran
from task_judging import judged, numbered
from task_results import as_results
from test_report import report_results as made

from calib.validation import write_results


@pytest.fixture
def calib(calib: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs the command line in a folder with results of a good and of a spoiled model."""
    monkeypatch.chdir(tmp_path)
    good = made.classifier()
    write_results(replace(good, runs=good.runs[:2]), tmp_path / "good.json")
    # The class 0 for every sample: right on 36 of 360.
    spoiled = replace(good.runs[1], predictions=(0,) * 360, metrics=good.runs[1].metrics[:1])
    write_results(made.restated(replace(good, runs=(good.runs[0], spoiled))), tmp_path / "spoiled.json")

    return calib


def test_a_good_model_passes_and_a_spoiled_one_fails(calib: Callable[..., Ran]) -> None:
    good = calib("check", "good.json", "--max-drop", "2%")
    assert (good.status, good.err) == (0, "")
    assert good.out.startswith("calib check good.json: PASS")
    assert "at most 2 percentage points (0.02)" in good.out
    spoiled = calib("check", "spoiled.json", "--max-drop", "2%")
    assert spoiled.status == 1
    assert "FAIL: 1 failed" in spoiled.out


def test_undecided_is_no_pass_unless_allowed(calib: Callable[..., Ran]) -> None:
    assert calib("check", "good.json", "--max-drop", "0.5%").status == 1
    allowed = calib("check", "good.json", "--max-drop", "0.5%", "--allow-undecided")
    assert (allowed.status, "UNDECIDED" in allowed.out) == (0, True)


@pytest.mark.parametrize("threshold", ["nan", "inf", "-1", "1e9", "", "0,5", "2"])
def test_thresholds_that_would_disarm_the_gate(calib: Callable[..., Ran], threshold: str) -> None:
    """A-G2."""
    ran = calib("check", "good.json", f"--max-drop={threshold}")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("calib: --max-drop")


def test_errors_are_status_2(calib: Callable[..., Ran]) -> None:
    assert calib("check", "none.json", "--max-drop", "1%").status == 2
    assert calib("check", "good.json").status == 2
    assert calib("check", "good.json", "--max-drop", "1%", "--update-baseline").status == 2
    assert calib("check", "good.json", "--max-drop", "1%", "--gates", "none.yaml").status == 2


def test_files_and_json(calib: Callable[..., Ran], tmp_path: Path) -> None:
    ran = calib(
        "check", "spoiled.json", "--max-drop", "2%", "--junit", "j.xml", "--markdown", "s.md", "--json"
    )
    assert ran.status == 1
    printed = json.loads(ran.out, parse_constant=pytest.fail)
    assert (printed["verdict"], printed["passed"]) == ("fail", False)
    (gate,) = [one for one in printed["report"]["outcomes"] if one["gate"] == "max_drop"]
    assert (gate["threshold"], gate["verdict"]) == (0.02, "fail")
    assert ElementTree.parse(tmp_path / "j.xml").getroot().attrib["failures"] == "1"
    assert (tmp_path / "s.md").read_text().startswith("## ❌ calib check: FAIL")


@pytest.mark.parametrize(
    "options",
    [
        ("--junit", "good.json"),
        ("--markdown", "./good.json"),
        ("--baseline", "good.json", "--update-baseline"),
    ],
)
def test_results_are_not_written_over(
    options: tuple[str, ...], calib: Callable[..., Ran], tmp_path: Path
) -> None:
    before = (tmp_path / "good.json").read_bytes()
    found = calib("check", "good.json", "--max-drop", "50%", *options)
    assert found.status == 2
    assert "good.json is the results file itself. Choose another file." in found.err
    assert (tmp_path / "good.json").read_bytes() == before


def test_a_baseline_is_made_reviewed_and_checked(calib: Callable[..., Ran], tmp_path: Path) -> None:
    made_one = calib("check", "good.json", "--baseline", "base.json", "--update-baseline")
    assert (made_one.status, made_one.err) == (0, "Baseline: base.json\n")
    first = (tmp_path / "base.json").read_text()
    assert calib("check", "good.json", "--baseline", "base.json", "--max-drop", "2%").status == 0
    ran = calib("check", "spoiled.json", "--baseline", "base.json", "--max-drop", "2%")
    assert ran.status == 1
    assert "Against the baseline:\n  FP16 top1: 97.8% → 10.0%: worse" in ran.out
    refused = calib(
        "check", "spoiled.json", "--baseline", "base.json", "--max-drop", "2%", "--update-baseline"
    )
    assert refused.status == 1
    assert "base.json was not written: the results do not pass." in refused.err
    assert (tmp_path / "base.json").read_text() == first
    again = calib("check", "good.json", "--baseline", "base.json", "--max-drop", "2%", "--update-baseline")
    assert again.status == 0
    assert (tmp_path / "base.json").read_text() == first


def test_gates_of_a_file(calib: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "gates.yaml").write_text("schema: 1\ngates:\n  - max_drop: 2%\n  - min_sqnr: 60\n")
    ran = calib("check", "good.json", "--gates", "gates.yaml")
    assert ran.status == 0
    assert "min_sqnr logits: FP16 against FP32, at least 60 dB" in ran.out


def test_the_file_that_pytest_collects_serves_the_command_too(
    calib: Callable[..., Ran], tmp_path: Path
) -> None:
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "calib-gates.yaml").write_text(
        "schema: 1\nresults: ../good.json\nbaseline: ../base.json\ngates:\n  - max_drop: 2%\n"
    )
    gates = ("--gates", "ci/calib-gates.yaml")
    missing = calib("check", "good.json", *gates)
    assert missing.status == 2
    assert "base.json" in missing.err
    # The baseline to write is the file's, and need not be there yet.
    spoiled = calib("check", "spoiled.json", *gates, "--update-baseline")
    assert spoiled.status == 1
    assert not (tmp_path / "base.json").exists()
    assert calib("check", "good.json", *gates, "--update-baseline").status == 0
    assert (tmp_path / "base.json").exists()
    ran = calib("check", "good.json", *gates)
    assert ran.status == 0
    assert "max_drop top1: FP16 against baseline, at most 2 percentage points" in ran.out
    failed = calib("check", "spoiled.json", *gates)
    assert (failed.status, "calib check spoiled.json: FAIL" in failed.out) == (1, True)


def test_a_gate_file_in_place_of_results(calib: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "my gates.yaml").write_text("schema: 1\ngates:\n  - max_drop: 2%\n")
    ran = calib("check", "my gates.yaml")
    assert ran.status == 2
    assert "results are JSON: calib check RESULTS.json --gates 'my gates.yaml'" in ran.err


def test_an_interruption_is_said(calib: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("calib.validation.check", interrupt)
    ran = calib("check", "good.json", "--max-drop", "2%")
    assert (ran.status, ran.out, ran.err) == (130, "", "calib: interrupted\n")


class TestPlan:
    def test_from_a_rate(self, calib: Callable[..., Ran]) -> None:
        ran = calib(
            "plan", "--metric", "top1", "--margin", "0.5", "--baseline", "76", "--disagreement", "3.0"
        )
        assert ran.status == 0
        assert ran.out.startswith(
            "7,544 samples show with 80% chance that top1 drops by less than 0.5 percentage"
        )

    def test_from_a_pilot(self, calib: Callable[..., Ran]) -> None:
        ran = calib("plan", "--margin", "1", "--pilot", "spoiled.json", "--json")
        plan = json.loads(ran.out)
        assert plan["pilot_samples"] == 360
        assert plan["cautious_samples"] > plan["samples"]

    def test_the_worst_case(self, calib: Callable[..., Ran]) -> None:
        ran = calib("plan", "--margin", "0.5%", "--baseline", "76")
        assert "Disagreement: 36.48% of the samples (worst case" in ran.out
        assert "note: quantized models mostly agree" in ran.out

    def test_refusals(self, calib: Callable[..., Ran]) -> None:
        assert calib("plan", "--margin", "0.5").status == 2
        assert calib("plan", "--margin", "nan", "--baseline", "76").status == 2
        assert calib("plan", "--margin", "0.5", "--baseline", "176").status == 2


def test_a_plan_for_a_figure_of_another_unit(calib: Callable[..., Ran], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = [float(one) for one in random.normal(size=200)]
    fp32 = (np.array(labels) + random.normal(0, 0.1, 200)).astype(np.float32)[:, None]
    int8 = fp32 + random.normal(0, 0.05, fp32.shape).astype(np.float32)
    found = judged({"kind": "regression", "unit": "mm"}, numbered(labels), {"y": fp32}, {"y": int8}, batch=50)
    write_results(as_results(found), tmp_path / "pilot.json")
    ran = calib("plan", "--pilot", "pilot.json", "--margin", "0.005")
    assert (ran.status, ran.err) == (0, "")
    assert "chance that MAE rises by less than 0.005 mm, where the true rise is 0." in ran.out
    assert "(pilot: INT8 on 200 samples, 1999 resamples)." in ran.out
    refused = calib("plan", "--pilot", "pilot.json", "--margin", "1%")
    assert (refused.status, "the figure is no share" in refused.err) == (2, True)
