"""Readers people already have, and whether the samples were enough."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import conv_relu_gemm, model, node, samples, save
from onnxruntime.quantization import CalibrationDataReader
from torch.utils.data import DataLoader

import calib
from calib.calibrators import CALIBRATORS, read_sidecar
from calib.data import from_arrays
from calib.errors import DatasetError, NonFiniteError, UsageError

VALUES = samples(20, 3, 8, 8)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return save(conv_relu_gemm(), tmp_path / "m.onnx")


class Reader(CalibrationDataReader):
    """ONNX Runtime's interface."""

    def __init__(self, size: int = 4) -> None:
        self.batches = iter([VALUES[i : i + size] for i in range(0, len(VALUES), size)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self.batches, None)
        return None if batch is None else {"x": batch}


def load_data() -> Iterator[dict[str, np.ndarray]]:
    """Polygraphy's form."""
    for start in range(0, len(VALUES), 4):
        yield {"x": VALUES[start : start + 4]}


READERS = {
    "CalibrationDataReader": lambda: Reader(),
    "load_data": lambda: load_data,
    "generator": load_data,
    "DataLoader": lambda: DataLoader(torch.from_numpy(VALUES), batch_size=4),
    "DataLoader of pairs": lambda: DataLoader(
        torch.utils.data.TensorDataset(torch.from_numpy(VALUES), torch.arange(20)), batch_size=4
    ),
    "arrays": lambda: [VALUES[i : i + 4] for i in range(0, 20, 4)],
    "samples": lambda: list(VALUES),
}


@pytest.mark.parametrize("method", CALIBRATORS)
@pytest.mark.parametrize("kind", READERS)
def test_every_reader_gives_the_ranges_of_the_same_arrays(kind: str, method: str, network: Path) -> None:
    expected = calib.calibrate(
        network, from_arrays("a", {"x": VALUES}), method=method, batch_size=4, threads=1
    )
    batch_size = 4 if kind == "samples" else None
    found = calib.calibrate(network, READERS[kind](), method=method, batch_size=batch_size, threads=1)
    assert found.cache.to_text() == expected.cache.to_text()
    assert (found.samples, found.batches_asked, found.batches_used) == (20, 5, 5)


def test_reader_by_name_with_provenance(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_reader.py").write_text(
        "import numpy as np\n"
        "def load_data():\n"
        "    for seed in range(3):\n"
        "        yield {'x': np.random.default_rng(seed).standard_normal((2, 3, 8, 8)).astype('float32')}\n"
    )
    monkeypatch.chdir(tmp_path)
    result = calib.calibrate(network, "my_reader:load_data", out="m.cache")
    sidecar = read_sidecar("m.cache")
    assert sidecar is not None
    assert (sidecar.dataset, sidecar.samples, sidecar.batch_size) == ("my_reader:load_data", 6, 2)
    again = calib.calibrate(network, "my_reader:load_data", out="m.cache")
    assert again.cache.to_text() == result.cache.to_text()
    assert not any("replaced" in note for note in again.notes)
    sys.modules.pop("my_reader")


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_ragged_batches_equal_one_flat_pass(method: str, tmp_path: Path) -> None:
    proto = model(
        [node("Mul", ["x", "two"], ["y"])], {"x": ["n", "t"]}, {"y": ["n", "t"]}, {"two": np.float32(2)}
    )
    path = save(proto, tmp_path / "m.onnx")
    parts = [samples(count, length, seed=length) for count, length in ((4, 5), (4, 9), (2, 3))]
    ragged = calib.calibrate(path, [{"x": part} for part in parts], method=method)
    flat = calib.calibrate(path, [{"x": np.concatenate([p.ravel() for p in parts])[None]}], method=method)
    assert ragged.cache.to_text() == flat.cache.to_text()


def test_several_inputs_by_name(tmp_path: Path) -> None:
    proto = model([node("Add", ["a", "b"], ["y"])], {"a": ["n", 4], "b": ["n", 4]}, {"y": ["n", 4]})
    path = save(proto, tmp_path / "m.onnx")
    feeds = [{"b": np.full((2, 4), 3, np.float32), "a": np.ones((2, 4), np.float32)}]
    ranges = calib.calibrate(path, feeds, method="minmax").ranges
    assert dict(ranges) == {"a": 1.0, "b": 3.0, "y": 4.0}


def test_bad_batch_of_a_reader_stops_the_run_and_is_named(network: Path, tmp_path: Path) -> None:
    broken = VALUES.copy()
    broken[13] = np.nan
    with pytest.raises(DatasetError, match=r"batch 3, row 1"):
        calib.calibrate(network, [broken[i : i + 4] for i in range(0, 20, 4)], out=tmp_path / "m.cache")
    assert not (tmp_path / "m.cache").exists()


def test_exception_in_a_reader_is_no_end_of_data(network: Path) -> None:
    def failing() -> Iterator[np.ndarray]:
        yield VALUES[:4]
        raise KeyError("disk")

    with pytest.raises(DatasetError, match="batch 1"):
        calib.calibrate(network, failing)


@pytest.mark.parametrize("arguments", [{"shards": 2}, {"assess": True}, {"seed": 3}])
def test_readers_have_no_order_of_their_own(arguments: dict, network: Path) -> None:
    with pytest.raises(UsageError, match="A reader is read in order"):
        calib.calibrate(network, Reader(), **arguments)


def test_samples_limit_a_reader(network: Path) -> None:
    assert calib.calibrate(network, Reader(), samples=8).samples == 8


def test_seed_chooses_from_a_dataset(network: Path) -> None:
    data = from_arrays("a", {"x": VALUES})
    first, second = (calib.calibrate(network, data, samples=8, seed=seed).sample_ids for seed in (0, 1))
    assert first != second
    assert calib.calibrate(network, data, samples=8).sample_ids == data.ids[:8]


@pytest.mark.parametrize("method", CALIBRATORS)
def test_assessment_changes_no_bit_and_says_what_moves(method: str, tmp_path: Path) -> None:
    proto = model(
        [node("Relu", ["x"], ["r"]), node("Mul", ["x", "two"], ["y"])],
        {"x": ["n", 64]},
        {"r": ["n", 64], "y": ["n", 64]},
        {"two": np.float32(2)},
    )
    path = save(proto, tmp_path / "m.onnx")
    values = np.clip(samples(128, 64), -2, 2)
    values[120:] *= 8
    data = from_arrays("a", {"x": values})
    plain = calib.calibrate(path, data, method=method, batch_size=4)
    assessed = calib.calibrate(path, data, method=method, batch_size=4, assess=True, out=tmp_path / "m.cache")
    assert assessed.cache.to_text() == plain.cache.to_text()
    assert assessed.adequacy is not None
    assert "x" in {row.tensor for row in assessed.adequacy.moving}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.cache", "m.cache.json", "m.onnx"]


def test_too_few_batches_to_assess(network: Path) -> None:
    with pytest.raises(UsageError, match="--assess needs at least 4 batches to compare, got 3"):
        calib.calibrate(network, from_arrays("a", {"x": VALUES}), batch_size=8, assess=True)


def test_mask_constants_are_named_and_left_in_float(tmp_path: Path) -> None:
    """Scores + mask → Softmax: the tensor is reported, and the exported rows equal FP32's."""
    proto = model(
        [
            node("MatMul", ["q", "w"], ["scores"]),
            node("Add", ["scores", "mask"], ["masked"]),
            node("Softmax", ["masked"], ["p"], axis=-1),
            node("MatMul", ["masked", "v"], ["z"]),
        ],
        {"q": ["n", 8], "mask": ["n", 8]},
        {"p": ["n", 8], "z": ["n", 2]},
        {"w": np.eye(8, dtype=np.float32), "v": np.zeros((8, 2), np.float32)},
    )
    path = save(proto, tmp_path / "m.onnx")
    mask = np.where(np.arange(8) < 6, 0, -3.4e38).astype(np.float32)
    feeds = [{"q": samples(16, 8), "mask": np.tile(mask, (16, 1))}]
    for method in CALIBRATORS:
        result = calib.calibrate(path, feeds, method=method, out=tmp_path / "m.cache")
        assert any("masked" in note and "mask's" in note for note in result.notes), method
    quantized = calib.quantize(path, tmp_path / "m.cache")
    assert any("mask's constant" in left.reason for left in quantized.left_float)


def test_infinite_tensor_is_refused_for_every_method(tmp_path: Path) -> None:
    proto = model(
        [node("Sub", ["x", "x"], ["zero"]), node("Div", ["x", "zero"], ["y"])],
        {"x": ["n", 4]},
        {"y": ["n", 4]},
    )
    path = save(proto, tmp_path / "m.onnx")
    for method in CALIBRATORS:
        with pytest.raises(NonFiniteError, match=r"Tensor 'y' .*first at sample .*'s#0'"):
            calib.calibrate(path, from_arrays("s", {"x": samples(4, 4)}), method=method)
