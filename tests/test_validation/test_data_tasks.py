"""What ``calib data check`` says of tasks beyond classification: the same as validation will."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import model, node, save
from task_networks import draw_squares, square_detector

from calib import calibrate, check, check_data, validate
from calib.cli import main
from calib.errors import UsageError, ValidationError

pytest.importorskip("PIL.Image")
pytest.importorskip("torchvision")
pytest.importorskip("pycocotools")

IMAGES = 48


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw_squares(tmp_path, IMAGES)
    save(square_detector(), tmp_path / "m.onnx")
    return tmp_path


def recipe(
    folder: Path, task: str, source: str = "", annotations: str = "squares.json", more: str = ""
) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(
        f"schema: 1\nname: squares\ntask: {task}\n"
        f"source: {{kind: coco, annotations: {annotations}, path: pictures{source}}}\n"
        f"preprocess: {{scale: 1/255}}\ncalibration: {{samples: 32}}\n{more}"
    )
    return path


def found(folder: Path, *args: Any, **options: Any) -> dict[str, Any]:
    report = check_data(recipe(folder, *args, **options), folder / "m.onnx")
    return {finding.code: finding for finding in report.findings}


YOLO = "{kind: detection, decoder: yolov8}"


def test_sound_data_have_the_main_figure(folder: Path) -> None:
    # The network finds every square exactly, by construction.
    codes = found(folder, YOLO)
    assert codes["accuracy"].message == f"FP32 mAP is 100.0% on {IMAGES - 32} samples."
    assert all(finding.severity == "note" for finding in codes.values())
    assert "not-judged" not in codes


def test_classes_off_by_one_are_an_error(folder: Path) -> None:
    finding = found(folder, YOLO, ", class_ids: as_is")["low-accuracy"]
    assert finding.severity == "error"
    assert "With every class one higher it would be 100.0%" in finding.message


def test_classes_that_the_map_leaves_out_are_warned_of(folder: Path) -> None:
    finding = found(folder, "{kind: detection, decoder: yolov8, class_map: {0: 0}}")["task"]
    assert finding.severity == "warning"
    assert "no class for the model's classes 1, 2" in finding.message


def test_nothing_annotated_is_an_error(folder: Path) -> None:
    content = json.loads((folder / "squares.json").read_text())
    (folder / "none.json").write_text(json.dumps({**content, "annotations": []}))
    finding = found(folder, YOLO, annotations="none.json")["no-labels"]
    assert finding.severity == "error"
    assert "there is no mAP: no image has an object" in finding.message


def test_validation_says_that_nothing_was_measured(folder: Path) -> None:
    content = json.loads((folder / "squares.json").read_text())
    (folder / "none.json").write_text(json.dumps({**content, "annotations": []}))
    results = validate(
        folder / "m.onnx",
        recipe(folder, YOLO, annotations="none.json"),
        precisions=["fp32"],
        latency_count=0,
    )
    assert any(text.startswith("mAP is not measured") for text in results.warnings)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("segmentation", "label of type Boxes, which is not a mask"),
        ("regression", "label of type Boxes, which is not a number"),
        ("text", "needs the characters of the model's classes"),
        ("embedding", "Expected vectors"),
        ("{kind: detection, decoder: detr}", "Decoder 'detr'"),
        ("{kind: detection, decoder: 'decoders_of_this_test:raises'}", "RuntimeError: boom"),
        ("{kind: detection, decoder: 'decoders_of_this_test:nonsense'}", "must give boxes"),
        ("{kind: detection, decoder: 'decoders_of_this_test:missing'}", "has no 'missing'"),
        ("{kind: custom, metric: 'decoders_of_this_test:nan'}", "must give a mapping name"),
    ],
)
def test_a_task_that_does_not_fit_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, task: str, message: str
) -> None:
    (folder / "decoders_of_this_test.py").write_text(
        "def raises(*args):\n    raise RuntimeError('boom')\n"
        "def nonsense(*args):\n    return 42\n"
        "def nan(*args):\n    return float('nan')\n"
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "decoders_of_this_test", raising=False)
    finding = found(folder, task)["task-misfit"]
    assert finding.severity == "error"
    assert message in finding.message
    assert finding.where == (str(folder / "recipe.yaml"),)


def test_a_classification_of_boxes_says_what_labels_are(folder: Path) -> None:
    codes = found(folder, "classification")
    assert "needs a class number of every sample, but labels are of type Boxes" in codes["no-labels"].message
    assert "not-judged" not in codes
    with pytest.raises(ValidationError, match=r"^Label Boxes of sample number 0 is not a class number"):
        validate(folder / "m.onnx", folder / "recipe.yaml", precisions=["fp32"], latency_count=0)


def test_both_sentences_of_a_pair_are_tried(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [f"w{number}" for number in range(8)]
    vocabulary = {"[PAD]": 0, **{word: number + 1 for number, word in enumerate(words)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    # One-hot vectors: the similarity of two words is 1 where they are the same, else 0; so are the scores.
    pairs = [(words[n % 8], words[n % 8 if n % 2 else (n + 3) % 8], float(n % 2)) for n in range(40)]
    (tmp_path / "pairs.tsv").write_text("a\tb\tscore\n" + "".join(f"{a}\t{b}\t{s}\n" for a, b, s in pairs))
    vectors = np.vstack([np.zeros(8), np.eye(8)]).astype(np.float32)
    nodes = [node("Gather", ["vectors", "ids"], ["y"])]
    save(
        model(nodes, {"ids": ["n", "l"]}, {"y": ["n", "l", 8]}, {"vectors": vectors}, types={"ids": 7}),
        tmp_path / "m.onnx",
    )
    (tmp_path / "r.yaml").write_text(
        "schema: 1\nname: pairs\ntask: {kind: embedding, pooling: first}\n"
        "source: {kind: text, path: pairs.tsv, tokenizer: tokenizer.json, text: a, pair: b, pairs: true,\n"
        "  label: score, inputs: {input_ids: ids}}\n"
        "calibration: {samples: 8}\n"
    )
    report = check_data(tmp_path / "r.yaml", tmp_path / "m.onnx", samples=21)
    messages = [finding.message for finding in report.findings if finding.code == "accuracy"]
    assert len(messages) == 1, report.findings
    assert messages[0].startswith("FP32 spearman is 1")


class TestResizers:
    """A calibration and a validation that resize otherwise see other pixels under the same words."""

    def calibrated(self, folder: Path, steps: str) -> Path:
        path = recipe(folder, YOLO)
        path.write_text(path.read_text().replace("{scale: 1/255}", f"{{scale: 1/255, {steps}}}"))
        return path

    def validated(self, folder: Path, steps: str) -> Any:
        return validate(
            folder / "m.onnx",
            self.calibrated(folder, steps),
            cache=folder / "m.cache",
            precisions=["int8"],
            latency_count=0,
        )

    @pytest.mark.parametrize(
        ("steps", "differing"),
        [
            ("resize: [32, 32], interpolation: bicubic", "interpolation: bilinear → bicubic"),
            ("resize: [32, 32], antialias: false", "antialias: True → False"),
        ],
    )
    def test_another_kernel_is_refused(self, folder: Path, steps: str, differing: str) -> None:
        calibrate(folder / "m.onnx", self.calibrated(folder, "resize: [32, 32]"), out=folder / "m.cache")
        with pytest.raises(
            ValidationError, match=r"was calibrated on images that were resized otherwise"
        ) as e:
            self.validated(folder, steps)
        assert differing in str(e.value)
        assert "Calibrate again" in str(e.value)

    def test_other_differences_are_warned_of(self, folder: Path) -> None:
        calibrate(folder / "m.onnx", self.calibrated(folder, "resize: [32, 32]"), out=folder / "m.cache")
        results = self.validated(folder, "resize: [32, 32], mean: 0.1")
        assert any("Preprocessing differs" in text and "mean: 0.0 → 0.1" in text for text in results.warnings)

    def test_a_kernel_that_nothing_uses_is_none(self, folder: Path) -> None:
        calibrate(folder / "m.onnx", self.calibrated(folder, "color: rgb"), out=folder / "m.cache")
        assert self.validated(folder, "interpolation: bicubic").runs


def test_a_metric_that_is_no_number_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "metrics_of_this_test.py").write_text("def nan(*args):\n    return {'m': float('nan')}\n")
    monkeypatch.syspath_prepend(folder)
    codes = found(folder, "{kind: custom, metric: 'metrics_of_this_test:nan'}")
    assert codes["low-accuracy"].severity == "error"
    assert codes["low-accuracy"].message.startswith("FP32's m is nan: doubt the data")
    assert "accuracy" not in codes


def test_class_scores_of_another_task_are_refused(folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--scores names an output of class scores, and the task is detection"
    ):
        check_data(recipe(folder, YOLO), folder / "m.onnx", scores="found")


def test_a_doubt_of_fp32_comes_before_any_verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = recipe(folder, YOLO, ", class_ids: as_is")
    calibrate(folder / "m.onnx", path, out=folder / "m.cache")
    results = validate(
        folder / "m.onnx", path, cache=folder / "m.cache", precisions=["int8"], latency_count=0, out=folder
    )
    (doubt,) = results.doubts
    assert doubt.startswith("FP32 mAP is only 0.0%")
    assert results.warnings[0] == doubt
    assert check(folder / "results.json", max_drop="1%").warnings == (doubt,)
    monkeypatch.setattr(sys, "argv", ["calib", "check", str(folder / "results.json"), "--max-drop", "1%"])
    with pytest.raises(SystemExit):
        main()
    assert f"warning: {doubt}" in capfd.readouterr().err
