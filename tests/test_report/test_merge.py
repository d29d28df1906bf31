from __future__ import annotations

from dataclasses import replace

import pytest
from test_report import report_results as made

from calib.errors import UsageError, ValidationError
from calib.report.merge import fault_of, is_exact, merge


def test_one_source_has_plain_labels():
    merged = merge([made.classifier()])
    assert [row.label for row in merged.rows] == ["FP32", "FP16", "INT8"]


def test_several_sources_are_told_apart():
    merged = merge([made.classifier(), made.gpu()])
    assert [row.label for row in merged.rows] == [
        f"{precision} · {key}" for key in "AB" for precision in ("FP32", "FP16", "INT8")
    ]
    assert [source.place for source in merged.sources] == ["Intel Xeon Platinum 8481C", "NVIDIA H200"]


def test_exact_copies_count_once():
    assert len(merge([made.classifier(), made.classifier()]).sources) == 1


def test_runs_of_the_same_name_are_numbered():
    base = made.classifier()
    twice = replace(base, runs=(*base.runs, replace(base.runs[2], description="min-max")))
    assert [row.label for row in merge([twice]).rows] == ["FP32", "FP16", "INT8", "INT8 #2"]


def test_pytorch_lies_beside_the_other_runners():
    base = made.classifier()
    fp32, fp16, _ = base.runs
    both = replace(
        base,
        created="2026-07-16T08:00:00Z",
        runs=(
            fp32,
            replace(fp32, runner="pytorch", label="PyTorch FP32", role="candidate"),
            replace(fp16, runner="pytorch", label="PyTorch FP16", simulated=False),
        ),
        worst=(replace(base.worst[-1], precision="fp32"),),
    )
    merged = merge([both, made.gpu()])
    assert [row.label for row in merged.rows[:3]] == ["FP32 · A", "PyTorch FP32 · A", "PyTorch FP16 · A"]
    _, ours, half = merged.rows[:3]
    assert merged.baseline_of(half) is merged.rows[0]
    assert merged.row_of(merged.sources[0], both.worst[0]) is ours


def test_runs_of_the_same_name_on_two_runners_name_them():
    base = made.classifier()
    both = replace(base, runs=(base.runs[0], replace(base.runs[0], runner="other", role="candidate")))
    assert [row.label for row in merge([both]).rows] == ["FP32 · onnxruntime", "FP32 · other"]


def test_nothing_to_report():
    with pytest.raises(UsageError, match="at least one results file"):
        merge([])
    with pytest.raises(ValidationError, match="hold no runs: nothing was measured"):
        merge([replace(made.classifier(), runs=())])


def test_results_that_lost_labels_are_refused():
    base = made.classifier()
    assert base.labels is not None
    with pytest.raises(ValidationError, match="hold 1 label for 360 samples: the file was cut or edited"):
        merge([replace(base, labels=base.labels[:1])])


def test_different_models_are_refused():
    with pytest.raises(ValidationError, match=r"different models: digits \(a3a3a3.*keypoints \(b1b1b1"):
        merge([made.classifier(), made.regressor()])


def test_different_datasets_are_refused():
    base = made.classifier()
    other = replace(base, dataset=replace(base.dataset, name="digits-v2", fingerprint="6d" * 32))
    with pytest.raises(ValidationError, match=r"validation datasets: digits \(5c5c.*digits-v2 \(6d6d"):
        merge([base, other])


def test_only_latencies_of_the_same_conditions_are_peers():
    cpu, gpu = made.classifier(), made.gpu()
    merged = merge([cpu, gpu])
    int8 = merged.rows[5]
    peer = merged.peer(int8, "fp16")
    assert peer is not None
    assert peer.label == "FP16 · B"
    fp16 = replace(gpu.runs[1], latency=made.latency(1.0, batch_size=1, simulated=False))
    single = merge([replace(gpu, runs=(gpu.runs[0], fp16, gpu.runs[2]))])
    assert single.peer(single.rows[2], "fp16") is None


@pytest.mark.parametrize(
    ("fields", "fault", "exact"),
    [
        ({}, "", False),
        ({"max_abs": 0.0}, "", True),
        ({"max_abs": None, "verdict": "equal"}, "", True),
        ({"non_finite": 2, "max_abs": 0.0}, "not finite", False),
        ({"non_finite": 2, "both_non_finite": 2}, "", False),
        ({"verdict": "rows differ"}, "rows differ", False),
    ],
)
def test_faults_of_an_output(fields, fault, exact):
    output = made.output("y", None, **fields)
    assert fault_of(output) == fault
    assert is_exact(output) is exact


def test_the_worst_output_has_the_lowest_sqnr():
    row = merge([made.regressor()]).rows[2]
    assert row.worst_output is not None
    assert row.worst_output.output == "boxes"
    broken = replace(row.run, outputs=(*row.run.outputs, made.output("z", None, non_finite=1)))
    assert replace(row, run=broken).worst_output is None
