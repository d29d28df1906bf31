"""Gates of figures that are resampled, in both directions and every unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_judging import judged, numbered
from task_results import as_results

from calib.errors import UsageError
from calib.report.gates import check_markdown, check_text
from calib.validation import (
    CheckReport,
    GateOutcome,
    RebuildRecord,
    Results,
    check,
    compare,
    make_baseline,
    read_baseline,
    read_results,
    update_baseline,
    write_results,
)
from calib.validation.resampling import FEW_RESAMPLES, pack_draws, paired_draws, unpack_draws

RANDOM = np.random.default_rng(0)
COUNT = 200
LABELS = RANDOM.normal(size=COUNT)
FP32 = (LABELS + RANDOM.normal(0, 0.1, COUNT)).astype(np.float32)


def regression(noise: float, *, unit: str = "mm", scale: float = 1.0) -> Results:
    """INT8's answers are FP32's with more noise, all of them so many times as large."""
    int8 = FP32 + np.random.default_rng(7).normal(0, noise, COUNT)
    answers = [{"y": (scale * one).astype(np.float32)[:, None]} for one in (FP32, int8)]
    labels = [scale * float(label) for label in LABELS]
    return as_results(judged({"kind": "regression", "unit": unit}, numbered(labels), *answers, batch=50))


def segmentation(share: float) -> Results:
    """A share of INT8's pixels of class 1 is answered with class 0."""
    random = np.random.default_rng(3)
    masks = [random.integers(0, 3, (4, 5)).astype(np.int32) for _ in range(60)]
    answers = np.stack(masks)
    lost = answers.copy()
    lost[(random.random(lost.shape) < share) & (lost == 1)] = 0
    outputs = [{"y": np.moveaxis(np.eye(3, dtype=np.float32)[one], -1, 1)} for one in (answers, lost)]
    dataset = numbered(masks, class_names=("road", "sky", "tree"))
    return as_results(judged({"kind": "segmentation"}, dataset, *outputs, batch=16))


def only(report: CheckReport, gate: str, subject: str = "") -> GateOutcome:
    (found,) = [one for one in report.outcomes if one.gate == gate and subject in ("", one.subject)]
    return found


class TestVerdicts:
    def test_the_figures_of_a_gate_are_those_of_the_resamples(self) -> None:
        results = segmentation(0.05)
        found = only(check(results, max_drop="2%"), "max_drop")
        fp32, int8 = results.runs
        pair = paired_draws(fp32.draws["mIoU"], int8.draws["mIoU"], "x")
        assert pair is not None
        drops = pair[0] - pair[1]
        assert found.subject == "mIoU"
        assert found.value == pytest.approx((fp32.metrics[0].value or 0) - (int8.metrics[0].value or 0))
        assert (found.low, found.high) == pytest.approx(tuple(np.percentile(drops, [5, 95])))
        assert found.p_value == (1 + (drops >= 0.02).sum()) / 2000
        assert found.p_worse == (1 + (drops <= 0.02).sum()) / 2000

    def test_pass_fail_and_undecided(self) -> None:
        results = segmentation(0.07)
        for limit, verdict in (
            (0.2, "pass"),
            (0.001, "fail"),
            (results.runs[1].metrics[0].drop, "undecided"),
        ):
            assert only(check(results, max_drop=f"mIoU={limit}"), "max_drop").verdict == verdict

    def test_where_less_is_better_a_rise_is_the_drop(self) -> None:
        worse = regression(0.2)
        found = only(check(worse, max_drop="RMSE=0.01"), "max_drop")
        fp32, int8 = ({one.name: one.value for one in run.metrics} for run in worse.runs)
        assert found.value == pytest.approx((int8["RMSE"] or 0) - (fp32["RMSE"] or 0))
        assert found.verdict == "fail"
        assert found.reason.startswith("RMSE rose by 0.")
        assert only(check(worse, max_drop="RMSE=5"), "max_drop").verdict == "pass"
        assert only(check(worse, max_drop="RMSE=5"), "max_drop").limit == "at most 5 in its unit"

    def test_the_main_figure_is_judged_where_none_is_named(self) -> None:
        assert only(check(regression(0.2), max_drop=0.5), "max_drop").subject == "MAE"
        assert only(check(segmentation(0.1), max_drop=0.5), "max_drop").subject == "mIoU"

    def test_several_figures_at_once(self) -> None:
        report = check(regression(0.2), max_drop=["MAE=3", "R2=0.9"], max_relative_drop="spearman=50%")
        assert [(one.gate, one.subject) for one in report.outcomes if one.gate != "integrity"] == [
            ("max_drop", "MAE"),
            ("max_drop", "R2"),
            ("max_relative_drop", "spearman"),
        ]
        assert report.passed

    def test_a_relative_drop_is_a_part_of_the_reference(self) -> None:
        results = regression(0.2)
        fp32, int8 = ({one.name: one.value for one in run.metrics} for run in results.runs)
        found = only(check(results, max_relative_drop="MAE=10%"), "max_relative_drop")
        assert found.value == pytest.approx((int8["MAE"] or 0) / (fp32["MAE"] or 1) - 1)
        assert found.verdict == "fail"

    def test_a_percentage_of_no_share_is_refused(self) -> None:
        with pytest.raises(
            UsageError, match="the figure is no share, so that a percentage can only be of its"
        ):
            check(regression(0.2), max_drop="MAE=1%")
        with pytest.raises(UsageError, match="is more than everything"):
            check(segmentation(0.1), max_drop="mIoU=5")

    def test_where_nothing_moved_the_number_of_samples_decides(self) -> None:
        same = segmentation(0.0)
        undecided = only(check(same, max_drop="1%"), "max_drop")
        # (1 − 0.01)⁶⁰ = 0.547; below 0.05 from ln 0.05 / ln 0.99 = 298.07 samples on.
        assert (undecided.verdict, undecided.p_value) == ("undecided", pytest.approx(0.99**60))
        assert undecided.note.endswith("about 299 would decide it")
        assert only(check(same, max_drop="5%"), "max_drop").verdict == "pass"  # 0.95⁶⁰ = 0.046

    def test_an_unknown_figure_is_named(self) -> None:
        found = only(check(segmentation(0.1), max_drop="mAP=1%"), "max_drop")
        assert (found.verdict, found.reason) == (
            "fail",
            "the results have no figure 'mAP' (they have: mIoU, pixel_accuracy, pixel_agreement)",
        )


class TestClasses:
    def test_the_class_that_lost_most(self) -> None:
        found = only(check(segmentation(0.3), worst_class="5%"), "worst_class")
        assert found.verdict == "fail"
        assert found.reason.startswith("of 3 classes, class 1 (sky) lost most: its IoU fell by ")
        assert only(check(segmentation(0.02), worst_class="10%"), "worst_class").verdict == "pass"

    def test_p_values_are_of_the_normal_distribution(self) -> None:
        from scipy.stats import norm

        results = segmentation(0.1)
        known = [one for one in results.runs[1].classes if one.drop is not None and one.drop_error]
        found = only(check(results, worst_class="8%"), "worst_class")
        z = [((one.drop or 0) - 0.08) / (one.drop_error or 1) for one in known]
        # Tree did not move: (1 − 0.08)ⁿ with its n pixels is nothing.
        assert found.p_value == pytest.approx(max(norm.cdf(z)))

    def test_against_a_baseline_both_errors_are_added(self) -> None:
        from scipy.stats import norm

        before, after = segmentation(0.02), segmentation(0.3)
        report = check(after, baseline=make_baseline(before), worst_class="5%", precisions=["int8"])
        found = only(report, "worst_class")
        old, new = (results.runs[1].classes[1] for results in (before, after))
        drop, error = (old.value or 0) - (new.value or 0), (old.drop_error or 0) + (new.drop_error or 0)
        assert found.verdict == "fail"
        assert found.reason.startswith("of 3 classes, class 1 (sky) lost most: its IoU fell by ")
        assert found.value == pytest.approx(drop, abs=2e-6)
        assert found.low == pytest.approx(drop - norm.ppf(0.95) * error, abs=2e-6)
        # Road lost pixels to it too; the surest of three counts three times.
        worst = norm.sf((drop - 0.05) / error)
        assert found.p_worse is not None
        assert found.p_worse <= 3 * worst * (1 + 1e-3)
        assert found.method.endswith("at most the sum of both runs' against FP32")

    def test_the_same_classes_pass_against_their_baseline(self) -> None:
        results = segmentation(0.02)
        report = check(results, baseline=make_baseline(results), worst_class="10%", precisions=["int8"])
        found = only(report, "worst_class")
        assert (found.verdict, found.value) == ("pass", 0.0)

    def test_where_fp32_is_another_the_error_is_not_known(self) -> None:
        results = segmentation(0.02)
        fp32 = results.runs[0]
        classes = tuple(replace(one, value=0.9) for one in fp32.classes)
        old = make_baseline(replace(results, runs=(replace(fp32, classes=classes), results.runs[1])))
        found = only(check(results, baseline=old, worst_class="10%", precisions=["int8"]), "worst_class")
        assert found.verdict == "undecided"
        assert "FP32's own figure is not what it was" in found.note

    def test_baselines_without_classes_and_tasks_without_them(self) -> None:
        results = segmentation(0.1)
        bare = replace(results, runs=tuple(replace(run, class_metric="", classes=()) for run in results.runs))
        found = only(
            check(results, baseline=make_baseline(bare), worst_class="5%", precisions=["int8"]), "worst_class"
        )
        assert found.reason == (
            "the baseline keeps no figures of classes, not IoU: make it again with --update-baseline"
        )
        found = only(check(regression(0.1), worst_class="5%"), "worst_class")
        assert found.reason == "regression gives no figure of each class: there is none to judge"

    def test_baselines_keep_them_in_few_lines(self, tmp_path: Path) -> None:
        results = segmentation(0.1)
        update_baseline(results, tmp_path / "base.json")
        stored = read_baseline(tmp_path / "base.json")
        assert stored == make_baseline(results)
        assert stored.runs["INT8"].class_values.keys() == {"0", "1", "2"}
        assert stored.runs["FP32"].class_errors == {}


def test_agreement_is_judged_by_its_interval() -> None:
    results = segmentation(0.1)
    agreement = results.runs[1].metrics[-1]
    assert agreement.name == "pixel_agreement"
    found = only(check(results, min_agreement="90%"), "min_agreement")
    assert (found.verdict, found.subject) == ("pass", "pixel")
    assert (found.value, found.low, found.high) == (agreement.value, agreement.low, agreement.high)
    assert only(check(results, min_agreement="99.9%"), "min_agreement").verdict == "fail"


class TestBaselines:
    def test_draws_are_kept_and_compared(self, tmp_path: Path) -> None:
        before, after = segmentation(0.02), segmentation(0.3)
        update_baseline(before, tmp_path / "base.json")
        stored = read_baseline(tmp_path / "base.json")
        draws = unpack_draws(stored.runs["INT8"].draws["mIoU"].values)
        assert len(draws) == FEW_RESAMPLES
        assert (draws == unpack_draws(before.runs[1].draws["mIoU"].values)[:FEW_RESAMPLES]).all()
        report = check(after, baseline=tmp_path / "base.json", max_drop="1%")
        found = next(one for one in report.outcomes if one.gate == "max_drop" and one.run == "INT8")
        assert (found.verdict, found.against) == ("fail", "baseline")
        change = next(one for one in report.changes if (one.run, one.figure) == ("INT8", "mIoU"))
        assert change.status == "worse"
        assert change.low is not None
        assert change.high is not None
        assert 0 < change.low < (change.before or 0) - (change.after or 0) < change.high

    def test_the_same_results_did_not_change(self, tmp_path: Path) -> None:
        results = segmentation(0.02)
        update_baseline(results, tmp_path / "base.json")
        report = check(results, baseline=tmp_path / "base.json", max_drop="6%")
        found = next(one for one in report.outcomes if one.gate == "max_drop" and one.run == "INT8")
        assert (found.value, found.verdict) == (0.0, "pass")  # 0.94⁶⁰ = 0.024, after Holm 0.049
        assert {change.status for change in report.changes} == {"same"}

    def test_units_and_direction_are_kept(self, tmp_path: Path) -> None:
        before, after = regression(0.05), regression(0.3)
        update_baseline(before, tmp_path / "base.json")
        figure = read_baseline(tmp_path / "base.json").runs["INT8"].metrics["RMSE"]
        assert (figure.unit, figure.higher_is_better) == ("mm", False)
        report = check(after, baseline=tmp_path / "base.json", max_drop="RMSE=3")
        change = next(one for one in report.changes if (one.run, one.figure) == ("INT8", "RMSE"))
        assert (change.status, change.unit) == ("worse", "mm")
        text = check_text(report)
        assert f"{change.before:.3f} mm → {change.after:.3f} mm: worse, change" in text
        assert "mm" in check_markdown(report)

    def test_files_come_back_as_they_were(self, tmp_path: Path) -> None:
        results = segmentation(0.1)
        write_results(results, tmp_path / "results.json")
        assert read_results(tmp_path / "results.json") == results
        assert (tmp_path / "results.json").stat().st_size < 120_000

    def test_results_of_before_are_still_read(self) -> None:
        from test_report import report_results as made

        content: Any = made.classifier().to_json()
        for key in ("main_metric", "draws", "class_metric", "classes", "confusions", "unit", "change"):
            assert f'"{key}"' in content
        import json

        old = json.loads(content)
        del old["main_metric"]
        for run in old["runs"]:
            for key in ("draws", "class_metric", "classes", "confusions"):
                del run[key]
            for metric in run["metrics"]:
                del metric["unit"]
        for sample in old["worst"]:
            del sample["change"]
        assert Results.from_json(json.dumps(old)) == made.classifier()


def test_a_gate_without_resamples_falls_back_on_the_interval() -> None:
    results = segmentation(0.1)
    bare = replace(results, runs=tuple(replace(run, draws={}) for run in results.runs))
    found = only(check(bare, max_drop="50%"), "max_drop")
    assert (found.verdict, found.p_value) == ("pass", None)
    assert (found.low, found.high) == (
        results.runs[1].metrics[0].drop_low,
        results.runs[1].metrics[0].drop_high,
    )


def test_versions_are_compared_by_their_resamples() -> None:
    from calib.validation.alignment import Pair
    from calib.validation.shifts import find_shifts

    old, new = regression(0.05), regression(0.3)
    pairs = [Pair(*sides) for sides in zip(old.runs, new.runs, strict=True)]
    shifts = {(one.run, one.figure): one for one in find_shifts(old, new, pairs, {}, 0.05, "holm")}
    error = shifts["INT8", "RMSE"]
    draws = paired_draws(old.runs[1].draws["RMSE"], new.runs[1].draws["RMSE"], "x")
    assert draws is not None
    assert (error.low, error.high) == pytest.approx(tuple(np.percentile(draws[1] - draws[0], (2.5, 97.5))))
    assert (error.status, error.unit) == ("worse", "mm")
    assert shifts["FP32", "RMSE"].status == "same"


def test_a_figure_in_decibels_is_tested_by_its_resamples_too() -> None:
    """A PSNR or a level of one's own is no SQNR of an output."""
    shifts = []
    for unit in ("mm", "dB"):
        found = compare(regression(0.05, unit=unit), regression(0.3, unit=unit)).shifts
        shifts.append(next(one for one in found if (one.run, one.figure) == ("INT8", "MAE")))
    assert (shifts[1].status, shifts[1].unit) == ("worse", "dB")
    assert shifts[1] == replace(shifts[0], unit="dB")


@pytest.mark.parametrize("scale", [1.0, 2.0**-23])
def test_a_small_unit_makes_no_change_the_same(scale: float) -> None:
    """INT8's error grows from about 0.08 to 0.23, in whatever unit: a power of 2 changes no digit."""
    old, new = (regression(noise, scale=scale) for noise in (0.02, 0.3))
    shifts = [one for one in compare(old, new).shifts if one.run == "INT8" and one.figure in ("MAE", "RMSE")]
    assert [one.status for one in shifts] == ["worse", "worse"]
    report = check(new, baseline=make_baseline(old), max_drop=f"MAE={0.01 * scale:.3g}")
    changed = {one.figure: one.status for one in report.changes if one.run == "INT8" and one.unit == "mm"}
    assert changed == {"MAE": "worse", "RMSE": "worse"}
    same = check(new, baseline=make_baseline(new), max_drop=f"MAE={0.01 * scale:.3g}")
    assert {one.status for one in same.changes} == {"same"}  # a baseline keeps six digits


def test_what_a_baseline_has_not_is_shown_in_its_unit() -> None:
    """A run, or a figure, that is new: an SQNR of 24.6 dB is no 2460%, and an error in mm no share."""
    results = regression(0.3)
    fp32, int8 = make_baseline(results).runs.items()
    value = results.runs[1].metrics[0].value
    assert value is not None
    for runs in (dict([fp32]), dict([fp32, (int8[0], replace(int8[1], metrics={}, sqnr_db={}))])):
        baseline = replace(make_baseline(results), runs=runs)
        text = check_text(check(results, baseline=baseline, max_drop="MAE=1"))
        assert f"INT8 MAE: null → {value:.3f} mm: new" in text
        assert "INT8 SQNR of logits: null → 24.6 dB: new" in text


def test_a_margin_is_of_the_tasks_own_figure_and_unit() -> None:
    old, new = regression(0.05), regression(0.3)
    found = compare(old, new, margin=0.01)
    (gate,) = [one for one in found.gates if one.gate == "max_drop"]
    assert (gate.subject, gate.verdict, gate.unit) == ("MAE", "fail", "number")
    assert compare(old, new, margin="3").verdict == "pass"
    assert compare(old, new, margin="3", metrics=["RMSE"]).gates[0].subject == "RMSE"
    with pytest.raises(UsageError, match="the figure is no share"):
        compare(old, new, margin="1%")


def test_resamples_of_another_order_are_not_paired() -> None:
    old = regression(0.05)
    ids = tuple(reversed(old.sample_ids))
    found = compare(old, replace(regression(0.3), sample_ids=ids))
    (error,) = [one for one in found.shifts if (one.run, one.figure) == ("INT8", "RMSE")]
    assert (error.status, error.low) == ("untested", None)


def test_noise_of_a_figure_is_said_in_its_unit() -> None:
    old, new = regression(0.05), regression(0.3)
    records = (RebuildRecord("INT8", 3, {"MAE": (0.1, 0.5, 0.3)}, ()),)
    report = check(
        replace(new, rebuilds=records), baseline=make_baseline(old), max_drop="MAE=0.01", precisions=["int8"]
    )
    found = only(report, "max_drop")
    assert found.verdict == "undecided"
    assert found.note.endswith("within the noise of 3 builds, which differ by up to 0.4")


def test_a_change_on_both_sides_of_none_is_not_called_better_or_worse() -> None:
    old = segmentation(0.05)
    values = unpack_draws(old.runs[1].draws["mIoU"].values)
    random = np.random.default_rng(0)
    moved = replace(
        old.runs[1].draws["mIoU"], values=pack_draws(values + random.normal(0, 0.01, len(values)))
    )
    mean = old.runs[1].metrics[0]
    assert mean.value is not None
    assert mean.drop is not None
    metric = replace(mean, value=mean.value - 0.001, drop=mean.drop + 0.001)
    int8 = replace(
        old.runs[1], metrics=(metric, *old.runs[1].metrics[1:]), draws={**old.runs[1].draws, "mIoU": moved}
    )
    report = check(replace(old, runs=(old.runs[0], int8)), baseline=make_baseline(old), max_drop="20%")
    (change,) = [one for one in report.changes if (one.run, one.figure) == ("INT8", "mIoU")]
    assert change.status == "not significant"


def test_an_output_that_has_no_error_any_more_is_not_missing() -> None:
    from calib.report.qualification_text import qualification_text

    old = segmentation(0.05)
    (output,) = old.runs[1].outputs
    exact = replace(
        output, sqnr_db=None, max_abs=0.0, verdict="equal", note="no error at all; SQNR is infinite"
    )
    new = replace(old, runs=(old.runs[0], replace(old.runs[1], outputs=(exact,))))
    for sides, status in (
        ((old, new), "no error now"),
        ((new, old), "no error before"),
        ((new, new), "same"),
    ):
        found = compare(*sides, margin="50%")
        (shift,) = [one for one in found.shifts if one.figure.startswith("SQNR")]
        assert (shift.status, found.faults) == (status, ())
        report = check(sides[1], baseline=make_baseline(sides[0]), max_drop="50%")
        (change,) = [one for one in report.changes if one.figure.startswith("SQNR")]
        assert change.status == status
    assert "24.6 dB → no error: no error now" in qualification_text(compare(old, new))
    assert "24.6 dB → no error: no error now" in check_text(
        check(new, baseline=make_baseline(old), max_drop="50%")
    )


def test_where_nothing_moved_the_bound_is_of_the_samples() -> None:
    found = only(check(segmentation(0.0), max_drop="1%"), "max_drop")
    assert found.high == pytest.approx(1 - 0.05 ** (1 / 60))
    assert "a loss of at most 4.87 points" in found.reason
    same = regression(0.0)
    value = same.runs[0].metrics[0].value
    assert value is not None
    # A rise of a tenth of its value: (1 − 0.1)²⁰⁰ = 7e-10, in whatever unit.
    assert only(check(same, max_drop=f"MAE={value / 10}"), "max_drop").p_value == pytest.approx(0.9**200)
    # 2 % of an mIoU of v are 0.02·v, and a drop of that takes as large a share of the 60 samples.
    results = segmentation(0.6)
    fp32, int8 = results.runs
    metric = replace(int8.metrics[0], drop=None, drop_low=None, drop_high=None)
    runs = tuple(replace(run, metrics=(metric,), draws=int8.draws, classes=()) for run in (fp32, int8))
    lossy, value = replace(results, runs=runs), metric.value
    assert value is not None
    assert 0.5 < value < 0.9
    found = only(check(lossy, max_relative_drop="2%"), "max_relative_drop")
    assert found.p_value == pytest.approx((1 - 0.02 * value) ** 60)
    assert found.high == pytest.approx((1 - 0.05 ** (1 / 60)) / value)
