"""Stored baselines: what they keep, what they refuse, and what is said of a change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report import report_results as made

from calib.errors import UsageError, ValidationError
from calib.validation import (
    Change,
    CheckReport,
    Metric,
    Results,
    check,
    compare_with_baseline,
    make_baseline,
    read_baseline,
    update_baseline,
    write_baseline,
    write_results,
)
from calib.validation.baseline import read_reference
from calib.validation.noise import rebuild_noise
from calib.validation.outcomes import hits_of, pack_hits, unpack_hits


def worsened(results: Results, count: int, index: int = 2) -> Results:
    """The results with so many more of a run's answers wrong, its figure kept in step."""
    run = results.runs[index]
    assert results.labels is not None
    assert run.predictions is not None
    answers = list(run.predictions)
    for place in range(100, 100 + count):
        answers[place] = (results.labels[place] + 1) % 10
    changed = replace(run, predictions=tuple(answers))
    return made.restated(replace(results, runs=(*results.runs[:index], changed, *results.runs[index + 1 :])))


def reason(report: CheckReport, subject: str) -> str:
    (found,) = [
        one
        for one in report.outcomes
        if one.against == "baseline" and (one.gate, one.subject) == ("integrity", subject)
    ]
    assert found.verdict == "fail"
    assert report.exit_code == 1
    return found.reason


class TestPackedAnswers:
    @pytest.mark.parametrize("count", [1, 8, 9, 456, 457, 5000])
    def test_round_trip(self, count: int) -> None:
        hits = np.random.default_rng(count).random(count) < 0.7
        lines = pack_hits(hits)
        assert unpack_hits(lines, count).tolist() == hits.tolist()
        assert all(len(line) <= 76 for line in lines)

    def test_a_change_of_one_sample_changes_one_line(self) -> None:
        hits = np.zeros(2000, np.bool_)
        before, hits[1000] = pack_hits(hits), True
        assert sum(a != b for a, b in zip(before, pack_hits(hits), strict=True)) == 1

    def test_refusals(self) -> None:
        with pytest.raises(ValidationError, match="here: the packed values are not base64"):
            unpack_hits(("!",), 3, "here")
        with pytest.raises(
            ValidationError, match="1 byte of packed answers does not fit 9 samples, which take 2"
        ):
            unpack_hits(("oA==",), 9)


class TestFile:
    def test_round_trip_and_stability(self, tmp_path: Path) -> None:
        path = tmp_path / "base.json"
        baseline = make_baseline(made.classifier())
        write_baseline(baseline, path)
        assert read_baseline(path) == baseline
        first = path.read_text()
        write_baseline(make_baseline(made.classifier()), path)
        assert path.read_text() == first
        keys = list(json.loads(first))
        assert keys == sorted(keys)

    def test_it_is_small_beside_the_results(self, tmp_path: Path) -> None:
        results = made.classifier()
        assert len(make_baseline(results).to_json()) < len(results.to_json()) / 5

    def test_the_answers_are_kept(self) -> None:
        results = made.classifier()
        stored = make_baseline(results).runs["INT8"]
        expected = hits_of(results, results.runs[2], "top1")
        assert expected is not None
        assert unpack_hits(stored.outcomes["top1"], 360).tolist() == expected.tolist()

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "not a calib baseline"),
            ("[]", "not a calib baseline"),
            ('{"baseline_schema": 1}', r"not a calib baseline: calib_version: .*faults\)"),
        ],
    )
    def test_files_that_are_none(self, tmp_path: Path, content: str, message: str) -> None:
        path = tmp_path / "base.json"
        path.write_text(content)
        with pytest.raises(ValidationError, match=message):
            read_baseline(path)

    def test_another_schema(self, tmp_path: Path) -> None:
        path = tmp_path / "base.json"
        write_baseline(replace(make_baseline(made.classifier()), baseline_schema=9), path)
        with pytest.raises(ValidationError, match=r"schema 9, this calib reads 1"):
            read_baseline(path)

    def test_another_schema_is_told_though_its_fields_are_others(self, tmp_path: Path) -> None:
        path = tmp_path / "base.json"
        path.write_text('{"baseline_schema": 9}')
        for read in (read_baseline, read_reference):
            with pytest.raises(ValidationError, match=r"schema 9, this calib reads 1"):
                read(path)

    def test_no_file_says_how_to_make_one(self) -> None:
        with pytest.raises(ValidationError, match=r"Cannot read baseline nowhere.json.*--update-baseline"):
            check(made.classifier(), baseline="nowhere.json", max_drop="1%")

    def test_results_serve_as_a_baseline(self, tmp_path: Path) -> None:
        path = write_results(made.classifier(), tmp_path / "old.json")
        report = check(made.classifier(), baseline=path, max_drop="1%", alpha=0.1)
        assert report.passed
        assert {change.status for change in report.changes} == {"same"}
        text = tmp_path / "text.json"
        text.write_text("no JSON")
        with pytest.raises(ValidationError, match="is not JSON"):
            check(made.classifier(), baseline=text, max_drop="1%")

    def test_only_sound_results_become_one(self, tmp_path: Path) -> None:
        path = tmp_path / "base.json"
        update_baseline(made.classifier(), path)
        assert read_baseline(path).samples == 360
        with pytest.raises(
            ValidationError, match=r"cannot be a baseline\. integrity values: INT8: output 'logits'"
        ):
            update_baseline(made.gaps(), tmp_path / "other.json")
        with pytest.raises(ValidationError, match="nothing was measured"):
            update_baseline(replace(made.classifier(), sample_ids=()), tmp_path / "other.json")
        assert not (tmp_path / "other.json").exists()


class TestIdentity:
    def judge(self, **changes: Any) -> CheckReport:
        return check(
            replace(made.classifier(), **changes), baseline=make_baseline(made.classifier()), max_drop="1%"
        )

    def test_another_model(self) -> None:
        other = replace(made.classifier().model, sha256="b4" * 32)
        assert reason(self.judge(model=other), "model").startswith("another model: digits (b4b4")

    def test_other_samples(self) -> None:
        base = made.classifier()
        ids = tuple(f"other:{index}" for index in range(360))
        assert reason(self.judge(sample_ids=ids), "data").startswith("other sample ids")
        assert reason(self.judge(sample_ids=tuple(reversed(base.sample_ids))), "data").endswith(
            "another order"
        )
        runs = tuple(
            replace(run, predictions=run.predictions[:100] if run.predictions else None) for run in base.runs
        )
        assert base.labels is not None
        fewer = self.judge(sample_ids=base.sample_ids[:100], labels=base.labels[:100], runs=runs)
        assert reason(fewer, "data").startswith("other samples: 100 now, 360 in the baseline")

    def test_preprocessing(self) -> None:
        dataset = made.classifier().dataset
        changed = replace(dataset, preprocess={**dataset.preprocess, "scale": 1.0}, fingerprint="77" * 32)
        assert reason(self.judge(dataset=changed), "data") == "preprocessing changed: scale: 0.0625 → 1.0"

    def test_data(self) -> None:
        changed = replace(made.classifier().dataset, fingerprint="77" * 32)
        assert "the fingerprint of the dataset changed" in reason(self.judge(dataset=changed), "data")

    def test_a_run_that_is_gone(self) -> None:
        base = made.classifier()
        gone = self.judge(runs=base.runs[:2])
        assert reason(gone, "runs").startswith("INT8 of the baseline was not measured now")
        stored = make_baseline(base)
        chosen = check(replace(base, runs=base.runs[:2]), baseline=stored, max_drop="2%", precisions=["fp16"])
        assert chosen.passed

    def test_nothing_is_judged_against_other_things(self) -> None:
        other = replace(made.classifier().model, sha256="b4" * 32)
        report = self.judge(model=other)
        assert not [one for one in report.outcomes if one.gate == "max_drop"]
        assert report.changes == ()


class TestGatesAgainstIt:
    def judge(self, results: Results, **more: Any) -> dict[str, str]:
        stored = make_baseline(made.classifier())
        report = check(results, **{"baseline": stored, "max_drop": "2%", **more})
        return {f"{one.run} {one.against}": one.verdict for one in report.outcomes if one.gate == "max_drop"}

    def test_the_baseline_is_the_default_side(self) -> None:
        # INT8 is 1.4 points below FP32 and exactly as it was.
        same = self.judge(made.classifier())
        assert same == {"FP16 baseline": "pass", "INT8 baseline": "pass"}
        assert self.judge(made.classifier(), against="fp32")["INT8 FP32"] == "undecided"

    def test_a_worse_model_fails(self) -> None:
        assert self.judge(worsened(made.classifier(), 40))["INT8 baseline"] == "fail"
        assert self.judge(worsened(made.classifier(), 5))["INT8 baseline"] == "undecided"

    def test_classes_against_it(self) -> None:
        stored = make_baseline(made.classifier())
        report = check(
            worsened(made.classifier(), 200), baseline=stored, worst_class="20%", precisions=["int8"]
        )
        assert [one.verdict for one in report.outcomes if one.gate == "worst_class"] == ["fail"]

    def test_a_run_that_it_has_not(self) -> None:
        stored = make_baseline(made.classifier())
        runs = {label: run for label, run in stored.runs.items() if label != "INT8"}
        report = check(
            made.classifier(), baseline=replace(stored, runs=runs), max_drop="2%", precisions=["int8"]
        )
        (found,) = [one for one in report.outcomes if one.gate == "max_drop"]
        assert found.verdict == "fail"
        assert found.reason == "the baseline has no run INT8 (its runs: FP32, FP16)"

    def test_a_renamed_label_is_found_by_precision(self) -> None:
        base = made.classifier()
        renamed = replace(base.runs[2], label="INT8 entropy")
        results = replace(base, runs=(*base.runs[:2], renamed))
        assert self.judge(results)["INT8 entropy baseline"] == "pass"

    def test_against_it_there_must_be_one(self) -> None:
        with pytest.raises(UsageError, match="none was given"):
            check(made.classifier(), max_drop="2%", against="baseline")


class TestNull:
    """A-G4: null is no number, and has its own status."""

    def metric(self, value: float | None) -> Results:
        base = made.regressor()
        run = replace(
            base.runs[2], metrics=(Metric("map", value, 360, note="" if value else "no annotations"),)
        )
        return replace(base, runs=(base.runs[0], run))

    def judge(self, before: float | None, after: float | None) -> tuple[str, str, str]:
        stored = make_baseline(self.metric(before))
        report = check(self.metric(after), baseline=stored, max_drop="1%", metrics=["map"], min_sqnr=10)
        (found,) = [one for one in report.outcomes if one.gate == "max_drop"]
        (change,) = [one for one in report.changes if one.figure == "map"]
        return found.verdict, change.status, report.verdict

    def test_null_to_null_is_not_measured_and_fails_nothing(self) -> None:
        assert self.judge(None, None) == ("not measured", "not measured", "pass")

    def test_null_to_number_is_new(self) -> None:
        assert self.judge(None, 0.7) == ("new", "new", "pass")

    def test_number_to_null_fails(self) -> None:
        assert self.judge(0.7, None) == ("fail", "missing", "fail")

    def test_alone_it_decides_nothing_and_does_not_pass(self) -> None:
        stored = make_baseline(self.metric(None))
        report = check(self.metric(None), baseline=stored, max_drop="1%", metrics=["map"])
        assert (report.verdict, report.exit_code) == ("fail", 1)


class TestChanges:
    def test_every_figure_with_its_interval(self) -> None:
        stored = make_baseline(made.classifier())
        changes = compare_with_baseline(worsened(made.classifier(), 36), stored)
        top1 = next(one for one in changes if (one.run, one.figure) == ("INT8", "top1"))
        assert (top1.before, top1.after) == (pytest.approx(347 / 360, abs=1e-6), 311 / 360)
        assert top1.status == "worse"
        assert top1.low is not None
        assert top1.high is not None
        assert top1.low < 0.1 < top1.high
        sqnr = next(one for one in changes if (one.run, one.figure) == ("INT8", "SQNR of logits"))
        assert (sqnr.unit, sqnr.status) == ("dB", "same")

    def test_a_run_that_is_new(self) -> None:
        base = made.classifier()
        stored = make_baseline(replace(base, runs=base.runs[:2]))
        added = [one for one in compare_with_baseline(base, stored) if one.run == "INT8"]
        assert {one.status for one in added} == {"new"}
        assert Change("INT8", "top1", None, 347 / 360, "new") in added


class TestCircumstances:
    def test_another_cache_and_machine_are_said_and_fail_nothing(self) -> None:
        old = made.classifier()
        stored = make_baseline(old)
        assert check(old, baseline=stored, max_drop="2%").warnings == ()
        environment = replace(old.environment, tensorrt="10.3.0", gpu="NVIDIA L4")
        cache = replace(old.calibrations[0], sha256="0" * 64)
        report = check(
            replace(old, calibrations=(cache,), environment=environment), baseline=stored, max_drop="2%"
        )
        assert report.passed
        assert report.warnings == (
            "calibration 'entropy' is not the cache that the baseline was made with: what INT8 changed may "
            "come from it",
            "another TensorRT than the baseline's: none → 10.3.0",
            "another GPU than the baseline's: none → NVIDIA L4",
        )


class TestNoise:
    def rebuilds(self) -> list[Results]:
        return [worsened(made.classifier(), count) for count in (0, 4, 2)]

    def test_the_largest_difference_counts(self) -> None:
        found = rebuild_noise(self.rebuilds())
        assert found.builds == len(self.rebuilds())
        noise = found.spreads
        assert noise["INT8", "top1"] == pytest.approx(4 / 360)
        assert noise["FP16", "top1"] == 0

    def test_a_change_within_it_is_called_that(self) -> None:
        stored = make_baseline(made.classifier())
        now = worsened(made.classifier(), 3)
        report = check(now, baseline=stored, max_drop=0.0001, noise=self.rebuilds(), alpha=0.2)
        loud = check(now, baseline=stored, max_drop=0.0001, alpha=0.2)

        def verdict(one: CheckReport) -> tuple[str, str]:
            (found,) = [gate for gate in one.outcomes if gate.run == "INT8" and gate.gate == "max_drop"]
            return found.verdict, found.note

        assert verdict(loud)[0] == "fail"
        assert verdict(report)[0] == "undecided"
        assert (
            f"within the noise of {len(self.rebuilds())} builds, which differ by up to 1.111 points"
            in verdict(report)[1]
        )
        statuses = {(one.run, one.figure): one.status for one in report.changes}
        assert statuses["INT8", "top1"] == "within noise"

    def test_a_change_beyond_it_is_not(self) -> None:
        stored = make_baseline(made.classifier())
        report = check(worsened(made.classifier(), 60), baseline=stored, max_drop="1%", noise=self.rebuilds())
        (found,) = [one for one in report.outcomes if one.run == "INT8" and one.gate == "max_drop"]
        assert found.verdict == "fail"

    def test_the_baseline_keeps_it(self, tmp_path: Path) -> None:
        path = tmp_path / "base.json"
        update_baseline(made.classifier(), path, noise=self.rebuilds())
        report = check(worsened(made.classifier(), 3), baseline=path, max_drop=0.0001, alpha=0.2)
        statuses = {(one.run, one.figure): one.status for one in report.changes}
        assert statuses["INT8", "top1"] == "within noise"
        assert report.verdict == "undecided"

    def test_refusals(self) -> None:
        with pytest.raises(ValidationError, match="two or more results"):
            rebuild_noise([made.classifier()])
        with pytest.raises(ValidationError, match="of other models"):
            rebuild_noise([made.classifier(), made.regressor()])
        other = replace(made.classifier(), calibrations=())
        with pytest.raises(ValidationError, match="of other calibrations"):
            rebuild_noise([made.classifier(), other])

    def test_a_change_as_large_as_the_noise_that_it_keeps_is_within_it(self, tmp_path: Path) -> None:
        path = tmp_path / "base.json"
        update_baseline(made.classifier(), path, noise=self.rebuilds())
        # 4/360 = 0.01111111…, of which the file has six digits.
        assert read_baseline(path).runs["INT8"].metrics["top1"].noise == 0.0111111
        report = check(worsened(made.classifier(), 4), baseline=path, max_drop=0.0001, alpha=0.2)
        (found,) = [one for one in report.outcomes if one.run == "INT8" and one.gate == "max_drop"]
        assert found.value == pytest.approx(4 / 360)
        assert (found.verdict, "within the noise" in found.note) == ("undecided", True)


def test_a_latency_and_a_bare_figure_are_judged_within_the_digits_that_it_keeps() -> None:
    base = made.gpu()
    latency = base.runs[2].latency
    assert latency is not None
    int8 = replace(base.runs[2], latency=replace(latency, median_ms=1 / 3))
    timed = replace(base, runs=(*base.runs[:2], int8))
    stored = make_baseline(timed)
    assert stored.runs["INT8"].median_ms == 0.333333
    rules: dict[str, Any] = {"against": "baseline", "precisions": ["int8"]}
    assert check(timed, baseline=stored, max_latency_ratio=1, **rules).passed
    slower = replace(timed, runs=(*base.runs[:2], replace(int8, latency=replace(latency, median_ms=0.3335))))
    assert not check(slower, baseline=stored, max_latency_ratio=1, **rules).passed  # 1.0005 times
    # Without answers and resamples: 2/3 is kept as 0.666667, of which it is no drop of 3e-7.
    bare = replace(base.runs[2], predictions=None, outcomes={}, draws={})
    bare = replace(bare, metrics=(Metric("R2", 2 / 3, 360, unit=""),))
    results = replace(base, runs=(*base.runs[:2], bare), worst=())
    found = check(results, baseline=make_baseline(results), max_drop="R2=0", **rules).outcomes[-1]
    assert (found.verdict, found.value) == ("undecided", 0.0)
