"""Gates of outputs, latency and engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_report import report_results as made

from calib.errors import UsageError
from calib.validation import GateOutcome, Results, check, make_baseline
from calib.validation.results import EngineRecord, LatencyPart, LatencyRatio, PrecisionRun

ENGINE = EngineRecord(
    "8.6.0", "NVIDIA H200", "implicit INT8", 3, 12.0, 25_000_000, 40, 30, {"INT8": 30, "FP32": 10}
)


def only(results: Results, run: str = "INT8", **gates: Any) -> GateOutcome:
    (gate,) = (name for name in gates if name not in ("against", "baseline", "gates"))
    found = [one for one in check(results, **gates).outcomes if one.gate == gate and one.run == run]
    assert len(found) == 1
    return found[0]


def timed_at(run: PrecisionRun, on_gpu: bool, device: str) -> PrecisionRun:
    assert run.latency is not None
    return replace(run, latency=replace(run.latency, on_gpu=on_gpu, device=device))


def with_output(index: int = 0, **changes: Any) -> Results:
    base = made.classifier()
    int8 = base.runs[2]
    outputs = list(int8.outputs)
    outputs[index] = replace(outputs[index], **changes)
    return replace(base, runs=(base.runs[0], replace(int8, outputs=tuple(outputs))))


class TestOutputs:
    def test_a_floor_with_an_interval(self) -> None:
        ends = with_output(sqnr_low=23.0, sqnr_high=26.0)  # 24.61 dB
        assert [only(ends, min_sqnr=floor).verdict for floor in (22, 24, 27)] == ["pass", "undecided", "fail"]

    def test_a_floor_without_one(self) -> None:
        results = with_output()
        assert [only(results, min_sqnr=floor).verdict for floor in (24, 25)] == ["pass", "fail"]
        assert only(results, min_sqnr=24).reason == "SQNR 24.61 dB, without an interval"

    def test_cosine(self) -> None:
        assert [only(with_output(), min_cosine=floor).verdict for floor in (0.999, 0.9995)] == [
            "pass",
            "fail",
        ]

    @pytest.mark.parametrize("gate", ["min_sqnr", "min_cosine"])
    def test_equal_outputs_pass_and_incomparable_ones_fail(self, gate: str) -> None:
        floor: dict[str, Any] = {gate: 0.9}
        equal = with_output(verdict="equal", sqnr_db=None, max_abs=0.0)
        assert only(equal, **floor).verdict == "pass"
        for verdict in ("candidate not finite", "rows differ"):
            broken = with_output(verdict=verdict, note="because", sqnr_db=None, cosine=None)
            assert (only(broken, **floor).verdict, only(broken, **floor).reason) == ("fail", "because")
        nothing = with_output(sqnr_db=None, cosine=None, note="all zero")
        assert only(nothing, **floor).verdict == "fail"
        assert only(with_output(elements=0), **floor).reason == "nothing was measured: the output is empty"
        for value in (float("nan"), float("inf")):
            assert only(with_output(sqnr_db=value, cosine=value), **floor).verdict == "fail"

    def test_every_output_is_judged_or_the_named_one(self) -> None:
        from calib.validation.gate_rules import Rule
        from calib.validation.thresholds import parse_threshold

        report = check(made.regressor(), min_sqnr=25, precisions=["int8"])
        judged = {one.subject: one.verdict for one in report.outcomes if one.gate == "min_sqnr"}
        assert judged == {"boxes": "fail", "scores": "pass"}
        rule = Rule("min_sqnr", parse_threshold(25, "min_sqnr", "dB"), output="scores", precisions=("int8",))
        assert check(made.regressor(), gates=[rule]).passed
        with pytest.raises(UsageError, match=r"no output 'masks'\. The outputs are: boxes, scores"):
            check(made.regressor(), gates=[replace(rule, output="masks")])

    def test_nothing_compared(self) -> None:
        base = made.classifier()
        bare = replace(base, runs=(base.runs[0], replace(base.runs[2], outputs=())))
        assert only(bare, min_sqnr=20).reason.startswith("nothing was measured")


class TestLatency:
    """A-L3: only figures of a GPU are judged."""

    def test_simulated_latency_is_refused(self) -> None:
        found = only(made.classifier(), max_latency_ratio=0.8)
        assert found.verdict == "fail"
        assert found.reason == (
            "refused: the latency of INT8 is of a simulation and says nothing of TensorRT's speed"
        )

    @pytest.mark.parametrize("against", ["fp32", "fp16"])
    def test_a_refusal_names_what_it_was_to_be_divided_by(self, against: str) -> None:
        found = only(made.classifier(), max_latency_ratio=0.8, against=against)
        assert found.name == f"max_latency_ratio latency: INT8 against {against.upper()}"

    def test_measured_on_no_gpu_is_refused(self) -> None:
        base = made.gpu()
        results = replace(base, environment=replace(base.environment, gpu=None))
        assert "was not measured on a GPU" in only(results, max_latency_ratio=0.8).reason

    def test_a_machine_with_a_gpu_is_no_proof_that_a_run_was_timed_on_it(self) -> None:
        base = made.gpu()
        assert base.environment.gpu
        placed = [timed_at(run, on_gpu=False, device="CPU") for run in base.runs]
        found = only(replace(base, runs=tuple(placed)), max_latency_ratio=0.8)
        assert (found.verdict, found.reason) == (
            "fail",
            "refused: the latency of INT8 was not measured on a GPU, but on CPU",
        )
        # Results that do not say where: engines run nowhere but on a GPU, other software may.
        unsaid = [replace(run, runner="pytorch") for run in base.runs]
        assert (
            "as far as the results say" in only(replace(base, runs=tuple(unsaid)), max_latency_ratio=1).reason
        )

    def test_two_devices_of_one_machine(self) -> None:
        base = made.gpu()
        first, second = (
            timed_at(base.runs[0], True, "NVIDIA L4"),
            timed_at(base.runs[2], True, "NVIDIA H200"),
        )
        found = only(replace(base, runs=(first, second)), max_latency_ratio=0.8)
        assert found.reason == "another device: INT8 ran on NVIDIA H200, FP32 on NVIDIA L4"

    def test_not_measured(self) -> None:
        base = made.gpu()
        bare = replace(base, runs=(base.runs[0], replace(base.runs[2], latency=None)))
        assert only(bare, max_latency_ratio=0.8).reason == "the latency of INT8 was not measured"

    def test_the_recorded_interval_decides(self) -> None:
        ratio = LatencyRatio("INT8", "FP32", 0.5, 0.48, 0.52)
        results = replace(made.gpu(), ratios=(ratio,))
        found = [only(results, max_latency_ratio=limit) for limit in (0.6, 0.5, 0.4)]
        assert [one.verdict for one in found] == ["pass", "undecided", "fail"]
        assert found[0].against == "FP32"
        assert found[0].value == pytest.approx(0.5)

    def test_without_it_the_rounds_do(self) -> None:
        # FP32 takes 10 ms, INT8 5 ms.
        found = only(made.gpu(), max_latency_ratio=0.6)
        assert found.verdict == "pass"
        assert "bootstrap" in found.method

    def test_against_fp16(self) -> None:
        # FP16 takes 4 ms: INT8 is slower, and FP16 is not judged against itself.
        report = check(made.gpu(), max_latency_ratio=1, against="fp16")
        judged = {one.run: one.verdict for one in report.outcomes if one.gate == "max_latency_ratio"}
        assert judged == {"INT8": "fail"}

    @pytest.mark.parametrize("against", ["fp32", "fp16"])
    def test_an_fp32_engine_is_there_to_be_divided_by(self, against: str) -> None:
        """FP32 on the CPU is the reference; engines take 10 ms in FP32, 4 ms in FP16 and 5 ms in INT8."""
        base = made.gpu()
        reference = replace(made.classifier().runs[0], label="FP32", latency=None)
        engine = replace(base.runs[0], label="TensorRT FP32", role="candidate")
        results = replace(base, runs=(reference, engine, *base.runs[1:]))
        report = check(results, max_latency_ratio=0.8, against=against)
        judged = [
            (one.run, one.against, one.value) for one in report.outcomes if one.gate == "max_latency_ratio"
        ]
        expected = {
            "fp32": [
                ("FP16", "TensorRT FP32", pytest.approx(4 / 10)),
                ("INT8", "TensorRT FP32", pytest.approx(5 / 10)),
            ],
            "fp16": [("INT8", "FP16", pytest.approx(5 / 4))],
        }
        assert judged == expected[against]
        # Whoever names it has it judged: 10 ms divided by 4 ms.
        named = check(results, max_latency_ratio=3, against="fp16", precisions=["TensorRT FP32"]).outcomes[-1]
        assert (named.run, named.verdict, named.value) == ("TensorRT FP32", "pass", pytest.approx(2.5))

    def test_other_batches_and_missing_peers(self) -> None:
        base = made.gpu()
        latency = base.runs[0].latency
        assert latency is not None
        other = replace(base.runs[0], latency=replace(latency, batch_size=64))
        results = replace(base, runs=(other, *base.runs[1:]))
        assert "cannot be compared with batches of 64" in only(results, max_latency_ratio=0.8).reason
        alone = replace(base, runs=(base.runs[0], base.runs[2]))
        assert only(alone, max_latency_ratio=0.8, against="fp16").reason == (
            "there is no FP16 run on tensorrt to divide by"
        )

    @pytest.mark.parametrize("against", ["fp32", "baseline"])
    @pytest.mark.parametrize(("enqueue", "bound"), [(3.9, False), (4.1, True)])
    def test_what_the_host_launches_slowly_is_told(self, against: str, enqueue: float, bound: bool) -> None:
        """INT8 takes 5 ms; trtexec's threshold is 80 %."""
        base = made.gpu()
        part = LatencyPart("enqueue", enqueue, enqueue, enqueue)
        runs = tuple(
            replace(run, latency=replace(run.latency, parts=(part,)))
            if run.precision == "int8" and run.latency
            else run
            for run in base.runs
        )
        baseline = make_baseline(base) if against == "baseline" else None
        found = only(replace(base, runs=runs), max_latency_ratio=1.2, against=against, baseline=baseline)
        assert found.verdict == "pass"
        assert ("the host may be what was measured: time CUDA graphs" in found.note) == bound

    def test_against_a_baseline_of_the_same_device(self) -> None:
        results = made.gpu()
        baseline = make_baseline(results)
        kept = {"baseline": baseline, "against": "baseline"}
        found = only(results, max_latency_ratio=1.05, **kept)
        assert (found.verdict, found.value) == ("pass", pytest.approx(1.0, rel=1e-5))
        runs = {label: replace(run, device="NVIDIA L4") for label, run in baseline.runs.items()}
        other = replace(baseline, runs=runs)
        refused = only(results, max_latency_ratio=1.05, **{**kept, "baseline": other})
        assert refused.verdict == "fail"
        assert refused.reason == "another device: NVIDIA H200 now, NVIDIA L4 in the baseline"
        # A baseline of before devices were recorded: its environment's GPU speaks for engines alone.
        for runner, verdict in (("tensorrt", "pass"), ("pytorch", "fail")):
            placed = tuple(replace(timed_at(run, True, "NVIDIA H200"), runner=runner) for run in results.runs)
            old = {label: replace(run, device="", runner=runner) for label, run in baseline.runs.items()}
            now = {**kept, "baseline": replace(baseline, runs=old)}
            assert only(replace(results, runs=placed), max_latency_ratio=1.05, **now).verdict == verdict
        simulated = make_baseline(made.classifier())
        refused = only(results, max_latency_ratio=1.05, **{**kept, "baseline": simulated})
        assert refused.reason == "the baseline has no measured latency of this run"


class TestEngines:
    def results(self) -> Results:
        base = made.gpu()
        return replace(base, runs=(*base.runs[:2], replace(base.runs[2], engine=ENGINE)))

    def test_share_of_int8_layers(self) -> None:
        assert [only(self.results(), min_int8_share=least).verdict for least in ("75%", "80%")] == [
            "pass",
            "fail",
        ]
        assert only(self.results(), min_int8_share=0.5).reason == "30 of 40 layers compute in INT8"

    def test_size_in_megabytes(self) -> None:
        assert [only(self.results(), max_engine_mb=most).verdict for most in (25, 24.9)] == ["pass", "fail"]

    @pytest.mark.parametrize("gate", ["min_int8_share", "max_engine_mb"])
    def test_no_engine(self, gate: str) -> None:
        found = only(made.classifier(), **{gate: 0.5})
        assert found.reason == "nothing was measured: INT8 ran on onnxruntime, not as a TensorRT engine"
