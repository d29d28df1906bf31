"""Datasets of arrays in memory, and what a dataset promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from calib.data import from_arrays
from calib.errors import DatasetError, UsageError

X = np.arange(10.0, dtype=np.float32).reshape(5, 2)


def test_samples():
    dataset = from_arrays("d", {"x": X, "n": np.arange(5)}, labels=np.array([3, 1, 4, 1, 5]))
    sample = dataset[2]
    assert (sample.id, sample.label, sample.origin) == ("d#2", 4, "d: x[2], n[2]")
    assert type(sample.label) is int
    np.testing.assert_array_equal(sample.inputs["x"], [4, 5])
    assert sample.inputs["n"].shape == ()


def test_batches_take_each_sample_once():
    batches = list(from_arrays("d", {"x": X}, labels="abcde").batches(2))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate([b.inputs["x"] for b in batches]), X)
    assert sum((b.labels for b in batches), ()) == tuple("abcde")


def test_a_batch_may_be_larger_than_the_dataset():
    (batch,) = from_arrays("d", {"x": X}).batches(8)
    assert len(batch) == 5


def test_subset_keeps_order_content_and_labels():
    dataset = from_arrays("d", {"x": X}, labels=range(5))
    part = dataset.subset([3, 0])
    assert part.ids == ("d#3", "d#0")
    assert part.labels == (3, 0)
    assert part.content(0) == dataset.content(3)


def test_notes_are_added():
    assert from_arrays("d", {"x": X}).with_notes("a").with_notes("b", "c").notes == ("a", "b", "c")


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        ({}, None, "has no arrays"),
        ({"x": X[:0]}, None, r"No samples: Dataset 'd': array 'x' has shape \(0, 2\)"),
        ({"x": X, "y": X[:4]}, None, "arrays 'x' and 'y' differ in length: 5 and 4 samples"),
        ({"x": np.float32(1)}, None, "array 'x' is a single number"),
        ({"x": np.array([{}, {}])}, None, "input 'x' holds object, expected numbers"),
        ({"x": np.array(["a", "b"])}, None, "input 'x' holds <U1, expected numbers"),
        ({"x": X}, [1, 2], "has 2 labels for 5 samples"),
    ],
)
def test_mistakes(inputs, labels, message):
    with pytest.raises(DatasetError, match=message):
        from_arrays("d", inputs, labels)


def test_importing_stays_light():
    """Heavy and optional packages are imported when a source needs them."""
    code = "import sys, calib.data; print(*{name.split('.')[0] for name in sys.modules})"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    loaded = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout.split()
    assert "numpy" in loaded
    assert not {"torch", "torchvision", "PIL", "sklearn", "scipy", "onnxruntime"} & set(loaded)


@pytest.mark.parametrize("size", [0, -1])
def test_batch_size_below_one(size):
    with pytest.raises(UsageError, match=f"at least 1, got {size}"):
        list(from_arrays("d", {"x": X}).batches(size))
