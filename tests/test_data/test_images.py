"""Image folders: what is found, how it is labelled, decoded and prepared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from calib.data import fingerprint
from calib.data.pixels import read_size
from calib.data.preprocess import Interpolation
from calib.errors import DatasetError, MissingExtraError

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("torchvision")

NOISE = np.random.default_rng(1).integers(0, 256, (40, 100, 3), np.uint8)


def save(path: Path, pixels=NOISE, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.fixture
def opened(opened):
    """Opens the folder ``images`` whole, given options and more lines of the recipe."""
    return lambda options="", more="": opened(f"{{kind: images, path: images{options}}}", more)


@pytest.fixture
def images(tmp_path):
    return tmp_path / "images"


def pixels_of(dataset, index=0):
    return dataset[index].inputs["input"]


class TestFinding:
    def test_endings_in_any_case(self, opened, images):
        for name in ("a.JPEG", "b.JPG", "c.jpeg", "d.PNG", "e.webp"):
            save(images / name)
        (images / "list.txt").write_text("x")
        dataset = opened()
        assert dataset.ids == tuple(f"images/{n}" for n in ("a.JPEG", "b.JPG", "c.jpeg", "d.PNG", "e.webp"))
        notes = "\n".join(dataset.notes)
        assert "Images by ending: .JPEG 1, .JPG 1, .PNG 1, .jpeg 1, .webp 1." in notes
        assert "Passed over 1 file that is no image by its ending (.txt 1): list.txt." in notes
        assert dataset.labels is None

    def test_hidden_entries_are_counted(self, opened, images):
        for name in ("a/1.png", "b/1.png", ".ipynb_checkpoints/1.png", "__MACOSX/a/1.png", "a/._1.png"):
            save(images / name)
        (images / ".DS_Store").write_bytes(b"\0")
        dataset = opened()
        assert dataset.ids == ("images/a/1.png", "images/b/1.png")
        assert dataset.class_names == ("a", "b")
        hidden = "Passed over 4 hidden entries: .DS_Store, .ipynb_checkpoints, __MACOSX, a/._1.png."
        assert hidden in dataset.notes

    @pytest.mark.parametrize("name", ["données/été 1.jpg", "图/א.png", "a/two\nlines.png", "b/ .png"])
    def test_any_name(self, opened, images, name):
        save(images / name)
        dataset = opened()
        assert dataset.ids == (f"images/{name}",)
        assert pixels_of(dataset).shape == (3, 40, 100)

    def test_a_name_that_is_no_text_is_left_out(self, opened, images):
        save(images / "a.png")
        (images / "b\udcff.png").write_bytes((images / "a.png").read_bytes())
        dataset = opened()
        assert dataset.ids == ("images/a.png",)
        note = next(note for note in dataset.notes if "UTF-8" in note)
        assert note == "Left out 1 image whose name is not UTF-8: images/b\\udcff.png."
        json.dumps(dataset.notes).encode("utf-8")

    def test_links_in_a_circle_end(self, opened, images):
        save(images / "a/1.png")
        save(images / "b/1.png")
        (images / "a/up").symlink_to(images)
        (images / "a/to_b").symlink_to(images / "b")
        (images / "b/to_a").symlink_to(images / "a")
        ids = opened().ids
        assert {"images/a/1.png", "images/b/1.png", "images/a/to_b/1.png"} <= set(ids)
        assert len(ids) < 10

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ("", r"No samples: .*/images holds no readable images .*1 other file, 1 hidden.*\.jpeg"),
            (", classes: folders", "No samples"),
        ],
    )
    def test_nothing_found(self, opened, images, options, message):
        images.mkdir()
        (images / ".x.png").write_bytes(b"")
        (images / "a.txt").write_bytes(b"")
        with pytest.raises(DatasetError, match=message):
            opened(options)

    def test_missing_folder(self, opened):
        with pytest.raises(DatasetError, match=r"line 3, key source\.path: no such file or folder"):
            opened()

    def test_a_file_is_no_folder(self, opened, images):
        images.write_bytes(b"")
        with pytest.raises(DatasetError, match="is a file, expected a folder"):
            opened()


class TestClasses:
    def test_whole_numbers_are_class_numbers(self, opened, images):
        for number in (0, 1, 2, 10):
            save(images / f"{number}/x.png")
        dataset = opened()
        assert dict(zip(dataset.ids, dataset.labels, strict=True)) == {
            f"images/{n}/x.png": n for n in (0, 1, 2, 10)
        }
        note = "Class folders are whole numbers, taken as class numbers: 0 = 0, 1 = 1, 2 = 2, 10 = 10."
        assert note in dataset.notes

    def test_one_number_twice(self, opened, images):
        save(images / "1/x.png")
        save(images / "01/x.png")
        with pytest.raises(DatasetError, match="classes '01' and '1' are the same number"):
            opened()

    def test_names_are_sorted_as_image_folder_does(self, opened, images):
        from torchvision.datasets import ImageFolder

        for name in ("b", "a10", "a9", "Z"):
            save(images / f"{name}/deep/x.png")
        dataset = opened()
        folder = ImageFolder(str(images))
        assert list(dataset.class_names) == folder.classes
        expected = {Path(path).relative_to(images.parent).as_posix(): n for path, n in folder.samples}
        assert dict(zip(dataset.ids, dataset.labels, strict=True)) == expected

    def test_a_class_without_images_keeps_its_number(self, opened, images):
        save(images / "c/x.png")
        (images / "b").mkdir()
        dataset = opened()
        assert dataset.labels == (1,)
        assert "1 class has no images: b." in dataset.notes

    def test_given_class_names(self, opened, images):
        save(images / "cat/x.png")
        save(images / "dog/x.png")
        dataset = opened(", class_names: [dog, bird, cat]")
        assert (dataset.labels, dataset.class_names) == ((2, 0), ("dog", "bird", "cat"))
        with pytest.raises(DatasetError, match=r"key source\.class_names: .*Not named: dog"):
            opened(", class_names: [cat]")

    def test_images_here_and_below(self, opened, images):
        save(images / "x.png")
        save(images / "a/x.png")
        with pytest.raises(DatasetError, match="holds 1 images directly and 1 in sub-folders"):
            opened()
        assert opened(", classes: none").labels is None
        assert len(opened(", classes: none")) == 2
        dataset = opened(", classes: folders")
        assert dataset.ids == ("images/a/x.png",)
        assert "Passed over 1 image that lies in no class folder." in dataset.notes

    def test_mapping_is_in_the_description(self, opened, images):
        save(images / "b/x.png")
        save(images / "a/x.png")
        assert opened().description["source"]["class_numbers"] == {"a": 0, "b": 1}


class TestDamage:
    @pytest.fixture
    def damaged(self, images):
        for index in range(17):
            save(images / f"ok{index}.png")
        jpeg = save(images / "cut.jpg").read_bytes()
        (images / "cut.jpg").write_bytes(jpeg[: len(jpeg) // 2])
        (images / "empty.jpg").write_bytes(b"")
        (images / "text.jpg").write_text("no image")
        return images

    def test_is_left_out_and_noted(self, opened, damaged):
        dataset = opened()
        assert len(dataset) == 17
        note = next(note for note in dataset.notes if "damaged" in note)
        assert note.startswith("Left out 3 damaged images: images/cut.jpg (")
        assert "empty.jpg (0 bytes)" in note
        assert "text.jpg (not an image)" in note

    def test_is_an_error_when_strict(self, opened, damaged):
        message = r"strict: true.* Left out 3 damaged images: .*/cut\.jpg .*/empty\.jpg .*/text\.jpg"
        with pytest.raises(DatasetError, match=message):
            opened(more="strict: true")

    def test_all_damaged(self, opened, images):
        images.mkdir()
        (images / "a.png").write_bytes(b"x")
        with pytest.raises(
            DatasetError, match=r"No samples: .*1 damaged image: images/a\.png \(not an image\)"
        ):
            opened()

    @pytest.mark.parametrize("form", ["jpg", "png", "gif", "bmp", "tif", "webp", "ppm"])
    @pytest.mark.parametrize("share", [0.5, 0.95])
    def test_cut_files_of_every_form(self, opened, images, form, share):
        save(images / "ok.png")
        content = save(images / f"cut.{form}").read_bytes()
        (images / f"cut.{form}").write_bytes(content[: int(len(content) * share)])
        assert opened().ids == ("images/ok.png",)

    def test_bytes_after_the_end_do_no_harm(self, opened, images):
        path = save(images / "a.jpg")
        path.write_bytes(path.read_bytes() + b"\0" * 500 + b"trailer")
        assert pixels_of(opened()).shape == (3, 40, 100)

    def test_a_link_to_nothing(self, opened, images):
        save(images / "ok.png")
        (images / "gone.png").symlink_to("nowhere.png")
        assert any("gone.png (link to a file that does not exist)" in n for n in opened().notes)

    def test_damage_found_while_decoding_names_the_file(self, opened, images):
        path = save(images / "a.png")
        content = path.read_bytes()
        path.write_bytes(content[:5000] + content[-12:])
        with pytest.raises(DatasetError, match=r"Cannot decode .*a\.png: "):
            opened()[0]

    def test_too_many_pixels(self, opened, images, monkeypatch):
        save(images / "a.png")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)
        with pytest.raises(DatasetError, match=r"No samples: .*a\.png \(Image size \(4000 pixels\)"):
            opened()


class TestModes:
    GREY = np.arange(0, 160, 4, dtype=np.uint8).reshape(5, 8)

    @pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
    def test_all_become_three_channels(self, opened, images, mode):
        images.mkdir()
        form = "tif" if mode == "CMYK" else "png"
        Image.fromarray(self.GREY).convert(mode).save(images / f"a.{form}")
        result = pixels_of(opened())
        assert result.shape == (3, 5, 8)
        if mode != "1":
            np.testing.assert_array_equal(result, np.stack([self.GREY] * 3))
        else:
            assert set(np.unique(result)) == {0.0, 255.0}
            np.testing.assert_array_equal(result[0], result[2])

    def test_transparency_is_dropped_not_blended(self, opened, images):
        save(images / "rgba.png", np.full((2, 2, 4), [10, 20, 30, 0], np.uint8))
        palette = Image.fromarray(np.zeros((2, 2), np.uint8)).convert("P")
        palette.putpalette([10, 20, 30])
        palette.save(images / "p.png", transparency=0)
        for index in range(2):
            np.testing.assert_array_equal(pixels_of(opened(), index)[:, 0, 0], [10, 20, 30])

    def test_sixteen_bits_keep_the_upper_eight(self, opened, images):
        values = np.array([[0, 255, 256, 0x7F80, 0xFFFF]], np.uint16)
        save(images / "a.png", values)
        np.testing.assert_array_equal(pixels_of(opened())[1], [[0, 0, 1, 0x7F, 0xFF]])

    def test_floating_point_is_refused(self, opened, images):
        save(images / "a.tif", np.ones((2, 2), np.float32))
        with pytest.raises(DatasetError, match=r"a\.tif \(floating-point pixels\)"):
            opened()

    def test_thirty_two_bits_are_refused(self, opened, images):
        save(images / "a.tif", np.full((2, 2), 70000, np.int32))
        with pytest.raises(DatasetError, match=r"a\.tif: 32-bit pixels"):
            opened()[0]


# What a viewer shows for each value of the tag, by the EXIF standard: row 0 and column 0 of the
# stored pixels are the top and left for 1, top and right for 2, bottom and right for 3, …
UPRIGHT = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a.swapaxes(0, 1)[:, ::-1],
    7: lambda a: a.swapaxes(0, 1)[::-1, ::-1],
    8: lambda a: a.swapaxes(0, 1)[::-1],
}


class TestOrientation:
    @pytest.mark.parametrize("orientation", sorted(UPRIGHT))
    @pytest.mark.parametrize("pixels", [NOISE, NOISE[:, :40]])
    # Pillow itself turns TIFF files as it decodes them, and no others.
    @pytest.mark.parametrize("name", ["a.png", "a.tif"])
    def test_photos_are_turned_upright(self, opened, images, orientation, pixels, name):
        exif = Image.Exif()
        exif[0x0112] = orientation
        save(images / name, pixels, exif=exif)
        expected = UPRIGHT[orientation](pixels).transpose(2, 0, 1)
        np.testing.assert_array_equal(pixels_of(opened()), expected)
        assert read_size(images / name) == expected.shape[1:]

    def test_jpeg_of_orientation_6_is_40_wide_and_100_high(self, opened, images):
        exif = Image.Exif()
        exif[0x0112] = 6
        save(images / "a.jpg", exif=exif)
        assert pixels_of(opened()).shape == (3, 100, 40)

    @pytest.mark.parametrize(
        "exif", [b"Exif\0\0II*\0", b"Exif\0\0nonsense", b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x02"]
    )
    def test_a_broken_tag_is_upright(self, opened, images, exif):
        save(images / "a.jpg", exif=exif)
        assert pixels_of(opened()).shape == (3, 40, 100)

    @pytest.mark.parametrize("value", [0, 9, 65535])
    def test_an_unknown_value_is_upright(self, opened, images, value):
        exif = Image.Exif()
        exif[0x0112] = value
        save(images / "a.jpg", exif=exif)
        assert pixels_of(opened()).shape == (3, 40, 100)


class TestPreprocessing:
    def prepared(self, opened, images, steps, pixels=NOISE):
        save(images / "a.png", pixels)
        return pixels_of(opened(more=f"preprocess: {{{steps}}}"))

    def test_short_side(self, opened, images):
        # 40 × 100 to a short side of 20: 20 × 50.
        assert self.prepared(opened, images, "resize: 20").shape == (3, 20, 50)

    def test_crop_is_central(self, opened, images):
        result = self.prepared(opened, images, "crop: [10, 20]")
        np.testing.assert_array_equal(result, NOISE[15:25, 40:60].transpose(2, 0, 1))

    def test_crop_of_a_smaller_image(self, opened, images):
        with pytest.raises(DatasetError, match=r"a\.png: 40 × 100 pixels .* smaller than the crop of 50"):
            self.prepared(opened, images, "crop: 50")

    def test_an_image_one_pixel_high(self, opened, images):
        with pytest.raises(DatasetError, match=r"a\.png: 1 × 1000 pixels are too elongated"):
            self.prepared(opened, images, "resize: 224", np.zeros((1, 1000, 3), np.uint8))
        result = self.prepared(opened, images, "resize: [8, 8]", np.zeros((1, 1000, 3), np.uint8))
        assert result.shape == (3, 8, 8)

    def test_colors(self, opened, images):
        bgr = self.prepared(opened, images, "color: bgr")
        np.testing.assert_array_equal(bgr, NOISE.transpose(2, 0, 1)[::-1])
        gray = self.prepared(opened, images, "color: gray")
        assert gray.shape == (1, 40, 100)
        weighted = NOISE @ np.array([0.299, 0.587, 0.114])
        assert np.abs(gray[0] - weighted).max() <= 1

    def test_usual_chain_equals_torchvision(self, opened, images):
        import torch
        from torchvision.transforms import v2

        mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
        steps = f"resize: 32, crop: 28, scale: 1/255, mean: {mean}, std: {std}"
        result = self.prepared(opened, images, steps)
        chain = v2.Compose(
            [v2.Resize(32), v2.CenterCrop(28), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        )
        normalized = v2.Normalize(mean, std)(chain(Image.fromarray(NOISE)))
        np.testing.assert_allclose(result, normalized.numpy(), atol=1e-5)
        assert result.dtype == np.float32

    def test_layout_and_dtype(self, opened, images):
        result = self.prepared(opened, images, "layout: hwc, dtype: uint8")
        assert result.dtype == np.uint8
        np.testing.assert_array_equal(result, NOISE)

    def test_fraction_in_whole_numbers_names_the_file(self, opened, images):
        with pytest.raises(DatasetError, match=r"images/a\.png: value .* does not fit uint8"):
            self.prepared(opened, images, "scale: 1/255, dtype: uint8")

    def test_rules_are_recorded(self, opened, images):
        save(images / "a.png")
        description = opened(more="preprocess: {resize: 32}").description
        assert description["preprocess"]["resize"] == 32
        assert description["preprocess"]["antialias"] is True
        assert description["preprocess"]["orientation"] == "turned upright by EXIF"
        assert description["preprocess"]["resizer"] == "Pillow"

    def test_sizes_that_differ_are_named_in_a_batch(self, opened, images):
        save(images / "a.png")
        save(images / "b.png", NOISE[:10])
        with pytest.raises(DatasetError, match=r"b\.png has shape \(3, 10, 100\).*Resize all samples"):
            list(opened().batches(2))


@pytest.mark.parametrize(
    ("module", "extra", "antialias"),
    [("PIL.Image", "images", "true"), ("torchvision.transforms.v2.functional", "torch", "false")],
)
def test_missing_extra_is_named(opened, images, monkeypatch, module, extra, antialias):
    save(images / "a.png")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'int8-calib\[{extra}\]'"):
        opened(more=f"preprocess: {{resize: 8, antialias: {antialias}}}")[0]


@pytest.mark.parametrize("kernel", get_args(Interpolation))
def test_images_are_resized_without_torch(opened, images, monkeypatch, kernel):
    save(images / "a.png")
    for module in ("torch", "torchvision", "torchvision.transforms.v2.functional"):
        monkeypatch.setitem(sys.modules, module, None)
    result = pixels_of(opened(more=f"preprocess: {{resize: [16, 24], interpolation: {kernel}}}"))
    expected = Image.fromarray(NOISE).resize((24, 16), Image.Resampling[kernel.upper()])
    np.testing.assert_array_equal(result, np.asarray(expected).transpose(2, 0, 1))


def test_fingerprint_sees_content_and_names(opened, images):
    save(images / "a.png")
    first = fingerprint(opened())
    assert fingerprint(opened()) == first
    save(images / "a.png", NOISE[::-1])
    assert fingerprint(opened()) != first
