"""PP-OCR's recogniser and detector on rendered text, from the package to the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import real_data
import yaml
from real_assets import asset
from real_pipeline import recipe_beside, run_pipeline
from scipy import ndimage

import calib


def models() -> Path:
    return asset("rapidocr") / "rapidocr_onnxruntime" / "models"


def test_recognition(tmp_path: Path) -> None:
    """PP-OCRv4's recogniser, an SVTR with CTC: 98.3 % of 400 rendered lines by plain ONNX Runtime.

    Entropy loses most lines here: it clips the few large values that decide. Percentile does not.
    """
    root = real_data.text_lines(tmp_path, 56)
    # Narrower than the recipe's 320, for speed.
    narrow = {"resize": [48, 224], "pad": {"size": [48, 224], "value": "mean"}}
    recipe = recipe_beside(root, "text-recognition", preprocess=narrow, calibration={"samples": 32})
    model, methods = models() / "ch_PP-OCRv4_rec_infer.onnx", ("minmax", "percentile")
    outcome = run_pipeline(model, recipe, tmp_path, batch_size=8, methods=methods)
    assert outcome.fp32("exact_match") >= 0.95
    assert max(outcome.int8("exact_match").values()) >= outcome.fp32("exact_match") - 0.1


def test_detection(tmp_path: Path) -> None:
    """PP-OCRv4's detector, with two ConvTranspose: where text is, pixel by pixel and as boxes of lines."""
    root = real_data.pages(tmp_path, 20)
    recipe = recipe_beside(root, "text-detection", calibration={"samples": 8})
    model = models() / "ch_PP-OCRv4_det_infer.onnx"
    outcome = run_pipeline(model, recipe, tmp_path, batch_size=4, shapes=["x:1x3x320x320"])
    assert outcome.fp32("mIoU") >= 0.8
    assert max(outcome.int8("mIoU").values()) >= outcome.fp32("mIoU") - 0.05

    detection = {"decoder": f"{__name__}:line_boxes", "nms": None, "coordinates": "pixels"}
    boxes = recipe_beside(
        root,
        "coco",
        task=detection,
        source={"path": "pages", "annotations": "lines.json"},
        preprocess=yaml.safe_load(recipe.read_text())["preprocess"],
        calibration={"samples": 8},
        validation={"samples": None},
    )
    found = calib.validate(
        model, boxes, precisions=["fp32", "int8"], cache=tmp_path / "minmax.cache", latency_count=0
    )
    fp32, int8 = ({item.name: item.value for item in run.metrics} for run in found.runs)
    # Every line is found, with a box that overlaps its own by more than half.
    assert fp32["mAP50"] > 0.95
    assert int8["mAP50"] > 0.9


def line_boxes(
    outputs: Mapping[str, np.ndarray], size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes of lines from the detector's map of shrunk text, as DB's authors grow them back."""
    scores = outputs["sigmoid_0.tmp_0"][0, 0]
    areas, count = ndimage.label(scores > 0.3)
    boxes = []
    for rows, columns in ndimage.find_objects(areas):
        width, height = columns.stop - columns.start, rows.stop - rows.start
        grow = width * height * 1.5 / (2 * (width + height))
        boxes.append((columns.start - grow, rows.start - grow, columns.stop + grow, rows.stop + grow))
    certain = ndimage.mean(scores, areas, range(1, count + 1))
    return np.reshape(boxes, (count, 4)), np.reshape(certain, count), np.zeros(count, np.int64)
