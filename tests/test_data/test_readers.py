"""Readers written for other tools: what they give, kept or cut anew, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from calib.calibrators import EntropyCalibrator, MinMaxCalibrator, MSECalibrator, PercentileCalibrator
from calib.data import Dataset, Stream, from_arrays, open_reader
from calib.errors import DatasetError, UsageError

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(10, 3, 4)).astype(np.float32)
Y = np.arange(10) % 3


def read(stream: Stream | Dataset, batch_size: int | None = None):
    assert isinstance(stream, Stream)
    return list(stream.batches(batch_size))


def joined(batches, name):
    return np.concatenate([batch.inputs[name] for batch in batches])


def cut(*lengths: int) -> Iterator[slice]:
    start = 0
    for length in lengths:
        yield slice(start, start + length)
        start += length


class Reader:
    """A CalibrationDataReader by its shape alone."""

    def __init__(self, batches):
        self.batches = batches
        self.left = iter(batches)

    def get_next(self):
        return next(self.left, None)


class Rewindable(Reader):
    def rewind(self):
        self.left = iter(self.batches)


def load_data():
    for rows in cut(4, 4, 2):
        yield {"x": X[rows]}


# What each form gives


def test_onnx_runtime_reader():
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Batches(quantization.CalibrationDataReader):
        def __init__(self):
            self.left = iter([{"x": X[rows]} for rows in cut(4, 4, 2)])

        def get_next(self):
            return next(self.left, None)

    stream = open_reader(Batches(), "mine")
    batches = read(stream)
    assert [len(batch) for batch in batches] == [4, 4, 2] == list(stream.batch_sizes)
    np.testing.assert_array_equal(joined(batches, "x"), X)
    assert batches[1].ids == ("mine#4", "mine#5", "mine#6", "mine#7")
    assert batches[1].origins[3] == "batch 1, row 3 of mine"
    assert (stream.length, stream.once) == (10, True)
    # The class makes a new one for each pass.
    again = open_reader(Batches)
    assert [len(read(again)), len(read(again))] == [3, 3]
    assert not again.once


def test_onnx_runtime_reader_that_rewinds_is_read_from_the_start_each_time():
    reader = Rewindable([{"x": X[:4]}, {"x": X[4:]}])
    reader.get_next()
    stream = open_reader(reader)
    for _ in range(2):
        np.testing.assert_array_equal(joined(read(stream), "x"), X)
    assert stream.length == 10


def test_polygraphy_function():
    stream = open_reader(load_data)
    assert stream.name.endswith(":load_data")
    assert [len(batch) for batch in read(stream)] == [4, 4, 2]
    np.testing.assert_array_equal(joined(read(stream), "x"), X)


@pytest.mark.parametrize("first", [{"a": X, "b": X + 1}, (X, X + 1), [X, X + 1]])
def test_inputs_together_and_labels_beside(first):
    (batch,) = read(open_reader([(first, Y)], inputs=["a", "b"]))
    np.testing.assert_array_equal(batch.inputs["b"], X + 1)
    assert batch.labels == tuple(Y.tolist())


def test_a_second_integer_array_is_an_input_if_it_is_named():
    (batch,) = read(open_reader([(X, Y)], inputs=["x", "kind"]))
    np.testing.assert_array_equal(batch.inputs["kind"], Y)
    assert batch.labels == (None,) * 10


def test_a_ground_truth_of_another_kind_is_left_out():
    boxes = [{"boxes": np.ones((2, 4))}] * 10
    stream = open_reader([(X, boxes)], inputs=["x"])
    (batch,) = read(stream)
    assert set(batch.inputs) == {"x"}
    assert "what follows the inputs" in stream.notes[0]


def test_map_style_dataset_gives_single_samples():
    class Squares:
        def __len__(self):
            return 5

        def __getitem__(self, index):
            return np.full(3, index**2)

    batches = read(open_reader(Squares()), 3)
    assert [batch.inputs["input"][:, 0].tolist() for batch in batches] == [[0, 1, 4], [9, 16]]


def test_rows_of_a_table_are_single_samples():
    class Table(list):
        column_names = ("ids", "label")
        features = None

    table = Table({"ids": [i, i + 1, i + 2], "label": i % 2} for i in range(5))
    batches = read(open_reader(table), 3)
    assert [batch.inputs["ids"].tolist() for batch in batches] == [
        [[0, 1, 2], [1, 2, 3], [2, 3, 4]],
        [[3, 4, 5], [4, 5, 6]],
    ]
    assert batches[0].labels == (0, 1, 0)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ([(x, int(y)) for x, y in zip(X, Y, strict=True)], {}),
        ([{"input": x, "label": y} for x, y in zip(X, Y, strict=True)], {}),
        (list(X), {"axes": {"input": 3}}),
        (list(X), {"batched": False}),
        (X.tolist(), {"batched": False}),
    ],
    ids=["label", "dict with label", "axes", "told", "lists"],
)
def test_single_samples_are_stacked(source, options):
    stream = open_reader(source, **options)
    assert [len(batch) for batch in read(stream, 4)] == [4, 4, 2]
    assert [len(batch) for batch in read(stream)] == [10]
    np.testing.assert_array_equal(joined(read(stream), "input").astype(np.float32), X)


def test_single_samples_by_default_in_batches_of_32():
    stream = open_reader(list(np.zeros((70, 2))), batched=False)
    assert [len(batch) for batch in read(stream)] == [32, 32, 6]


@pytest.mark.parametrize(
    ("batched", "sizes"), [(None, [4, 4, 2]), (True, [4, 4, 2])], ids=["by itself", "told"]
)
def test_arrays_are_batches(batched, sizes):
    source = [X[rows] for rows in cut(4, 4, 2)]
    assert [len(batch) for batch in read(open_reader(source, batched=batched))] == sizes


@pytest.mark.parametrize("mapping", [{"x": X, "label": Y}, {"x": X.tolist(), "label": Y.tolist()}])
def test_whole_arrays_are_a_dataset(mapping):
    dataset = open_reader(mapping, "all")
    assert isinstance(dataset, Dataset)
    assert (len(dataset), dataset.ids[0], dataset.labels) == (10, "all#0", tuple(Y.tolist()))
    np.testing.assert_array_equal(dataset[3].inputs["x"], X[3])


def test_one_array_is_a_dataset():
    dataset = open_reader(X, "all")
    assert isinstance(dataset, Dataset)
    np.testing.assert_array_equal(dataset[9].inputs["input"], X[9])


def test_a_dataset_is_passed_through():
    dataset = from_arrays("d", {"x": X})
    assert open_reader(dataset) is dataset
    assert open_reader(lambda: dataset) is dataset


def test_a_reader_may_fill_the_same_memory_again():
    buffer = np.zeros((2, 1), np.float32)

    def batches():
        for value in range(4):
            buffer[:] = value
            yield {"x": buffer}

    for size in (None, 3):
        assert joined(read(open_reader(batches), size), "x").ravel().tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_one_array_of_another_name_serves_a_single_input():
    (batch,) = read(open_reader([{"images": X, "labels": Y}], inputs=["input"]))
    assert set(batch.inputs) == {"images"}


# Cutting anew, limits, fingerprints


@pytest.mark.parametrize(("size", "sizes"), [(1, [1] * 10), (3, [3, 3, 3, 1]), (4, [4, 4, 2]), (16, [10])])
def test_batches_are_cut_anew_on_request(size, sizes):
    batches = read(open_reader(lambda: ({"x": X[rows]} for rows in cut(2, 7, 1)), "r"), size)
    assert [len(batch) for batch in batches] == sizes
    np.testing.assert_array_equal(joined(batches, "x"), X)
    ids = [sample for batch in batches for sample in batch.ids]
    origins = [origin for batch in batches for origin in batch.origins]
    assert ids == [f"r#{index}" for index in range(10)]
    assert (origins[1], origins[2], origins[9]) == (
        "batch 0, row 1 of r",
        "batch 1, row 0 of r",
        "batch 2, row 0 of r",
    )


def test_a_batch_holds_samples_of_one_shape():
    samples = [np.zeros(length) for length in (5, 5, 9, 3, 3)]
    stream = open_reader(samples, batched=False)
    assert [batch.inputs["input"].shape for batch in read(stream, 4)] == [(2, 5), (1, 9), (2, 3)]
    assert stream.notes == ("samples of list differ in shape or type: each batch holds those alike",)


def test_the_fingerprint_is_that_of_the_content():
    def of(source, size=None):
        stream = open_reader(source)
        list(stream.batches(size))
        return stream.fingerprint()

    whole = of([{"x": X, "label": Y}])
    assert len(whole) == 64
    assert whole == of([{"x": X[rows], "label": Y[rows]} for rows in cut(3, 5, 2)])
    assert whole == of([{"x": X, "label": Y}], 3)
    changed = X.copy()
    changed[9, 2, 3] += 1
    others = [
        {"x": changed, "label": Y},
        {"y": X, "label": Y},
        {"x": X, "label": Y[::-1]},
        {"x": X[::-1], "label": Y},
        {"x": X.astype(np.float64), "label": Y},
        {"x": X.reshape(10, 4, 3), "label": Y},
        {"x": X[:9], "label": Y[:9]},
    ]
    assert len({whole, *(of([other]) for other in others)}) == 8


def test_a_fingerprint_needs_the_end():
    stream = open_reader(load_data)
    with pytest.raises(UsageError, match="only after it was read to its end"):
        stream.fingerprint()
    batches = stream.batches()
    next(batches)
    assert stream.length == 4
    with pytest.raises(UsageError, match="only after it was read to its end"):
        stream.fingerprint()


@pytest.mark.parametrize("size", [None, 3])
def test_only_the_first_samples(size):
    stream = open_reader(load_data).first(6)
    batches = read(stream, size)
    np.testing.assert_array_equal(joined(batches, "x"), X[:6])
    assert [len(batch) for batch in batches] == ([4, 2] if size is None else [3, 3])
    assert stream.length == 6
    assert stream.fingerprint() == open_and_hash([{"x": X[:6]}])


def open_and_hash(source):
    stream = open_reader(source)
    read(stream)
    return stream.fingerprint()


def test_too_few_samples():
    with pytest.raises(UsageError, match=r"Asked for 11 samples, .*load_data has 10\."):
        read(open_reader(load_data).first(11))


@pytest.mark.parametrize("samples", [0, -1])
def test_a_limit_below_one(samples):
    with pytest.raises(UsageError, match=f"No samples: expected at least 1, got {samples}"):
        open_reader(load_data).first(samples)


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one(size):
    with pytest.raises(UsageError, match=f"at least 1, got {size}"):
        read(open_reader(load_data), size)


# Ranges


def test_min_max_is_that_of_the_flat_data():
    calibrator = MinMaxCalibrator()
    for batch in read(open_reader(load_data)):
        calibrator.collect(batch.inputs)
    assert calibrator.compute()["x"] == float(np.abs(X).max())


@pytest.mark.parametrize("form", ["batches", "rows"])
@pytest.mark.parametrize("make", [PercentileCalibrator, MSECalibrator, MinMaxCalibrator])
def test_ragged_batches_give_the_ranges_of_one_flat_pass(make, form):
    """Sequence lengths 5, 9 and 3 in batches of 4, 4 and 2, as the data come, and sample by sample."""
    ragged = [RANDOM.normal(size=(rows, n)).astype(np.float32) for rows, n in ((4, 5), (4, 9), (2, 3))]
    source = ragged if form == "batches" else [row for batch in ragged for row in batch]
    stream = open_reader(source, batched=form == "batches")
    calibrator, flat = make(), make()
    for batch in read(stream):
        calibrator.collect(batch.inputs)
    flat.collect({"input": np.concatenate([batch.ravel() for batch in ragged])})
    assert stream.batch_sizes == (4, 4, 2)
    assert calibrator.compute()["input"] == flat.compute()["input"]


def test_ragged_entropy_is_that_of_one_flat_pass_once_its_range_is_known():
    """Entropy's grid comes from the first batch: with the widest value there, the cut changes no bit."""
    ragged = [RANDOM.normal(size=(2, n)).astype(np.float32) for n in (5, 9, 3)]
    ragged[0][0, 0] = 8
    calibrator, flat = EntropyCalibrator(), EntropyCalibrator()
    for batch in read(open_reader(ragged)):
        calibrator.collect(batch.inputs)
    flat.collect({"input": np.concatenate([batch.ravel() for batch in ragged])})
    assert calibrator.compute()["input"] == flat.compute()["input"]


# Refusals


def used_up():
    batches = load_data()
    list(batches)
    return batches


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (used_up(), "No samples: generator is used up; pass a function that makes it"),
        (iter([]), "No samples: list_iterator is empty, or is used up; pass a function that makes it"),
        (Reader([]), "No samples: Reader is empty, or is used up"),
        (Rewindable([]), r"No samples: Rewindable is empty\."),
        ([], "No samples: list is empty"),
        (lambda: [], "No samples: .*lambda.* is empty"),
        ({"x": X[:0]}, r"No samples: Dataset 'dict': array 'x' has shape \(0, 3, 4\)"),
        ({}, "dict is a dict without arrays"),
        ("readers:load_data", r"not text: got 'readers:load_data'. .* load_object\('readers:load_data'\)"),
        (None, "is no reader: expected a CalibrationDataReader, .*; got None"),
        (3, "is no reader: .* got an object of type int"),
        (lambda: None, "returned None: .* Does it lack a return or a yield"),
        (lambda: "x", "not text: got 'x'"),
        (lambda path: [path], "called without arguments, but: missing a required argument: 'path'"),
        (
            lambda: 1 / 0,
            r"Calling .*lambda.* failed: ZeroDivisionError: division by zero \(.*test_readers.py",
        ),
    ],
)
def test_refused_at_once(source, message):
    with pytest.raises(DatasetError, match=message):
        open_reader(source)


GOOD = {"x": X[:4]}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (None, "Batch 1 of r is None; expected a dict of arrays"),
        ("text", "Batch 1 of r is text"),
        ({1, 2}, "Batch 1 of r is of type set"),
        ({}, "Batch 1 of r is a dict without arrays"),
        ((), "Batch 1 of r is an empty tuple"),
        ({3: X}, "Batch 1 of r is a dict with the key 3"),
        ({"x": None}, "Batch 1 of r: input 'x' is None; expected an array of numbers"),
        ({"x": "text"}, "Batch 1 of r: input 'x' is text"),
        ({"x": ["a", "b"]}, r"input 'x' holds <U1, expected numbers. .* inputs=\[…\]"),
        ({"x": np.array([{}, {}])}, "Batch 1 of r: input 'x' holds object, expected numbers"),
        ({"x": [[1, 2], [1]]}, "Batch 1 of r: input 'x' is of type list and makes no array"),
        ({"x": X, "y": X[:9]}, "Batch 1 of r: arrays 'x' and 'y' differ in length: 10 and 9 samples"),
        ({"x": X, "y": np.float32(1)}, "Batch 1 of r: array 'y' is a single number"),
        ({"x": X[:0]}, "No samples: Batch 1 of r: array 'x'"),
        ((X, X), r"Batch 1 of r has 2 parts without names, .* inputs=\[…\]"),
        ((X, 3), "Batch 1 of r has 10 samples, but 1 label"),
    ],
)
def test_a_bad_batch_is_named(bad, message):
    for source in ([GOOD, bad], lambda: iter([GOOD, bad])):
        with pytest.raises(DatasetError, match=message):
            read(open_reader(source, "r"))


@pytest.mark.parametrize(
    ("item", "inputs", "message"),
    [
        ({"a": X}, ["a", "b"], "Batch 0 of r has no input 'b': it holds 'a'; wanted 'a', 'b'"),
        ({"c": X, "d": X}, ["a", "b"], "Batch 0 of r has no inputs 'a', 'b'"),
        (X, ["a", "b"], "Batch 0 of r has 1 array for 2 inputs: 'a', 'b'"),
    ],
)
def test_inputs_that_do_not_fit(item, inputs, message):
    with pytest.raises(DatasetError, match=message):
        read(open_reader([item], "r", inputs=inputs))


@pytest.mark.parametrize("inputs", [[], ["a", "a"]])
def test_inputs_that_cannot_be_meant(inputs):
    with pytest.raises(UsageError, match="Input names must be given, each once"):
        open_reader([X], inputs=inputs)


def test_a_surplus_input_is_noted_or_passed_on():
    named = open_reader([{"a": X, "b": X, "c": X}], "r", inputs=["a", "b"])
    assert set(read(named)[0].inputs) == {"a", "b"}
    assert named.notes == ("left out of r, as no input of the model: 'c'",)
    assert set(read(open_reader([{"a": X, "b": X, "c": X}]))[0].inputs) == {"a", "b", "c"}


@pytest.mark.parametrize("source", [load_data(), Reader([GOOD, GOOD])])
def test_a_second_pass_over_what_can_be_read_once(source):
    stream = open_reader(source, "r")
    next(stream.batches())
    with pytest.raises(DatasetError, match="No samples: r is used up; pass a function that makes it"):
        read(stream)


def test_an_exception_in_the_reader_is_chained_and_named():
    def batches():
        yield {"x": X}
        yield {"x": X}
        raise KeyError("colour")

    stream = open_reader(batches, "r")
    message = r"Reading batch 2 of r failed: KeyError: 'colour' \(.*test_readers.py, line \d+\)"
    with pytest.raises(DatasetError, match=message) as caught:
        read(stream)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_end_by_exception_is_no_end():
    class Careless(Reader):
        def get_next(self):
            return next(self.left)

    with pytest.raises(
        DatasetError, match=r"get_next\(\) raised StopIteration; at the end it must return None"
    ):
        read(open_reader(Careless([GOOD])))
