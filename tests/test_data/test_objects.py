"""Objects of the user's code by ``module:object``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from calib.data import load_object, looks_like_object, open_reader, shipped_recipes
from calib.errors import DatasetError

CODE = """
import numpy as np

class Maker:
    @staticmethod
    def batches():
        return [np.ones((2, 3))]

def load_data():
    for value in (1, 2):
        yield {"x": np.full((2, 3), value)}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_reader_of_the_current_folder(folder):
    (folder / "my_readers.py").write_text(CODE)
    stream = open_reader(load_object("my_readers:load_data"))
    (first, second) = stream.batches()
    assert stream.name == "my_readers:load_data"
    assert second.origins == (
        "batch 1, row 0 of my_readers:load_data",
        "batch 1, row 1 of my_readers:load_data",
    )
    assert second.ids[1] == "my_readers:load_data#3"
    np.testing.assert_array_equal(first.inputs["x"], np.ones((2, 3)))


def test_dots_on_both_sides(folder):
    (folder / "package_a").mkdir()
    (folder / "package_a" / "__init__.py").write_text("")
    (folder / "package_a" / "inner.py").write_text(CODE)
    (batch,) = open_reader(load_object("package_a.inner:Maker.batches")).batches()
    assert len(batch) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("my_reader:load_data", "there is no module 'my_reader', neither in .* Did you mean 'my_readers'"),
        ("nowhere.at_all:f", "there is no module 'nowhere.at_all'"),
        ("my_readers:load_date", "module 'my_readers' has no 'load_date'. Did you mean 'load_data'"),
        ("my_readers:Maker.batch", "'Maker' has no 'batch'. Did you mean 'batches'"),
        ("my_readers.py:load_data", "give the module, not its file: my_readers:load_data"),
        ("my_readers", "Expected module:object, such as readers:load_data, got 'my_readers'"),
        ("a/b:c", "Expected module:object"),
        ("broken_a:x", r"importing 'broken_a' failed: ZeroDivisionError: .* \(.*broken_a.py, line 2\)"),
        ("broken_b:x", r"importing 'broken_b' failed: SyntaxError: .*broken_b.py, line 1\)\.$"),
        ("broken_c:x", r"importing 'broken_c' failed: ModuleNotFoundError: No module named 'not_there'"),
        ("broken_d:x", "importing 'broken_d' failed: SystemExit: 3"),
    ],
)
def test_mistakes(folder, text, message):
    (folder / "my_readers.py").write_text(CODE)
    (folder / "broken_a.py").write_text("x = 1\nx / 0\n")
    (folder / "broken_b.py").write_text("def\n")
    (folder / "broken_c.py").write_text("import not_there\n")
    (folder / "broken_d.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(DatasetError, match=message):
        load_object(text)


def test_the_cause_is_chained(folder):
    (folder / "broken_e.py").write_text("1 / 0\n")
    with pytest.raises(DatasetError, match="importing 'broken_e' failed") as caught:
        load_object("broken_e:x")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("text", ["readers:load", "a.b.c:D.e", "_m:_f", "reader.py:load"])
def test_objects(folder, text):
    assert looks_like_object(text)


@pytest.mark.parametrize(
    "text",
    [
        *shipped_recipes(),
        "recipe.yaml",
        r"C:\data\recipe.yaml",
        "C:/data/recipe.yaml",
        "recipe:v2.yaml",
        "./readers:load",
        "folder/file:1",
        "a:b:c",
        ":b",
        "a:",
        "a b:c",
        "",
    ],
)
def test_no_objects(folder, text):
    assert not looks_like_object(text)


def test_a_file_comes_first(folder):
    (folder / "notes:today").touch()
    assert not looks_like_object("notes:today")
