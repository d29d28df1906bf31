"""Outputs that join values of very different ranges: scores beside boxes (A-V7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import model, node, save, weight
from test_report import report_results as made

from calib.calibrators import CalibrationCache
from calib.data import from_arrays
from calib.graph import calibrate, quantize
from calib.report.document import build_document
from calib.report.markdown import to_markdown
from calib.report.merge import merge
from calib.validation import check, decompose, read_results, validate
from calib.validation.columns import ColumnErrors, describe_columns
from calib.validation.tensors import ErrorAccumulator

RNG = np.random.default_rng(0)


def quantized(values: np.ndarray, amax: float) -> np.ndarray:
    scale = np.float32(amax / 127)
    return (np.clip(np.rint(values / scale), -127, 127) * scale).astype(np.float32)


def detections(rows: int = 64) -> np.ndarray:
    """Shape [rows, 50, 6]: boxes of 0 … 640 and two scores of 0 … 1."""
    boxes, scores = RNG.uniform(0, 640, (rows, 50, 4)), RNG.uniform(0, 1, (rows, 50, 2))
    return np.concatenate([boxes, scores], axis=-1).astype(np.float32)


class TestGroups:
    def test_a_good_cosine_does_not_hide_the_scores(self) -> None:
        """One scale for boxes and scores: the step is 5, and every score becomes 0."""
        reference = detections()
        candidate = quantized(reference, 640)
        assert not candidate[..., 4:].any()
        errors = ErrorAccumulator("out")
        for start in range(0, 64, 16):
            errors.add(reference[start : start + 16], candidate[start : start + 16])
        found = errors.result()
        assert found.cosine is not None
        assert found.cosine > 0.9999
        boxes, scores = found.groups
        assert (boxes.axis, boxes.columns, boxes.count) == (2, "0–3", 4)
        assert (scores.columns, scores.count) == ("4–5", 2)
        assert scores.reference_amax == pytest.approx(float(reference[..., 4:].max()))
        # All of the scores is error: 0 dB, and no direction.
        assert (scores.sqnr_db, scores.cosine) == (pytest.approx(0.0), 0.0)
        assert scores.steps == pytest.approx(127 * scores.reference_amax / boxes.reference_amax)
        assert scores.steps < 0.25
        error = (candidate - reference)[..., :4].astype(np.float64)
        power = np.square(reference[..., :4], dtype=np.float64).sum()
        assert boxes.sqnr_db == pytest.approx(10 * np.log10(power / np.square(error).sum()))

    def test_channels_as_columns(self) -> None:
        reference = detections().transpose(0, 2, 1)  # [rows, 6, 50], as YOLO's heads have it
        found = ErrorAccumulator("out")
        found.add(reference, quantized(reference, 640))
        assert [(one.axis, one.columns) for one in found.result().groups] == [(1, "0–3"), (1, "4–5")]

    def test_interleaved_columns_are_put_together_by_size(self) -> None:
        reference = np.tile([640.0, 1.0, 600.0, 0.9], (8, 1))
        found = ErrorAccumulator("out")
        found.add(reference, reference + 0.01)
        assert [one.columns for one in found.result().groups] == ["0, 2", "1, 3"]

    def test_columns_of_one_size_are_no_groups(self) -> None:
        reference = RNG.normal(size=(16, 10))
        found = ErrorAccumulator("logits")
        found.add(reference, reference + 0.1)
        assert found.result().groups == ()

    def test_equal_outputs_and_scalars_and_many_columns_have_none(self) -> None:
        far = np.tile([640.0, 1.0], (8, 1))
        wide = np.tile([640.0, 1.0], (8, 300))
        for reference, change in ((far, 0.0), (wide, 0.1), (far[:, 0], 0.1), (np.array(3.0), 0.1)):
            found = ErrorAccumulator("out")
            found.add(reference, reference + change)
            assert found.result().groups == ()

    def test_sequences_of_other_lengths_are_no_columns(self) -> None:
        found = ColumnErrors()
        for length in (5, 9):
            values = np.linspace(1, 1000, length)[None] * np.ones((2, 1))
            found.add(values, values + 1)
        assert found.groups() == ()

    def test_values_that_are_not_finite_are_left_out(self) -> None:
        reference = np.tile([640.0, 1.0], (8, 1))
        reference[0, 1] = np.nan
        found = ColumnErrors()
        found.add(reference, reference + 0.5)
        assert found.groups()[1].sqnr_db == pytest.approx(10 * np.log10(7 / (7 * 0.25)))

    def test_a_column_that_is_zero_has_no_size(self) -> None:
        found = ColumnErrors()
        reference = np.tile([640.0, 0.0], (8, 1))
        found.add(reference, reference + 0.5)
        assert found.groups() == ()

    def test_many_numbers_are_shortened(self) -> None:
        assert describe_columns(range(0, 20, 2)) == "0, 2, 4, 6 …"


def joined() -> onnx.ModelProto:
    """x [N,16] → boxes [N,4] of hundreds and scores [N,2] below 1, joined, and read by a Gemm."""
    return model(
        [
            node("Gemm", ["x", "w1"], ["boxes"], name="boxes"),
            node("Gemm", ["x", "w2"], ["raw"], name="raw"),
            node("Sigmoid", ["raw"], ["scores"], name="sigmoid"),
            node("Concat", ["boxes", "scores"], ["both"], name="join", axis=1),
            node("Gemm", ["both", "w3"], ["out"], name="mix"),
        ],
        {"x": ["N", 16]},
        {"out": ["N", 6]},
        # The last Gemm hands every column on as it is.
        {"w1": np.abs(weight(16, 4)) * 400, "w2": weight(16, 2, seed=2), "w3": np.eye(6, dtype=np.float32)},
    )


@pytest.fixture(scope="module")
def made_net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joined")
    save(joined(), folder / "net.onnx")
    data = from_arrays("cells", {"x": np.random.default_rng(0).uniform(size=(80, 16)).astype(np.float32)})
    calibrate(folder / "net.onnx", data, out=folder / "net.cache", method="minmax")
    validate(
        folder / "net.onnx",
        data,
        precisions=["int8"],
        cache=folder / "net.cache",
        latency_count=0,
        allow_overlap=True,
        out=folder / "run",
    )
    return folder


class TestCommands:
    def test_validation_names_the_columns_and_what_joins_them(self, made_net: Path) -> None:
        results = read_results(made_net / "run" / "results.json")
        (output,) = results.runs[1].outputs
        assert [one.columns for one in output.groups] == ["0–3", "4–5"]
        said = [text for text in results.warnings if "joins values" in text or "Concat join" in text]
        assert any(
            text.startswith("INT8 output 'out' joins values of very different ranges") for text in said
        )
        assert any(text.startswith("INT8: Concat join puts scores (±") for text in said)

    def test_quantization_warns(self, made_net: Path) -> None:
        cache = CalibrationCache.read(made_net / "net.cache")
        found = quantize(made_net / "net.onnx", cache)
        (said,) = (text for text in found.explanation.warnings if "Concat join" in text)
        assert "under one scale, which leaves" in said
        assert "Keep what reads it in float (--keep-float)" in said

    def test_float_keeps_the_scores(self, made_net: Path) -> None:
        data = from_arrays("cells", {"x": np.random.default_rng(0).uniform(size=(80, 16)).astype(np.float32)})
        kept = validate(
            made_net / "net.onnx",
            data,
            precisions=["int8"],
            cache=made_net / "net.cache",
            latency_count=0,
            allow_overlap=True,
            keep_float=["mix"],
        )
        levels = [read_results(made_net / "run" / "results.json"), kept]
        before, after = (one.runs[1].outputs[0].groups[1].sqnr_db for one in levels)
        assert before is not None
        assert after is not None
        assert after > before + 10
        assert not any("joins values" in text for text in kept.warnings)

    def test_gates_judge_the_small_columns_too(self, made_net: Path) -> None:
        results = read_results(made_net / "run" / "results.json")
        report = check(results, min_cosine=0.999)
        verdicts = {one.subject: one.verdict for one in report.outcomes if one.gate == "min_cosine"}
        assert verdicts == {"out": "pass", "out columns 4–5": "fail"}
        report = check(results, min_sqnr=25)
        verdicts = {one.subject: one.verdict for one in report.outcomes if one.gate == "min_sqnr"}
        assert verdicts == {"out": "pass", "out columns 4–5": "fail"}

    def test_columns_without_error_pass(self) -> None:
        base = made.classifier()
        group = ColumnErrors()
        values = np.tile([640.0, 1.0], (8, 1))
        group.add(values, values + np.array([1.0, 0.0]))
        output = replace(base.runs[2].outputs[0], groups=group.groups())
        results = replace(base, runs=(base.runs[0], replace(base.runs[2], outputs=(output,))))
        found = [one for one in check(results, min_sqnr=20).outcomes if "columns" in one.subject]
        assert [one.verdict for one in found] == ["pass"]

    def test_a_decomposition_names_them(self, made_net: Path) -> None:
        data = from_arrays("cells", {"x": np.random.default_rng(0).uniform(size=(80, 16)).astype(np.float32)})
        found = decompose(made_net / "net.onnx", made_net / "net.cache", data, allow_overlap=True)
        assert found.findings[1].startswith("Output 'out' joins values of very different ranges: columns 0–3")

    def test_the_report_has_a_table(self, made_net: Path) -> None:
        text = to_markdown(build_document(merge([read_results(made_net / "run" / "results.json")])))
        assert "Outputs that join values of very different ranges, column by column." in text
        assert "| `out` | INT8 | 4–5 (of axis 1) |" in text
