"""Recipes: what is read, and what each mistake is answered with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from calib.data import load_recipe, open_calibration, open_validation, shipped_recipes
from calib.data.selection import _calibration
from calib.errors import CalibError, DatasetError

GOOD = """schema: 1
name: mine
source: {kind: digits, size: 16}
preprocess:
  scale: 1/16
calibration:
  samples: 40
  seed: 3
"""


def test_fields(recipe_file):
    recipe = load_recipe(recipe_file(GOOD))
    assert (recipe.schema_version, recipe.name, recipe.task) == (1, "mine", None)
    assert (recipe.calibration.samples, recipe.calibration.seed) == (40, 3)
    assert recipe.path.name == "recipe.yaml"
    assert recipe.preprocess == {
        "scale": 0.0625,
        "mean": 0.0,
        "std": 1.0,
        "layout": "chw",
    }
    assert recipe == load_recipe(recipe.path)


def test_is_frozen(recipe_file):
    recipe = load_recipe(recipe_file(GOOD))
    with pytest.raises(ValidationError, match="frozen"):
        recipe.name = "other"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  seed: 3", "  sede: 3", "line 8, key calibration.sede: unknown key 'sede'. Did you mean "
         "'seed'? Allowed keys: samples, seed, source."),
        ("name: mine", "nmae: mine", "line 2, key nmae: unknown key 'nmae'. Did you mean 'name'"),
        ("size: 16", "sizes: 16", "line 3, key source.sizes: unknown key 'sizes'. Did you mean "
         "'size'? Allowed keys: kind, size, input."),
        ("  scale: 1/16", "  scal: 2", "line 5, key preprocess.scal: unknown key 'scal'. Did you"),
        ("name: mine\n", "", "line 1: key 'name' is missing."),
        ("schema: 1\n", "", "line 1: key 'schema' is missing."),
        ("schema: 1", "schema: 2", "line 1, key schema: expected 1, got 2."),
        ("kind: digits, ", "", "line 3, key source: key 'kind' is missing. Allowed kinds: arrays, a"),
        ("digits", "digit", "line 3, key source.kind: unknown kind 'digit'. Did you mean 'digits'?"),
        ("  samples: 40", "  samples: 0", "line 7, key calibration.samples: No samples: expected at "
         "least 1, got 0."),
        ("  samples: 40", "  samples: -1", "No samples: expected at least 1, got -1"),
        ("  samples: 40", "  samples: '40'", "line 7, key calibration.samples: value should be a va"),
        ("  samples: 40", "  samples: true", "line 7, key calibration.samples: value should be a va"),
        ("  seed: 3", "  seed: -1", "line 8, key calibration.seed: value should be greater than or"),
        ("size: 16", "size: 4", "line 3, key source.size: value should be greater than or equal to 8"),
        ("1/16", "1/0", 'line 5, key preprocess.scale: expected a number or a fraction such as "1/25'),
        ("1/16", ".nan", "key preprocess.scale: expected a finite number, got nan"),
        ("1/16", "0", "key preprocess.scale: must not be 0"),
        ("1/16", "1\n  std: [1, 0]", "line 6, key preprocess.std: must not be 0"),
        ("1/16", "1\n  resize: 32", "line 6, key preprocess.resize: resize is for images only, but "
         "calibration takes digits"),
        ("1/16", "1\n  resize: [1, 2, 3]", "key preprocess.resize: expected pixels from 1 to 16384"),
        ("1/16", "1\n  color: rbg", "line 6, key preprocess.color: expected 'rgb', 'bgr' or 'gray'"),
        ("1/16", "1\n  inputs: [x]", "line 6, key preprocess.inputs: only for arrays"),
        ("  seed: 3", "  seed: 3\n  samples: 4", "line 9: key 'samples' is on line 7 already"),
        ("name: mine", "name: [mine", "line 3: not valid YAML"),
        ("name: mine", "name: !!python/object:os.system x", "line 2: not valid YAML"),
        ("source: {kind: digits, size: 16}\n", "", "no source for calibration"),
        ("{kind: digits, size: 16}", "{kind: arrays, path: /etc/x.npz}",
         "line 3, key source.path: expected a path relative to the data root, got '/etc/x.npz'"),
        ("{kind: digits, size: 16}", "{kind: arrays, path: a/../../x.npz}",
         "key source.path: must stay inside the data root, got 'a/../../x.npz'"),
    ],
)  # fmt: skip
def test_mistakes(recipe_file, old, new, message):
    assert old in GOOD
    path = recipe_file(GOOD.replace(old, new))
    with pytest.raises(DatasetError, match=re.escape(message)) as caught:
        load_recipe(path)
    assert str(path) in str(caught.value)


def test_all_mistakes_are_told(recipe_file):
    path = recipe_file(GOOD.replace("seed", "sede").replace("size: 16", "size: x"))
    with pytest.raises(DatasetError, match=r"(?s)line 3, key source\.size.*\n.*line 8.*'sede'"):
        load_recipe(path)


def test_own_source_keys_have_their_line(recipe_file):
    text = GOOD + "  source:\n    kind: images\n    pth: x\n"
    message = r"line 11, key calibration\.source\.pth: unknown key 'pth'\. Did you mean 'path'"
    with pytest.raises(DatasetError, match=message):
        load_recipe(recipe_file(text))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected 'key: value' lines, found nothing"),
        (b"- a\n- b\n", "expected 'key: value' lines, found a list"),
        (b"name: caf\xe9\n", "line 1: not UTF-8"),
        (b"name: x\n# " + b"x" * (1 << 20), "larger than 1 MiB"),
        (b"a: " + b"[" * 600, "not usable YAML"),
        (b"a: \x00", "not valid YAML"),
        (b"\x08\x01PK", "not valid YAML"),
    ],
)
def test_not_a_recipe(tmp_path, content, message):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=f"(?s)recipe.yaml.*{message}"):
        load_recipe(path)


def test_aliases_that_multiply_are_harmless(recipe_file):
    rows = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40)]
    path = recipe_file("\n".join(["a0: &a0 [x]", *rows]))
    with pytest.raises(DatasetError, match="line 1, key a0: unknown key 'a0'"):
        load_recipe(path)


def test_a_folder_is_no_recipe(tmp_path):
    with pytest.raises(DatasetError, match="is a folder: expected the path of a YAML file"):
        load_recipe(tmp_path)


def test_unknown_name_lists_the_shipped_ones():
    with pytest.raises(DatasetError, match=r"'digit' is neither.*Did you mean 'digits'\?.*imagenet"):
        load_recipe("digit")


def test_names_found_by_name_only_when_bare():
    with pytest.raises(DatasetError, match="No such recipe"):
        load_recipe("./no/such/digits.yaml")


def test_byte_order_mark_and_crlf(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_recipe(path).name == "mine"


@pytest.mark.parametrize("text", ["1/255", "0.00392156862745098", "3.92156862745098e-3"])
def test_scale_may_be_written_in_any_way(recipe_file, text):
    recipe = load_recipe(recipe_file(GOOD.replace("1/16", text)))
    assert recipe.preprocess["scale"] == pytest.approx(1 / 255, rel=1e-12)


class TestRoot:
    TEXT = "source: {kind: arrays, path: data/x.npz}"

    def test_is_relative_to_the_recipe(self, recipe, tmp_path):
        assert recipe(self.TEXT).data_root == tmp_path
        assert recipe(f"{self.TEXT}\nroot: deep/er").data_root == tmp_path / "deep/er"

    def test_may_be_absolute_or_an_argument(self, recipe, tmp_path):
        loaded = recipe(f"{self.TEXT}\nroot: /data/sets")
        assert loaded.data_root == Path("/data/sets")
        assert load_recipe(loaded.path, root=tmp_path / "other").data_root == tmp_path / "other"

    def test_of_a_shipped_recipe_is_the_current_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert load_recipe("imagenet").data_root == tmp_path

    def test_missing(self, recipe):
        message = r"line 3, key source\.path: no such file or folder: .*/nowhere\. .*set the recipe"
        with pytest.raises(DatasetError, match=message):
            open_calibration(recipe(f"{self.TEXT}\nroot: nowhere"))

    def test_missing_path(self, recipe, tmp_path):
        with pytest.raises(DatasetError, match=f"no such file or folder: {tmp_path}/data/x.npz"):
            open_calibration(recipe(self.TEXT))

    def test_links_may_not_lead_out(self, recipe, tmp_path):
        (tmp_path / "root").mkdir()
        (tmp_path / "secret").mkdir()
        (tmp_path / "root/data").symlink_to(tmp_path / "secret")
        (tmp_path / "secret/x.npz").write_bytes(b"")
        with pytest.raises(DatasetError, match="outside the data root"):
            open_calibration(recipe(f"{self.TEXT}\nroot: root"))

    def test_links_may_stay_inside(self, recipe, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "data").symlink_to(tmp_path / "real")
        (tmp_path / "real/x.npz").write_bytes(b"")
        with pytest.raises(DatasetError, match="is empty"):
            open_calibration(recipe(self.TEXT))


class TestShipped:
    def test_names(self):
        known = {path.stem for path in (Path(__file__).parents[2] / "datasets").glob("*.yaml")}
        assert set(shipped_recipes()) == known
        assert {"arrays", "coco", "digits", "imagenet", "images-folder"} < known

    @pytest.mark.parametrize("name", sorted(shipped_recipes()))
    def test_loads_and_is_named_as_its_file(self, name):
        recipe = load_recipe(name)
        assert recipe.name == name
        assert recipe.description

    @pytest.mark.parametrize("name", ["arrays", "imagenet", "images-folder"])
    def test_without_its_data_says_where_they_belong(self, name, tmp_path):
        with pytest.raises(CalibError, match=f"no such file or folder: {tmp_path}/"):
            open_calibration(load_recipe(name, root=tmp_path))

    def test_digits_opens(self):
        recipe = load_recipe("digits")
        calibration, validation = open_calibration(recipe), open_validation(recipe)
        # scikit-learn's set has 1,797 images; 512 of them are calibrated on.
        assert (len(calibration), len(validation)) == (512, 1797 - 512)
        sample = calibration[0]
        assert sample.inputs["input"].shape == (1, 32, 32)
        assert sample.inputs["input"].dtype == "float32"
        assert max(float(s.inputs["input"].max()) for s in calibration.subset(range(20))) == 1.0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "{kind: coco, annotations: a.json, path: v, class_ids: {a: 0}}",
            "line 3, key source.class_ids.a: value should be a valid integer, got 'a'.",
        ),
        (
            "{kind: coco, annotations: a.json, path: v, class_ids: 3}",
            "line 3, key source.class_ids: expected 'contiguous' or 'as_is', got 3.",
        ),
        (
            "{kind: torchvision, dataset: FashonMNIST, path: v}",
            "got 'FashonMNIST'. Did you mean 'FashionMNIST'?",
        ),
    ],
)
def test_a_key_of_several_forms_gives_one_message(recipe_file, source, message):
    with pytest.raises(DatasetError) as caught:
        load_recipe(recipe_file(f"schema: 1\nname: mine\nsource: {source}\n"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_default_of_samples_is_named_where_it_is_too_many(recipe_file):
    # scikit-learn's digits are 1797.
    text = GOOD.replace("  samples: 40\n", "") + "validation: {allow_overlap: true}\n"
    recipe = load_recipe(recipe_file(text))
    assert len(open_calibration(recipe)) == 512
    few = recipe.open("calibration").subset(range(90))
    with pytest.raises(
        DatasetError, match=r"512 .* has 90\. That is the default: set calibration: {samples: …}"
    ):
        _calibration(recipe, few, None, None)
