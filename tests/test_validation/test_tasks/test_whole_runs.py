"""From pictures on disk to gates: detectors made by hand, whose figures are known beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from task_networks import draw_squares, square_detector, squares_dataset

import calib
from calib.validation import Results, check, read_results

pytest.importorskip("pycocotools")
pytest.importorskip("PIL")

TASK = {"kind": "detection", "decoder": "yolov8"}
CALIBRATED = range(12)
VALIDATED = range(12, 40)


def detected(folder: Path, *, shift: float = 0.0, wide: bool = False, **options: Any) -> Results:
    file = draw_squares(folder, 40, wide=wide)
    model = folder / "net.onnx"
    onnx.save(square_detector(shift), model)
    source = options.pop("source", {})
    dataset = squares_dataset(file, **source)
    calib.calibrate(model, dataset.subset(CALIBRATED), method="minmax", out=folder / "net.cache")
    settings = {"cache": folder / "net.cache", "latency_count": 0, "task": TASK, **options}
    return calib.validate(model, dataset.subset(VALIDATED), **settings)


def means(results: Results) -> list[float | None]:
    return [metric.value for run in results.runs for metric in run.metrics if metric.name == "mAP"]


@pytest.mark.parametrize("wide", [False, True], ids=["on the grid", "through a letterbox"])
def test_a_detector_that_answers_exactly_has_a_mean_of_one(tmp_path: Path, wide: bool) -> None:
    results = detected(tmp_path, wide=wide, out=tmp_path / "run")
    assert means(results) == pytest.approx([1.0] * 3)
    assert (results.task, results.judged_by) == ("detection", "mAP")
    # Scores and boxes share a scale in an engine that takes the cache alone: true, and nothing else is wrong.
    assert all(warning.startswith("INT8: Concat found puts scores") for warning in results.warnings)
    assert read_results(tmp_path / "run" / "results.json") == results
    assert [one.name for one in results.runs[1].classes] == ["red", "green", "blue"]


@pytest.mark.parametrize("wide", [False, True], ids=["on the grid", "through a letterbox"])
def test_boxes_a_pixel_to_the_right_have_a_mean_of_six_tenths(tmp_path: Path, wide: bool) -> None:
    # 7 of 8 columns in common: IoU 7/9 = 0.78, found at six of the ten thresholds, from 0.5 to 0.75.
    assert means(detected(tmp_path, shift=1.0, wide=wide)) == pytest.approx([0.6] * 3)


def test_the_batch_size_does_not_change_a_figure(tmp_path: Path) -> None:
    one, many = (detected(tmp_path / str(size), batch_size=size) for size in (1, 13))
    assert [run.metrics for run in one.runs] == [run.metrics for run in many.runs]


def test_ids_from_one_are_found_out_before_int8_is_judged(tmp_path: Path) -> None:
    results = detected(tmp_path, source={"class_ids": "as_is"}, precisions=["fp32", "int8"])
    assert results.warnings[0].startswith("FP32 mAP is only 0.0")
    assert results.warnings[0].endswith(
        "every class one higher it would be 100.0%: set task: {class_map: …}."
    )
    mapped = {**TASK, "class_map": {0: 1, 1: 2, 2: 3}}
    results = detected(tmp_path, source={"class_ids": "as_is"}, task=mapped, precisions=["fp32", "int8"])
    assert means(results) == pytest.approx([1.0] * 2)


def test_gates_and_reports_follow(tmp_path: Path) -> None:
    results = detected(tmp_path, shift=1.0)
    report = check(results, max_drop="mAP=20%", worst_class="30%", min_agreement="90%")
    assert report.passed
    text = calib.write_report([results], tmp_path / "report").markdown.read_text()
    assert "mAP 60.0%" in text
    assert "| red (class 0) |" in text
