"""Recipes written for one test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calib.data import Recipe, load_recipe

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
