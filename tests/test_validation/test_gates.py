"""The check on made results: what passes, what fails, and that nothing passes unnoticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_report import report_results as made

from calib.errors import UsageError, ValidationError
from calib.validation import CheckReport, GateOutcome, Metric, Results, check, write_results
from calib.validation.noninferiority import share_non_inferiority
from calib.validation.paired import PairedTable


def verdicts(report: CheckReport, gate: str) -> dict[str, str]:
    return {one.run: one.verdict for one in report.outcomes if one.gate == gate}


def only(report: CheckReport, gate: str, run: str = "INT8") -> GateOutcome:
    (found,) = [one for one in report.outcomes if one.gate == gate and one.run == run]
    return found


def with_run(results: Results, index: int, **changes: Any) -> Results:
    runs = list(results.runs)
    runs[index] = replace(runs[index], **changes)
    return replace(results, runs=tuple(runs))


def answers(wrong: int, right: int = 0) -> Results:
    """INT8 answers ``wrong`` more samples wrongly than FP32 and ``right`` more rightly, of 360."""
    base = made.classifier()
    assert base.labels is not None
    fp32 = base.runs[0].predictions
    assert fp32 is not None
    int8 = list(fp32)
    for index in range(8, 8 + wrong):  # FP32 is wrong on samples 0 to 7
        int8[index] = (base.labels[index] + 1) % 10
    for index in range(right):
        int8[index] = base.labels[index]
    changed = replace(base.runs[2], predictions=tuple(int8))
    return made.restated(replace(base, runs=(base.runs[0], changed)))


class TestDrops:
    def test_pass_fail_and_undecided(self) -> None:
        assert only(check(answers(0), max_drop="2%"), "max_drop").verdict == "pass"
        assert only(check(answers(40), max_drop="2%"), "max_drop").verdict == "fail"
        assert only(check(answers(5), max_drop="2%"), "max_drop").verdict == "undecided"

    def test_figures_are_those_of_the_test(self) -> None:
        found = only(check(made.classifier(), max_drop="1%", precisions=["int8"]), "max_drop")
        test = share_non_inferiority(PairedTable(343, 9, 4, 4), 0.01)
        assert (found.value, found.low, found.high) == (5 / 360, test.low, test.high)
        assert (found.p_value, found.p_worse, found.confidence) == (test.p_value, test.p_worse, 0.95)
        assert found.name == "max_drop top1: INT8 against FP32"
        assert found.limit == "at most 1 percentage point (0.01)"
        assert found.reason.startswith("top1 fell by 1.39 points (9 became wrong, 4 became right, of 360")

    def test_exit_codes(self) -> None:
        assert check(answers(0), max_drop="2%").exit_code == 0
        assert check(answers(40), max_drop="2%").exit_code == 1
        undecided = check(answers(5), max_drop="2%")
        assert (undecided.verdict, undecided.exit_code) == ("undecided", 1)
        allowed = check(answers(5), max_drop="2%", allow_undecided=True)
        assert (allowed.verdict, allowed.exit_code) == ("undecided", 0)
        assert check(answers(40), max_drop="2%", allow_undecided=True).exit_code == 1

    def test_undecided_says_how_many_samples_would_decide(self) -> None:
        assert "samples would decide it" in only(check(answers(5), max_drop="2%"), "max_drop").note
        nothing_at_all = only(check(answers(0), max_drop=0), "max_drop")
        assert nothing_at_all.verdict == "undecided"
        assert "allow a small drop" in nothing_at_all.note

    def test_relative_drops(self) -> None:
        found = only(check(answers(40), max_relative_drop="2%"), "max_relative_drop")
        assert found.verdict == "fail"
        assert found.value == pytest.approx(40 / 352)

    def test_all_candidates_are_judged_unless_chosen(self) -> None:
        report = check(made.classifier(), max_drop="2%")
        assert set(verdicts(report, "max_drop")) == {"FP16", "INT8"}
        chosen = check(made.classifier(), max_drop="2%", precisions=["fp16"])
        assert verdicts(chosen, "max_drop") == {"FP16": "pass"}
        by_label = check(made.two_calibrations(), max_drop="5%", precisions=["int8 minmax"])
        assert set(verdicts(by_label, "max_drop")) == {"INT8 minmax"}
        with pytest.raises(UsageError, match=r"no int4 to judge\. Their candidates: FP16, INT8"):
            check(made.classifier(), max_drop="2%", precisions=["int4"])

    def test_a_figure_that_there_is_not(self) -> None:
        found = only(
            check(made.classifier(), max_drop="1%", metrics=["map"], precisions=["int8"]), "max_drop"
        )
        assert found.verdict == "fail"
        assert found.reason.startswith("the results have no figure 'map' (they have: top1, top5,")

    def test_several_judgements_are_corrected(self) -> None:
        results = answers(0)
        (alone,) = (only(check(results, max_drop="1%"), "max_drop"),)
        assert (alone.verdict, alone.p_adjusted) == ("pass", alone.p_value)
        double = check(results, max_drop="1%", min_agreement="90%", max_relative_drop="10%")
        corrected = only(double, "max_drop")
        assert corrected.p_value is not None
        assert corrected.p_adjusted == pytest.approx(corrected.p_value)  # the largest of three: times one
        thrice = check(results, max_drop="1%", metrics=["top1", "top1"], max_relative_drop="1.1%")
        first = next(one for one in thrice.outcomes if one.gate == "max_drop")
        assert first.verdict == "undecided"
        assert "pass by itself, undecided after Holm's correction" in first.note
        plain = check(results, max_drop="1%", metrics=["top1", "top1"], correction="none")
        assert plain.verdict == "pass"


class TestFiguresWithoutAnswers:
    """Such as a mean average precision: no right and wrong for each sample."""

    def results(self, **more: Any) -> Results:
        base = made.regressor()
        one = with_run(base, 0, metrics=(Metric("map", 0.50, 360),))
        return with_run(one, 2, metrics=(Metric("map", 0.49, 360, drop=0.01, **more),))

    def judge(self, threshold: str, **more: Any) -> str:
        report = check(self.results(**more), max_drop=threshold, metrics=["map"], precisions=["int8"])
        return only(report, "max_drop").verdict

    def test_an_interval_decides(self) -> None:
        ends = {"drop_low": 0.005, "drop_high": 0.016}
        assert [self.judge(limit, **ends) for limit in ("2%", "0.3%", "1%")] == ["pass", "fail", "undecided"]

    def test_without_an_interval_it_cannot_pass(self) -> None:
        assert [self.judge(limit) for limit in ("2%", "0.3%")] == ["undecided", "fail"]


class TestNothingMeasured:
    """A-G1: a gate on nothing fails, and says that nothing was measured."""

    def test_no_samples(self) -> None:
        base = made.classifier()
        runs = tuple(replace(run, predictions=(), metrics=(Metric("top1", None, 0),)) for run in base.runs)
        report = check(replace(base, sample_ids=(), labels=(), runs=runs), max_drop="1%")
        assert (report.verdict, report.exit_code) == ("fail", 1)
        assert report.outcomes[0].reason == "nothing was measured: the results hold no samples"

    def test_every_sample_skipped(self) -> None:
        found = only(check(made.gaps(), max_drop="1%"), "max_drop")
        assert found.verdict == "fail"
        assert found.reason == "nothing was measured: every sample was skipped"

    def test_no_runs_no_reference_no_candidates(self) -> None:
        base = made.classifier()
        for runs, reason in (
            ((), "the results hold no runs"),
            (base.runs[1:], "there is no FP32 reference"),
            (base.runs[:1], "there is only the FP32 reference"),
        ):
            report = check(replace(base, runs=runs), max_drop="1%")
            assert report.exit_code == 1
            assert reason in report.outcomes[1].reason

    def test_no_gate(self) -> None:
        with pytest.raises(UsageError, match="without a gate would always pass"):
            check(made.classifier())

    def test_nobody_to_judge(self) -> None:
        base = made.classifier()
        report = check(replace(base, runs=base.runs[:2]), min_int8_share="50%")
        assert report.verdict == "fail"
        assert report.outcomes[-1].reason.startswith("nothing was measured: the results hold no run")


class TestNotFinite:
    def test_nan_outputs_fail_whatever_the_accuracy(self) -> None:
        results = answers(0)
        broken = replace(results.runs[1].outputs[0], non_finite=3, verdict="candidate not finite")
        report = check(with_run(results, 1, outputs=(broken,)), max_drop="5%")
        assert only(report, "max_drop").verdict == "pass"
        assert report.verdict == "fail"
        reason = only(report, "integrity").reason
        assert reason == "output 'logits': 3 of 3600 values are NaN or infinite, the reference's are not"

    def test_a_broken_reference_is_its_own_reason(self) -> None:
        results = answers(0)
        broken = replace(
            results.runs[1].outputs[0],
            non_finite=3,
            both_non_finite=3,
            reference_non_finite=3,
            verdict="both not finite",
        )
        report = check(with_run(results, 1, outputs=(broken,)), max_drop="5%")
        assert report.verdict == "fail"
        assert "in FP32 already: the model or the data is broken" in only(report, "integrity").reason

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_figures_that_are_not_finite(self, value: float) -> None:
        results = answers(0)
        metric = replace(results.runs[1].metrics[0], value=value)
        report = check(with_run(results, 1, metrics=(metric,)), max_drop="5%")
        assert report.verdict == "fail"
        assert only(report, "integrity").reason == "top1 is not finite"
        assert only(report, "max_drop").verdict == "fail"
        json.loads(report.to_json(), parse_constant=pytest.fail)

    def test_samples_and_answers_that_do_not_fit(self) -> None:
        results = answers(0)
        cut = with_run(results, 1, predictions=(1, 2, 3))
        assert "3 answers of INT8 for 360 samples" in check(cut, max_drop="5%").outcomes[0].reason
        twice = replace(results, sample_ids=("a",) * 360)
        assert check(twice, max_drop="5%").outcomes[0].reason == "359 sample ids occur more than once"


class TestClasses:
    def test_the_worst_class_is_named(self) -> None:
        base = answers(0)
        assert base.labels is not None
        moved = tuple(
            9 if label == 3 and index % 20 == 3 else label for index, label in enumerate(base.labels)
        )  # 18 of class 3, one of which FP32 has wrong too
        report = check(made.restated(with_run(base, 1, predictions=moved)), worst_class="5%")
        found = only(report, "worst_class")
        assert found.verdict == "fail"
        assert found.reason == (
            "of 10 classes, class 3 lost most: it fell by 47.2 points (17 became wrong, 0 became right, of "
            "its 36 samples)"
        )

    def test_few_samples_do_not_decide(self) -> None:
        found = only(check(answers(0), worst_class="5%"), "worst_class")
        assert found.verdict == "undecided"
        assert found.note == "10 of 10 classes are undecided by themselves, with 36 samples each"
        assert only(check(answers(0), worst_class="20%"), "worst_class").verdict == "pass"

    def test_a_single_class_is_spoken_of_as_one(self) -> None:
        base = answers(0)
        three = (3,) * len(base.sample_ids)
        runs = tuple(replace(run, predictions=three) for run in base.runs)
        found = only(
            check(made.restated(replace(base, labels=three, runs=runs)), worst_class=0.005), "worst_class"
        )
        assert found.reason.startswith("of 1 class, class 3 lost most: it did not change")
        assert found.note == "1 of 1 class is undecided by itself, with 360 samples"

    def test_without_labels(self) -> None:
        found = only(check(made.regressor(), worst_class="5%"), "worst_class")
        assert found.verdict == "fail"
        assert "no labels" in found.reason


def test_agreement_is_the_exact_binomial_test() -> None:
    # 347 of 360 answers agree.
    assert (
        only(check(made.classifier(), min_agreement="90%", precisions=["int8"]), "min_agreement").verdict
        == "pass"
    )
    found = only(check(made.classifier(), min_agreement="99%", precisions=["int8"]), "min_agreement")
    assert (found.verdict, found.reason) == ("fail", "13 of 360 answers differ from FP32's")
    assert only(check(made.gaps(), min_agreement="98%"), "min_agreement").reason.startswith(
        "nothing was measured"
    )


@pytest.mark.parametrize(
    ("least", "note"),
    [
        # 0.999²⁹⁹⁵ = 0.04997, 0.999²⁹⁹⁴ = 0.05002.
        ("99.9%", "about 2995 samples would decide it where no answer differs"),
        ("100%", "no number of samples can show that no answer at all differs: allow a few"),
        ("90%", ""),
    ],
)
def test_what_would_decide_an_agreement_of_all(least: str, note: str) -> None:
    results = made.classifier()
    runs = tuple(
        replace(
            run,
            metrics=tuple(
                replace(one, value=1.0, successes=one.count) if one.name == "top1_agreement" else one
                for one in run.metrics
            ),
        )
        for run in results.runs
    )
    report = check(replace(results, runs=runs), min_agreement=least, allow_undecided=True)
    assert only(report, "min_agreement").note == note


def test_paths_are_read_and_named(tmp_path: Path) -> None:
    path = write_results(answers(0), tmp_path / "results.json")
    gates = tmp_path / "gates.yaml"
    gates.write_text("schema: 1\nallow_undecided: true\nalpha: 0.001\ngates: [{max_drop: 2%}]\n")
    report = check(path, gates=gates)
    assert report.results == str(path)
    assert (report.alpha, report.allow_undecided, report.verdict) == (0.001, True, "undecided")
    assert check(path, gates=gates, alpha=0.05, allow_undecided=False).passed


def test_settings_that_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match="Alpha lies between"):
        check(answers(0), max_drop="2%", alpha=float("nan"))
    with pytest.raises(UsageError, match="Unknown correction 'sidak'"):
        check(answers(0), max_drop="2%", correction="sidak")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Add --baseline"):
        check(answers(0), max_drop="2%", against="baseline")
    with pytest.raises(ValidationError, match="Cannot read results"):
        check("nowhere.json", max_drop="2%")


def test_a_wide_threshold_is_doubted() -> None:
    assert check(answers(0), max_drop=0.5).warnings == ("0.5 is 50%: if 0.5% was meant, write 0.5%",)
