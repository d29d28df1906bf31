"""Recipes written for one test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calib.data import Dataset, Recipe, load_recipe, open_validation

WriteRecipe = Callable[..., Recipe]


@pytest.fixture
def recipe_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def recipe(recipe_file: Callable[[str], Path]) -> WriteRecipe:
    """Loads a recipe whose data root is the test's folder, given its lines after the name."""

    def load(text: str) -> Recipe:
        return load_recipe(recipe_file(f"schema: 1\nname: test\n{text}\n"))

    return load


@pytest.fixture
def opened(recipe: WriteRecipe) -> Callable[..., Dataset]:
    """Opens a source whole, given itself and more lines of the recipe."""

    def open_all(source: str, more: str = "") -> Dataset:
        text = f"source: {source}\ncalibration: {{samples: 1}}\n{more}"
        return open_validation(recipe(text), allow_overlap=True)

    return open_all
