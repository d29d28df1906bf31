"""Faults in data that show without a model."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from calib import check_data
from calib.data import Dataset, Sample, from_arrays, open_calibration
from calib.data.checks import check_datasets
from calib.data.checks_labels import check_notes
from calib.data.findings import Doubt
from calib.errors import DatasetError, UsageError

RANDOM = np.random.default_rng(0)
GREY = RANDOM.random((40, 3, 8, 8)).astype(np.float32)


def codes(found):
    return {finding.code: finding for finding in found.findings}


def checked(calibration, validation=None, **labels):
    data = from_arrays("cal", {"x": calibration}, labels.get("labels"))
    other = None if validation is None else from_arrays("val", {"x": validation}, labels.get("val_labels"))
    return check_data(data, validation=other)


def test_sound_data_have_no_findings():
    found = checked(
        GREY[:20], GREY[20:], labels=[i % 4 for i in range(20)], val_labels=[i % 4 for i in range(20)]
    )
    assert found.findings == ()
    assert found.passed(strict=True)
    assert found.read == {"calibration": 20, "validation": 20}


class TestValues:
    def test_calibration_and_validation_of_different_size(self):
        found = codes(checked(GREY[:20] * 255, GREY[20:]))["ranges-differ"]
        assert found.severity == "error"
        assert "calibration" in found.message
        assert "254." in found.message

    def test_a_factor_of_three_is_a_warning(self):
        assert codes(checked(GREY[:20] * 3, GREY[20:]))["ranges-differ"].severity == "warning"
        assert "ranges-differ" not in codes(checked(GREY[:20] * 1.5, GREY[20:]))

    def test_a_shift_is_seen(self):
        assert codes(checked(GREY[:20] - 0.5, GREY[20:] * 2 - 1 + 2))["ranges-differ"]

    def test_some_samples_scaled_and_some_not(self):
        mixed = GREY.copy()
        mixed[3] *= 255
        found = codes(checked(mixed))["mixed-scales"]
        assert (found.severity, found.where) == ("error", ("cal#3",))

    def test_values_that_are_not_finite(self):
        broken = GREY.copy()
        broken[7, 0, 0, 0] = np.inf
        assert codes(checked(broken))["not-finite"].where == ("cal#7",)

    def test_blank_samples(self):
        blank = GREY.copy()
        blank[5] = 0.5
        found = codes(checked(blank))["constant"]
        assert (found.severity, found.where) == ("warning", ("cal#5",))
        assert codes(checked(np.zeros((4, 3, 8, 8))))["constant"].severity == "error"

    def test_masks_of_a_whole_text_are_not_blank(self):
        ids = RANDOM.integers(5, 99, (6, 9))
        text = {"ids": ids, "mask": np.ones_like(ids), "types": np.zeros_like(ids)}
        assert "constant" not in codes(check_data(from_arrays("cal", text)))
        text["ids"] = np.full_like(ids, 7)
        assert "'ids'" in codes(check_data(from_arrays("cal", text)))["constant"].message

    def test_channels_at_the_other_end(self):
        found = codes(checked(GREY.transpose(0, 2, 3, 1)))["layout"]
        assert "[8, 8, 3], which looks like hwc, but the layout is chw" in found.message

    def test_shapes_that_make_no_batch(self):
        shapes = [(3, 8, 8), (3, 8, 8), (3, 9, 8)]
        dataset = Dataset("a", ("a", "b", "c"), lambda i: Sample(str(i), {"x": RANDOM.random(shapes[i])}))
        found = codes(check_data(dataset))["mixed-shapes"]
        assert "[3, 8, 8] and [3, 9, 8]" in found.message
        assert found.where == ("c",)

    def test_a_sample_that_cannot_be_read_does_not_stop_the_check(self):
        def load(index):
            if index == 1:
                raise DatasetError("Cannot decode b.jpg: cut off.")
            return Sample(str(index), {"x": GREY[index]})

        found = codes(check_data(Dataset("a", ("a", "b", "c"), load)))["unreadable"]
        assert (found.severity, found.where) == ("error", ("b",))
        assert "Cannot decode b.jpg" in found.message


class TestLabels:
    def test_one_class_alone(self):
        found = codes(checked(GREY, labels=[3] * 40))["one-class"]
        assert "All 40 calibration samples are of one class, 3" in found.message

    def test_a_sorted_list_that_was_cut_off(self):
        labels = sorted(i % 4 for i in range(40))
        names = tuple("abcdefgh")
        dataset = Dataset(
            "a", tuple(map(str, range(40))), lambda i: Sample(str(i), {"x": GREY[i]}), tuple(labels), names
        )
        found = codes(check_data(dataset))["class-sorted"]
        assert "end at class 3 of 8" in found.message

    def test_a_whole_sorted_list_is_no_fault(self):
        assert "class-sorted" not in codes(checked(GREY, labels=sorted(i % 4 for i in range(40))))

    def test_classes_that_are_not_calibrated_on(self):
        found = codes(
            checked(GREY[:20], GREY[20:], labels=[0] * 10 + [1] * 10, val_labels=[i % 5 for i in range(20)])
        )
        assert found["classes-not-calibrated"].where == ("2", "3", "4")
        assert found["classes-not-calibrated"].severity == "warning"

    def test_uneven_classes(self):
        big = RANDOM.random((90, 2))
        found = codes(checked(big, labels=[0] * 86 + [1] * 4))["uneven-classes"]
        assert "86 samples of class 0, 4 of class 1" in found.message


class TestDuplicates:
    def test_between_the_uses(self):
        found = codes(checked(GREY[:20], np.concatenate([GREY[20:], GREY[3:4]])))["duplicates-between"]
        assert (found.severity, found.where) == ("warning", ("val#20 = cal#3",))

    def test_within_a_use(self):
        found = codes(checked(np.concatenate([GREY, GREY[:1]])))["duplicates-within"]
        assert (found.severity, found.where) == ("note", ("cal#0 = cal#40",))

    def test_blank_samples_are_no_duplicates(self):
        blank = GREY.copy()
        blank[5:7] = 0
        assert "duplicates-within" not in codes(checked(blank))

    def test_files_that_were_not_read_count_too(self):
        data, other = from_arrays("cal", {"x": GREY}), from_arrays("val", {"x": GREY + 1})
        findings, _ = check_datasets(data, other, 2, {"val#9": "cal#5"})
        assert [f.where for f in findings if f.code == "duplicates-between"] == [("val#9 = cal#5",)]


class TestFiles:
    @pytest.fixture
    def folder(self, tmp_path):
        image = pytest.importorskip("PIL.Image")
        pytest.importorskip("torchvision")
        for name in "ab":
            (tmp_path / "images" / name).mkdir(parents=True)
            for index in range(20):
                pixels = np.random.default_rng(100 * ord(name) + index).integers(
                    0, 256, (30, 40, 3), np.uint8
                )
                image.fromarray(pixels).save(tmp_path / "images" / name / f"{index}.png")
        return tmp_path / "images" / "a"

    @pytest.fixture
    def found(self, folder, recipe):
        def check(more="calibration: {samples: 10}"):
            text = (
                "task: classification\nsource: {kind: images, path: images}\npreprocess: {resize: [16, 16]}\n"
            )
            return codes(check_data(recipe(f"{text}{more}")))

        return check

    @pytest.mark.parametrize(
        ("code", "severity", "name"),
        [
            ("cmyk", "warning", "x.jpg"),
            ("palette", "note", "x.png"),
            ("sixteen-bit", "warning", "x.png"),
            ("black-and-white", "note", "x.png"),
            ("transparent", "note", "x.png"),
            ("exif-turned", "note", "x.jpg"),
            ("animated", "warning", "x.gif"),
            ("wrong-ending", "note", "x.png"),
            ("mixed-sizes", "note", "x.png"),
        ],
    )
    def test_unusual_images(self, folder, found, code, severity, name):
        from PIL import Image

        photo = Image.fromarray(RANDOM.integers(0, 256, (30, 40, 3), np.uint8))
        exif = Image.Exif()
        exif[0x0112] = 6
        others = [Image.fromarray(RANDOM.integers(0, 256, (30, 40, 3), np.uint8)).convert("P")]
        writers = {
            "cmyk": lambda path: photo.convert("CMYK").save(path),
            "palette": lambda path: photo.convert("P").save(path),
            "sixteen-bit": lambda path: Image.fromarray(RANDOM.integers(0, 65536, (30, 40), np.uint16)).save(
                path
            ),
            "black-and-white": lambda path: photo.convert("1").save(path),
            "transparent": lambda path: photo.convert("RGBA").save(path),
            "exif-turned": lambda path: photo.save(path, exif=exif),
            "animated": lambda path: photo.convert("P").save(path, save_all=True, append_images=others),
            "wrong-ending": lambda path: photo.save(path, "JPEG"),
            "mixed-sizes": lambda path: photo.resize((50, 60)).save(path),
        }
        assert code not in found()
        writers[code](folder / name)
        finding = found()[code]
        assert finding.severity == severity
        if code != "mixed-sizes":
            assert finding.where == (f"images/a/{name}",)

    def test_damaged_files_are_named(self, folder, found):
        (folder / "empty.jpg").write_bytes(b"")
        (folder / "cut.png").write_bytes((folder / "0.png").read_bytes()[:600])
        (folder / "text.jpg").write_text("no image")
        finding = found()["files-left-out"]
        assert finding.severity == "warning"
        assert "Left out 3 damaged images: images/a/cut.png" in finding.message
        assert "a/empty.jpg (0 bytes)" in finding.message

    def test_a_copy_among_the_files_is_found_without_decoding(self, folder, recipe):
        for name in ("copy1.png", "copy2.png", "copy3.png", "copy4.png"):
            (folder / name).write_bytes((folder / "7.png").read_bytes())
        text = (
            "source: {kind: images, path: images}\npreprocess: {resize: [16, 16]}\ncalibration: {samples: 20}"
        )
        found = codes(check_data(recipe(text), samples=1))["duplicates-between"]
        names = {f"images/a/{name}" for name in ("7.png", "copy1.png", "copy2.png", "copy3.png", "copy4.png")}
        assert all(set(pair.split(" = ")) <= names for pair in found.where)
        # Each copy that is validated on is named, since some other one is calibrated on.
        validated = names - set(open_calibration(recipe(text)).ids)
        assert {pair.split(" = ")[0] for pair in found.where} == validated

    def test_images_of_one_file_are_no_copies_of_each_other(self, tmp_path, recipe):
        pytest.importorskip("PIL.Image")
        pixels = RANDOM.integers(0, 256, (60, 8, 8), np.uint8)
        header = b"\0\0\x08\x03" + np.array(pixels.shape, ">u4").tobytes()
        (tmp_path / "t10k").write_bytes(header + pixels.tobytes())
        found = codes(check_data(recipe("source: {kind: idx, path: t10k}\ncalibration: {samples: 40}")))
        assert "duplicates-between" not in found

    def test_nothing_left_to_validate_on_is_said(self, found):
        finding = found("calibration: {samples: 40}")["no-validation"]
        assert "none is left to validate on" in finding.message


def test_arguments():
    with pytest.raises(UsageError, match="expected at least 1, got 0"):
        check_data(from_arrays("a", {"x": GREY}), samples=0)
    with pytest.raises(UsageError, match="for datasets made in Python"):
        check_data("digits", validation=from_arrays("a", {"x": GREY}))


def test_a_doubt_stays_one_in_other_processes_and_is_plain_text_in_results():
    doubt = Doubt("Only 3 samples.", "choice", "Take more.")
    for copy in (pickle.loads(pickle.dumps(doubt)), deepcopy(doubt)):
        assert (copy, copy.code, copy.advice) == ("Only 3 samples.", "choice", "Take more.")
    assert json.dumps([doubt]) == '["Only 3 samples."]'


def test_notes_that_are_no_doubts_are_told_as_they_are():
    dataset = replace(
        from_arrays("d", {"x": np.ones((2, 3))}),
        notes=("Left out 2 of 5 samples: they are used for calibration.", Doubt("Only 2.", "choice")),
    )
    found = [(one.code, one.severity, one.message) for one in check_notes(dataset, "validation")]
    assert found == [
        ("source", "note", "validation: Left out 2 of 5 samples: they are used for calibration."),
        ("choice", "warning", "validation: Only 2."),
    ]
