from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from test_report import report_results as made

from calib.report.merge import merge
from calib.report.methods import calibration_findings
from calib.report.provenance import calibration_blocks
from calib.report.summary import headline, warnings
from calib.report.tables import worst_table
from calib.validation.outcomes import pack_hits
from calib.validation.resampling import pack_draws
from calib.validation.results import Draws, Metric


def finding(results) -> str:
    ((_, text),) = calibration_findings(merge([results]))
    return text


def test_one_calibration_is_not_compared():
    assert calibration_findings(merge([made.classifier()])) == ()


def test_accuracies_are_compared_in_pairs():
    # entropy is wrong on samples 4 to 16, minmax on 0 to 8.
    p = binomtest(4, 12, 0.5).pvalue
    assert finding(made.two_calibrations()).endswith(
        "Top-1 accuracy is higher with min-max than with entropy: 97.5% against 96.4% (8 samples right only "
        f"with min-max, 4 with entropy; chance could explain it, p = {p:.2g})."
    )


def test_the_same_accuracy_is_said_to_be_so():
    base = made.two_calibrations()
    entropy, minmax = base.runs[2:]
    same = replace(base, runs=(*base.runs[:2], entropy, replace(minmax, metrics=entropy.metrics)))
    assert finding(same).endswith("Top-1 accuracy is the same.")


def test_each_output_that_one_keeps_better_is_named():
    ((lead, text),) = calibration_findings(merge([made.two_heads()]))
    assert lead == "entropy or min-max"
    assert text == "min-max keeps output 'boxes' better: 38.1 dB against 21.4 dB."


@pytest.mark.parametrize(
    ("entropy", "minmax", "text"),
    [
        ({"sqnr_db": 20.0}, {"sqnr_db": 21.0}, "min-max keeps output 'y' better: 21.0 dB against 20.0 dB."),
        ({"sqnr_db": 20.0}, {"sqnr_db": 20.9}, "no output's SQNR differs by 1 dB or more."),
        ({"sqnr_db": 30.0}, {"sqnr_db": 20.0}, "entropy keeps output 'y' better: 30.0 dB against 20.0 dB."),
        (
            {"sqnr_db": None, "max_abs": 0.0, "verdict": "equal"},
            {"sqnr_db": 50.0},
            "entropy keeps output 'y' better: no error against 50.0 dB.",
        ),
        (
            {"sqnr_db": None, "max_abs": 0.0, "verdict": "equal"},
            {"sqnr_db": None, "max_abs": 0.0, "verdict": "equal"},
            "no output's SQNR differs by 1 dB or more.",
        ),
        (
            {"sqnr_db": None, "non_finite": 3},
            {"sqnr_db": 5.0},
            "min-max keeps output 'y' better: 5.0 dB against values that cannot be compared.",
        ),
        ({"sqnr_db": None}, {"sqnr_db": 5.0}, "no output's SQNR differs by 1 dB or more."),
    ],
)
def test_what_better_means(entropy, minmax, text):
    base = made.two_heads()
    runs = tuple(
        replace(run, outputs=(made.output("y", **fields),))
        for run, fields in zip(base.runs[2:], (entropy, minmax), strict=True)
    )
    assert finding(replace(base, runs=(*base.runs[:2], *runs))) == text


def test_of_three_calibrations_the_best_is_compared_with_those_behind():
    base = made.two_heads()
    legacy = replace(
        base.runs[2], label="INT8 legacy", calibration="legacy", outputs=(made.output("boxes", 37.5),)
    )
    worse = replace(legacy, label="INT8 own", calibration="own", outputs=(made.output("boxes", 12.0),))
    ((lead, text),) = calibration_findings(merge([replace(base, runs=(*base.runs, legacy, worse))]))
    assert lead == "entropy or min-max or legacy or own"
    assert text == "min-max keeps output 'boxes' better: 38.1 dB against 21.4 dB (entropy) and 12.0 dB (own)."


def test_of_many_outputs_a_few_are_named():
    base = made.two_heads()
    runs = tuple(
        replace(run, outputs=tuple(made.output(f"y{number}", sqnr) for number in range(11)))
        for run, sqnr in zip(base.runs[2:], (20.0, 30.0), strict=True)
    )
    text = finding(replace(base, runs=(*base.runs[:2], *runs)))
    assert text.count("better") == 8
    assert text.endswith("; 3 more outputs differ, see below.")


def test_sources_are_told_apart():
    cpu = made.two_calibrations()
    again = replace(cpu, created="2026-07-16T09:30:00Z")
    leads = [lead for lead, _ in calibration_findings(merge([cpu, again]))]
    assert leads == ["entropy or min-max · A", "entropy or min-max · B"]


def test_the_summary_has_it_after_the_runs():
    leads = [lead for lead, _ in headline(merge([made.two_calibrations()]))]
    assert leads == ["FP32", "FP16", "INT8 entropy", "INT8 minmax", "entropy or min-max"]


def test_worst_samples_have_the_label_of_their_run():
    table = worst_table(merge([made.two_calibrations()]))
    assert table is not None
    assert list(dict.fromkeys(row[0].text for row in table.rows)) == ["INT8 entropy", "INT8 minmax", "FP16"]


def test_the_calibrations_have_a_column_each():
    (table,) = calibration_blocks(merge([made.two_calibrations()]))
    assert [column.title for column in table.columns] == ["What", "entropy", "minmax"]
    facts = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert facts["Algorithm"] == ["EntropyCalibration2", "MinMaxCalibration"]
    assert facts["Calibration cache"] == ["digits.entropy.cache", "digits.minmax.cache"]


def test_a_calibration_of_two_sources_has_one_column():
    (table,) = calibration_blocks(merge([made.two_calibrations(), made.gpu()]))
    assert [column.title for column in table.columns] == ["What", "entropy · A, B", "minmax · A"]
    (one,) = calibration_blocks(merge([made.classifier(), made.gpu()]))
    assert [column.title for column in one.columns] == ["What", "Value"]


def test_no_calibration_is_said():
    (block,) = calibration_blocks(merge([made.gaps()]))
    assert block.text == "No calibration cache was used in these runs."


def test_the_page_and_the_markdown_show_it(report):
    files = report("calibrations")
    page, text = (path.read_text(encoding="utf-8") for path in (files.html, files.markdown))
    for label in ("INT8 entropy", "INT8 minmax"):
        # Both drawings of both charts name it; so do table rows.
        assert len(re.findall(rf"<text[^>]*>{label}</text>", page)) >= 4
        assert re.search(rf'<th scope="row" class="txt">{label}<', page)
        assert f"| {label} (onnxruntime) |" in text
    assert "<strong>entropy or min-max</strong>: min-max keeps output" in page
    assert "- **entropy or min-max**: min-max keeps output 'logits' better: 34.2 dB against 24.6 dB." in text
    assert "| What | entropy | minmax |" in text


def test_the_charts_draw_calibrations_differently(report):
    chart = next(path for path in report("calibrations").charts if path.name == "accuracy-latency.svg")
    drawn = chart.read_text(encoding="utf-8")
    assert 'fill="#008560"' in drawn
    assert 'fill="#004d38"' in drawn


def test_each_calibration_that_is_slower_is_told_of():
    base = made.gpu()
    int8 = base.runs[2]
    slow = [replace(int8, label=f"INT8 {name}", calibration=name) for name in ("entropy", "minmax")]
    told = "INT8 entropy is 1.25x slower than FP16 (p50 5.000 ms against 4.000 ms)."
    found = warnings(merge([replace(base, runs=(*base.runs[:2], *slow), warnings=(told,))]))
    assert found[0] == told
    assert found[1].startswith("INT8 minmax is slower than FP16. Where INT8 is slower")


def test_a_peer_has_the_same_calibration_where_there_are_several():
    base = made.two_calibrations()
    merged = merge([replace(base, runs=(*base.runs, replace(base.runs[3], precision="best", label="BEST")))])
    fp16, entropy, minmax, best = merged.rows[1:]
    assert merged.peer(best, "int8") is minmax
    assert merged.peer(fp16, "int8") is entropy
    assert merged.peer(entropy, "fp16") is fp16
    assert merged.peer(entropy, "int8") is minmax


def of_figure(name: str, parts: tuple[dict[str, object], dict[str, object]]):
    """Two calibrations of a task that is judged by another figure than top-1."""
    base = made.two_calibrations()
    entropy, minmax = (
        replace(
            run,
            predictions=None,
            metrics=(Metric(name, value, len(base.sample_ids)),),
            outcomes={},
            **part,
        )
        for run, value, part in zip(base.runs[2:], (0.960, 0.985), parts, strict=True)
    )
    return replace(base, runs=(*base.runs[:2], entropy, minmax), labels=None, main_metric=name)


def test_shares_of_other_tasks_have_the_same_test():
    count = len(made.two_calibrations().sample_ids)
    wrong = {"entropy": range(4, 17), "minmax": range(9)}
    hits = [{"exact_match": pack_hits(np.array([i not in w for i in range(count)]))} for w in wrong.values()]
    results = of_figure("exact_match", ({}, {}))
    runs = [replace(run, outcomes=found) for run, found in zip(results.runs[2:], hits, strict=True)]
    text = finding(replace(results, runs=(*results.runs[:2], *runs)))
    p = binomtest(4, 12, 0.5).pvalue
    assert text.endswith(
        "Share of exact matches is higher with min-max than with entropy: 98.5% against 96.0% (8 samples "
        f"right only with min-max, 4 with entropy; chance could explain it, p = {p:.2g})."
    )


def test_other_figures_are_compared_on_the_same_resamples():
    levels = np.linspace(0.90, 0.99, 99)
    near = levels + 0.001 * (-1.0) ** np.arange(99)

    def said(entropy: np.ndarray, minmax: np.ndarray, seed: int = 0) -> str:
        drawn = (Draws(0, 50, pack_draws(entropy)), Draws(seed, 50, pack_draws(minmax)))
        return finding(of_figure("mIoU", tuple({"draws": {"mIoU": one}} for one in drawn)))

    # Each of 99 resamples is higher: p is 2 × 1 of 100.
    assert said(levels - 0.2, levels).endswith("98.5% against 96.0% (more than chance explains, p = 0.02).")
    assert "(chance could explain it, p = 1" in said(near, levels)
    # Other resamples say nothing of the difference.
    assert said(levels - 0.2, levels, seed=1).endswith("98.5% against 96.0%.")
