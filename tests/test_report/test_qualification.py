"""A comparison of two results files as text, Markdown and a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_report import report_results as made
from test_report.report_results import HOSTILE

from calib.report.qualification import build_document, write_qualification
from calib.report.qualification_text import qualification_headline, qualification_text
from calib.validation.qualification import (
    Circumstance,
    EngineShift,
    Flip,
    Flips,
    LatencyShift,
    OutputShift,
    Qualification,
    Shift,
)
from calib.validation.verdicts import GateOutcome

FOUND = Qualification(
    old="old/results.json",
    new="new/results.json",
    model="net.onnx",
    dataset="digits",
    samples=360,
    circumstances=(
        Circumstance("model", "net (a)", "net (b)", "doubt", "differences are those of the models too"),
        Circumstance("TensorRT", "8.6.0", "10.3.0", "subject"),
    ),
    shifts=(
        Shift("INT8", "top1", 0.95, 0.9, "worse", -0.05, -0.07, -0.03, 0.95, 1e-5, 3e-5, "McNemar", 0.01),
        Shift("INT8", "SQNR of y", 30.0, 30.5, "within noise", 0.5, 0.4, 0.6, noise=0.7, unit="dB"),
        Shift("INT8", "rmse", 1.25, 1.5, "untested", 0.25, unit=""),
        Shift("INT8", "top5", 0.99, 0.99, "same", 0.0),
        Shift("FP16", "top1", 0.95, None, "missing"),
    ),
    flips=(
        Flips("INT8", 360, 22, 20, 2, (Flip("s1", 3, 3, 5, "became wrong", 4.25),)),
        Flips("FP16", 360, 0, 0, 0, ()),
    ),
    outputs=(OutputShift("INT8", "y", (30.0, 30.5), (0.999, 0.999), (0.5, 0.4), ("differs", "differs")),),
    latencies=(
        LatencyShift("INT8", 2.0, 1.9, "NVIDIA H200", 0.95, 0.94, 0.96, "bootstrap", 1.06),
        LatencyShift("FP16", 2.0, 1.0, note="another device: NVIDIA H200 before, NVIDIA L4 now"),
    ),
    engines=(EngineShift("INT8", (2048, 1024), (40, 41), (30, 29), (("conv2", "INT8", "FP16"),)),),
    only_old=("INT8 minmax",),
    faults=("FP16 top1 was measured before and is not now",),
    gates=(GateOutcome("max_drop", "INT8", "top1", "old results", "fail", "top1 fell", "at most 1 point"),),
    builds=3,
)

TEXT = """\
net.onnx on digits, 360 samples: FAIL; 1 fault; worse: INT8 top1
  old/results.json → new/results.json
Faults:
  FP16 top1 was measured before and is not now
What is not the same:
  doubtful  model: net (a) → net (b) (differences are those of the models too)
  changed   TensorRT: 8.6.0 → 10.3.0
Figures:
  INT8 top1: 95.0% → 90.0%: worse, change −5.00 points (−7.0 to −3.0, 95% interval), p < 0.001, builds differ by up to 1.00 points
  INT8 SQNR of y: 30.0 dB → 30.5 dB: within noise, change +0.500 dB (+0.400 to +0.600, 95% interval), builds differ by up to 0.700 dB
  INT8 rmse: 1.25 → 1.50: untested, change +0.250
  FP16 top1: 95.0% → null: missing
Answers:
  INT8: 22 of 360 changed: 20 became wrong, 2 became right
    s1, label 3: 3 → 5, became wrong, SQNR 4.2 dB
    and 21 more
Latency:
  INT8: 2.00 ms → 1.90 ms: 0.9500 times (0.9400 to 0.9600, 95% interval), builds differ by up to 1.060 times: within the noise
  FP16: not compared: another device: NVIDIA H200 before, NVIDIA L4 now
Engines:
  INT8: 2.00 KiB → 1.00 KiB; INT8 layers 30 of 40 → 29 of 41; 1 node computes in another precision: conv2 INT8 → FP16
Gates:
  fail       max_drop top1: INT8 against old results, at most 1 point
             top1 fell
1 figure is the same.
Only in the old results: INT8 minmax."""  # noqa: E501


def test_the_text_of_a_terminal() -> None:
    assert qualification_text(FOUND) == TEXT


def test_the_headline_without_gates() -> None:
    calm = replace(FOUND, gates=(), faults=(), shifts=FOUND.shifts[1:4])
    assert qualification_headline(calm) == "no figure got worse by more than chance and noise explain"
    better = replace(calm, shifts=(replace(FOUND.shifts[0], status="better"),))
    assert qualification_headline(better) == "better: INT8 top1"


def test_the_headline_tells_of_latency_beyond_interval_and_noise() -> None:
    calm = replace(FOUND, gates=(), faults=(), shifts=(), latencies=())
    cases = {
        (1.1, 1.09, 1.11, None): "slower: INT8 1.10 times",
        (0.9, 0.89, 0.91, 1.05): "faster: INT8 0.900 times",
        (1.1, 1.09, 1.11, 1.2): "no figure got worse",  # builds differ as much
        (1.1, 0.99, 1.21, None): "no figure got worse",  # the interval holds 1
        (1.01, 1.005, 1.015, None): "no figure got worse",  # next to nothing
    }
    for (ratio, low, high, noise), said in cases.items():
        shift = LatencyShift("INT8", 1.0, ratio, "GPU", ratio, low, high, "", noise)
        assert qualification_headline(replace(calm, latencies=(shift,))).startswith(said)


def test_files(tmp_path: Path) -> None:
    files = write_qualification(FOUND, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "compare.html",
        "compare.json",
        "compare.md",
    ]
    text = files.markdown.read_text()
    for part in (
        "# net.onnx: two versions compared",
        "| INT8 | top1 | **worse** | 95.0% | 90.0% |",
        "| TensorRT | 8.6.0 | 10.3.0 | changed |",
        "| `s1` | **became wrong** | 3 | 3 | 5 | 4.2 |",
        "30.0 → 30.5",
        "within the noise",
        "| INT8 | `conv2` | INT8 | FP16 |",
        "21 more are not listed",
    ):
        assert part in text
    page = files.html.read_text()
    assert "<script" not in page
    assert "two versions compared" in page
    assert files.json.read_text() == FOUND.to_json()


@pytest.mark.parametrize("results", [made.classifier, made.gpu, made.regressor, made.gaps, made.hostile])
def test_any_results_can_be_compared_with_themselves(results: object, tmp_path: Path) -> None:
    from calib.errors import ValidationError
    from calib.validation import compare

    found = results()  # type: ignore[operator]
    try:
        comparison = compare(found, found)
    except ValidationError:
        pytest.skip("these results hold nothing to compare")
    assert "nan" not in qualification_text(comparison).replace("nanosecond", "").split()
    page = write_qualification(comparison, tmp_path).html.read_text()
    assert HOSTILE not in page
    assert build_document(comparison).sections
