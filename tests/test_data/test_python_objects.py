"""Samples from Python objects: sequences, iterables, torch's and Hugging Face's datasets."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from calib.data import fingerprint, open_calibration, open_validation
from calib.errors import DatasetError

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("torchvision")

PIXELS = np.random.default_rng(2).integers(0, 256, (6, 5, 7, 3), np.uint8)


class Column:
    names = ("cat", "dog")


class Table:
    """What Hugging Face's datasets.Dataset offers: rows by number, columns by name."""

    column_names = ("image", "label", "text")
    features = {"label": Column()}  # noqa: RUF012

    def __init__(self, shift=0):
        self._fingerprint = f"abc{shift}"
        self.decoded = 0

    def __len__(self):
        return 6

    def __getitem__(self, key):
        if isinstance(key, str):
            return [index % 2 for index in range(6)]
        self.decoded += 1
        return {"image": Image.fromarray(PIXELS[key]), "label": key % 2, "text": "x"}


@pytest.fixture
def opened(recipe, monkeypatch):
    module = ModuleType("user_sets")
    monkeypatch.setitem(sys.modules, "user_sets", module)

    def open_all(value, options="", more="", use=open_validation):
        module.data = value
        source = f"source: {{kind: python, object: 'user_sets:data'{options}}}\n"
        loaded = recipe(f"{source}calibration: {{samples: 2}}\n{more}")
        return use(loaded, allow_overlap=True) if use is open_validation else use(loaded)

    return open_all


class TestTables:
    def test_images_are_prepared_as_files_are(self, opened):
        table = Table()
        dataset = opened(table, ", image: image", "preprocess: {color: bgr, scale: 2}\ntask: classification")
        assert (dataset.labels, dataset.class_names) == ((0, 1) * 3, ("cat", "dog"))
        # Labels were read by column; one row was looked at for its names.
        assert table.decoded == 1
        sample = dataset[3]
        np.testing.assert_array_equal(sample.inputs["input"], PIXELS[3].transpose(2, 0, 1)[::-1] * 2.0)
        assert sample.geometry.source == (5, 7)
        assert dataset.ids[3] == "user_sets:data#3"

    def test_images_of_16_bits_keep_their_upper_8_as_files_do(self, opened):
        # 0x1234 // 256 = 0x12; Pillow's own conversion would make white of all from 255 on.
        pixels = np.array([[0x00FF, 0x1234, 0xFFFF]], np.uint16)
        dataset = opened([{"image": Image.fromarray(pixels)}] * 3, ", image: image")
        for channel in dataset[0].inputs["input"]:
            assert channel.tolist() == [[0x00, 0x12, 0xFF]]

    @pytest.mark.parametrize(
        ("pixels", "fault"),
        [
            (np.full((2, 2), 0.5, np.float32), "floating-point"),
            (np.full((2, 2), 1 << 20, np.int32), "32-bit"),
        ],
    )
    def test_images_of_other_numbers_are_refused_as_files_are(self, opened, pixels, fault):
        dataset = opened([{"image": Image.fromarray(pixels)}] * 3, ", image: image")
        with pytest.raises(DatasetError, match=rf"user_sets:data, sample 0: {fault} pixels"):
            dataset[0]

    def test_their_own_fingerprint_is_part_of_ours(self, opened):
        first, second = (fingerprint(opened(Table(n), ", image: image")) for n in (0, 1))
        assert first != second

    def test_samples_are_chosen_by_class(self, opened):
        chosen = opened(Table(), ", image: image", use=open_calibration)
        assert set(chosen.labels) == {0, 1}

    def test_unknown_columns(self, opened):
        with pytest.raises(
            DatasetError, match=r"no 'imag'\. Did you mean 'image'\? It has image, label, text"
        ):
            opened(Table(), ", image: imag")[0]
        with pytest.raises(DatasetError, match=r"sample 0 has no 'lable'\. Did you mean 'label'"):
            opened(Table(), ", image: image, label: lable")

    def test_a_sample_without_a_label_is_named(self, opened):
        rows = [{"x": np.zeros(2), "label": 1}] * 2 + [{"x": np.zeros(2)}]
        with pytest.raises(DatasetError, match=r"^user_sets:data, sample 2 has no 'label'\. It has x\.$"):
            opened(rows)


class TestForms:
    def test_a_function_that_makes_them(self, opened):
        dataset = opened(lambda: [{"ids": np.array([1, 2]), "mask": np.array([1, 0])}] * 2)
        assert sorted(dataset[0].inputs) == ["ids", "mask"]
        assert dataset[0].inputs["ids"].dtype == np.int64

    def test_torchs_datasets(self, opened):
        import torch
        from torch.utils.data import TensorDataset

        x = torch.arange(12.0).reshape(6, 2)
        dataset = opened(TensorDataset(x, torch.arange(6) % 3), more="task: classification")
        assert dataset.labels == (0, 1, 2) * 2
        np.testing.assert_array_equal(dataset[5].inputs["input"], x[5].numpy())

    def test_an_iterable_is_kept_in_memory(self, opened):
        dataset = opened(lambda: (np.full(2, float(n)) for n in range(3)))
        assert [sample.inputs["input"][0] for sample in dataset] == [0, 1, 2]
        assert any("kept in memory" in note for note in dataset.notes)
        with pytest.raises(DatasetError, match="gives more than 2 samples"):
            opened(lambda: (np.zeros(2) for _ in range(3)), ", most: 2")

    def test_columns_by_name_and_steps_for_one(self, opened):
        rows = [{"a": np.ones(2), "b": np.ones(2), "y": 0.5, "spare": "x"}] * 3
        options = ", inputs: {a: x1, b: x2}, label: y"
        dataset = opened(rows, options, "preprocess: {inputs: [x1], scale: 3}")
        assert dataset[0].inputs["x1"].tolist() == [3, 3]
        assert dataset[0].inputs["x2"].tolist() == [1, 1]
        assert dataset.labels == (0.5,) * 3

    def test_content_without_a_fingerprint_of_its_own_is_hashed(self, opened):
        values = [
            fingerprint(opened([np.full(2, float(n + shift)) for n in range(3)])) for shift in (0, 0, 1)
        ]
        assert values[0] == values[1] != values[2]


class TestFaults:
    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ([], "No samples: user_sets:data is empty"),
            ("text", "is a str: expected a sequence"),
            (7, "is a int: expected a sequence"),
            ([(1, 2, 3)], "tuple of 3: expected a mapping of columns"),
            (lambda: None, "returned None"),
        ],
    )
    def test_no_samples(self, opened, value, message):
        with pytest.raises(DatasetError, match=message):
            opened(value)

    def test_code_that_fails_names_the_sample(self, opened):
        class Broken(list):
            def __getitem__(self, index):
                if index == 1:
                    raise ZeroDivisionError("oh")
                return np.zeros(2)

        dataset = opened(Broken([0, 1]))
        with pytest.raises(
            DatasetError, match=r"Reading sample 1 of user_sets:data failed: ZeroDivisionError"
        ):
            dataset[1]

    def test_no_such_object(self, recipe):
        for name, message in (
            ("user_no_sets:x", "no module"),
            ("json:x", "has no 'x'"),
            ("nothing", "module:object"),
        ):
            with pytest.raises(DatasetError, match=message):
                open_calibration(recipe(f"source: {{kind: python, object: '{name}'}}"))
