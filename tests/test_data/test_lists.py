"""Lists of images: val.txt, MLPerf's calibration lists, manifests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.data import fingerprint, open_calibration, open_validation
from calib.data.sources.lists import Columns, read_list
from calib.errors import DatasetError

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("torchvision")

NAMES = [f"ILSVRC2012_val_0000000{n}.JPEG" for n in range(1, 6)]


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "val"
    folder.mkdir()
    for index, name in enumerate(NAMES):
        Image.fromarray(np.full((4, 6, 3), 40 * index, np.uint8)).save(folder / name)
    return folder


@pytest.fixture
def opened(recipe, tmp_path, images):
    """Opens the images that a list names, given its text and more options."""

    def open_list(text, options="", more="", name="list.txt"):
        (tmp_path / name).write_bytes(text.encode())
        lines = f"source: {{kind: images, path: val, list: {name}{options}}}\ncalibration: {{samples: 1}}\n"
        return open_validation(recipe(lines + more), allow_overlap=True)

    return open_list


def pairs(dataset):
    return [(Path(i).name, label) for i, label in zip(dataset.ids, dataset.labels, strict=True)]


class TestForms:
    def test_imagenet(self, opened):
        dataset = opened(f"{NAMES[0]} 65\n{NAMES[2]} 970\n{NAMES[1]} 230\n")
        assert pairs(dataset) == [(NAMES[0], 65), (NAMES[2], 970), (NAMES[1], 230)]
        assert dataset[1].label == 970
        assert dataset[1].inputs["input"][0, 0, 0] == pytest.approx(80, abs=1)

    def test_mlperf_lists_have_no_labels(self, opened):
        dataset = opened("".join(f"{name}\n" for name in NAMES[:3]))
        assert dataset.labels is None
        assert [Path(i).name for i in dataset.ids] == NAMES[:3]

    @pytest.mark.parametrize(
        ("text", "options"),
        [
            ("path,label\n{0},3\n{1},7\n", ""),
            ("{0},3\n{1},7\n", ""),
            ("{0}\t3\n{1}\t7\n", ""),
            ("split,class_id,filename\nval,3,{0}\nval,7,{1}\n", ""),
            ("a,b,c\n3,x,{0}\n7,x,{1}\n", ", columns: {path: c, label: a}"),
            ("3,x,{0}\n7,x,{1}\n", ", columns: {path: 2, label: 0}"),
            ('"{0}" , "3"\n"{1}" , "7"\n', ""),
            ("file label\n{0} 3\n{1} 7\n", ""),
        ],
    )
    def test_manifests(self, opened, text, options):
        assert pairs(opened(text.format(*NAMES), options)) == [(NAMES[0], 3), (NAMES[1], 7)]

    @pytest.mark.parametrize("mark", [" ", "\t", ","])
    def test_carriage_returns_blanks_empty_lines_and_comments(self, opened, mark):
        text = (
            f"# images of the set\r\n\r\n  {NAMES[0]}{mark}3  \r\n   \r\n{NAMES[1]}{mark}7\t\r\n# end\r\n\r\n"
        )
        if mark == "\t":
            text = text.replace("7\t", "7")
        assert pairs(opened(text)) == [(NAMES[0], 3), (NAMES[1], 7)]

    def test_a_byte_order_mark(self, opened):
        assert pairs(opened(f"\ufeff{NAMES[0]} 3\n")) == [(NAMES[0], 3)]

    def test_names_with_blanks(self, opened, images):
        (images / NAMES[0]).rename(images / "a photo.JPEG")
        assert pairs(opened("a photo.JPEG 12\n")) == [("a photo.JPEG", 12)]
        assert opened("a photo.JPEG\n").ids == ("val/a photo.JPEG",)

    def test_absolute_names_and_backslashes(self, opened, images):
        (images / "sub").mkdir()
        (images / NAMES[1]).rename(images / "sub" / "x.JPEG")
        dataset = opened(f"{images / NAMES[0]} 1\nsub\\x.JPEG 2\n")
        assert dataset.ids == (f"val/{NAMES[0]}", "val/sub/x.JPEG")
        assert any("Repaired 1 name written with backslashes" in note for note in dataset.notes)


class TestLabels:
    def test_names_are_numbered_as_folders_are(self, opened):
        dataset = opened(f"{NAMES[0]} dog\n{NAMES[1]} cat\n")
        assert (dataset.labels, dataset.class_names) == ((1, 0), ("cat", "dog"))

    def test_a_file_of_class_names(self, opened, tmp_path):
        (tmp_path / "labels.txt").write_text("dog\nbird\ncat\n\n")
        dataset = opened(f"{NAMES[0]} cat\n{NAMES[1]} 0\n".replace(" 0", " dog"), ", class_names: labels.txt")
        assert (dataset.labels, dataset.class_names) == ((2, 0), ("dog", "bird", "cat"))
        with pytest.raises(DatasetError, match=r"list\.txt, line 1: 'fox' is none of the 3 class_names"):
            opened(f"{NAMES[0]} fox\n", ", class_names: labels.txt")
        with pytest.raises(DatasetError, match=r"line 2: class number 3, but there are 3 class_names"):
            opened(f"{NAMES[0]} 2\n{NAMES[1]} 3\n", ", class_names: labels.txt")
        (tmp_path / "labels.txt").write_text("dog\n\ncat\n")
        with pytest.raises(DatasetError, match=r"labels\.txt, line 2: empty"):
            opened(f"{NAMES[0]} cat\n", ", class_names: labels.txt")

    def test_offset(self, opened):
        assert opened(f"{NAMES[0]} 1\n{NAMES[1]} 1000\n", ", label_offset: -1").labels == (0, 999)
        message = r"line 2: class number -1 \(with label_offset -1\): class numbers begin at 0"
        with pytest.raises(DatasetError, match=message):
            opened(f"{NAMES[0]} 1\n{NAMES[1]} 0\n", ", label_offset: -1")
        with pytest.raises(DatasetError, match="label_offset is for class numbers, but labels are names"):
            opened(f"{NAMES[0]} cat\n", ", label_offset: -1")

    def test_text_and_values(self, opened):
        from calib.data.sources.labels import labels_of_texts

        assert labels_of_texts({"a": "12", "b": "x y"}, "text", what="l")[0] == ("12", "x y")
        assert labels_of_texts({"a": "12", "b": "0.5"}, "regression", what="l")[0] == (12.0, 0.5)
        with pytest.raises(DatasetError, match="l, b: label 'x': a regression needs a finite number"):
            labels_of_texts({"a": "1", "b": "x"}, "regression", what="l")

    def test_a_number_does_not_depend_on_which_files_are_there(self, opened, images):
        (images / NAMES[0]).unlink()
        assert opened(f"{NAMES[0]} ant\n{NAMES[1]} bee\n").labels == (1,)

    def test_options_without_a_list(self, recipe, images):
        with pytest.raises(DatasetError, match=r"key source\.label_offset: only with a list"):
            open_calibration(recipe("source: {kind: images, path: val, label_offset: -1}"))


class TestFaults:
    TEXT = f"{NAMES[0]} 1\n\n# c\n{NAMES[1]} 2\n0000005 .ppm 3\n"

    def test_missing_files_are_counted_and_listed_by_line(self, opened):
        dataset = opened(self.TEXT)
        assert len(dataset) == 2
        assert "Left out 1 missing image: 0000005 .ppm (list line 5)." in dataset.notes
        assert "list.txt names 3 images; 2 are used." in dataset.notes

    def test_strict_makes_it_an_error(self, opened):
        with pytest.raises(
            DatasetError, match=r"strict: true.*1 missing image: 0000005 \.ppm \(list line 5\)"
        ):
            opened(self.TEXT, more="strict: true")

    def test_nothing_left(self, opened):
        with pytest.raises(DatasetError, match=r"No samples: .*2 missing images: x\.jpg .*list line 1"):
            opened("x.jpg 1\ny.jpg 2\n")

    def test_damaged_files(self, opened, images):
        (images / NAMES[1]).write_bytes(b"")
        dataset = opened(self.TEXT)
        assert dataset.ids == (f"val/{NAMES[0]}",)
        assert any(f"1 damaged image: val/{NAMES[1]} (0 bytes)" in note for note in dataset.notes)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"No samples: .*list\.txt is empty"),
            ("# nothing\n", "No samples"),
            ("path,label\n", "has a heading, but no entries"),
            ("image\n", "has a heading, but no entries"),
            (f"{NAMES[0]} 1\n{NAMES[1]}\n", r"line 2: 'ILS.*' has no label, but 1 of 2 lines have one"),
            (f"{NAMES[0]} 1\n{NAMES[0]} 2\n", r"line 2: a second label for .*'2', but '1' on line 1"),
            ("../r.jpg 1\n", r"line 1: \.\./r\.jpg lies outside of"),
            ("/etc/x.jpg 1\n", r"line 1: /etc/x\.jpg lies outside of"),
            ("a,b\nx,1\n", r"the heading a, b names no column of files"),
            (f"{NAMES[0]},1,2\n", r"3 columns without a heading"),
            (f"{NAMES[0]},1\n{NAMES[1]},1,2\n", r"line 2: 3 columns, but line 1 has 2"),
            (f"path,label\n{NAMES[0]},\n", r"line 2: the label is empty"),
            (f"path,label\n,{NAMES[0]}\n", r"line 2: the file name is empty"),
        ],
    )
    def test_what_cannot_be_meant(self, opened, text, message):
        with pytest.raises(DatasetError, match=message):
            opened(text)

    @pytest.mark.parametrize(
        ("labels", "columns", "message"),
        [
            (" 3", "{path: 0, label: 7}", r"list\.txt has no column 7: its lines are a file name and, after"),
            (" 3", "{path: file}", r"no column 'file'"),
            ("", "{label: 1}", r"no column 1: its lines are a file name alone\. Leave out columns"),
        ],
    )
    def test_columns_of_a_list_without_separators(self, opened, labels, columns, message):
        with pytest.raises(DatasetError, match=message):
            opened("".join(f"{name}{labels}\n" for name in NAMES), f", columns: {columns}")

    def test_decimal_numbers_are_no_names_of_classes(self, opened):
        task = "task: classification\n"
        # As text 10.0 comes before 2.0: numbers that were sorted as names would be other classes.
        text = f"path,label\n{NAMES[0]},2.0\n{NAMES[1]},10.0\n"
        assert opened(text, more=task).labels == (2, 10)
        assert opened(text, ", label_offset: -1", more=task).labels == (1, 9)
        with pytest.raises(
            DatasetError, match=r"line 3: label '0\.4': a classification needs a class number"
        ):
            opened(f"path,label\n{NAMES[0]},2.0\n{NAMES[1]},0.4\n", more=task)
        assert opened(f"path,label\n{NAMES[0]},2.0\n{NAMES[1]},0.4\n").labels == (2.0, 0.4)

    def test_columns_that_such_a_list_has(self, opened):
        text = "".join(f"{name} 3\n" for name in NAMES)
        assert opened(text, ", columns: {path: 0, label: 1}").labels == (3,) * 5
        assert opened(f"path label\n{text}", ", columns: {label: label}").labels == (3,) * 5

    def test_unknown_columns(self, opened):
        with pytest.raises(
            DatasetError, match=r"no column 'lable'\. Did you mean 'label'\? There are: path, label"
        ):
            opened(f"path,label\n{NAMES[0]},1\n", ", columns: {label: lable}")
        with pytest.raises(DatasetError, match="there is no column 5"):
            opened(f"path,label\n{NAMES[0]},1\n", ", columns: {label: 5}")

    def test_not_text(self, opened, tmp_path, recipe):
        (tmp_path / "b.txt").write_bytes(b"a.jpg 1\n\xff\xfe.jpg 2\n")
        with pytest.raises(DatasetError, match=r"b\.txt, line 2: not UTF-8"):
            open_calibration(recipe("source: {kind: images, path: val, list: b.txt}"))

    def test_repeats(self, opened):
        dataset = opened(f"{NAMES[0]} 1\n{NAMES[0]} 1\n")
        assert len(dataset) == 1
        assert any("1 repeat in the list" in note for note in dataset.notes)


def test_the_fingerprint_covers_labels_and_files(opened, images):
    first = fingerprint(opened(f"{NAMES[0]} 1\n{NAMES[1]} 2\n"))
    assert fingerprint(opened(f"{NAMES[0]} 1\n{NAMES[1]} 2\n# same\n")) == first
    assert fingerprint(opened(f"{NAMES[0]} 1\n{NAMES[1]} 3\n")) != first
    (images / NAMES[0]).write_bytes((images / NAMES[2]).read_bytes())
    assert fingerprint(opened(f"{NAMES[0]} 1\n{NAMES[1]} 2\n")) != first


WORD = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters=",\"'#\\"), min_size=1
)


@given(st.lists(st.tuples(WORD, st.integers(0, 10**6)), min_size=1, max_size=8), st.sampled_from(" \t,"))
def test_any_names_come_back(tmp_path_factory, entries, mark):
    path = tmp_path_factory.mktemp("lists") / "l.txt"
    text = "".join(f"{name}.png{mark}{label}\n" for name, label in entries)
    path.write_text(text, encoding="utf-8")
    rows = read_list(path, Columns(), (".png",))
    assert [(row.name, row.label) for row in rows] == [(f"{name}.png", str(label)) for name, label in entries]
