from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_report import report_results as made
from test_report.engine_results import with_engines

from calib.report.document import build_document
from calib.report.merge import merge
from calib.report.summary import banner, headline, warnings
from calib.validation import read_results
from calib.validation.results import LatencyRatio


def words(*results) -> dict[str, str]:
    return dict(headline(merge(results)))


def test_cost_in_accuracy_with_its_interval():
    assert (
        "top-1 accuracy 96.4% (95% interval 93.9–97.9%), 1.4 points below FP32; 13 of 360 answers differ "
        "(9 became wrong, 4 became right; chance could explain it, p = 0.27)"
        in words(made.classifier())["INT8"]
    )


def test_one_sample_is_spoken_of_as_one():
    base = made.classifier()
    alone = replace(base.runs[0].metrics[0], value=1.0, count=1, successes=1)
    results = replace(base, dataset=replace(base.dataset, samples=1))
    results = replace(results, runs=(replace(base.runs[0], metrics=(alone,)), *base.runs[1:]))
    assert " on 1 sample. " in words(results)["FP32"]
    assert build_document(merge([results])).subtitle.startswith("1 validation sample of digits; ")


def test_a_gain_in_accuracy_is_above_the_baseline():
    base = made.classifier()
    better = replace(base.runs[2].metrics[0], drop=-0.01)
    int8 = replace(base.runs[2], metrics=(better,))
    assert "1.0 points above FP32" in words(replace(base, runs=(*base.runs[:2], int8)))["INT8"]


def test_speed_against_both_precisions():
    found = words(made.gpu())
    assert found["INT8"].endswith(
        "Latency p50 5.00 ms: 2.00× as fast as FP32, slower than FP16 (5.00 against 4.00 ms)."
    )
    assert found["FP16"].endswith("2.50× as fast as FP32.")
    assert found["FP32"].endswith("Latency p50 10.0 ms.")


def test_a_difference_that_the_interval_does_not_show_is_not_claimed():
    ratio = LatencyRatio("INT8", "FP16", 1.25, 0.9, 1.6)
    found = words(replace(made.gpu(), ratios=(ratio,)))["INT8"]
    assert found.endswith("2.00× as fast as FP32, no difference to FP16 shown (0.80×).")
    assert warnings(merge([replace(made.gpu(), ratios=(ratio,))])) == ()


@pytest.mark.parametrize("results", [made.classifier(), made.regressor(), made.gaps()])
def test_a_simulation_claims_no_speed(results):
    assert banner(merge([results])).startswith("CPU simulation: says nothing of TensorRT's speed.")
    text = " ".join(words(results).values())
    assert "as fast as" not in text
    assert "slower" not in text


def test_the_banner_names_the_simulated_runs_of_a_mixture():
    text = banner(merge([made.classifier(), made.gpu()]))
    assert text.startswith("CPU simulation (FP32 · A, FP16 · A, INT8 · A): says nothing")
    assert banner(merge([made.gpu()])) == ""


def test_int8_slower_than_fp16_is_a_warning_with_advice():
    (warning,) = warnings(merge([made.gpu()]))
    assert warning.startswith("INT8 is slower than FP16. Where INT8 is slower than FP16, use FP16, or build")


def test_int8_slower_than_fp16_is_not_said_twice():
    told = "INT8 is 1.25x slower than FP16 (p50 5.000 ms against 4.000 ms)."
    found = warnings(merge([replace(made.gpu(), warnings=(told,))]))
    assert found[0] == told
    assert found[1].startswith("Where INT8 is slower than FP16")


def test_the_advice_is_of_what_the_engine_was_allowed() -> None:
    """In validate's own words, which name both runs; and with FP16 layers, which show what was allowed."""
    base = with_engines(made.gpu())
    runs = tuple(
        replace(
            run,
            label=f"TensorRT {run.label}",
            engine=run.engine and replace(run.engine, by_precision={"INT8": 8, "FP16": 6, "FP32": 1}),
        )
        for run in base.runs
    )
    told = "TensorRT INT8 is 1.25x slower than TensorRT FP16 (ratio of medians 1.250)."
    found = warnings(merge([replace(base, runs=runs, ratios=(), warnings=(told,))]))
    assert found == (
        told,
        "Where INT8 is slower than FP16, use FP16; what the time of INT8 goes to stands under Engines.",
    )


def test_results_that_contradict_themselves_are_told_of() -> None:
    """The published demo, its INT8 accuracy raised by hand; and values that are NaN."""
    results = read_results(Path(__file__).parents[2] / "reports" / "demo" / "results.json")
    assert not any("calib check fails that" in text for text in warnings(merge([results])))
    runs = [
        replace(
            run,
            metrics=tuple(replace(one, value=0.999) if one.name == "top1" else one for one in run.metrics),
        )
        if run.precision == "int8"
        else run
        for run in results.runs
    ]
    found = [text for text in warnings(merge([replace(results, runs=tuple(runs))])) if "was edited" in text]
    assert len(found) == sum(run.precision == "int8" for run in runs) > 0
    assert all(text.startswith("INT8") and text.endswith("; calib check fails that.") for text in found)
    (nan,) = (text for text in warnings(merge([made.gaps()])) if "calib check fails" in text)
    assert nan.startswith("INT8: output 'logits': 12 of 3600 values are NaN or infinite")


def test_the_simulation_warning_is_left_to_the_banner():
    text = "Latency is of a CPU simulation: it says nothing of TensorRT's speed."
    assert warnings(merge([replace(made.classifier(), warnings=(text, "other"))])) == ("other",)


def test_different_batch_sizes_are_a_warning():
    base = made.gpu()
    single = replace(
        base,
        runs=tuple(
            replace(run, latency=made.latency(1.0, batch_size=1, simulated=False)) for run in base.runs
        ),
    )
    assert any("different batch sizes (1, 32)" in warning for warning in warnings(merge([base, single])))


def test_what_was_not_measured_is_said():
    found = words(made.gaps())
    assert found["FP16"] == (
        "Top-1 accuracy not measured: every sample was skipped. Every output equals the baseline's. "
        "Latency not measured."
    )
    # 12 values in the candidate; none of them counted as broken in the baseline at the same place.
    assert "12 values of output logits are NaN or infinite, the baseline's are not." in found["INT8"]
