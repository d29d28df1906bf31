"""Two results of one model compared: what is not the same, how far figures moved, which answers flipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from statsmodels.stats.multitest import multipletests
from test_report import report_results as made

from calib.errors import UsageError, ValidationError
from calib.report.qualification_text import qualification_headline, qualification_text
from calib.validation import Results, compare
from calib.validation.alignment import align, pair_runs
from calib.validation.engine_shifts import engine_shifts
from calib.validation.outcomes import pack_hits, pack_powers, unpack_powers
from calib.validation.qualification import Qualification, Shift
from calib.validation.results import EngineRecord, LatencyPart, PrecisionRun
from calib.validation.shifts import find_shifts

COUNT = made.SAMPLES


def with_int8(results: Results, **changes: Any) -> Results:
    """The same results with another INT8 run."""
    runs = tuple(replace(run, **changes) if run.label == "INT8" else run for run in results.runs)
    return replace(results, runs=runs)


def answers(wrong: range) -> tuple[int, ...]:
    """Answers that are right but for these samples."""
    labels = made.classifier().labels
    assert labels is not None
    return tuple((label + 1) % 10 if index in wrong else label for index, label in enumerate(labels))


def with_wrong(wrong: range) -> Results:
    return made.restated(with_int8(made.classifier(), predictions=answers(wrong)))


def shift(found: Qualification, figure: str, run: str = "INT8") -> Shift:
    return next(one for one in found.shifts if (one.run, one.figure) == (run, figure))


class TestFigures:
    def test_the_same_results_differ_in_nothing(self) -> None:
        found = compare(made.classifier(), made.classifier())
        assert {one.status for one in found.shifts} == {"same"}
        assert (found.circumstances, found.faults, found.gates, found.exit_code) == ((), (), (), 0)
        assert [one.changed for one in found.flips] == [0, 0, 0]

    def test_a_share_has_its_interval_and_mcnemars_test(self) -> None:
        # Samples 0 … 9 wrong before, 5 … 44 now: 5 became right, 35 became wrong.
        found = compare(with_wrong(range(10)), with_wrong(range(5, 45)))
        top1 = shift(found, "top1")
        assert top1.difference == pytest.approx(-30 / 360)
        assert top1.low is not None
        assert top1.high is not None
        assert top1.low < -30 / 360 < top1.high < 0
        assert top1.p_value == pytest.approx(binomtest(5, 40).pvalue)
        assert top1.status == "worse"
        assert [one.figure for one in found.worse] == ["top1", "top1_agreement"]

    def test_agreement_is_paired_with_each_sides_fp32(self) -> None:
        # FP32 errs on 0 … 7 by the same answer: INT8 agrees but on 8, 9 before, and on 0 … 4, 8 … 44 now.
        found = compare(with_wrong(range(10)), with_wrong(range(5, 45)))
        agreement = shift(found, "top1_agreement")
        # Became other: 0 … 4 and 10 … 44, nothing became the same.
        assert agreement.p_value == pytest.approx(binomtest(0, 40).pvalue)

    def test_all_p_values_are_corrected_together(self) -> None:
        found = compare(with_wrong(range(10)), with_wrong(range(5, 45)))
        known = [one for one in found.shifts if one.p_value is not None]
        expected = multipletests([one.p_value for one in known], method="holm")[1]
        assert [one.p_adjusted for one in known] == pytest.approx(list(expected))
        bare = compare(with_wrong(range(10)), with_wrong(range(5, 45)), correction="none")
        assert [one.p_adjusted for one in bare.shifts] == [one.p_value for one in bare.shifts]

    def test_a_few_answers_more_or_less_are_not_significant(self) -> None:
        found = compare(with_wrong(range(10)), with_wrong(range(8, 20)))
        assert shift(found, "top1").status == "not significant"

    def test_an_output_has_a_bootstrap_interval_and_a_permutation_test(self) -> None:
        rng = np.random.default_rng(3)
        signal, noise = rng.gamma(4.0, 25.0, COUNT), rng.gamma(2.0, 0.5, COUNT)

        def level(errors: np.ndarray) -> tuple[float, Results]:
            sqnr = float(10 * np.log10(signal.sum() / errors.sum()))
            base = made.classifier()
            output = replace(base.runs[2].outputs[0], sqnr_db=sqnr, powers=pack_powers([signal, errors]))
            return sqnr, with_int8(base, outputs=(output,))

        (before, old), (after, new) = level(noise), level(noise * rng.uniform(1.2, 1.4, COUNT))
        found = shift(compare(old, new), "SQNR of logits")
        assert found.difference == pytest.approx(after - before, abs=1e-9)
        assert (found.unit, found.status) == ("dB", "worse")
        # Each sample's noise rose by 20 to 40 %, 1.1 dB: the interval is far narrower than that of one SQNR.
        assert found.low is not None
        assert found.high is not None
        assert -1.46 < found.low < found.difference < found.high < -0.79
        assert found.high - found.low < 0.1
        # Of 9999 draws none moves so far: (0 + 1) / (9999 + 1) on each of two sides.
        assert found.p_value == pytest.approx(2e-4)
        assert "BCa bootstrap, 1999 resamples, seed 0; permutation test, 9999 draws, seed 0" in found.method
        same = shift(compare(old, old), "SQNR of logits")
        assert (same.status, same.p_value) == ("same", 1.0)

    def test_without_what_is_kept_of_each_sample_nothing_is_claimed(self) -> None:
        base = made.classifier()
        lower = with_int8(base, outputs=(replace(base.runs[2].outputs[0], sqnr_db=20.0),))
        found = shift(compare(base, lower), "SQNR of logits")
        assert (found.status, found.p_value, found.difference) == ("untested", None, pytest.approx(-4.61))

    def test_a_figure_where_less_is_better(self) -> None:
        def error(wrong: range) -> Results:
            base = with_wrong(wrong)
            metric = replace(base.runs[2].metrics[0], higher_is_better=False)
            return with_int8(base, metrics=(metric,))

        old, new = error(range(10)), error(range(5, 45))
        assert shift(compare(old, new), "top1").status == "better"

    def test_noise_may_be_one_file(self, tmp_path: Path) -> None:
        old, missing = with_wrong(range(10)), tmp_path / "builds.json"
        for one in (missing, str(missing)):
            with pytest.raises(ValidationError, match=r"builds\.json: no such file"):
                compare(old, old, noise=one)  # type: ignore[arg-type]

    def test_noise_is_looked_at_before_chance(self) -> None:
        old, new = with_wrong(range(10)), with_wrong(range(5, 45))
        found = compare(old, new, noise=[old, new])
        assert found.builds == 2
        assert (shift(found, "top1").status, shift(found, "top1").noise) == (
            "within noise",
            pytest.approx(30 / 360),
        )

    def test_missing_and_new_figures(self) -> None:
        base = made.classifier()
        less = with_int8(base, metrics=base.runs[2].metrics[:1])
        found = compare(base, less)
        assert shift(found, "top5").status == "missing"
        assert "INT8 top5 was measured before and is not now" in found.faults
        assert shift(compare(less, base), "top5").status == "new"


def test_how_often_equal_versions_are_called_different() -> None:
    """Under no difference, at most α of comparisons may call any figure changed."""
    rng, called, runs = np.random.default_rng(0), 0, 120
    base = made.classifier()
    labels = np.array(base.labels)
    for _ in range(runs):
        sides = []
        for _side in range(2):
            wrong = rng.random(COUNT) < 0.1
            predictions = tuple(int(x) for x in np.where(wrong, (labels + 1) % 10, labels))
            right = int((~wrong).sum())
            metric = replace(base.runs[2].metrics[0], value=right / COUNT, successes=right)
            sides.append(with_int8(base, predictions=predictions, metrics=(metric,)))
        pairs, _, _ = pair_runs(*sides)
        found = find_shifts(*sides, pairs, {}, 0.05, "holm")
        called += any(one.status in ("better", "worse") for one in found)
    # Three standard errors of 5 % of 120 are 6 points; exact tests stay below.
    assert called / runs <= 0.05 + 0.06


class TestSamples:
    def test_another_order_is_brought_into_one(self) -> None:
        old, new = with_wrong(range(10)), with_wrong(range(5, 45))
        order = np.random.default_rng(0).permutation(COUNT).tolist()
        powers = np.arange(2.0 * COUNT).reshape(2, COUNT)

        def packed(results: Results, values: np.ndarray, hits: np.ndarray) -> Results:
            output = replace(results.runs[2].outputs[0], powers=pack_powers(values))
            return with_int8(results, outputs=(output,), outcomes={"top5": pack_hits(hits)})

        hits = np.arange(COUNT) % 3 > 0
        new = packed(new, powers, hits)
        mixed = packed(new, powers[:, order], hits[order])
        mixed = replace(
            mixed,
            sample_ids=tuple(new.sample_ids[i] for i in order),
            labels=tuple(new.labels[i] for i in order) if new.labels else None,
            runs=tuple(
                replace(run, predictions=tuple(run.predictions[i] for i in order)) if run.predictions else run
                for run in mixed.runs
            ),
        )
        assert align(mixed, new.sample_ids) == new
        assert compare(old, mixed).shifts == compare(old, new).shifts

    def test_other_samples_are_refused(self) -> None:
        old = made.classifier()
        new = replace(old, sample_ids=("other", *old.sample_ids[1:]))
        with pytest.raises(ValidationError, match=r"other samples: 360 in the old ones, 360 .* 359 in both"):
            compare(old, new, anyway=True)

    def test_packed_errors_must_be_whole(self) -> None:
        lines = pack_powers([[1.0, 2.0], [3.0, 4.0]])
        assert unpack_powers(lines, 2).tolist() == [[1.0, 2.0], [3.0, 4.0]]
        with pytest.raises(ValidationError, match="INT8 y: 16 bytes of packed errors do not fit 3 samples"):
            unpack_powers(lines, 3, "INT8 y")
        assert pack_powers([[1e300], [0.0]]) == ()


Change = Callable[[Results], Results]

UNFAIR: dict[str, tuple[Change, str]] = {
    "preprocessing": (
        lambda r: replace(r, dataset=replace(r.dataset, preprocess={**r.dataset.preprocess, "mean": 0.4})),
        r"preprocessing mean: 0\.5 → 0\.4 \(the models saw other inputs\)",
    ),
    "labels": (
        lambda r: replace(r, labels=(5, *(r.labels or ())[1:])),
        r"labels: 360 labels → 360 labels \(1 label differs\)",
    ),
    "no labels": (lambda r: made.restated(replace(r, labels=None)), "labels: 360 labels → none"),
    "data": (
        lambda r: replace(r, dataset=replace(r.dataset, fingerprint="0" * 64)),
        "data fingerprint: 5c5c5c5c5c5c → 000000000000 .*files' content or the source changed",
    ),
}


@pytest.mark.parametrize("case", UNFAIR)
def test_an_unfair_comparison_is_refused_unless_asked_for(case: str) -> None:
    change, reason = UNFAIR[case]
    old = made.classifier()
    with pytest.raises(ValidationError, match=f"The comparison would be unfair: {reason}"):
        compare(old, change(old))
    found = compare(old, change(old), anyway=True)
    assert [one.weight for one in found.circumstances] == ["unfair"]


class TestCircumstances:
    def found(self, change: Change, base: Results | None = None) -> dict[str, tuple[str, str, str, str]]:
        old = base or made.classifier()
        return {
            one.what: (one.before, one.after, one.weight, one.note)
            for one in compare(old, change(old)).circumstances
        }

    def test_another_model_is_a_doubt(self) -> None:
        found = self.found(lambda r: replace(r, model=replace(r.model, sha256="0" * 64)))
        assert found["model"] == (
            "digits (a3a3a3a3a3a3…)",
            "digits (000000000000…)",
            "doubt",
            "differences are those of the models too, not of versions alone",
        )

    def test_caches(self) -> None:
        def cache(**fields: Any) -> Change:
            return lambda r: replace(r, calibrations=(replace(r.calibrations[0], **fields),))

        base = made.classifier()
        known = cache(scales_sha256="ab")(base)
        header = self.found(cache(sha256="0" * 64, header="TRT-100300-EntropyCalibration2"), known)
        assert header["calibration entropy"][1:] == (
            "TRT-100300-EntropyCalibration2",
            "subject",
            "the same scales in another file",
        )
        other = self.found(cache(sha256="0" * 64, scales_sha256="cd"), known)
        assert other["calibration entropy"][2:] == ("doubt", "other scales: INT8 differs by them too")
        unknown = self.found(cache(sha256="0" * 64))
        assert "whether its scales differ is not recorded" in unknown["calibration entropy"][3]
        gone = self.found(lambda r: replace(r, calibrations=()))
        assert gone["calibration entropy"][1:] == ("none", "doubt", "only one of them has it")

    def test_versions_and_machines_are_the_subject(self) -> None:
        def change(r: Results) -> Results:
            environment = replace(
                r.environment,
                gpu="NVIDIA L4",
                tensorrt="10.3.0",
                packages={**r.environment.packages, "numpy": "9.9"},
                session_options={"x": "1"},
            )
            return replace(r, environment=environment, calib_version="9.9")

        found = self.found(change)
        assert {one[2] for one in found.values()} == {"subject"}
        assert found["TensorRT"][:2] == ("none", "10.3.0")
        assert found["GPU"][1:] == ("NVIDIA L4", "subject", "latencies are not compared")
        assert (found["numpy"][1], found["calib"][1], found["setting x"][:2]) == ("9.9", "9.9", ("none", "1"))

    def test_how_a_run_was_made(self) -> None:
        found = self.found(lambda r: with_int8(r, quantized_tensors=33, simulated=False))
        assert found["Q/DQ pairs of INT8"] == ("31", "33", "subject", "another placement")
        assert found["arithmetic of INT8"][:3] == ("simulated", "not simulated", "doubt")

    def test_the_engine_knows_its_tensorrt(self) -> None:
        old = with_int8(made.gpu(), engine=ENGINE)
        found = self.found(
            lambda r: with_int8(r, engine=replace(ENGINE, tensorrt="10.3.0", route="explicit INT8", level=5)),
            old,
        )
        assert found["TensorRT"][:2] == ("8.6.0", "10.3.0")
        assert found["route of INT8"][:3] == ("implicit INT8", "explicit INT8", "doubt")
        assert found["builder level of INT8"][:2] == ("3", "5")


class TestFlips:
    def test_both_directions_are_listed_the_worst_first(self) -> None:
        # 5 … 9 stay wrong, 0 … 4 become right, 10 … 44 become wrong; sample 10 + k has an SQNR of k dB.
        old, new = with_wrong(range(10)), with_wrong(range(5, 45))
        errors = [[1.0] * COUNT, [10 ** -((index - 10) / 10) for index in range(COUNT)]]
        output = replace(new.runs[2].outputs[0], powers=pack_powers(errors))
        found = compare(old, with_int8(new, outputs=(output,))).flips[2]
        assert (found.run, found.samples, found.changed) == ("INT8", 360, 40)
        assert (found.became_wrong, found.became_right) == (35, 5)
        assert [one.effect for one in found.listed] == ["became wrong"] * 20 + ["became right"] * 5
        first = found.listed[0]
        assert (first.sample_id, first.label, first.before, first.after) == ("digits:0010", 0, 0, 1)
        assert [one.sqnr_db for one in found.listed[:20]] == pytest.approx(list(range(20)), abs=1e-5)

    def test_without_labels_answers_only_change(self) -> None:
        old, new = (
            made.restated(replace(with_wrong(wrong), labels=None)) for wrong in (range(10), range(5, 45))
        )
        found = compare(old, new).flips[2]
        assert (found.changed, found.became_wrong, found.became_right) == (40, None, None)
        assert {one.effect for one in found.listed} == {"changed"}

    def test_nothing_to_compare(self) -> None:
        assert compare(made.regressor(), made.regressor()).flips == ()


ENGINE = EngineRecord(
    *("8.6.0", "NVIDIA H200", "implicit INT8", 3, 12.0, 25_000_000, 40, 30, {"INT8": 30, "FP32": 10}),
    nodes={"conv1": "INT8", "conv2": "INT8", "head": "FP32"},
)


def slower(run: PrecisionRun, factor: float, **changes: Any) -> PrecisionRun:
    assert run.latency is not None
    latency = run.latency
    times = tuple(time * factor for time in latency.times_ms)
    return replace(
        run, latency=replace(latency, median_ms=latency.median_ms * factor, times_ms=times, **changes)
    )


class TestSpeed:
    def test_the_ratio_of_the_same_device_has_an_interval(self) -> None:
        old = made.gpu()
        new = replace(old, runs=tuple(slower(run, 1.25) for run in old.runs))
        found = next(one for one in compare(old, new).latencies if one.run == "INT8")
        assert (found.before_ms, found.after_ms, found.device) == (5.0, 6.25, "NVIDIA H200")
        assert found.ratio == pytest.approx(1.25)
        assert found.low is not None
        assert found.high is not None
        assert found.low <= 1.25 <= found.high
        assert 1.2 < found.low < found.high < 1.3
        assert "seed 0" in found.method

    @pytest.mark.parametrize(("enqueue", "bound"), [(3.9, False), (4.1, True)])
    def test_a_ratio_of_what_the_host_launches_slowly_is_in_doubt(self, enqueue: float, bound: bool) -> None:
        """On an H200 all engines of a run took 0.06 ms longer than a minute before. 80 % of 5 ms are 4 ms."""
        old = made.gpu()
        part = LatencyPart("enqueue", enqueue, enqueue, enqueue)
        new = replace(old, runs=tuple(slower(run, 1.25) for run in old.runs))
        int8 = next(run for run in old.runs if run.label == "INT8")
        assert int8.latency is not None
        old = with_int8(old, latency=replace(int8.latency, parts=(part,)))
        found = compare(old, new)
        (one,) = (shift for shift in found.latencies if shift.run == "INT8")
        assert one.host_bound == bound
        assert ("INT8 1.25 times" in qualification_headline(found)) != bound
        assert ("the host may be what was measured" in qualification_text(found)) == bound

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"device": "NVIDIA L4", "on_gpu": True}, "another device: NVIDIA H200 before, NVIDIA L4 now"),
            ({"on_gpu": False, "device": "CPU"}, "the new one is not of a GPU"),
            ({"simulated": True}, "the new one is not of a GPU and says nothing of TensorRT's speed"),
            ({"batch_size": 1}, "measured otherwise: batches of 32 before, 1 now"),
            ({"cuda_graph": True}, "measured otherwise: CUDA graph False before, True now"),
        ],
    )
    def test_other_latencies_are_not_compared(self, changes: dict[str, Any], reason: str) -> None:
        old = made.gpu()
        new = replace(old, runs=tuple(slower(run, 2.0, **changes) for run in old.runs))
        found = compare(old, new).latencies[-1]
        assert (found.ratio, found.low) == (None, None)
        assert found.note.startswith(reason)

    def test_engines(self) -> None:
        nodes = {"conv1": "INT8", "conv2": "FP16", "head": "FP32", "added": "FP32"}
        after = replace(ENGINE, engine_bytes=24_000_000, int8_layers=29, nodes=nodes)
        old = with_int8(made.gpu(), engine=ENGINE)
        (found,) = compare(old, with_int8(old, engine=after)).engines
        assert found.engine_bytes == (25_000_000, 24_000_000)
        assert found.int8_layers == (30, 29)
        assert (found.moved, found.known) == ((("conv2", "INT8", "FP16"),), True)
        (untold,) = compare(old, with_int8(old, engine=replace(ENGINE, nodes={}))).engines
        assert not untold.known
        assert engine_shifts(()) == ()


class TestGates:
    def test_a_margin_judges_each_new_run(self) -> None:
        found = compare(with_wrong(range(10)), with_wrong(range(5, 45)), margin="1%")
        verdicts = {(one.run, one.against): one.verdict for one in found.gates}
        assert verdicts == {("FP16", "old results"): "undecided", ("INT8", "old results"): "fail"}
        assert (found.verdict, found.exit_code) == ("fail", 1)
        wide = compare(with_wrong(range(10)), with_wrong(range(5, 45)), margin="20%")
        assert (wide.verdict, wide.exit_code) == ("pass", 0)

    def test_undecided_may_be_allowed(self) -> None:
        old, new = with_wrong(range(10)), with_wrong(range(5, 20))  # 1.4 points fewer, of 360 samples
        assert compare(old, new, margin="2%").exit_code == 1
        assert compare(old, new, margin="2%", allow_undecided=True).exit_code == 0

    def test_values_that_are_not_finite_fail(self) -> None:
        base = made.classifier()
        broken = replace(base.runs[2].outputs[0], sqnr_db=None, non_finite=3, verdict="candidate not finite")
        found = compare(base, with_int8(base, outputs=(broken,)), margin="5%")
        assert (found.verdict, found.exit_code) == ("fail", 1)
        assert "3 of 3600 values are NaN or infinite" in found.faults[0]
        assert compare(base, with_int8(base, outputs=(broken,))).faults == found.faults

    def test_a_run_that_is_gone_is_a_fault(self) -> None:
        base = made.classifier()
        found = compare(base, replace(base, runs=base.runs[:2]), margin="5%")
        assert found.only_old == ("INT8",)
        assert found.exit_code == 1

    def test_margins_of_nothing(self) -> None:
        with pytest.raises(
            UsageError, match="A margin is of a figure of accuracy, and the results have none"
        ):
            compare(made.regressor(), made.regressor(), margin="1%")


class TestRuns:
    def test_runs_are_found_by_label_or_by_what_they_are(self) -> None:
        base = made.classifier()
        renamed = with_int8(base, label="INT8 entropy")
        assert "INT8 entropy" in {one.run for one in compare(base, renamed).shifts}

    def test_no_run_in_common(self) -> None:
        base = made.classifier()
        other = replace(
            base, runs=(base.runs[0], replace(base.runs[2], label="TensorRT INT8", runner="tensorrt"))
        )
        with pytest.raises(ValidationError, match="no run in common: FP16, INT8 before, TensorRT INT8 now"):
            compare(base, other)

    @pytest.mark.parametrize("side", [0, 1])
    def test_results_that_hold_nothing(self, side: int) -> None:
        base = made.classifier()
        empty = replace(
            base, sample_ids=(), labels=(), runs=tuple(replace(r, predictions=()) for r in base.runs)
        )
        pair = [base, base]
        pair[side] = empty
        with pytest.raises(
            ValidationError, match=f"The {('old', 'new')[side]} results cannot be compared: nothing"
        ):
            compare(*pair)

    def test_options(self) -> None:
        base = made.classifier()
        with pytest.raises(UsageError, match=r"Alpha lies between 0 and 0\.5"):
            compare(base, base, alpha=0.7)
        with pytest.raises(UsageError, match="Unknown correction 'fdr'"):
            compare(base, base, correction="fdr")  # type: ignore[arg-type]


def test_the_json_is_strict_and_whole() -> None:
    found = compare(with_wrong(range(10)), with_wrong(range(5, 45)), margin="1%")
    content = json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert content["verdict"] == "fail"
    assert len(content["comparison"]["shifts"]) == len(found.shifts)
