"""npz and npy files, and folders of them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from calib.data import open_calibration
from calib.errors import DatasetError

X = np.random.default_rng(0).normal(size=(12, 3, 4, 5)).astype(np.float32)
Y = np.arange(12) % 4


@pytest.fixture
def opened(opened):
    """Opens a source of arrays whole, given its options and more lines of the recipe."""
    return lambda options, more="": opened(f"{{kind: arrays, {options}}}", more)


class TestNpz:
    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_rows(self, opened, tmp_path, save):
        save(tmp_path / "a.npz", x=X, mask=Y[:, None], labels=Y)
        dataset = opened("path: a.npz", "task: classification")
        assert dataset.ids == tuple(f"a.npz#{i}" for i in range(12))
        assert dataset.labels == tuple(Y.tolist())
        for index, sample in enumerate(dataset):
            np.testing.assert_array_equal(sample.inputs["x"], X[index])
            np.testing.assert_array_equal(sample.inputs["mask"], Y[index : index + 1])
        assert dataset[6].origin == f"{tmp_path}/a.npz: x[6], mask[6]"
        assert dataset[6].inputs["mask"].dtype == np.int64

    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_order_and_byte_order_in_memory(self, opened, tmp_path, order, save):
        save(tmp_path / "a.npz", x=np.asarray(X, dtype=">f4", order=order))
        sample = opened("path: a.npz")[11]
        np.testing.assert_array_equal(sample.inputs["x"], X[11])
        assert sample.inputs["x"].dtype.isnative

    def test_keys_go_to_inputs(self, opened, tmp_path):
        np.savez(tmp_path / "a.npz", xtr=X, ytr=Y, xte=X[:5])
        dataset = opened("path: a.npz, inputs: {xtr: pixels}, labels: ytr")
        assert list(dataset[0].inputs) == ["pixels"]
        assert dataset.labels == tuple(Y.tolist())
        assert "Arrays not used: xte." in dataset.notes
        assert dataset[6].origin.endswith("a.npz: xtr[6]")

    def test_without_labels(self, opened, tmp_path):
        np.savez(tmp_path / "a.npz", x=X)
        assert opened("path: a.npz").labels is None

    def test_preprocessing_of_some_inputs(self, opened, tmp_path):
        np.savez(tmp_path / "a.npz", image=np.full((3, 1, 2, 2), 255, np.uint8), ids=Y[:3, None])
        dataset = opened("path: a.npz", "preprocess: {inputs: [image], scale: 1/255}")
        np.testing.assert_array_equal(dataset[2].inputs["image"], np.ones((1, 2, 2)))
        assert dataset[2].inputs["ids"].dtype == np.int64
        with pytest.raises(DatasetError, match=r"no input 'imag'\. Did you mean 'image'\?"):
            opened("path: a.npz", "preprocess: {inputs: [imag], scale: 2}")

    def test_casts_are_noted_and_lossy_ones_name_the_sample(self, opened, tmp_path):
        np.savez(tmp_path / "a.npz", x=np.array([[1.0], [0.5]]))
        dataset = opened("path: a.npz")
        assert "Input 'x' is stored as float64 and cast to float32." in dataset.notes
        assert dataset[1].inputs["x"].dtype == np.float32
        dataset = opened("path: a.npz", "preprocess: {dtype: int32}")
        assert dataset[0].inputs["x"].dtype == np.int32
        with pytest.raises(DatasetError, match=r"a\.npz: x\[1\]: value 0\.5 at index \(0,\)"):
            dataset[1]

    def test_stored_layout(self, opened, tmp_path):
        np.savez(tmp_path / "a.npz", x=X.transpose(0, 2, 3, 1))
        sample = opened("path: a.npz, layout: hwc", "preprocess: {mean: [1, 2, 3]}")[5]
        np.testing.assert_allclose(sample.inputs["x"], X[5] - np.array([1, 2, 3])[:, None, None], rtol=1e-6)

    def test_an_npz_of_another_ending(self, opened, tmp_path):
        np.savez(tmp_path / "a.npz", x=X)
        (tmp_path / "a.npz").rename(tmp_path / "samples")
        assert len(opened("path: samples")) == 12

    @pytest.mark.parametrize(
        ("arrays", "options", "message"),
        [
            ({"x": X, "mask": Y[:9]}, "", r"'x' and 'mask' differ in length: 12 and 9 samples"),
            ({"x": X, "labels": Y[:9]}, "", r"'x' and 'labels' differ in length: 12 and 9 samples"),
            ({"x": X[:0]}, "", r"No samples: .*a\.npz: array 'x' has shape \(0, 3, 4, 5\)"),
            ({"x": X}, ", labels: lables", r"line 3, key source\.labels: .* no array 'lables'"),
            ({"x": X, "ytr": Y}, ", labels: yt", r"no array 'yt'\. Did you mean 'ytr'\?"),
            ({"xtr": X}, ", inputs: {xt: x}", r"key source\.inputs\.xt: .*Did you mean 'xtr'"),
            ({"x": X, "y": X}, ", inputs: {x: i, y: i}", r"two arrays for one input"),
            ({"labels": Y}, "", "has no arrays but the labels 'labels'"),
            ({"x": np.array([{}, []], object)}, "", "a.npz: x holds Python objects"),
            ({"x": np.array(["a"])}, "", "a.npz: x holds <U1, expected numbers"),
            ({"x": np.zeros(2, [("a", "f4")])}, "", "a.npz: x holds Python objects or records"),
            ({"x": np.ones(3, complex)}, "", "holds complex128, expected numbers"),
            ({"x": np.float32(3)}, "", "array 'x' is a single number"),
            ({"x": X}, ", input: y", r"line 3, key source\.input: not for this kind of file"),
        ],
    )
    def test_mistakes(self, opened, tmp_path, arrays, options, message):
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(DatasetError, match=message):
            opened(f"path: a.npz{options}")

    @pytest.mark.parametrize("label", [-1, 0.5, float("nan")])
    def test_no_class_number(self, opened, tmp_path, label):
        np.savez(tmp_path / "a.npz", x=X[:2], labels=[0, label])
        with pytest.raises(DatasetError, match=r"a\.npz: labels: label 1 is .*class number"):
            opened("path: a.npz", "task: classification")

    def test_one_hot_labels_are_refused_for_a_classification_only(self, opened, tmp_path):
        np.savez(tmp_path / "a.npz", x=X[:2], labels=np.eye(2))
        assert opened("path: a.npz").labels[1].tolist() == [0, 1]
        with pytest.raises(DatasetError, match="needs one class number a sample"):
            opened("path: a.npz", "task: classification")

    def test_labels_as_floats_or_names(self, opened, tmp_path):
        np.savez(tmp_path / "a.npz", x=X[:3], f=[2.0, 0, 1], n=["b", "a", "b"])
        dataset = opened("path: a.npz, inputs: {x: x}, labels: f", "task: classification")
        assert dataset.labels == (2, 0, 1)
        dataset = opened("path: a.npz, inputs: {x: x}, labels: n", "task: classification")
        assert (dataset.labels, dataset.class_names) == ((1, 0, 1), ("a", "b"))


class TestDamagedFiles:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", r"a\.npz is empty \(0 bytes\)"),
            (b"PK\x03\x04 not really", r"a\.npz is not a whole npz file"),
            (b"x,y\n1,2\n", r"a\.npz is neither an npz nor an npy file: it begins with b'x,y"),
            (b"\x93NUMPY\x01", r"a\.npz is not a whole npy file"),
        ],
    )
    def test_content(self, opened, tmp_path, content, message):
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(DatasetError, match=message):
            opened("path: a.npz")

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    @pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
    def test_cut_npz(self, opened, tmp_path, save, share):
        save(tmp_path / "a.npz", x=X, labels=Y)
        content = (tmp_path / "a.npz").read_bytes()
        (tmp_path / "a.npz").write_bytes(content[: int(len(content) * share)])
        with pytest.raises(DatasetError, match=r"a\.npz is not a whole npz file"):
            opened("path: a.npz")

    def test_flipped_bits_of_a_compressed_array(self, opened, tmp_path):
        np.savez_compressed(tmp_path / "a.npz", x=np.tile(X, (100, 1, 1, 1)) + Y[0])
        content = bytearray((tmp_path / "a.npz").read_bytes())
        content[len(content) // 2] ^= 0xFF
        (tmp_path / "a.npz").write_bytes(content)
        dataset = opened("path: a.npz")
        with pytest.raises(DatasetError, match=r"a\.npz: x: damaged"):
            dataset[0]

    def test_cut_npy(self, opened, tmp_path):
        np.save(tmp_path / "a.npy", X)
        content = (tmp_path / "a.npy").read_bytes()
        (tmp_path / "a.npy").write_bytes(content[:-100])
        # 12·3·4·5 values of 4 bytes.
        with pytest.raises(DatasetError, match=r"a\.npy is cut short: .* needs 2880 bytes, found 2780"):
            opened("path: a.npy")

    def test_pickle_is_not_opened(self, opened, tmp_path):
        np.save(tmp_path / "a.npy", np.array([{}], object))
        with pytest.raises(DatasetError, match=r"a\.npy holds Python objects .* can run code"):
            opened("path: a.npy")

    def test_file_that_shrinks_later(self, opened, tmp_path):
        np.save(tmp_path / "a.npy", X)
        dataset = opened("path: a.npy")
        (tmp_path / "a.npy").write_bytes(b"")
        with pytest.raises(DatasetError, match=r"a\.npy: became shorter"):
            dataset[0]


class TestNpy:
    def test_rows_of_one_file(self, opened, tmp_path):
        np.save(tmp_path / "a.npy", X)
        np.save(tmp_path / "y.npy", Y)
        dataset = opened("path: a.npy, input: pixels, labels: y.npy", "task: classification")
        np.testing.assert_array_equal(dataset[11].inputs["pixels"], X[11])
        assert dataset.labels == tuple(Y.tolist())
        assert dataset[3].origin == f"{tmp_path}/a.npy: [3]"

    @pytest.mark.parametrize("labels", [Y[:5], np.array(3)])
    def test_labels_of_another_length(self, opened, tmp_path, labels):
        np.save(tmp_path / "a.npy", X)
        np.save(tmp_path / "y.npy", labels)
        with pytest.raises(DatasetError, match=r"y\.npy has shape .*a label for each of 12 samples"):
            opened("path: a.npy, labels: y.npy")


class TestFolder:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "npys").mkdir()
        for index in (0, 1, 2, 10):
            np.save(tmp_path / f"npys/s{index}.npy", X[index])
        return tmp_path / "npys"

    def test_files_in_natural_order(self, opened, folder):
        (folder / ".hidden.npy").write_bytes(b"")
        (folder / "readme.txt").write_text("x")
        dataset = opened("path: npys, input: pixels")
        assert dataset.ids == tuple(f"npys/s{i}.npy" for i in (0, 1, 2, 10))
        np.testing.assert_array_equal(dataset[3].inputs["pixels"], X[10])
        assert dataset[3].origin == str(folder / "s10.npy")
        assert "Passed over 2 entries of npys: .hidden.npy, readme.txt." in dataset.notes

    def test_labels_beside_the_samples(self, opened, folder):
        np.save(folder / "labels.npy", [4, 5, 6, 7])
        assert opened("path: npys").labels == (4, 5, 6, 7)
        assert len(opened("path: npys")) == 4

    @pytest.mark.parametrize(
        "text",
        [
            "3\n1\n2\n0\n",
            "label\r\n3\r\n1  \r\n\r\n# comment\r\n 2\r\n0",
            "file,label\ns10.npy, 0\ns0.npy,3\ns1.npy,1\ns2.npy,2\n",
        ],
    )
    def test_csv(self, opened, folder, text):
        (folder / "labels.csv").write_bytes(text.encode())
        assert opened("path: npys", "task: classification").labels == (3, 1, 2, 0)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("1\n2\n", r"labels\.csv has 2 labels for 4 samples"),
            ("s0.npy,1\n\n\n\ns3.npy,1\n", r"labels\.csv, line 5: there is no sample s3\.npy"),
            ("s0.npy,1\ns1.npy,1\n", r"labels\.csv has no label for s2\.npy, s10\.npy"),
            ("s0.npy,1\ns0.npy,2\n", r"labels\.csv, line 2: a second label for s0\.npy"),
            ("s0.npy,1\ns1.npy\n", r"labels\.csv, line 2: expected file,label, got 's1\.npy'"),
        ],
    )
    def test_csv_mistakes(self, opened, folder, text, message):
        (folder / "labels.csv").write_text(text)
        with pytest.raises(DatasetError, match=message):
            opened("path: npys")

    def test_without_samples(self, opened, tmp_path):
        (tmp_path / "empty").mkdir()
        with pytest.raises(DatasetError, match=r"No samples: .*/empty holds no \.npy files"):
            opened("path: empty")

    @pytest.mark.parametrize("content", [b"", b"no numpy"])
    def test_damaged_file_is_named(self, opened, folder, content):
        (folder / "s5.npy").write_bytes(content)
        with pytest.raises(DatasetError, match=r"s5\.npy is (empty|not a whole npy)"):
            opened("path: npys")

    def test_shapes_that_differ_are_named_in_a_batch(self, opened, folder):
        np.save(folder / "s2.npy", X[0, :2])
        with pytest.raises(DatasetError, match=r"s2\.npy has shape \(2, 4, 5\), but .*s0\.npy"):
            list(opened("path: npys").batches(4))


def test_rows_are_read_without_the_whole(recipe, tmp_path):
    """Of 2.4 GB (a sparse file) only the rows asked for are read: 2 · 3 · 224² · 4 bytes a batch."""
    shape = (4000, 3, 224, 224)
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.float32, shape)
    text = "source: {kind: arrays, path: a.npy}\ncalibration: {samples: 4}"
    dataset = open_calibration(recipe(text))  # imports what chooses samples
    tracemalloc.start()
    try:
        for batch in dataset.batches(2):
            assert batch.inputs["input"].shape == (2, 3, 224, 224)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16e6
