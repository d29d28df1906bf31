"""Images packed in files: idx, CIFAR, and torchvision's datasets as they lie on the disk."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from calib.data import fingerprint, open_validation
from calib.errors import DatasetError

pytest.importorskip("PIL.Image")
pytest.importorskip("torchvision")

RANDOM = np.random.default_rng(5)
GREY = RANDOM.integers(0, 256, (6, 28, 28), np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9], np.uint8)


def idx(values):
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def opened(opened):
    return lambda source, more="preprocess: {color: gray}": opened(source, more)


class TestIdx:
    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "fashion"
        folder.mkdir()
        (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(GREY)))
        (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS)))
        return folder

    def test_a_folder_as_debian_has_it(self, opened, folder):
        dataset = opened("{kind: idx, path: fashion}")
        assert dataset.ids[2] == "fashion/t10k-images-idx3-ubyte.gz#2"
        assert dataset.labels == tuple(LABELS.tolist())
        for index, sample in enumerate(dataset):
            np.testing.assert_array_equal(sample.inputs["input"], GREY[index][None])
        assert opened("{kind: idx, path: fashion}", "")[0].inputs["input"].shape == (3, 28, 28)

    def test_unpacked_files_by_name(self, opened, tmp_path):
        (tmp_path / "x.idx").write_bytes(idx(GREY))
        (tmp_path / "y.idx").write_bytes(idx(LABELS))
        dataset = opened("{kind: idx, path: x.idx, labels: y.idx}")
        assert dataset.labels == tuple(LABELS.tolist())
        assert opened("{kind: idx, path: x.idx}").labels is None

    def test_class_names(self, opened, folder):
        names = ", ".join("abcdefghij")
        assert opened(f"{{kind: idx, path: fashion, class_names: [{names}]}}").class_names == tuple(
            "abcdefghij"
        )
        with pytest.raises(DatasetError, match="has the class 9, but there are 2 class_names"):
            opened("{kind: idx, path: fashion, class_names: [a, b]}")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "no idx file of bytes"),
            (b"\x89PNG", "no idx file of bytes"),
            (idx(GREY)[:3000], r"cut short: shape \(6, 28, 28\) needs 4704 bytes"),
            (idx(GREY) + b"x", "longer than it says"),
            (idx(LABELS), r"has shape \(6,\): expected images"),
            (b"\0\0\x08\x03" + struct.pack(">III", 1 << 30, 1 << 10, 1 << 10), "more than 4294967296"),
        ],
    )
    def test_faults(self, opened, tmp_path, content, message):
        (tmp_path / "x.idx").write_bytes(content)
        with pytest.raises(DatasetError, match=message):
            opened("{kind: idx, path: x.idx}")[0]

    def test_a_packed_file_cut_short(self, opened, folder):
        file = folder / "t10k-images-idx3-ubyte.gz"
        file.write_bytes(file.read_bytes()[:2000])
        with pytest.raises(DatasetError, match=r"t10k-images.* cut short"):
            opened("{kind: idx, path: fashion}")[0]

    def test_lengths_that_differ(self, opened, folder):
        (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS[:4])))
        with pytest.raises(DatasetError, match=r"has shape \(4,\), but .* holds 6 images"):
            opened("{kind: idx, path: fashion}")

    def test_a_split_that_is_not_there(self, opened, folder):
        with pytest.raises(
            DatasetError, match="holds no images of split train: looked for train-images-idx3"
        ):
            opened("{kind: idx, path: fashion, split: train}")

    def test_debians_fashion_mnist(self, recipe, tmp_path):
        folder = Path("/usr/share/datasets/fashion-mnist")
        if not folder.is_dir():
            pytest.skip("Debian's package dataset-fashion-mnist is not installed")
        text = (
            f"root: {folder.parent}\nsource: {{kind: idx, path: fashion-mnist}}\ncalibration: {{samples: 1}}"
        )
        dataset = open_validation(recipe(text), allow_overlap=True)
        assert np.bincount(dataset.labels).tolist() == [1000] * 10


class Python2(pickle._Pickler):
    """Writes text and bytes as Python 2 did, which the published files come from."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

    def save_string(self, value):
        raw = value if isinstance(value, bytes) else value.encode("latin1")
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_string


def dumps(value):
    stream = io.BytesIO()
    Python2(stream, protocol=2).dump(value)
    return stream.getvalue()


PIXELS = RANDOM.integers(0, 256, (4, 3, 32, 32), np.uint8)
FINE, COARSE = [99, 0, 42, 7], [19, 1, 3, 0]


class TestCifar:
    def expected(self, index):
        return PIXELS[index].astype(np.float32)

    def check(self, dataset, labels):
        assert dataset.labels == tuple(labels)
        for index in range(4):
            np.testing.assert_array_equal(dataset[index].inputs["input"], self.expected(index))

    def test_binary_of_ten(self, opened, tmp_path):
        folder = tmp_path / "cifar-10-batches-bin"
        folder.mkdir()
        rows = [bytes([label]) + PIXELS[i].tobytes() for i, label in enumerate([9, 0, 4, 7])]
        (folder / "test_batch.bin").write_bytes(b"".join(rows))
        (folder / "batches.meta.txt").write_text("\n".join(f"c{n}" for n in range(10)) + "\n\n")
        dataset = opened("{kind: cifar, path: cifar-10-batches-bin}", "")
        self.check(dataset, [9, 0, 4, 7])
        assert dataset.class_names[9] == "c9"
        assert dataset.ids[1] == "cifar-10-batches-bin/test_batch.bin#1"
        (folder / "test_batch.bin").write_bytes(b"".join(rows)[:-5])
        with pytest.raises(DatasetError, match=r"test_batch\.bin has 12287 bytes, no multiple of 3073"):
            opened("{kind: cifar, path: cifar-10-batches-bin}", "")

    @pytest.mark.parametrize(("kind", "labels"), [("fine", FINE), ("coarse", COARSE)])
    def test_binary_of_a_hundred(self, opened, tmp_path, kind, labels):
        (tmp_path / "c").mkdir()
        rows = [bytes([COARSE[i], FINE[i]]) + PIXELS[i].tobytes() for i in range(4)]
        (tmp_path / "c" / "test.bin").write_bytes(b"".join(rows))
        self.check(opened(f"{{kind: cifar, path: c, labels: {kind}}}", ""), labels)

    def python_batch(self, path, labels, key=b"labels"):
        content = {
            b"data": PIXELS.reshape(4, -1),
            key: labels,
            b"batch_label": b"testing",
            b"filenames": [b"a"] * 4,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dumps(content))

    def test_python_of_ten_is_what_torchvision_reads(self, opened, tmp_path, monkeypatch):
        from torchvision.datasets import CIFAR10

        folder = tmp_path / "cifar-10-batches-py"
        self.python_batch(folder / "test_batch", [9, 0, 4, 7])
        names = [f"c{n}" for n in range(10)]
        (folder / "batches.meta").write_bytes(dumps({"label_names": names}))
        # These are not the published files, so their checksums differ.
        monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: True)
        monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
        theirs = CIFAR10(str(tmp_path), train=False, download=False)
        ours = opened("{kind: torchvision, dataset: CIFAR10, path: .}", "")
        assert ours.labels == tuple(theirs.targets)
        assert ours.class_names == tuple(theirs.classes)
        for index in range(4):
            pixels = np.asarray(theirs[index][0]).transpose(2, 0, 1)
            np.testing.assert_array_equal(ours[index].inputs["input"], pixels)

    def test_python_of_a_hundred(self, opened, tmp_path):
        self.python_batch(tmp_path / "p" / "test", FINE, b"fine_labels")
        self.check(opened("{kind: cifar, path: p}", ""), FINE)
        with pytest.raises(DatasetError, match="has no 'data' and 'coarse_labels'"):
            opened("{kind: cifar, path: p, labels: coarse}", "")

    def test_a_pickle_that_would_run_code_is_refused(self, opened, tmp_path):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "harm"),)

        (tmp_path / "p").mkdir()
        (tmp_path / "p" / "test").write_bytes(pickle.dumps({b"data": Evil()}, protocol=2))
        with pytest.raises(
            DatasetError, match=r"p/test is not read: it asks for posix\.mkdir, which is no plain"
        ):
            opened("{kind: cifar, path: p}", "")
        assert not (tmp_path / "harm").exists()

    @pytest.mark.parametrize(
        "content", [b"", b"\x80\x02]q\x00.", b"not a pickle", pickle.dumps({b"data": 1})]
    )
    def test_other_pickles(self, opened, tmp_path, content):
        (tmp_path / "p").mkdir()
        (tmp_path / "p" / "test").write_bytes(content)
        with pytest.raises(DatasetError, match="p/test"):
            opened("{kind: cifar, path: p}", "")

    def test_no_files(self, opened, tmp_path):
        (tmp_path / "p").mkdir()
        with pytest.raises(DatasetError, match="holds no train files of CIFAR: expected data_batch_1"):
            opened("{kind: cifar, path: p, split: train}", "")


class TestTorchvision:
    def test_fashion_mnist(self, opened, tmp_path):
        from torchvision.datasets import FashionMNIST

        raw = tmp_path / "FashionMNIST" / "raw"
        raw.mkdir(parents=True)
        for split in ("train", "t10k"):
            (raw / f"{split}-images-idx3-ubyte").write_bytes(idx(GREY))
            (raw / f"{split}-labels-idx1-ubyte").write_bytes(idx(LABELS))
        theirs = FashionMNIST(str(tmp_path), train=False, download=False)
        ours = opened("{kind: torchvision, dataset: FashionMNIST, path: .}")
        assert ours.class_names == tuple(theirs.classes)
        assert ours.labels == tuple(theirs.targets.tolist())
        np.testing.assert_array_equal(ours[3].inputs["input"][0], np.asarray(theirs[3][0]))

    @pytest.mark.parametrize("name", ["Country211", "EuroSAT", "GTSRB", "FGVCAircraft"])
    def test_sets_of_files(self, opened, tmp_path, name):
        import torchvision.datasets
        from PIL import Image

        def save(place):
            path = tmp_path / place
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(RANDOM.integers(0, 256, (5, 6, 3), np.uint8)).save(path)

        options = {"split": "test"}
        if name == "Country211":
            save("country211/test/AD/1.jpg")
            save("country211/test/AE/2.jpg")
        elif name == "EuroSAT":
            options = {}
            save("eurosat/2750/Forest/1.jpg")
            save("eurosat/2750/River/2.jpg")
        elif name == "GTSRB":
            save("gtsrb/GTSRB/Final_Test/Images/00000.ppm")
            save("gtsrb/GTSRB/Final_Test/Images/00001.ppm")
            (tmp_path / "gtsrb/GT-final_test.csv").write_text("Filename;ClassId\n00000.ppm;16\n00001.ppm;1\n")
        else:
            save("fgvc-aircraft-2013b/data/images/1.jpg")
            save("fgvc-aircraft-2013b/data/images/2.jpg")
            data = tmp_path / "fgvc-aircraft-2013b" / "data"
            (data / "variants.txt").write_text("707\n727\n")
            (data / "images_variant_test.txt").write_text("1 727\n2 707\n")
        theirs = getattr(torchvision.datasets, name)(str(tmp_path), download=False, **options)
        ours = opened(f"{{kind: torchvision, dataset: {name}, path: .}}", "")
        assert len(ours) == len(theirs) == 2
        for index in range(2):
            image, label = theirs[index]
            assert ours.labels[index] == label
            np.testing.assert_array_equal(ours[index].inputs["input"], np.asarray(image).transpose(2, 0, 1))

    def test_faults(self, opened, tmp_path):
        with pytest.raises(DatasetError, match=r"torchvision cannot open DTD in .*download"):
            opened("{kind: torchvision, dataset: DTD, path: .}", "")
        with pytest.raises(DatasetError, match=r"key source\.split: MNIST has no split val: train, test"):
            opened("{kind: torchvision, dataset: MNIST, path: ., split: val}")
        with pytest.raises(DatasetError, match=r"key source\.dataset: expected .*'FashionMNIST'"):
            opened("{kind: torchvision, dataset: HMDB51, path: .}")
        assert list(tmp_path.iterdir()) == [tmp_path / "recipe.yaml"]


def test_fingerprints_cover_the_packed_files(opened, tmp_path):
    (tmp_path / "x.idx").write_bytes(idx(GREY))
    first = fingerprint(opened("{kind: idx, path: x.idx}"))
    (tmp_path / "x.idx").write_bytes(idx(255 - GREY))
    assert fingerprint(opened("{kind: idx, path: x.idx}")) != first
