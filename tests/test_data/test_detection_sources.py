"""Boxes from COCO, YOLO and Pascal VOC."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.data import Boxes, fingerprint, open_calibration
from calib.data.checks import check_datasets
from calib.data.checks_labels import check_notes
from calib.data.sources.yolo import _box
from calib.errors import DatasetError

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("torchvision")


def picture(path, width=20, height=10, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height)).save(path, **options)


def by_id(dataset):
    return dict(zip(dataset.ids, dataset.labels, strict=True))


class TestCoco:
    SOURCE = "{kind: coco, annotations: a.json, path: val"

    @pytest.fixture
    def content(self, tmp_path):
        for name in ("1.jpg", "2.jpg", "3.jpg"):
            picture(tmp_path / "val" / name)
        return {
            "images": [{"id": 7 + n, "file_name": f"{n}.jpg", "height": 10, "width": 20} for n in (1, 2, 3)],
            "categories": [
                {"id": 3, "name": "car"},
                {"id": 1, "name": "person"},
                {"id": 90, "name": "brush"},
            ],
            "annotations": [
                {"id": 1, "image_id": 8, "category_id": 3, "bbox": [2, 3, 4, 5], "area": 11.5, "iscrowd": 0},
                {"id": 2, "image_id": 8, "category_id": 90, "bbox": [0, 0, 20, 10], "area": 9, "iscrowd": 1},
                {"id": 3, "image_id": 9, "category_id": 1, "bbox": [1.5, 2.5, 1, 1], "area": 1},
            ],
        }

    @pytest.fixture
    def write(self, tmp_path, content):
        def write_json(**changes):
            (tmp_path / "a.json").write_text(json.dumps({**content, **changes}))

        write_json()
        return write_json

    def test_boxes_classes_and_crowds(self, opened, write):
        dataset = opened(self.SOURCE + "}")
        assert dataset.ids == ("val/1.jpg", "val/2.jpg", "val/3.jpg")
        first, second, third = dataset.labels
        assert isinstance(first, Boxes)
        # left, top, width, height → left, top, right, bottom.
        assert first.boxes.tolist() == [[2, 3, 6, 8], [0, 0, 20, 10]]
        assert first.boxes.dtype == np.float32
        # The ids 1, 3, 90 in order: person 0, car 1, brush 2.
        assert first.classes.tolist() == [1, 2]
        assert first.crowd.tolist() == [False, True]
        assert first.areas.tolist() == [11.5, 9]
        assert first.size == (10, 20)
        assert second.boxes.tolist() == [[1.5, 2.5, 2.5, 3.5]]
        assert third.boxes.shape == (0, 4)
        assert dataset.class_names == ("person", "car", "brush")
        sample = dataset[0]
        assert sample.label is first
        assert sample.geometry.source == (10, 20)

    def test_the_same_as_pycocotools(self, opened, write, tmp_path):
        coco = pytest.importorskip("pycocotools.coco").COCO(str(tmp_path / "a.json"))
        ours = opened(self.SOURCE + ", class_ids: as_is}")
        for image_id, boxes in zip(coco.getImgIds(), ours.labels, strict=True):
            theirs = coco.loadAnns(coco.getAnnIds(image_id))
            assert boxes.classes.tolist() == [found["category_id"] for found in theirs]

    @pytest.mark.parametrize(
        ("class_ids", "expected", "names"),
        [
            ("as_is", [3, 90], None),
            ("{1: 0, 3: 1, 90: 1}", [1, 1], None),
            ("{1: 0, 3: 5, 90: null}", [5], None),
            ("{1: 1, 3: 0, 90: null}", [0], ("car", "person")),
            ("map.yaml", [4, 6], None),
        ],
    )
    def test_class_ids(self, opened, write, tmp_path, class_ids, expected, names):
        (tmp_path / "map.yaml").write_text('{"1": 2, "3": 4, "90": 6}')
        dataset = opened(self.SOURCE + f", class_ids: {class_ids}}}")
        assert dataset.labels[0].classes.tolist() == expected
        assert dataset.class_names == names

    def test_a_category_that_is_not_in_the_map(self, opened, write):
        with pytest.raises(DatasetError, match=r"annotation 2: category 90 is not in class_ids.*90: null"):
            opened(self.SOURCE + ", class_ids: {1: 0, 3: 1}}")
        with pytest.raises(DatasetError, match=r"key source\.class_ids: a\.json has no category 2"):
            opened(self.SOURCE + ", class_ids: {1: 0, 2: 1, 3: 2, 90: 3}}")

    def test_images_without_objects(self, opened, write):
        dataset = opened(self.SOURCE + ", without_objects: skip}")
        assert dataset.ids == ("val/1.jpg", "val/2.jpg")
        assert any("Passed over 1 image without objects" in note for note in dataset.notes)

    def test_images_of_another_size_are_left_out(self, opened, write, content, tmp_path):
        picture(tmp_path / "val" / "2.jpg", 40, 20)
        exif = Image.Exif()
        exif[0x0112] = 6
        picture(tmp_path / "val" / "3.jpg", exif=exif)
        dataset = opened(self.SOURCE + "}")
        assert dataset.ids == ("val/1.jpg",)
        note = next(note for note in dataset.notes if "another size" in note)
        assert "Left out 2 images of another size than annotated (height × width)" in note
        assert "val/2.jpg (20 × 40, annotated 10 × 20), val/3.jpg (20 × 10, annotated 10 × 20)" in note

    def test_faults_are_counted(self, opened, write, content, tmp_path):
        bad = [
            {"id": 4, "image_id": 8, "category_id": 1, "bbox": [1, 1, 0, 4]},
            {"id": 5, "image_id": 8, "category_id": 1, "bbox": [1, 1, 2]},
            {"id": 6, "image_id": 99, "category_id": 1, "bbox": [1, 1, 2, 2]},
        ]
        write(annotations=content["annotations"] + bad)
        (tmp_path / "val" / "3.jpg").unlink()
        dataset = opened(self.SOURCE + "}")
        notes = "\n".join(dataset.notes)
        assert "Left out 2 annotations without a box: annotation 4 (width 0), annotation 5" in notes
        assert "Left out 1 annotation of an image that is not listed: annotation 6." in notes
        assert "Left out 1 missing image: val/3.jpg." in notes
        assert len(dataset.labels[0].classes) == 2
        with pytest.raises(DatasetError, match="strict: true"):
            opened(self.SOURCE + "}", "strict: true")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is not JSON, or cut short"),
            ("[]", "has no list 'images', 'annotations', 'categories'"),
            ('{"images": [], "annotations": []}', "has no list 'categories'"),
            (
                '{"images": [{"id": "x"}], "annotations": [], "categories": []}',
                r"images\[0\]: 'id' must be int",
            ),
            (
                '{"images": [{"id": 1, "file_name": "../x.jpg"}], "annotations": [], "categories": []}',
                r"image \.\./x\.jpg lies outside",
            ),
            ('{"images": [], "annotations": [], "categories": []}', "No samples"),
            ("[" * 100000, "is not JSON"),
        ],
    )
    def test_other_files(self, opened, content, tmp_path, text, message):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(DatasetError, match=message):
            opened(self.SOURCE + "}")

    def test_boxes_beyond_the_image(self, opened, write, content):
        wild = [
            {"id": 10, "image_id": 8, "category_id": 3, "bbox": [30, 2, 5, 5]},
            {"id": 11, "image_id": 8, "category_id": 3, "bbox": [15, 2, 9, 5]},
            {"id": 12, "image_id": 8, "category_id": 3, "bbox": [15, 2, 6, 5]},
        ]
        write(annotations=[*content["annotations"], *wild])
        dataset = opened(f"{self.SOURCE}}}")
        # Image 8 is 20 wide: 30 to 35 lies outside, 15 to 24 reaches 4 pixels beyond, 15 to 21 only 1.
        lefts = by_id(dataset)["val/1.jpg"].boxes[:, 0].tolist()
        assert lefts == [2, 0, 15, 15]
        assert any("Left out 1 annotation without a box: annotation 10 (outside" in n for n in dataset.notes)
        assert any("1 box reaches more than 2 pixels beyond its image" in n for n in dataset.notes)
        assert any("annotation 11" in n and "annotation 12" not in n for n in dataset.notes)
        found = {finding.code: finding for finding in check_notes(dataset, "calibration")}
        assert found["boxes-beyond"].severity == found["files-left-out"].severity == "warning"
        # Both uses have the same source: what is wrong with it is told once.
        both = Counter(finding.code for finding in check_datasets(dataset, dataset)[0])
        assert both["boxes-beyond"] == both["files-left-out"] == 1
        with pytest.raises(
            DatasetError, match=r"strict: true.*annotation 10 \(outside of the image of 10 × 20"
        ):
            opened(f"{self.SOURCE}}}", "strict: true")

    def test_no_images_at_all(self, opened, write):
        write(images=[], annotations=[])
        with pytest.raises(DatasetError, match=r"^No samples: .*a\.json lists no images"):
            opened(f"{self.SOURCE}}}")

    def test_the_fingerprint_covers_annotations(self, opened, write, content):
        first = fingerprint(opened(self.SOURCE + "}"))
        write(annotations=content["annotations"][:2])
        assert fingerprint(opened(self.SOURCE + "}")) != first

    def test_samples_are_chosen_by_image(self, recipe, write):
        text = f"source: {self.SOURCE}}}\ncalibration: {{samples: 2}}"
        chosen = open_calibration(recipe(text))
        assert len(chosen) == 2
        assert not any("one class" in note or "classes" in note for note in chosen.notes)


class TestYolo:
    @pytest.fixture
    def folder(self, tmp_path):
        root = tmp_path / "set"
        for name in ("a.jpg", "b.png", "c.jpg"):
            picture(root / "images" / "val" / name, 40, 20)
        labels = root / "labels" / "val"
        labels.mkdir(parents=True)
        (labels / "a.txt").write_text("1 0.5 0.5 0.5 1.0\r\n0 0.25 0.25 0.1 0.2\r\n\r\n")
        (labels / "b.txt").write_text("")
        (root / "data.yaml").write_text("path: .\nval: images/val\nnames: {0: cat, 1: dog}\nnc: 2\n")
        return root

    SOURCE = "{kind: yolo, data: set/data.yaml"

    def test_boxes_in_pixels(self, opened, folder):
        dataset = opened(self.SOURCE + "}")
        assert dataset.ids == tuple(f"set/images/val/{n}" for n in ("a.jpg", "b.png", "c.jpg"))
        first, second, third = dataset.labels
        # centre 0.5 · 40 = 20, width 0.5 · 40 = 20: 10 to 30; centre 10, height 20: 0 to 20.
        np.testing.assert_allclose(first.boxes, [[10, 0, 30, 20], [8, 3, 12, 7]], rtol=1e-6)
        assert first.classes.tolist() == [1, 0]
        assert first.size == (20, 40)
        assert len(second.classes) == len(third.classes) == 0
        assert dataset.class_names == ("cat", "dog")
        assert "data.yaml: 3 images and 2 objects are used." in dataset.notes
        assert "1 image has no label file and so no objects: set/images/val/c.jpg." in dataset.notes

    def test_no_image_that_can_be_used(self, opened, folder):
        for name in ("a.jpg", "b.png", "c.jpg"):
            (folder / "images" / "val" / name).write_bytes(b"x")
        with pytest.raises(DatasetError, match=r"No samples: .*3 damaged images: set/images/val/a\.jpg"):
            opened(self.SOURCE + "}")

    def test_folders_in_place_of_a_yaml(self, opened, folder):
        source = "{kind: yolo, path: set/images/val, labels: set/labels/val, class_names: [cat, dog]}"
        dataset = opened(source)
        np.testing.assert_array_equal(dataset.labels[0].boxes, opened(self.SOURCE + "}").labels[0].boxes)
        with pytest.raises(DatasetError, match="expected either data"):
            opened("{kind: yolo}")

    def test_a_photo_on_its_side(self, opened, folder):
        exif = Image.Exif()
        exif[0x0112] = 6
        picture(folder / "images" / "val" / "a.jpg", 40, 20, exif=exif)
        (first, *_) = opened(self.SOURCE + "}").labels
        assert first.size == (40, 20)
        np.testing.assert_allclose(first.boxes[0], [5, 0, 15, 40])

    def test_polygons(self, opened, folder):
        (folder / "labels/val/a.txt").write_text("0 0.25 0.5 0.75 0.5 0.5 1.0\n")
        dataset = opened(self.SOURCE + "}")
        np.testing.assert_allclose(dataset.labels[0].boxes, [[10, 10, 30, 20]])
        assert any("1 object is a polygon: the box around it is used" in note for note in dataset.notes)

    def test_lines_that_are_no_box(self, opened, folder):
        good, short, named = "0 0.5 0.5 0.1 0.1", "0 0.5 0.5", "cat 0.5 0.5 0.1 0.1"
        lines = [good, short, named, "0 0.5 nan 0.1 0.1", "0 20 10 5 5", "0 .5 .5 0 .1"]
        (folder / "labels/val/a.txt").write_text("\n".join(lines))
        dataset = opened(self.SOURCE + "}")
        assert len(dataset.labels[0].classes) == 1
        note = next(note for note in dataset.notes if "no box" in note)
        assert note.startswith(
            "Left out 5 lines that are no box: a.txt, line 2 (3 values, expected 5), a.txt, line 3"
        )
        with pytest.raises(DatasetError, match=r"strict: true.*a\.txt, line 2"):
            opened(self.SOURCE + "}", "strict: true")

    def test_boxes_that_reach_beyond_the_image_are_used_as_they_are(self, opened, folder):
        # The image is 40 × 20. Centre 38, width 10: 33 to 43; centre 39, width 4: 37 to 41, 1 pixel beyond.
        (folder / "labels/val/a.txt").write_text("0 .95 .5 .25 .5\n1 .975 .5 .1 .5\n")
        dataset = opened(self.SOURCE + "}")
        np.testing.assert_allclose(dataset.labels[0].boxes, [[33, 5, 43, 15], [37, 5, 41, 15]], rtol=1e-6)
        (note,) = (note for note in dataset.notes if "beyond" in note)
        assert note.startswith(
            "1 box reaches more than 2 pixels beyond its image, and is used as it is: a.txt, line 1."
        )

    def test_a_class_without_a_name(self, opened, folder):
        (folder / "labels/val/a.txt").write_text("0 .5 .5 .1 .1\n2 .5 .5 .1 .1\n")
        with pytest.raises(DatasetError, match=r"a\.txt, line 2: class 2, but there are 2 class names"):
            opened(self.SOURCE + "}")

    def test_no_label_files_at_all(self, opened, folder):
        for file in (folder / "labels/val").iterdir():
            file.unlink()
        with pytest.raises(DatasetError, match=r"None of 3 images has a label file: .*labels/val/a\.txt"):
            opened(self.SOURCE + "}")

    @pytest.mark.parametrize(
        ("yaml", "message"),
        [
            ("val: nowhere\nnames: [a, b]\n", r"'nowhere' is not inside the data root"),
            ("path: /usr\nval: lib\nnames: [a, b]\n", r"'lib' is not inside the data root"),
            (
                "train: images/val\nnames: [a]\n",
                r"expected the folder of the images as 'val', got None.*has train",
            ),
            ("val: images/val\nnames: {1: a, 2: b}\n", r"class numbers must be 0 to 1"),
            ("val: images/val\nnames: [a, b]\nnc: 3\n", r"2 names, but nc says 3 classes"),
            ("val: images/val\nnames: !!python/object:os.system [x]\n", r"not valid YAML"),
        ],
    )
    def test_yaml_files(self, opened, folder, yaml, message):
        (folder / "data.yaml").write_text(yaml)
        with pytest.raises(DatasetError, match=message):
            opened(self.SOURCE + "}")

    def test_a_path_of_another_machine_and_a_list(self, opened, folder):
        (folder / "data.yaml").write_text("path: /home/me/set\nval: ../images/val\nnames: [cat, dog]\n")
        assert len(opened(self.SOURCE + "}")) == 3
        (folder / "val.txt").write_text("./images/val/a.jpg\n./images/val/zz.jpg\n")
        (folder / "data.yaml").write_text("val: val.txt\nnames: [cat, dog]\n")
        dataset = opened(self.SOURCE + "}")
        assert dataset.ids == ("set/images/val/a.jpg",)
        assert any("1 missing image: set/images/val/zz.jpg" in note for note in dataset.notes)

    def test_the_fingerprint_covers_label_files(self, opened, folder):
        first = fingerprint(opened(self.SOURCE + "}"))
        (folder / "labels/val/a.txt").write_text("0 .5 .5 .1 .1\n")
        assert fingerprint(opened(self.SOURCE + "}")) != first

    @given(st.lists(st.floats(), max_size=9))
    def test_a_line_is_a_box_with_its_centre_in_the_image_or_refused(self, values):
        try:
            left, top, right, bottom = _box(values)
        except (ValueError, OverflowError):
            return
        # A centre at the border and a size of the whole image: half of that lies outside.
        assert -0.51 <= left < right <= 1.51
        assert -0.51 <= top < bottom <= 1.51


class TestVoc:
    @pytest.fixture
    def folder(self, tmp_path):
        root = tmp_path / "VOC2012"
        for name in ("2008_1", "2008_2"):
            picture(root / "JPEGImages" / f"{name}.jpg")
        for group in ("Main", "Segmentation"):
            (root / "ImageSets" / group).mkdir(parents=True)
            (root / "ImageSets" / group / "val.txt").write_text("2008_1\n2008_2\n")
        (root / "ImageSets" / "Main" / "cat_val.txt").write_text("2008_1  1\n2008_2 -1\n")
        (root / "Annotations").mkdir()
        self.annotate(root, "2008_1", ("cat", "1", "3 4 8 9"), ("person", "0", "1 1 20 10"))
        self.annotate(root, "2008_2")
        return root

    @staticmethod
    def annotate(root, name, *objects, head=""):
        parts = []
        for kind, difficult, box in objects:
            corners = zip(("xmin", "ymin", "xmax", "ymax"), box.split(), strict=True)
            inner = "".join(f"<{key}>{value}</{key}>" for key, value in corners)
            parts.append(
                f"<object><name>{kind}</name><difficult>{difficult}</difficult><bndbox>{inner}</bndbox></object>"
            )
        size = "<size><width>20</width><height>10</height><depth>3</depth></size>"
        xml = f"{head}<annotation>{size}{''.join(parts)}</annotation>"
        (root / "Annotations" / f"{name}.xml").write_text(xml)

    def test_boxes(self, opened, folder):
        dataset = opened("{kind: voc, path: VOC2012}")
        assert dataset.ids == ("VOC2012/JPEGImages/2008_1.jpg", "VOC2012/JPEGImages/2008_2.jpg")
        first, second = dataset.labels
        # Pixels are counted from 1 and the last one is part of the box: 3…8 is 2 to 8 by its edges.
        assert first.boxes.tolist() == [[2, 3, 8, 9], [0, 0, 20, 10]]
        assert [dataset.class_names[n] for n in first.classes] == ["cat", "person"]
        assert first.classes.tolist() == [7, 14]
        assert first.difficult.tolist() == [True, False]
        assert first.size == (10, 20)
        assert len(second.classes) == 0
        assert opened("{kind: voc, path: VOC2012, first_pixel: 0}").labels[0].boxes[0].tolist() == [
            3,
            4,
            8,
            9,
        ]
        assert opened("{kind: voc, path: VOC2012, split: cat_val}").ids == dataset.ids

    def test_the_names_and_objects_are_torchvisions(self, opened, folder, tmp_path):
        from torchvision.datasets import VOCDetection

        (tmp_path / "VOCdevkit").mkdir()
        (tmp_path / "VOCdevkit" / "VOC2012").symlink_to(folder)
        theirs = VOCDetection(str(tmp_path), year="2012", image_set="val", download=False)
        ours = opened("{kind: torchvision, dataset: VOCDetection, path: ., split: val}")
        assert len(ours) == len(theirs)
        names = [found["name"] for found in theirs[0][1]["annotation"]["object"]]
        assert [ours.class_names[n] for n in ours.labels[0].classes] == names

    def test_faults(self, opened, folder):
        self.annotate(
            folder, "2008_2", ("cat", "0", "5 5 3 9"), ("cat", "0", "1 1 2 x"), ("dog", "0", "1 1 2 2")
        )
        (folder / "ImageSets/Main/val.txt").write_text("2008_1\n2008_2\n2008_3\n")
        dataset = opened("{kind: voc, path: VOC2012}")
        notes = "\n".join(dataset.notes)
        assert (
            "2 objects without a box: 2008_2.xml, object 1 (width -1), 2008_2.xml, object 2 (no box)" in notes
        )
        assert "1 missing image: VOC2012/JPEGImages/2008_3.jpg" in notes
        assert len(dataset.labels[1].classes) == 1
        (folder / "Annotations/2008_2.xml").unlink()
        dataset = opened("{kind: voc, path: VOC2012}")
        assert any("1 image without an annotation file" in note for note in dataset.notes)

    def test_boxes_beyond_the_image(self, opened, folder):
        # The image is 20 × 10: 24 to 30 lies outside, 15 to 26 reaches 6 pixels beyond.
        self.annotate(folder, "2008_2", ("cat", "0", "25 1 30 9"), ("dog", "0", "16 1 26 9"))
        dataset = opened("{kind: voc, path: VOC2012}")
        notes = "\n".join(dataset.notes)
        assert "1 object without a box: 2008_2.xml, object 1 (outside of the image of 10 × 20" in notes
        assert "1 box reaches more than 2 pixels beyond its image" in notes
        assert dataset.labels[1].boxes.tolist() == [[15, 0, 26, 9]]

    def test_an_unknown_class(self, opened, folder):
        self.annotate(folder, "2008_2", ("wolf", "0", "1 1 2 2"))
        with pytest.raises(
            DatasetError, match=r"2008_2\.xml, object 1: 'wolf' is none of the 20 class_names"
        ):
            opened("{kind: voc, path: VOC2012}")

    @pytest.mark.parametrize(
        "head",
        [
            '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
            '<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;">]>',
            '<!DOCTYPE a SYSTEM "http://example.org/a.dtd">',
        ],
    )
    def test_document_types_are_refused(self, opened, folder, head):
        self.annotate(folder, "2008_2", head=head)
        with pytest.raises(DatasetError, match=r"2008_2\.xml declares a document type, which is not read"):
            opened("{kind: voc, path: VOC2012}")

    def test_no_xml(self, opened, folder):
        (folder / "Annotations/2008_2.xml").write_text("<annotation><object>")
        with pytest.raises(DatasetError, match=r"2008_2\.xml is not XML"):
            opened("{kind: voc, path: VOC2012}")

    def test_a_split_that_is_not_there(self, opened, folder):
        with pytest.raises(DatasetError, match=r"key source\.split: no such file.*ImageSets/Main/test\.txt"):
            opened("{kind: voc, path: VOC2012, split: test}")


class TestMasks:
    MASK = np.array([[0, 0, 1, 1], [0, 255, 1, 15]], np.uint8)

    def save(self, path, values, mode="P"):
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(values)
        if mode == "P":
            # Colours that have nothing to do with the indices.
            image = image.convert("P")
            image.putdata(values.ravel().tolist())
            image.putpalette([(7 * n) % 256 for n in range(768)])
        image.save(path)

    def test_palette_masks_of_voc(self, opened, tmp_path):
        root = tmp_path / "VOC2012"
        picture(root / "JPEGImages" / "a.jpg", 4, 2)
        (root / "ImageSets" / "Segmentation").mkdir(parents=True)
        (root / "ImageSets" / "Segmentation" / "val.txt").write_text("a\n")
        self.save(root / "SegmentationClass" / "a.png", self.MASK)
        dataset = opened("{kind: voc, path: VOC2012, truth: masks}")
        assert dataset.labels is None
        assert dataset.class_names[:2] == ("background", "aeroplane")
        assert len(dataset.class_names) == 21
        label = dataset[0].label
        assert label.dtype == np.int32
        np.testing.assert_array_equal(label, self.MASK)
        (root / "SegmentationClass" / "a.png").unlink()
        with pytest.raises(DatasetError, match=r"No samples: .*1 image without a mask"):
            opened("{kind: voc, path: VOC2012, truth: masks}")

    def cityscapes(self, tmp_path, values):
        picture(tmp_path / "leftImg8bit" / "val" / "ulm" / "ulm_0_leftImg8bit.png", 4, 2)
        self.save(tmp_path / "gtFine" / "val" / "ulm" / "ulm_0_gtFine_labelIds.png", values, "L")

    CITYSCAPES = (
        "{kind: masks, path: leftImg8bit/val, masks: gtFine/val, image_suffix: _leftImg8bit.png, "
        "mask_suffix: _gtFine_labelIds.png, id_map: cityscapes}"
    )

    def test_cityscapes(self, opened, tmp_path):
        self.cityscapes(tmp_path, np.array([[7, 8, 0, 3], [33, 26, 34, 255]], np.uint8))
        dataset = opened(self.CITYSCAPES)
        assert dataset.ids == ("leftImg8bit/val/ulm/ulm_0_leftImg8bit.png",)
        # road 0, sidewalk 1, bicycle 18, car 13; unlabeled, out of roi and unknown are not judged.
        np.testing.assert_array_equal(dataset[0].label, [[0, 1, 255, 255], [18, 13, 255, 255]])

    def test_masks_move_with_the_image(self, opened, tmp_path):
        picture(tmp_path / "images" / "a.png", 4, 2)
        self.save(tmp_path / "masks" / "a.png", self.MASK, "L")
        dataset = opened(
            "{kind: masks, path: images, masks: masks}", "preprocess: {resize: [4, 8], crop: [4, 4]}"
        )
        # Each pixel twice in both directions, then columns 2 to 5.
        doubled = self.MASK.repeat(2, 0).repeat(2, 1)[:, 2:6]
        np.testing.assert_array_equal(dataset[0].label, doubled)
        assert dataset[0].inputs["input"].shape == (3, 4, 4)

    def test_a_map_of_ids(self, opened, tmp_path):
        picture(tmp_path / "images" / "a.png", 4, 2)
        self.save(tmp_path / "masks" / "a.png", self.MASK, "L")
        dataset = opened("{kind: masks, path: images, masks: masks, id_map: {0: 1, 1: 0, 15: null}}")
        np.testing.assert_array_equal(dataset[0].label, [[1, 1, 0, 0], [1, 255, 0, 255]])

    def test_a_number_that_is_not_in_the_map(self, opened, tmp_path):
        picture(tmp_path / "images" / "a.png", 4, 2)
        self.save(tmp_path / "masks" / "a.png", self.MASK, "L")
        dataset = opened("{kind: masks, path: images, masks: masks, id_map: {0: 1, 15: null}}")
        with pytest.raises(
            DatasetError, match=r"a\.png: number 1 is not in id_map.*Add it: 1: NUMBER, or 1: null"
        ):
            dataset[0]
        dataset = opened("{kind: masks, path: images, masks: masks, id_map: {0: 1, 1: null, 15: null}}")
        assert set(np.unique(dataset[0].label)) <= {1, 255}

    def test_faults(self, opened, tmp_path):
        for name in "abc":
            picture(tmp_path / "images" / f"{name}.png", 4, 2)
        self.save(tmp_path / "masks" / "a.png", self.MASK, "L")
        (tmp_path / "masks" / "b.png").write_bytes(b"x")
        dataset = opened("{kind: masks, path: images, masks: masks}")
        assert dataset.ids == ("images/a.png",)
        notes = "\n".join(dataset.notes)
        assert "1 image without a mask: images/c.png" in notes
        assert "1 damaged mask: b.png (not an image)" in notes
        picture(tmp_path / "masks" / "a.png", 4, 2)
        with pytest.raises(DatasetError, match=r"masks/a\.png is a RGB image: expected class numbers"):
            opened("{kind: masks, path: images, masks: masks}")[0]
        self.save(tmp_path / "masks" / "a.png", self.MASK.T.copy(), "L")
        with pytest.raises(DatasetError, match=r"masks/a\.png has 4 × 2 pixels.* its image .* has 2 × 4"):
            opened("{kind: masks, path: images, masks: masks}")[0]

    def test_the_fingerprint_covers_masks(self, opened, tmp_path):
        self.cityscapes(tmp_path, np.full((2, 4), 7, np.uint8))
        first = fingerprint(opened(self.CITYSCAPES))
        self.cityscapes(tmp_path, np.full((2, 4), 8, np.uint8))
        assert fingerprint(opened(self.CITYSCAPES)) != first
