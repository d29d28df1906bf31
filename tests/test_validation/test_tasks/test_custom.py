from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_judging import judged, metrics, numbered, values

from calib.errors import DatasetError, UsageError, ValidationError

CODE = """
import numpy as np

def distances(outputs, labels):
    assert all(row["y"].shape == (1, 2) for row in outputs)
    return np.array([abs(row["y"][0, 0] - label) for row, label in zip(outputs, labels)])

def mean(outputs, labels):
    found = distances(outputs, labels)
    return {"distance": found.mean()}, {"distance": found}

def middle(outputs, labels):
    return {"median": np.median(distances(outputs, labels))}

def broken(outputs, labels):
    return {"x": labels[3].size}

def text(outputs, labels):
    return {"x": "good"}

def list_of(outputs, labels):
    return [1.0]

def wrong_mean(outputs, labels):
    return {"x": 1.0}, {"x": [0.0] * len(outputs)}

def few(outputs, labels):
    return {"x": 0.0}, {"x": [0.0]}

def nothing(outputs, labels):
    return {"x": float("nan")}

number = 3
"""
LABELS = [float(index) for index in range(8)]
FP32 = np.stack([np.arange(8) + 0.5, np.zeros(8)], axis=1).astype(np.float32)
INT8 = FP32 + np.array([0.1, 0.3] * 4, np.float32)[:, None]


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_metrics.py").write_text(CODE)


def judge(name: str, **options: Any) -> Any:
    task = {"kind": "custom", "metric": f"own_metrics:{name}", "unit": "mm", **options}
    return judged(task, numbered(LABELS), {"y": FP32}, {"y": INT8}, batch=3)


def test_a_mean_of_samples_has_intervals() -> None:
    found = judge("mean", higher_is_better=False)
    distance = metrics(found, 1)["distance"]
    assert values(found)["distance"] == pytest.approx(0.5)
    assert distance.value == pytest.approx(0.7)
    assert distance.drop == pytest.approx(-0.2)
    assert distance.drop_low is not None
    assert distance.drop_high is not None
    assert -0.3 <= distance.drop_low < -0.2 < distance.drop_high <= -0.1
    assert (distance.higher_is_better, distance.unit) == (False, "mm")
    assert found.task.main == "distance"


def test_other_figures_are_computed_anew_for_intervals() -> None:
    assert metrics(judge("middle"), 1)["median"].low is None
    median = metrics(judge("middle", resamples=60), 1)["median"]
    assert median.value == pytest.approx(0.7)
    assert median.low is not None
    assert median.high is not None
    assert 0.6 - 1e-6 <= median.low <= 0.7 <= median.high <= 0.8 + 1e-6


def test_its_mistakes_are_one_message() -> None:
    with pytest.raises(ValidationError) as caught:
        judge("broken").judgements  # noqa: B018
    text = str(caught.value)
    assert text.startswith(
        "Metric 'own_metrics:broken' failed on 8 samples, file 0 to file 7: AttributeError: 'float' object "
        "has no attribute 'size' ("
    )
    assert 'own_metrics.py, line 16: return {"x": labels[3].size}).' in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text", "x must be a number, got str"),
        ("list_of", "must give a mapping name → number, or a pair .*; it gave list"),
        ("wrong_mean", r"x is 1, and the mean over samples 0\. .* \{resamples: 200\}"),
        ("few", r"must be one number for each of 8 samples, .*; got shape \(1,\)"),
    ],
)
def test_what_it_gives_is_checked(name: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        judge(name).judgements  # noqa: B018


def test_a_direction_for_each_figure() -> None:
    assert not metrics(judge("middle", higher_is_better={"median": False}))["median"].higher_is_better
    with pytest.raises(UsageError, match="does not say whether more of 'median' is better"):
        judge("middle", higher_is_better={"mean": False}).judgements  # noqa: B018


def test_a_figure_that_is_not_finite_has_no_value() -> None:
    found = judge("nothing")
    assert (values(found)["x"], metrics(found)["x"].note) == (None, "the function gave nan")
    assert found.warnings()[0].startswith("FP32's x is nan: doubt the data")


def test_no_such_function() -> None:
    with pytest.raises(DatasetError, match=r"has no 'meen'\. Did you mean 'mean'\?"):
        judge("meen")
    with pytest.raises(UsageError, match="is no function but int"):
        judge("number")


def test_outputs_that_are_not_of_samples_need_batches_of_one() -> None:
    task = {"kind": "custom", "metric": "own_metrics:mean"}
    with pytest.raises(
        ValidationError, match=r"output 'y' is \[1\] for 3 samples. Validate with --batch-size 1"
    ):
        judged(task, numbered(LABELS), lambda index: {"y": np.zeros(1, np.float32)}, batch=3)
