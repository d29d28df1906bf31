"""The shipped recipes for well-known datasets, opened on small folders laid out as their comments say."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from real_pipeline import RECIPES, recipe_beside

from calib.data import IGNORED, Boxes, Dataset, Sample, load_recipe, open_calibration, open_validation

SIZES = ((40, 60), (60, 40), (50, 50), (30, 90))


def picture(path: Path, height: int, width: int, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(values).save(path)


def opened(folder: Path, name: str, samples: int = 2) -> tuple[Dataset, Dataset]:
    """Calibration and validation of a recipe beside its data; small numbers of samples are asked for."""
    recipe = load_recipe(
        recipe_beside(folder, name, calibration={"samples": samples}, validation={"samples": None})
    )
    return open_calibration(recipe), open_validation(recipe)


def by_id(*parts: Dataset) -> dict[str, Sample]:
    return {sample.id: sample for part in parts for sample in part}


def test_coco(tmp_path: Path) -> None:
    # A person (id 1) and a cat (id 17), the first and the 16th of COCO's 80 classes; here of two.
    images, objects = [], []
    for number, (height, width) in enumerate(SIZES, start=1):
        picture(tmp_path / "coco" / "val2017" / f"{number:012}.jpg", height, width)
        images.append({"id": number, "file_name": f"{number:012}.jpg", "height": height, "width": width})
        box = {"bbox": [3.0, 4.0, 10.0, 20.0], "area": 200.0, "iscrowd": 0}
        objects.append({"id": number, "image_id": number, "category_id": (1, 17)[number % 2], **box})
    categories = [{"id": 1, "name": "person"}, {"id": 17, "name": "cat"}]
    content = {"images": images, "annotations": objects, "categories": categories}
    (tmp_path / "coco" / "annotations").mkdir()
    (tmp_path / "coco" / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    calibration, validation = opened(tmp_path, "coco")
    assert (len(calibration), len(validation)) == (2, 2)
    assert calibration.class_names == ("person", "cat")
    for sample in by_id(calibration, validation).values():
        assert isinstance(sample.label, Boxes)
        assert sample.inputs["images"].shape == (3, 640, 640)
        np.testing.assert_array_equal(sample.label.boxes, [[3, 4, 13, 24]])
        assert sample.geometry is not None
        height, width = sample.geometry.source
        factor = 640 / max(height, width)
        (left, top, right, bottom) = sample.geometry.to_model(sample.label.boxes)[0]
        assert (right - left, bottom - top) == pytest.approx((10 * factor, 20 * factor), rel=0.02)


def test_voc(tmp_path: Path) -> None:
    root = tmp_path / "VOCdevkit" / "VOC2012"
    names = [f"2007_{number:06}" for number in range(len(SIZES))]
    for number, (name, (height, width)) in enumerate(zip(names, SIZES, strict=True)):
        picture(root / "JPEGImages" / f"{name}.jpg", height, width)
        (root / "SegmentationClass").mkdir(exist_ok=True)
        mask = np.full((height, width), number + 1, np.uint8)
        mask[: height // 2] = 0
        mask[-1] = IGNORED
        Image.fromarray(mask, "L").save(root / "SegmentationClass" / f"{name}.png")
    (root / "ImageSets" / "Segmentation").mkdir(parents=True)
    (root / "ImageSets" / "Segmentation" / "val.txt").write_text("\n".join(names) + "\n")
    calibration, validation = opened(tmp_path, "voc")
    samples = by_id(calibration, validation)
    assert len(samples) == 4
    for name, sample in samples.items():
        assert sample.inputs["input"].shape == (3, 520, 520)
        number = next(index for index, known in enumerate(names) if known in name)
        assert set(np.unique(sample.label)) == {0, number + 1, IGNORED}
        # Half of the picture is class 0, whatever its size.
        assert (sample.label == 0).mean() == pytest.approx(0.5, abs=0.03)


def test_cityscapes(tmp_path: Path) -> None:
    # labelIds 7 road, 8 sidewalk, 26 car, 4 static → trainIds 0, 1, 13 and not judged.
    wanted = {7: 0, 8: 1, 26: 13, 4: IGNORED}
    for number, label in enumerate(wanted):
        stem = f"ulm_{number:06}_000019"
        picture(tmp_path / "cityscapes/leftImg8bit/val/ulm" / f"{stem}_leftImg8bit.png", 64, 128)
        folder = tmp_path / "cityscapes/gtFine/val/ulm"
        folder.mkdir(parents=True, exist_ok=True)
        mask = np.full((64, 128), label, np.uint8)
        for kind in ("labelIds", "instanceIds", "color"):
            Image.fromarray(mask).save(folder / f"{stem}_gtFine_{kind}.png")
    calibration, validation = opened(tmp_path, "cityscapes")
    found = {}
    for name, sample in by_id(calibration, validation).items():
        assert sample.inputs["input"].shape == (3, 512, 1024)
        (found[name],) = np.unique(sample.label).tolist()
    assert [found[name] for name in sorted(found)] == list(wanted.values())


def test_cifar10(tmp_path: Path) -> None:
    root = tmp_path / "data" / "cifar-10-batches-py"
    root.mkdir(parents=True)
    random = np.random.default_rng(0)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    stored = {}
    for name in names:
        labels = [int(label) for label in random.integers(0, 10, 4)]
        stored[name] = random.integers(0, 256, (4, 3072), np.uint8), labels
        content = {b"batch_label": name.encode(), b"labels": labels, b"data": stored[name][0]}
        (root / name).write_bytes(pickle.dumps(content, protocol=2))
    classes = [f"class {number}".encode() for number in range(10)]
    (root / "batches.meta").write_bytes(pickle.dumps({b"label_names": classes}, protocol=2))
    calibration, validation = opened(tmp_path, "cifar10", 20)
    assert (len(calibration), len(validation)) == (20, 4)
    pixels, labels = stored["test_batch"]
    assert [sample.label for sample in validation] == labels
    values = pixels[0].reshape(3, 32, 32) / 255
    mean, deviation = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    expected = (values - np.reshape(mean, (3, 1, 1))) / np.reshape(deviation, (3, 1, 1))
    np.testing.assert_allclose(validation[0].inputs["input"], expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A tokenizer of whole words, as tokenizer.json."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", "the", "is", "plot"]
    model = tokenizers.models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_glue(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "SST-2").mkdir()
    rows = ["a good film\t1", "the plot is bad\t0", "good\t1", "a bad bad plot\t0"]
    (tmp_path / "SST-2" / "dev.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    calibration, validation = opened(tmp_path, "glue-sst2")
    found = {
        tuple(sample.inputs["input_ids"].tolist()): sample.label for sample in [*calibration, *validation]
    }
    assert found == {(2, 4, 5, 7, 3): 1, (2, 8, 10, 9, 6, 3): 0, (2, 5, 3): 1, (2, 4, 6, 6, 10, 3): 0}
    (batch,) = validation.batches(2)
    lengths = batch.inputs["attention_mask"].sum(axis=1)
    assert batch.inputs["input_ids"].shape == (2, lengths.max())
    assert batch.inputs["input_ids"].dtype == np.int64


def test_sentence_pairs(tmp_path: Path, tokenizer: Path) -> None:
    rows = ["a good film\tthe film is good\t4.5", "bad plot\tgood film\t1.0", "a film\tthe plot\t2.0"]
    (tmp_path / "pairs.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    calibration, validation = opened(tmp_path, "sentence-pairs")
    # Two sentences a pair, and pairs are never parted.
    assert (len(calibration), len(validation)) == (2, 4)
    assert calibration[0].label.pair == calibration[1].label.pair
    assert {sample.label.score for sample in [*calibration, *validation]} == {4.5, 1.0, 2.0}


def test_every_recipe_says_where_its_files_go() -> None:
    for path in sorted(RECIPES.glob("*.yaml")):
        recipe = load_recipe(path)
        head = path.read_text().split("schema:")[0]
        paths = {
            source.path
            for use in ("calibration", "validation")
            if (source := recipe.source_of(use)) and getattr(source, "path", None)
        }
        for wanted in paths:
            assert str(wanted).split("/")[0] in head, f"{path.name} does not say where {wanted} lies"


@pytest.mark.parametrize("name", ["coco", "voc", "cityscapes", "cifar10", "glue-sst2", "text-detection"])
def test_a_recipe_without_its_data_says_what_is_missing(name: str, tmp_path: Path) -> None:
    from calib.errors import DatasetError

    copied = tmp_path / f"{name}.yaml"
    shutil.copy(RECIPES / copied.name, copied)
    with pytest.raises(DatasetError, match=r"no such file or folder: .*Put the data there"):
        open_calibration(load_recipe(copied))
