"""Readers made with torch."""

from __future__ import annotations

import numpy as np
import pytest

from calib.data import Dataset, Stream, open_reader
from calib.errors import DatasetError

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

X = np.random.default_rng(3).normal(size=(10, 3, 4)).astype(np.float32)
Y = np.arange(10) % 3


def read(stream, batch_size=None):
    assert isinstance(stream, Stream)
    return list(stream.batches(batch_size))


def joined(batches, name):
    return np.concatenate([batch.inputs[name] for batch in batches])


def test_data_loader_of_tensors_and_labels():
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    stream = open_reader(DataLoader(data, batch_size=4))
    batches = read(stream)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    np.testing.assert_array_equal(joined(batches, "input"), X)
    assert sum((batch.labels for batch in batches), ()) == tuple(Y.tolist())
    assert type(batches[0].labels[0]) is int
    assert stream.items == 3
    assert stream.notes == ()
    assert stream.description["source"]["type"] == "torch.utils.data.dataloader.DataLoader"


def test_data_loader_of_bare_tensors():
    batches = read(open_reader(DataLoader(torch.from_numpy(X), batch_size=5), inputs=["image"]))
    np.testing.assert_array_equal(joined(batches, "image"), X)
    assert batches[0].labels == (None,) * 5


def test_data_loader_of_dicts():
    rows = [{"ids": np.arange(6) + i, "mask": np.ones(6, np.int64), "label": i, "idx": 7} for i in range(5)]
    stream = open_reader(DataLoader(rows, batch_size=2), inputs=("ids", "mask"))
    batches = read(stream)
    assert set(batches[0].inputs) == {"ids", "mask"}
    assert [batch.labels for batch in batches] == [(0, 1), (2, 3), (4,)]
    assert stream.notes == ("left out of DataLoader, as no input of the model: 'idx'",)


@pytest.mark.parametrize("collate", [tuple, list])
def test_positional_inputs_are_named_in_order(collate):
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(X + 1), torch.from_numpy(Y))
    loader = DataLoader(
        data, batch_size=5, collate_fn=lambda rows: collate(map(torch.stack, zip(*rows, strict=True)))
    )
    batches = read(open_reader(loader, inputs=["a", "b"]))
    np.testing.assert_array_equal(joined(batches, "a"), X)
    np.testing.assert_array_equal(joined(batches, "b"), X + 1)
    assert batches[0].labels == tuple(Y[:5].tolist())


def test_map_style_dataset_gives_single_samples():
    batches = read(open_reader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), "set"), 4)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    np.testing.assert_array_equal(joined(batches, "input"), X)
    assert batches[2].labels == (2, 0)
    assert batches[2].origins == ("sample 8 of set", "sample 9 of set")


def test_tensors_with_gradient_and_bfloat16():
    weird = torch.tensor([[1.5], [-2.0]], dtype=torch.bfloat16, requires_grad=True)
    (batch,) = read(open_reader([{"x": weird}]))
    assert batch.inputs["x"].dtype == np.float32
    assert batch.inputs["x"].tolist() == [[1.5], [-2.0]]


def test_a_changed_order_is_noted():
    loader = DataLoader(torch.from_numpy(X), shuffle=True, drop_last=True, batch_size=5)
    stream = open_reader(loader, "loader")
    torch.manual_seed(0)
    read(stream)
    assert [note.split(":")[0] for note in stream.notes] == [
        "the DataLoader shuffles",
        "the DataLoader has drop_last=True",
    ]
    read(stream)
    assert "another order, than in the pass before" in stream.notes[2]


class Numbers(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        yield from (np.full(2, value) for value in range(self.count))


def test_data_loader_of_unknown_length():
    stream = open_reader(DataLoader(Numbers(5), batch_size=2))
    assert stream.items is None
    for _ in range(2):
        assert joined(read(stream), "input")[:, 1].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(DatasetError, match="No samples: DataLoader is empty"):
        open_reader(DataLoader(Numbers(0), batch_size=2))


def test_data_loader_that_does_not_batch():
    loader = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=None)
    assert [len(batch) for batch in read(open_reader(loader), 4)] == [4, 4, 2]


class Broken(IterableDataset):
    def __iter__(self):
        yield np.zeros(2)
        raise KeyError("colour")


def test_data_loader_with_workers():
    with pytest.raises(DatasetError, match=r"(?s)Reading batch 1 of DataLoader failed: KeyError: .*colour"):
        read(open_reader(DataLoader(Broken(), batch_size=1, num_workers=1)))


def test_a_tensor_is_a_dataset():
    dataset = open_reader(torch.from_numpy(X), "all")
    assert isinstance(dataset, Dataset)
    np.testing.assert_array_equal(dataset[9].inputs["input"], X[9])


def test_an_empty_set():
    with pytest.raises(DatasetError, match="No samples: TensorDataset is empty"):
        open_reader(TensorDataset(torch.zeros(0, 3)))
