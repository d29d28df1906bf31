from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from plain_runner import PlainRunner

from calib.data import Array, Dataset, from_arrays
from calib.data.task_options import parse_task
from calib.errors import UsageError, ValidationError
from calib.validation.comparison import Comparison
from calib.validation.intervals import sqnr_interval
from calib.validation.naming import RunName
from calib.validation.outcomes import unpack_hits
from calib.validation.paired import PairedTable, tango_interval

Model = Callable[[Array], dict[str, Array]]


class FunctionRunner(PlainRunner):
    """A model that is a function of the input ``x``."""

    name, clock, note = "function", "none", ""

    def __init__(self, precision: str, model: Model, outputs: tuple[str, ...] = ("y",)) -> None:
        self.precision = precision
        self.output_names = outputs
        self._model = model

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return self._model(feeds["x"])

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        return 1.0


def identity(x: Array) -> dict[str, Array]:
    return {"y": x.copy()}


def compared(
    data: Array, candidate: Model, *, batch: int = 4, baseline: Model = identity, **options: Any
) -> Comparison:
    labels = options.pop("labels", None)
    dataset: Dataset = from_arrays("d", {"x": data}, labels=labels)
    runners = [FunctionRunner("fp32", baseline), FunctionRunner("int8", candidate)]
    comparison = Comparison(runners, dataset, **options)
    for part in dataset.batches(batch):
        comparison.add(part, part.inputs)
    return comparison


DATA = np.random.default_rng(5).normal(size=(10, 6)).astype(np.float32)


@pytest.mark.parametrize("batch", [1, 3, 4, 10, 64])
def test_errors_and_answers_do_not_depend_on_the_batch_size(batch: int) -> None:
    labels = DATA.argmax(axis=1)
    labels[0] = (labels[0] + 1) % 6
    found = compared(DATA, lambda x: {"y": np.round(x)}, batch=batch, classify=True, labels=labels)
    candidate = found.findings[1]
    (errors,) = candidate.output_errors()
    wide = DATA.astype(np.float64)
    assert errors.elements == 60
    assert errors.max_abs == np.abs(np.round(wide) - wide).max()
    assert errors.mean_abs == pytest.approx(np.abs(np.round(wide) - wide).mean())
    metrics = {metric.name: metric for metric in found.metrics(candidate)}
    rounded = np.round(DATA).argmax(axis=1)
    assert metrics["top1"].value == np.mean(rounded == labels)
    assert metrics["top1"].drop == pytest.approx(0.9 - np.mean(rounded == labels))
    assert metrics["top1_agreement"].value == np.mean(rounded == DATA.argmax(axis=1))
    assert [metric.name for metric in found.metrics(found.baseline)] == ["top1", "top5", "macro_f1"]


def test_drops_and_sqnr_have_intervals_of_the_samples() -> None:
    labels = DATA.argmax(axis=1)
    labels[0] = (labels[0] + 1) % 6
    found = compared(DATA, lambda x: {"y": np.round(x)}, classify=True, labels=labels)
    baseline, candidate = found.findings
    right = {
        "fp32": DATA.argmax(axis=1) == labels,
        "int8": np.round(DATA).argmax(axis=1) == labels,
    }
    metrics = {metric.name: metric for metric in found.metrics(candidate)}
    interval = tango_interval(PairedTable.from_hits(right["fp32"], right["int8"]))
    top1 = metrics["top1"]
    assert (top1.drop_low, top1.drop_high) == (interval.low, interval.high)
    # Two drops are judged, of top-1 and of top-5: Holm takes the smaller p-value twice.
    assert top1.drop_p_value is not None
    assert metrics["top5"].drop_p_value is not None
    lower = min(top1.drop_p_value, metrics["top5"].drop_p_value)
    assert min(metrics[name].drop_p_adjusted or 9 for name in ("top1", "top5")) == min(1.0, 2 * lower)
    assert metrics["top1_agreement"].drop_low is None
    assert all(metric.drop_low is None for metric in found.metrics(baseline))
    for side, name in ((baseline, "fp32"), (candidate, "int8")):
        assert unpack_hits(side.outcomes()["top1"], 10).tolist() == right[name].tolist()
    (errors,) = candidate.judged_outputs()
    power = (DATA.astype(np.float64) ** 2).sum(axis=1)
    expected = sqnr_interval(power, ((np.round(DATA) - DATA.astype(np.float64)) ** 2).sum(axis=1))
    assert errors.sqnr_low == pytest.approx(expected.low)
    assert errors.sqnr_high == pytest.approx(expected.high)
    assert errors.sqnr_method == "BCa bootstrap, 1999 resamples, seed 0"


def test_without_labels_there_are_no_drops_or_outcomes() -> None:
    found = compared(DATA, identity, classify=True)
    assert found.findings[1].outcomes().keys() == {"top1_agreement", "top5_agreement"}
    assert [metric.name for metric in found.metrics(found.findings[1])] == [
        "top1_agreement",
        "top5_agreement",
    ]


def test_every_precision_sees_the_same_batches_once() -> None:
    seen: dict[str, list[float]] = {"fp32": [], "int8": []}

    def record(name: str) -> Model:
        def model(x: Array) -> dict[str, Array]:
            seen[name].extend(x[:, 0].tolist())
            return identity(x)

        return model

    compared(DATA, record("int8"), baseline=record("fp32"))
    assert seen["fp32"] == seen["int8"] == DATA[:, 0].tolist()


class TestWorst:
    def test_changed_answers_come_first_then_the_largest_error(self) -> None:
        data = np.eye(6, dtype=np.float32)
        moved = data.copy()
        moved[1, 0] = 0.5  # SQNR 10·log10(1 / 0.25) = 6.02 dB
        moved[3, 0] = 0.1  # 20 dB
        moved[4, 5] = 1.01  # 9.9 dB, and the answer 5 instead of 4
        found = compared(data, lambda x: {"y": moved[: len(x)]}, batch=6, classify=True, labels=range(6))
        worst = found.worst(found.findings[1])
        assert [sample.sample_id for sample in worst] == ["d#4", "d#1", "d#3"]
        assert [sample.candidate_class for sample in worst] == [5, 1, 3]
        assert [sample.baseline_class for sample in worst] == [4, 1, 3]
        assert [sample.label for sample in worst] == ["4", "1", "3"]
        expected = [-20 * math.log10(1.01), -20 * math.log10(0.5), 20.0]
        assert [s.sqnr_db for s in worst] == pytest.approx(expected, abs=1e-5)
        assert worst[1].max_abs == 0.5
        assert worst[1].origin == "d: x[1]"
        assert worst[1].run == found.findings[1].name.label

    def test_at_most_ten(self) -> None:
        data = np.ones((50, 6), np.float32)
        found = compared(data, lambda x: {"y": x * 1.5})
        assert len(found.worst(found.findings[1])) == 10

    def test_a_nan_is_the_worst_of_all(self) -> None:
        moved = DATA.copy()
        moved[:] += 0.1
        moved[7, 2] = np.nan
        found = compared(DATA, lambda x: {"y": moved}, batch=10)
        first = found.worst(found.findings[1])[0]
        assert (first.sample_id, first.sqnr_db, first.max_abs) == ("d#7", None, None)
        assert (first.baseline_class, first.label) == (None, None)

    def test_equal_outputs_have_none(self) -> None:
        found = compared(DATA, identity)
        assert found.worst(found.findings[1]) == ()

    def test_outputs_without_a_sample_axis_are_left_out(self) -> None:
        found = compared(DATA, lambda x: {"y": x.sum(axis=0)}, baseline=lambda x: {"y": x.sum(axis=0) + 1})
        assert found.worst(found.findings[1]) == ()
        assert found.findings[1].output_errors()[0].max_abs == pytest.approx(1, rel=1e-6)


class TestWarnings:
    def test_a_broken_baseline_names_output_and_first_sample(self) -> None:
        data = DATA.copy()

        def broken(x: Array) -> dict[str, Array]:
            with np.errstate(invalid="ignore"):
                return {"y": np.where(x == data[6, 1], np.nan, x)}

        found = compared(data, broken, baseline=broken)
        (warning,) = found.warnings()
        assert warning.startswith("The FP32 model is already broken: 1 value of output 'y' is NaN")
        assert "first at sample d: x[6]" in warning
        assert found.findings[1].output_errors()[0].verdict == "both not finite"

    def test_a_broken_candidate_is_named(self) -> None:
        found = compared(DATA, lambda x: {"y": np.full_like(x, np.inf)})
        (warning,) = found.warnings()
        assert warning.startswith("INT8 output 'y': 60 of 60 values are NaN or infinite")

    def test_a_poor_baseline_is_doubted_before_int8(self) -> None:
        labels = (DATA.argmax(axis=1) + 2) % 6
        found = compared(DATA, identity, classify=True, labels=labels)
        assert found.warnings()[0].startswith("FP32 top-1 is 0.0%, no better than chance")

    def test_missing_labels_are_said(self) -> None:
        found = compared(DATA, identity, classify=True)
        assert "accuracy is not measured, only agreement with FP32" in found.warnings()[0]
        assert [metric.name for metric in found.metrics(found.findings[1])] == [
            "top1_agreement",
            "top5_agreement",
        ]

    def test_other_class_names(self) -> None:
        dataset = from_arrays("d", {"x": np.eye(6, dtype=np.float32)}, labels=range(6))
        named = Dataset("d", dataset.ids, dataset.load, dataset.labels, class_names=tuple("abcdefgh"))
        comparison = Comparison([FunctionRunner("fp32", identity)], named, classify=True)
        for part in named.batches(6):
            comparison.add(part, part.inputs)
        assert comparison.warnings() == (
            "Dataset 'd' names 8 classes, output 'y' has 6 scores: is the model made for these classes?",
        )


class TestRefusals:
    def test_labels_beyond_the_scores_stop_at_the_first_batch(self) -> None:
        calls = []

        def model(x: Array) -> dict[str, Array]:
            calls.append(len(x))
            return identity(x)

        with pytest.raises(ValidationError, match="labels from 0 to 9, but output 'y' has 6 scores"):
            compared(DATA, identity, baseline=model, classify=True, labels=range(10), batch=2)
        assert calls == [2]

    def test_no_classifier(self) -> None:
        with pytest.raises(ValidationError, match="No class scores"):
            compared(DATA, identity, baseline=lambda x: {"y": x[:, :1]}, classify=True)

    def test_other_outputs_are_another_model(self) -> None:
        dataset = from_arrays("d", {"x": DATA})
        runners = [FunctionRunner("fp32", identity), FunctionRunner("int8", identity, ("z",))]
        with pytest.raises(ValidationError, match="int8 model has outputs z, the baseline has y"):
            Comparison(runners, dataset)

    def test_other_shapes_name_the_output(self) -> None:
        with pytest.raises(ValidationError, match=r"Output 'y' has shape \(4, 6\) .* and \(4, 5\)"):
            compared(DATA, lambda x: {"y": x[:, :5]})

    def test_an_unknown_score_output(self) -> None:
        with pytest.raises(UsageError, match="no output 'logits'"):
            compared(DATA, identity, scores="logits")


def test_repeats_that_fill_a_fixed_batch_are_not_counted() -> None:
    dataset = from_arrays("d", {"x": DATA[:3]})
    runners = [FunctionRunner("fp32", identity), FunctionRunner("int8", lambda x: {"y": x + 1})]
    comparison = Comparison(runners, dataset)
    (batch,) = dataset.batches(8)
    filled = np.concatenate([batch.inputs["x"], np.full((5, 6), np.nan, np.float32)])
    comparison.add(batch, {"x": filled}, fed=8)
    (errors,) = comparison.findings[1].output_errors()
    assert (errors.elements, errors.non_finite) == (18, 0)
    assert comparison.warnings() == ()


class TestBeside:
    def runs(self, data: Array, truth: Any, **options: Any) -> tuple[Comparison, Comparison]:
        """FP32 and a candidate; beside it the candidate against a third run that answers as it does."""
        dataset = from_arrays("d", {"x": data}, labels=truth)
        fp32, int8, other = (FunctionRunner(name, identity) for name in ("fp32", "int8", "other"))
        comparison = Comparison([fp32, int8], dataset, task=parse_task(options.pop("task")))
        beside = comparison.beside([int8, other], [RunName("int8"), RunName("fp16")], **options)
        for part in dataset.batches(4):
            comparison.add(part, part.inputs)
            beside.add(part, part.inputs)
        return comparison, beside

    def test_figures_are_those_of_a_comparison_by_itself(self) -> None:
        labels = DATA.argmax(axis=1)
        labels[0] = (labels[0] + 1) % 6
        comparison, beside = self.runs(DATA, labels, task="classification")
        figures = beside.findings[1].figures()
        assert figures["top1"] == 0.9
        assert figures == {one.name: one.value for one in comparison.metrics(comparison.findings[1])}

    def test_without_labels_answers_are_compared_alone(self) -> None:
        values = list(DATA[:, 0].astype(float))
        comparison, beside = self.runs(DATA[:, :1], values, task="regression", labels=False)
        assert comparison.findings[1].figures()["MAE"] == pytest.approx(0, abs=1e-6)
        assert beside.findings[1].figures() == {}
        assert not any("label" in text for text in comparison.warnings())

    def test_outputs_alone(self) -> None:
        _, beside = self.runs(DATA, DATA.argmax(axis=1), task="classification", answers=False)
        assert (beside.task, beside.findings[1].figures()) == (None, {})
        assert beside.findings[1].output_errors()[0].verdict == "equal"
