"""Activations that are odd in number: none, some NaN, very many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from networks import model, node, samples, save

import calib
from calib.calibrators import CALIBRATORS
from calib.data import from_arrays
from calib.errors import NonFiniteError


@pytest.mark.parametrize("method", CALIBRATORS)
def test_tensors_without_values_get_no_scale(method: str, tmp_path: Path) -> None:
    """An activation of shape (0, 4), and Resize's empty roi."""
    proto = model(
        [
            node("Slice", ["x", "zero", "zero", "first"], ["none"]),
            node("Relu", ["none"], ["still_none"]),
            node("Unsqueeze", ["x", "axes"], ["image"]),
            node("Resize", ["image", "roi", "scales"], ["y"]),
        ],
        {"x": ["n", 4]},
        {"still_none": [0, 4], "y": ["n", 1, 8]},
        {
            "zero": np.array([0], np.int64),
            "first": np.array([0], np.int64),
            "axes": np.array([1], np.int64),
            "roi": np.zeros(0, np.float32),
            "scales": np.array([1, 1, 2], np.float32),
        },
    )
    path = save(proto, tmp_path / "m.onnx")
    data = from_arrays("s", {"x": samples(6, 4)})
    assert list(calib.calibrate(path, data, method=method).cache) == ["x", "image", "y"]


@pytest.mark.parametrize("method", CALIBRATORS)
def test_share_of_nan_is_said(method: str, tmp_path: Path) -> None:
    proto = model([node("Sqrt", ["x"], ["y"])], {"x": ["n", 100]}, {"y": ["n", 100]})
    path = save(proto, tmp_path / "m.onnx")
    values = np.ones((1, 100), np.float32)
    values[0, 7] = -1
    with pytest.raises(NonFiniteError, match=r"Tensor .y. .* 1 NaN and 0 infinite of 100"):
        calib.calibrate(path, from_arrays("s", {"x": values}), method=method)


def test_data_that_make_shapes_are_followed(tmp_path: Path) -> None:
    """Shapes that differ for inputs of one shape cannot be bound to buffers; they are found all the same."""
    proto = model(
        [
            node("Greater", ["x", "half"], ["mask"]),
            node("Reshape", ["mask", "minus"], ["flat"]),
            node("Compress", ["x", "flat"], ["kept"]),
            node("Mul", ["kept", "two"], ["y"]),
        ],
        {"x": [1, 16]},
        {"y": [None]},
        {"half": np.float32(0.5), "two": np.float32(2), "minus": np.array([-1], np.int64)},
    )
    path = save(proto, tmp_path / "m.onnx")
    values = np.random.default_rng(0).uniform(0, 1, (12, 16)).astype(np.float32)
    ranges = calib.calibrate(path, from_arrays("s", {"x": values}), method="minmax").ranges
    assert ranges["y"] == 2 * values.max()


CHILD = """
import resource, sys
import numpy as np
import calib
from calib.data import Dataset, Sample
count = int(sys.argv[2])
data = Dataset("r", tuple(f"r#{i}" for i in range(count)),
               lambda i: Sample(f"r#{i}", {"x": np.full((3, 128, 128), i % 7, np.float32)}))
calib.calibrate(sys.argv[1], data, method=sys.argv[3], batch_size=4)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("method", ["entropy", "percentile"])
def test_memory_does_not_grow_with_the_samples(method: str, tmp_path: Path) -> None:
    """3 MB of activations a sample, 20 samples against 400: within a tenth."""
    weights = np.random.default_rng(0).standard_normal((24, 3, 1, 1)).astype(np.float32)
    proto = model(
        [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])],
        {"x": ["n", 3, 128, 128]},
        {"y": ["n", 24, 128, 128]},
        {"w": weights},
    )
    path = save(proto, tmp_path / "m.onnx")

    def peak(count: int) -> int:
        command = [sys.executable, "-c", CHILD, str(path), str(count), method]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert peak(400) <= 1.1 * peak(20)
