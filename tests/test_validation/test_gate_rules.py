from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calib.errors import UsageError
from calib.validation.gate_rules import make_rules, read_gate_file

GATES = """\
schema: 1
alpha: 0.025
correction: bonferroni
allow_undecided: true
gates:
  - max_drop: 1%
    metric: top5
    against: fp32
    precisions: [int8]
  - min_sqnr: 20
    output: logits
  - max_latency_ratio: 0.8
    against: fp16
    precisions: int8
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "gates.yaml"
    path.write_text(text)
    return path


def test_a_file(tmp_path: Path) -> None:
    found = read_gate_file(write(tmp_path, GATES))
    assert (found.alpha, found.correction, found.allow_undecided) == (0.025, "bonferroni", True)
    drop, sqnr, latency = found.rules
    assert (drop.gate, drop.threshold.value, drop.metric, drop.against, drop.precisions) == (
        "max_drop",
        0.01,
        "top5",
        "fp32",
        ("int8",),
    )
    assert (sqnr.gate, sqnr.threshold.value, sqnr.output) == ("min_sqnr", 20.0, "logits")
    assert (latency.against, latency.precisions, latency.limit) == (
        "fp16",
        ("int8",),
        "at most 0.8 times as long",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: 2\ngates: [{max_drop: 1%}]", "line 1, key schema: expected schema: 1, got 2"),
        ("gates: [{max_drop: 1%}]", "expected schema: 1, got None"),
        ("schema: 1\ngates: []", "expected a list of gates"),
        ("schema: 1", "expected a list of gates"),
        ("schema: 1\ngates: [max_drop]", "expected a gate such as 'max_drop: 1%'"),
        ("schema: 1\ngates: [{max_dorp: 1%}]", "Unknown key 'max_dorp'. Did you mean 'max_drop'?"),
        ("schema: 1\ngates:\n  - max_drop: nan\n", "line 3, key gates.0: max_drop 'nan' would switch"),
        ("schema: 1\ngates:\n  - max_drop: .nan\n", "would switch the gate off"),
        ("schema: 1\ngates:\n  - max_drop:\n", "max_drop needs a number, got None"),
        ("schema: 1\ngates: [{metric: top1}]", "expected one gate in each entry, got none"),
        ("schema: 1\ngates: [{max_drop: 1%, min_sqnr: 2}]", "got max_drop, min_sqnr"),
        ("schema: 1\ngates: [{min_sqnr: 20, metric: top1}]", "metric is a name, and belongs to max_drop"),
        (
            "schema: 1\ngates: [{max_drop: 1%, against: fp8}]",
            "Unknown side 'fp8'. Choose from fp32, baseline.",
        ),
        ("schema: 1\ngates: [{max_drop: 1%, precisions: [8]}]", "precisions is a list of names"),
        (
            "schema: 1\ngates: [{max_drop: 1%, metric: [mAP, mAP50]}]",
            r"metric is one name, got \['mAP', 'mAP50'\]",
        ),
        (
            "schema: 1\ncorrection: no\ngates: [{max_drop: 1%}]",
            "line 2, key correction: expected one of holm, bonferroni, none, got False",
        ),
        ("schema: 1\ncorrection: hommel\ngates: [{max_drop: 1%}]", "line 2, .* got 'hommel'"),
        ("schema: 1\nalpha: low\ngates: [{max_drop: 1%}]", "line 2, key alpha: expected a number"),
        ("schema: 1\nallow_undecided: 1\ngates: [{max_drop: 1%}]", "expected true or false, got 1"),
        (
            "schema: 1\nbaseline: 3\ngates: [{max_drop: 1%}]",
            "line 2, key baseline: expected the path of a file",
        ),
        ("schema: 1\nbaseline: [a, b]\ngates: [{max_drop: 1%}]", "key baseline: expected one file, got 2"),
        ("schema: 1\ngate: [{max_drop: 1%}]", "Unknown key 'gate'. Did you mean 'gates'?"),
        ("schema: 1\nschema: 1", "key 'schema' is on line 1 already"),
        ("- 1", "expected 'key: value' lines"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")) as caught:
        read_gate_file(write(tmp_path, text))
    assert str(caught.value).startswith("Gates file")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read gates file .*none\.yaml"):
        read_gate_file(tmp_path / "none.yaml")


def test_options_become_rules() -> None:
    rules = make_rules(metrics=("top1", "top5"), max_drop="1%", min_cosine=0.99, max_engine_mb=None)
    assert [(rule.gate, rule.metric) for rule in rules] == [
        ("max_drop", "top1"),
        ("max_drop", "top5"),
        ("min_cosine", ""),
    ]


def test_a_single_name_is_one_of_several() -> None:
    one = make_rules(max_drop="1%", metrics="top1", precisions="int8")
    assert one == make_rules(max_drop="1%", metrics=["top1"], precisions=["int8"])
    assert [(rule.metric, rule.precisions) for rule in one] == [("top1", ("int8",))]


def test_names_that_can_be_gone_through_once_hold_for_every_gate() -> None:
    names, runs = iter(["top1", "top5"]), iter(["int8"])
    found = make_rules(metrics=names, precisions=runs, max_drop=0.01, worst_class=np.float32(0.05))  # type: ignore[arg-type]
    assert [(rule.gate, rule.metric) for rule in found][:2] == [("max_drop", "top1"), ("max_drop", "top5")]
    assert {rule.precisions for rule in found} == {("int8",)}
    assert found[-1].threshold.value == 0.05


@pytest.mark.parametrize("given", [np.float32(0.25), np.float64(0.25), np.array([0.25])[0]])
def test_numbers_of_numpy_are_thresholds(given: float) -> None:
    for limit in (given, [given]):
        (rule,) = make_rules(max_drop=limit)
        assert (rule.threshold.value, rule.limit) == (0.25, "at most 25 percentage points (0.25)")
    assert make_rules(min_sqnr=np.int64(20))[0].threshold.value == 20  # type: ignore[arg-type]


def test_what_is_neither_a_number_nor_several_is_refused() -> None:
    with pytest.raises(UsageError, match="--max-drop needs a number, got <object"):
        make_rules(max_drop=object())  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["=1%", " = 1%"])
def test_a_sign_without_a_figure_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match=r"--max-drop '.*' names no figure before the sign"):
        make_rules(max_drop=given)


def test_options_that_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match=r"Unknown gate 'max_dorp'. Did you mean 'max_drop'\?"):
        make_rules(max_dorp=1)
    with pytest.raises(UsageError, match="Nothing can be judged against 'fp16'"):
        make_rules(max_drop="1%", against="fp16")


@pytest.mark.parametrize(
    ("gate", "threshold", "limit"),
    [
        ("max_drop", "0.5%", "at most 0.5 percentage points (0.005)"),
        ("max_relative_drop", "1%", "at most 1% of the baseline's (0.01)"),
        ("worst_class", "0.05", "at most 5 percentage points (0.05)"),
        ("min_agreement", "98%", "at least 98% of the samples (0.98)"),
        ("min_cosine", "0.99", "at least 0.99"),
        ("min_int8_share", "50%", "at least 50% of the layers (0.5)"),
        ("max_engine_mb", "25", "at most 25 MB"),
    ],
)
def test_the_threshold_is_said_in_words(gate: str, threshold: str, limit: str) -> None:
    assert make_rules(**{gate: threshold})[0].limit == limit
