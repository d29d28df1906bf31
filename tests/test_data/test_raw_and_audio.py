"""Raw tensors and wav files."""

from __future__ import annotations

import warnings
import wave

import numpy as np
import pytest
from scipy.io import wavfile

from calib.data import fingerprint
from calib.errors import DatasetError

X = np.random.default_rng(0).normal(size=(12, 2, 3)).astype(np.float32)


class TestRaw:
    def test_a_file_of_many_samples(self, opened, tmp_path):
        (tmp_path / "x.bin").write_bytes(b"head" + X.tobytes())
        dataset = opened("{kind: raw, path: x.bin, shape: [2, 3], header_bytes: 4, input: x}")
        assert dataset.ids[11] == "x.bin#11"
        (batch,) = dataset.batches(12)
        np.testing.assert_array_equal(batch.inputs["x"], X)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint16", "int64"])
    @pytest.mark.parametrize("order", ["little", "big"])
    def test_types_and_byte_orders(self, opened, tmp_path, dtype, order):
        values = np.arange(6).reshape(2, 3).astype(dtype)
        (tmp_path / "x.bin").write_bytes(
            values.astype(values.dtype.newbyteorder("<>"[order == "big"])).tobytes()
        )
        dataset = opened(f"{{kind: raw, path: x.bin, dtype: {dtype}, shape: [3], byte_order: {order}}}")
        found = np.stack([sample.inputs["input"] for sample in dataset])
        np.testing.assert_array_equal(found, values)

    def test_a_folder_in_natural_order_with_labels(self, opened, tmp_path):
        folder = tmp_path / "calib_data"
        folder.mkdir()
        for index in range(12):
            X[index].tofile(folder / f"s{index}.bin")
        (tmp_path / "labels.csv").write_text("".join(f"s{i}.bin,{i % 3}\n" for i in range(12)))
        dataset = opened(
            "{kind: raw, path: calib_data, shape: [2, 3], labels: labels.csv}", "task: classification"
        )
        assert dataset.labels == tuple(i % 3 for i in range(12))
        np.testing.assert_array_equal(dataset[10].inputs["input"], X[10])

    def test_several_inputs(self, opened, tmp_path):
        ids = np.arange(36).reshape(12, 3)
        ids.astype("<i8").tofile(tmp_path / "ids.bin")
        X.tofile(tmp_path / "x.bin")
        inputs = "{ids: {path: ids.bin, dtype: int64, shape: [3]}, x: {path: x.bin, shape: [2, 3]}}"
        dataset = opened(f"{{kind: raw, inputs: {inputs}}}", "preprocess: {inputs: [x], scale: 2}")
        (batch,) = dataset.batches(12)
        np.testing.assert_array_equal(batch.inputs["ids"], ids)
        np.testing.assert_array_equal(batch.inputs["x"], X * 2)
        assert batch.inputs["ids"].dtype == np.int64
        X[:5].tofile(tmp_path / "x.bin")
        with pytest.raises(
            DatasetError, match=r"inputs differ in their number of samples: .*'ids': 12, 'x': 5"
        ):
            opened(f"{{kind: raw, inputs: {inputs}}}")

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (
                "{kind: raw, path: x.bin, shape: [7]}",
                r"x\.bin has 288 bytes, which is no whole number of samples",
            ),
            ("{kind: raw, path: x.bin}", "key 'shape' is missing"),
            ("{kind: raw, shape: [3]}", "expected either path, dtype and shape, or inputs"),
            ("{kind: raw, path: empty, shape: [3]}", "No samples: .*empty holds no files of tensors"),
            (
                "{kind: raw, path: many, shape: [2, 3]}",
                r"a\.bin holds 2 samples .* in a folder each file is one",
            ),
            ("{kind: raw, path: x.bin, shape: [0]}", "greater than or equal to 1"),
            ("{kind: raw, path: ../x.bin, shape: [3]}", "must stay inside the data root"),
        ],
    )
    def test_faults(self, opened, tmp_path, source, message):
        X.tofile(tmp_path / "x.bin")
        for name in ("empty", "many"):
            (tmp_path / name).mkdir()
        X[:2].tofile(tmp_path / "many" / "a.bin")
        with pytest.raises(DatasetError, match=message):
            opened(source)

    def test_the_fingerprint_covers_bytes_and_shape(self, opened, tmp_path):
        X.tofile(tmp_path / "x.bin")
        prints = {
            fingerprint(opened(f"{{kind: raw, path: x.bin, shape: {s}}}")) for s in ("[2, 3]", "[3, 2]")
        }
        (X + 1).tofile(tmp_path / "x.bin")
        prints.add(fingerprint(opened("{kind: raw, path: x.bin, shape: [2, 3]}")))
        assert len(prints) == 3


TONE = np.round(np.sin(np.arange(1000) / 5) * 20000).astype(np.int16)


class TestAudio:
    SOURCE = "{kind: audio, path: clips, sample_rate: 16000"

    @pytest.fixture
    def clips(self, tmp_path):
        folder = tmp_path / "clips"
        folder.mkdir()
        wavfile.write(folder / "a.wav", 16000, TONE)
        wavfile.write(folder / "b.wav", 16000, TONE[:300])
        return folder

    def test_whole_files(self, opened, clips):
        dataset = opened(self.SOURCE + "}")
        assert dataset.ids == ("clips/a.wav", "clips/b.wav")
        values = dataset[0].inputs["input"]
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, TONE / np.float32(32768))
        assert dataset.groups is None

    def test_the_values_are_those_of_pythons_wave(self, opened, clips):
        with wave.open(str(clips / "a.wav")) as file:
            raw = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        np.testing.assert_allclose(opened(self.SOURCE + "}")[0].inputs["input"] * 32768, raw)

    @pytest.mark.parametrize("axis", ["none", "first", "last"])
    def test_one_length(self, opened, clips, axis):
        dataset = opened(self.SOURCE + f", length: 500, channel_axis: {axis}}}")
        (batch,) = dataset.batches(2)
        shape = {"none": (2, 500), "first": (2, 1, 500), "last": (2, 500, 1)}[axis]
        assert batch.inputs["input"].shape == shape
        flat = batch.inputs["input"].reshape(2, 500) * 32768
        np.testing.assert_array_equal(flat[0], TONE[:500])
        np.testing.assert_array_equal(flat[1], np.r_[TONE[:300], np.zeros(200)])

    def test_windows_are_a_sequence(self, opened, clips):
        dataset = opened(self.SOURCE + ", window: 256, context: 64}")
        # 1000 values are four windows, 300 are two.
        assert dataset.ids == (*(f"clips/a.wav#{n}" for n in range(4)), "clips/b.wav#0", "clips/b.wav#1")
        assert dataset.groups == ("a.wav",) * 4 + ("b.wav",) * 2
        padded = np.r_[np.zeros(64), TONE, np.zeros(24)] / np.float32(32768)
        for number in range(4):
            expected = padded[256 * number : 256 * number + 320]
            np.testing.assert_array_equal(dataset[number].inputs["input"], expected.astype(np.float32))
        assert "from value 256" in dataset[1].origin

    def test_windows_that_overlap(self, opened, clips):
        dataset = opened(self.SOURCE + ", window: 400, hop: 200}")
        assert [i for i in dataset.ids if "b.wav" in i] == ["clips/b.wav#0"]
        assert [i for i in dataset.ids if "a.wav" in i] == [f"clips/a.wav#{n}" for n in range(4)]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (np.array([0, 128, 255], np.uint8), [-1, 0, 127 / 128]),
            (np.array([-(1 << 31), 1 << 30], np.int32), [-1, 0.5]),
            (np.array([-1, 0.25], np.float32), [-1, 0.25]),
            (np.array([[100, 300], [-200, 0]], np.int16), [200 / 32768, -100 / 32768]),
        ],
    )
    def test_forms_of_values(self, opened, tmp_path, values, expected):
        wavfile.write(tmp_path / "x.wav", 8000, values)
        dataset = opened("{kind: audio, path: x.wav, sample_rate: 8000, mix: true}")
        assert dataset.ids == ("x.wav",)
        np.testing.assert_allclose(dataset[0].inputs["input"], expected)

    def test_twenty_four_bits(self, opened, tmp_path):
        with wave.open(str(tmp_path / "x.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(3)
            file.setframerate(8000)
            file.writeframes(b"".join(v.to_bytes(3, "little", signed=True) for v in (-(1 << 23), 1 << 22, 0)))
        dataset = opened("{kind: audio, path: x.wav, sample_rate: 8000}")
        assert dataset[0].inputs["input"].tolist() == [-1, 0.5, 0]

    def test_faults_are_counted(self, opened, clips):
        wavfile.write(clips / "rate.wav", 8000, TONE)
        wavfile.write(clips / "stereo.wav", 16000, np.stack([TONE, TONE], 1))
        wavfile.write(clips / "none.wav", 16000, TONE[:0])
        (clips / "text.wav").write_text("no sound")
        (clips / "cut.wav").write_bytes((clips / "a.wav").read_bytes()[:500])
        dataset = opened(self.SOURCE + "}")
        assert dataset.ids == ("clips/a.wav", "clips/b.wav")
        notes = "\n".join(dataset.notes)
        assert "1 file of another rate than 16000 Hz: rate.wav (8000 Hz)" in notes
        assert "1 file of several channels (mix: true averages them): stereo.wav" in notes
        assert "2 damaged files: cut.wav (" in notes
        assert "1 file without a value: none.wav" in notes
        with pytest.raises(DatasetError, match=r"strict: true.*rate\.wav"):
            opened(self.SOURCE + "}", "strict: true")
        with pytest.raises(
            DatasetError, match=r"No samples: .*gives no usable \.wav file .*another rate than 44100"
        ):
            opened(self.SOURCE.replace("16000", "44100") + "}")

    def test_labels(self, opened, clips, tmp_path):
        (tmp_path / "labels.csv").write_text("b.wav,1\na.wav,0\n")
        assert opened(self.SOURCE + ", labels: labels.csv}").labels == (0, 1)
        for name in ("yes", "no"):
            (clips / name).mkdir()
            (clips / f"{name[0]}.wav").unlink(missing_ok=True)
            wavfile.write(clips / name / "x.wav", 16000, TONE)
        for name in "ab":
            (clips / f"{name}.wav").unlink()
        dataset = opened(self.SOURCE + ", window: 500, classes: folders}", "task: classification")
        assert (dataset.labels, dataset.class_names) == ((0, 0, 1, 1), ("no", "yes"))

    def test_options_that_do_not_go_together(self, opened, clips):
        for options in ("length: 5, window: 5", "hop: 5", "context: 5"):
            with pytest.raises(DatasetError, match="window"):
                opened(self.SOURCE + f", {options}}}")

    def test_unknown_chunks_are_no_fault(self, opened, clips):
        content = bytearray((clips / "a.wav").read_bytes()) + b"LIST\x04\0\0\0abcd" + b"junk\x02\0\0\0ab"
        content[4:8] = (len(content) - 8).to_bytes(4, "little")
        (clips / "a.wav").write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(opened(self.SOURCE + "}")) == 2


class TestLabelsByTask:
    """Labels of a CSV file are what the task needs."""

    def labels(self, tmp_path, texts, task):
        from calib.data.sources.labels import check_labels, read_label_file

        file = tmp_path / "y.csv"
        file.write_text("".join(f"{text}\n" for text in texts))
        return check_labels(read_label_file(file, ["a", "b"], task), task, "y.csv")[0]

    def test_text_stays_text(self, tmp_path):
        assert self.labels(tmp_path, ["007", "12"], "text") == ("007", "12")

    def test_measured_values(self, tmp_path):
        assert self.labels(tmp_path, ["0.5", "-2"], "regression") == (0.5, -2.0)
        with pytest.raises(DatasetError, match=r"y\.csv, label 1: label 'x': a regression needs"):
            self.labels(tmp_path, ["0.5", "x"], "regression")

    def test_classes(self, tmp_path):
        assert self.labels(tmp_path, ["007", "12"], "classification") == (7, 12)

    def test_decimal_numbers_are_no_names_of_classes(self, tmp_path):
        assert self.labels(tmp_path, ["10.0", "2.0"], "classification") == (10, 2)
        with pytest.raises(
            DatasetError, match=r"y\.csv, label 1: label '0\.4': a classification needs a class"
        ):
            self.labels(tmp_path, ["2.0", "0.4"], "classification")
