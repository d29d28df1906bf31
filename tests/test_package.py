"""The package itself: what is exported, shipped and documented."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import calib
from calib.errors import CalibError, MissingExtraError, require

ROOT = Path(__file__).parents[1]
STAGES = ("data", "calibrators", "graph", "engine", "runners", "validation", "report", "demo", "cli")
FOUNDATION = {"calib", "errors", "files", "lazy", "progress", "wording"}


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(calib.__path__, "calib."):
        if found.name != "calib.__main__":
            yield found.name


@pytest.mark.parametrize("name", list(modules()))
def test_every_module_says_what_it_exports(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(set(module.__all__))
    for exported in module.__all__:
        assert hasattr(module, exported), exported


def test_top_level_functions_are_there() -> None:
    assert set(calib.__all__) <= set(dir(calib))
    for name in calib.__all__:
        assert getattr(calib, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = calib.nothing


def imported_stages(path: Path) -> set[str]:
    names: set[str] = set()
    for item in ast.walk(ast.parse(path.read_text())):
        if isinstance(item, ast.ImportFrom) and item.module and item.module.split(".")[0] == "calib":
            parts = item.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in item.names}
    return names - FOUNDATION


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_only_earlier_ones(stage: str) -> None:
    allowed = {*STAGES[: STAGES.index(stage) + 1], "__version__"}
    for path in (ROOT / "calib" / stage).rglob("*.py"):
        assert imported_stages(path) <= allowed, path


def test_modules_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "calib").rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length >= 400} == {}


def test_the_wheel_holds_recipes_types_templates_and_the_demo(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"calib/py.typed", "calib/demo/digits.onnx", "calib/recipes/digits.yaml"} <= names
    assert {f"calib/recipes/{path.name}" for path in (ROOT / "datasets").glob("*.yaml")} <= names
    assert any(name.startswith("calib/report/templates/") for name in names)
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"calib"}


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in (
        ROOT / "README.md",
        ROOT / "reports" / "README.md",
        ROOT / "tests" / "data" / "README.md",
    ):
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_commands_and_tests_that_the_readme_names_exist() -> None:
    text = (ROOT / "README.md").read_text()
    helped = subprocess.run(
        [sys.executable, "-m", "calib", "--help"], check=True, capture_output=True, text=True
    )
    for command in set(re.findall(r"`calib (\w+)`", text)) | set(
        re.findall(r"^calib (\w+)", text, re.MULTILINE)
    ):
        assert re.search(rf"^  {command} ", helped.stdout, re.MULTILINE), command
    for path in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (ROOT / path).exists(), path


def test_errors_have_one_root_and_missing_extras_are_named() -> None:
    from calib import errors

    kinds = [kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)]
    assert all(issubclass(kind, CalibError) for kind in kinds)
    drawn = re.findall(r"(?:├──|└──) (\w+)", errors.__doc__ or "")
    assert {kind.__name__ for kind in kinds} == {*drawn, "CalibError"}
    with pytest.raises(
        MissingExtraError, match=r"Reading tea leaves needs no_such_module, .* 'int8-calib\[tea\]'"
    ):
        require("no_such_module", "tea", "Reading tea leaves")


def test_a_name_is_imported_once_and_an_unknown_one_is_no_attribute() -> None:
    import calib.engine

    for module in (calib, calib.engine):
        name = next(iter(module._HOME))
        assert getattr(module, name) is getattr(module, name)
        assert name in vars(module)
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
            module.nothing  # noqa: B018
