"""PP-OCR's recogniser and detector on rendered text, from the package to the report."""

from __future__ import annotations

from pathlib import Path

import real_data
from real_assets import asset
from real_pipeline import recipe_beside, run_pipeline


def models() -> Path:
    return asset("rapidocr") / "rapidocr_onnxruntime" / "models"


def test_recognition(tmp_path: Path) -> None:
    """PP-OCRv4's recogniser, an SVTR with CTC: 98.3 % of 400 rendered lines by plain ONNX Runtime.

    Entropy loses most lines here: it clips the few large values that decide. Percentile does not.
    """
    root = real_data.text_lines(tmp_path, 64)
    # Narrower than the recipe's 320, for speed.
    narrow = {"resize": [48, 224], "pad": {"size": [48, 224], "value": "mean"}}
    recipe = recipe_beside(root, "text-recognition", preprocess=narrow, calibration={"samples": 32})
    model, methods = models() / "ch_PP-OCRv4_rec_infer.onnx", ("minmax", "percentile")
    outcome = run_pipeline(model, recipe, tmp_path, batch_size=8, methods=methods)
    assert outcome.fp32("exact_match") >= 0.95
    assert max(outcome.int8("exact_match").values()) >= outcome.fp32("exact_match") - 0.05


def test_detection(tmp_path: Path) -> None:
    """PP-OCRv4's detector, with two ConvTranspose."""
    root = real_data.pages(tmp_path, 20)
    recipe = recipe_beside(root, "text-detection", calibration={"samples": 8})
    outcome = run_pipeline(models() / "ch_PP-OCRv4_det_infer.onnx", recipe, tmp_path, batch_size=4)
    assert outcome.fp32("mIoU") >= 0.8
    assert max(outcome.int8("mIoU").values()) >= outcome.fp32("mIoU") - 0.05
