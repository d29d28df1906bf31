"""``calib data show`` and ``calib data check`` as a user meets them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from networks import conv_relu_gemm, samples, save

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    from onnxruntime import InferenceSession

    save(conv_relu_gemm(), tmp_path / "m.onnx")
    x = samples(80, 3, 8, 8)
    seen = {"x": 2 * x - np.arange(3, dtype=np.float32).reshape(3, 1, 1)}
    (scores,) = InferenceSession(tmp_path / "m.onnx").run(None, seen)
    # Labels that the model gives; those of two classes at least.
    labels = (scores - scores.mean(axis=0)).argmax(axis=1)
    np.savez(tmp_path / "a.npz", x=x, labels=labels)
    np.savez(tmp_path / "hwc.npz", x=samples(80, 8, 8, 3))
    for name, steps in (("a", "{scale: 2, mean: [0, 1, 2]}"), ("hwc", "{}")):
        (tmp_path / f"{name}.yaml").write_text(
            f"schema: 1\nname: {name}\nsource: {{kind: arrays, path: {name}.npz}}\n"
            f"preprocess: {steps}\ncalibration: {{samples: 40}}\n"
        )
    return tmp_path


class TestShow:
    def test_prints_ranges_classes_and_fingerprint(self, project, calib):
        ran = calib("data", "show", "a.yaml", "--use", "validation")
        assert ran.status == 0, ran.err
        assert "a, validation: 40 samples" in ran.out
        assert re.search(r"^x +float32 +3×8×8 ", ran.out, re.MULTILINE)
        assert re.search(r"^  channel 2 ", ran.out, re.MULTILINE)
        assert "5 classes, samples each: " in ran.out
        assert "preprocess: scale 2.0, mean [0.0, 1.0, 2.0]" in ran.out
        assert re.search(r"^fingerprint: [0-9a-f]{64}$", ran.out, re.MULTILINE)

    def test_draws_a_sheet(self, project, calib):
        ran = calib("data", "show", "a.yaml", "--out", "sheet.png", "--samples", 8)
        assert "Contact sheet of 8 samples: sheet.png" in ran.out
        image = Image.open("sheet.png")
        # Four columns at least of 176 pixels and a gap of 10.
        assert image.width >= 10 + 4 * 186
        assert len(np.unique(np.asarray(image))) > 50

    def test_json_has_the_figures_of_the_data(self, project, calib):
        found = json.loads(calib("data", "show", "a.yaml", "--use", "validation", "--all", "--json").out)
        assert found["read"] == found["samples"] == 40
        from calib.data import load_recipe, open_validation

        stack = np.stack([sample.inputs["x"] for sample in open_validation(load_recipe("a.yaml"))])
        values = found["inputs"][0]["values"]
        assert values["mean"] == pytest.approx(stack.mean(dtype=np.float64), abs=1e-9)
        assert values["std"] == pytest.approx(stack.std(dtype=np.float64), abs=1e-9)
        assert found["inputs"][0]["shapes"] == [{"shape": [3, 8, 8], "samples": 40}]
        assert sum(found["labels"]["counts"].values()) == 40

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--use", "training"), "--use must be calibration or validation, got 'training'"),
            (("--out", "sheet.jpg"), "a contact sheet is a PNG file"),
            (("--out", "a.npz/sheet.png"), "is a file, not a folder"),
            (("--out", "s.png", "--samples", "0"), "from 1 to 400 samples, got 0"),
        ],
    )
    def test_wrong_options(self, project, calib, options, message):
        ran = calib("data", "show", "a.yaml", *options)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith("calib: ")
        assert message in ran.err
        assert sorted(path.name for path in project.iterdir()) == [
            "a.npz",
            "a.yaml",
            "hwc.npz",
            "hwc.yaml",
            "m.onnx",
        ]


READER = """
import numpy as np

def load_data():
    for start in range(5):
        yield {"x": np.full((4, 8, 8, 3), start, np.uint8) + np.arange(3, dtype=np.uint8)}
"""


def test_a_reader_of_ones_own(project, calib):
    """A load_data function that gives HWC bytes to a network that takes CHW floats."""
    (project / "readers.py").write_text(READER)
    shown = calib("data", "show", "readers:load_data", "--json")
    figures = json.loads(shown.out)
    assert figures["samples"] == 20
    assert figures["inputs"][0]["dtypes"] == ["uint8"]
    assert [channel["mean"] for channel in figures["inputs"][0]["channels"]] == pytest.approx([2, 3, 4])
    ran = calib("data", "check", "readers:load_data", "--model", "m.onnx", "--json")
    finding = next(f for f in json.loads(ran.out)["findings"] if f["code"] == "input-misfit")
    assert ran.status == 1
    assert "expected float32 [batch, 3, 8, 8], got uint8 [1, 8, 8, 3], values 0 … 2" in finding["message"]
    assert "preprocess.layout: chw" in finding["advice"]


class TestCheck:
    def test_sound_data_pass(self, project, calib):
        ran = calib("data", "check", "a.yaml", "--model", "m.onnx")
        assert ran.status == 0, ran.out
        assert "a for m.onnx: 40 calibration samples, 40 validation samples read" in ran.out
        assert "as in the recipe" in ran.out
        assert "PASS: no errors, " in ran.out

    def test_errors_fail(self, project, calib):
        ran = calib("data", "check", "hwc.yaml", "--model", "m.onnx")
        assert ran.status == 1
        assert "FAIL: 2 errors" in ran.out
        assert "input-misfit" in ran.out
        assert "expected float32 [batch, 3, 8, 8], got float32 [1, 8, 8, 3], values" in " ".join(
            ran.out.split()
        )

    def test_strict_fails_for_warnings(self, project, calib):
        assert calib("data", "check", "hwc.yaml").status == 0
        assert calib("data", "check", "hwc.yaml", "--strict").status == 1

    def test_json(self, project, calib):
        ran = calib("data", "check", "hwc.yaml", "--model", "m.onnx", "--json")
        found = json.loads(ran.out)
        assert (ran.status, found["passed"], found["strict"]) == (1, False, False)
        finding = next(f for f in found["findings"] if f["code"] == "layout")
        assert (finding["severity"], len(finding["where"])) == ("warning", 40)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("nothing.yaml",), "No such recipe: 'nothing.yaml'"),
            (("a.yaml", "--model", "nothing.onnx"), "No such model: nothing.onnx"),
            (("a.yaml", "--samples", "-1"), "expected at least 1, got -1"),
            (("a.yaml", "--model", "m.onnx", "--scores", "z"), "The model has no output 'z'"),
        ],
    )
    def test_wrong_options(self, project, calib, arguments, message):
        ran = calib("data", "check", *arguments)
        assert ran.status == 2
        assert ran.out == ""
        assert message in ran.err

    def test_the_shipped_data_and_model_pass(self, calib):
        import calib as package

        model = Path(package.__file__).parent / "demo" / "digits.onnx"
        ran = calib("data", "check", "digits", "--model", model, "--samples", 64, "--strict")
        assert ran.status == 0, ran.out
        assert "FP32 top-1" in ran.out
