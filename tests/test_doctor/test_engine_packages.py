from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calib.engine import packages
from calib.engine.detect import GpuInfo, TensorRTInfo
from calib.engine.packages import PACKAGES, find_conflicts, inspect_packages

NO_TENSORRT = TensorRTInfo("tensorrt", installed=False, problem="not installed")

Install = Callable[[dict[str, str]], None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes these the only installed packages, of which none says what it was built for."""

    def install(versions: dict[str, str]) -> None:
        monkeypatch.setattr(packages, "package_version", versions.get)

    monkeypatch.setattr(packages, "_pinned_torch", lambda: None)
    monkeypatch.setattr(packages, "_cuda_build", lambda package: None)
    install({})
    return install


def tensorrt(version: str, usable: bool = True, distribution: str | None = "tensorrt") -> TensorRTInfo:
    return TensorRTInfo("tensorrt", installed=True, usable=usable, version=version, distribution=distribution)


def test_the_table_is_that_of_the_project_file() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("tomllib is new in Python 3.11")
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    wanted = {
        (found[1], found[2], extra)
        for extra, lines in groups.items()
        if extra != "dev"
        for line in lines
        if (found := re.match(r"([\w-]+)>=([\d.]+)", line))
    }
    assert {(package.name, package.minimum, package.extra) for package in PACKAGES} == wanted


def test_missing_old_and_good(installed: Install) -> None:
    installed({"numpy": "2.4.6", "onnx": "1.15.0", "jinja2": "3.1"})
    rows = {row.name: row for row in inspect_packages()}
    assert (rows["numpy"].version, rows["numpy"].too_old, rows["numpy"].install) == (
        "2.4.6",
        False,
        None,
    )
    assert (rows["onnx"].too_old, rows["onnx"].install) == (True, "pip install 'onnx>=1.16'")
    assert (rows["jinja2"].too_old, rows["jinja2"].install) == (False, None)
    assert (rows["altair"].version, rows["altair"].install) == (
        None,
        "pip install 'int8-calib[report]'",
    )


@pytest.mark.parametrize(
    ("version", "too_old"),
    [("1.9.9", True), ("1.18", False), ("1.18.0rc1", False), ("1.100.0", False), ("1.3.0+gpu", True)],
)
def test_versions_are_compared_as_numbers(installed: Install, version: str, too_old: bool) -> None:
    installed({"onnxruntime": version})
    row = next(row for row in inspect_packages() if row.name == "onnxruntime")
    assert row.too_old is too_old


def test_another_package_with_the_same_module_counts(installed: Install) -> None:
    installed({"onnxruntime-gpu": "1.22.0"})
    names = {row.name: row.version for row in inspect_packages()}
    assert names["onnxruntime-gpu"] == "1.22.0"
    assert "onnxruntime" not in names


def test_the_bindings_are_all_of_cuda_python_that_is_needed(installed: Install) -> None:
    installed({"cuda-bindings": "13.5.0"})
    row = next(row for row in inspect_packages() if row.extra == "cuda-python")
    assert (row.name, row.version, row.install) == ("cuda-bindings", "13.5.0", None)


def test_tensorrt_without_a_package_counts(installed: Install) -> None:
    found = tensorrt("10.3.0", distribution=None)
    row = next(row for row in inspect_packages(found) if row.name == "tensorrt")
    assert (row.version, row.install) == ("10.3.0", None)


def test_nothing_to_complain_about(installed: Install) -> None:
    installed({"numpy": "2.4.6", "onnxruntime": "1.32.0", "torch": "2.14.1", "torchvision": "0.29.1"})
    assert find_conflicts(NO_TENSORRT, (), python=(3, 13)) == ()


def test_two_onnxruntimes(installed: Install) -> None:
    installed({"onnxruntime": "1.22.0", "onnxruntime-gpu": "1.22.0"})
    (line,) = find_conflicts(NO_TENSORRT, ())
    assert line.startswith("onnxruntime and onnxruntime-gpu are installed together")
    assert line.endswith("pip uninstall -y onnxruntime onnxruntime-gpu")


@pytest.mark.parametrize(
    ("numpy", "version", "fails"),
    [
        ("2.0.0", "8.6.0", True),
        ("1.26.4", "8.6.0", False),
        ("2.0.0", "10.3.0", False),
        ("2.0.0", "8.5.3", True),
    ],
)
def test_numpy_2_with_tensorrt_8(installed: Install, numpy: str, version: str, fails: bool) -> None:
    installed({"numpy": numpy})
    lines = find_conflicts(tensorrt(version), (), python=(3, 10))
    assert [f"numpy {numpy} is installed" in line for line in lines] == [True] * fails


@pytest.mark.parametrize(
    ("python", "version", "usable", "fails"),
    [
        ((3, 10), "8.6.0", False, False),
        ((3, 11), "8.6.0", False, True),
        ((3, 11), "8.6.1", True, False),
        ((3, 13), "10.3.0", False, False),
    ],
)
def test_python_with_tensorrt_8(
    installed: Install, python: tuple[int, int], version: str, usable: bool, fails: bool
) -> None:
    lines = find_conflicts(tensorrt(version, usable), (), python=python)
    assert [f"this is Python {python[0]}.{python[1]}" in line for line in lines] == [True] * fails


@pytest.mark.parametrize(
    ("distribution", "cuda", "fails"),
    [
        ("tensorrt-cu13", "12.4", True),
        ("tensorrt-cu13", "13.0", False),
        ("tensorrt-cu12", "13.0", False),
        ("tensorrt", "12.4", False),
        ("tensorrt-cu13", None, False),
        ("tensorrt-cu13-bindings", "12.4", True),
    ],
)
def test_driver_too_old_for_tensorrt(
    installed: Install, distribution: str, cuda: str | None, fails: bool
) -> None:
    gpu = GpuInfo(0, "NVIDIA L4", driver="550.54", cuda=cuda)
    lines = find_conflicts(tensorrt("10.16.1", distribution=distribution), (gpu,))
    expected = (
        f"{distribution} needs a driver that serves CUDA 13, but driver 550.54 serves 12.4. "
        "Update the driver, or install tensorrt-cu12."
    )
    assert list(lines) == [expected] * fails


@pytest.mark.parametrize(
    ("build", "cuda", "fails"),
    [("cu130", "12.4", True), ("cu126", "12.4", False), ("cu121", "11.8", True), ("cpu", "11.8", False)],
)
def test_driver_too_old_for_torch(
    installed: Install, monkeypatch: pytest.MonkeyPatch, build: str, cuda: str, fails: bool
) -> None:
    monkeypatch.setattr(packages, "_cuda_build", lambda name: build)
    lines = find_conflicts(NO_TENSORRT, (GpuInfo(0, "NVIDIA L4", driver="550.54", cuda=cuda),))
    expected = (
        f"torch is built for CUDA {build[2:-1]}.{build[-1:]}, but driver 550.54 serves {cuda}: it will see "
        "no GPU. Update the driver, or install a torch for that CUDA."
    )
    assert list(lines) == [expected] * fails


def test_two_tensorrts(installed: Install) -> None:
    installed({"tensorrt-cu12": "10.16.1", "tensorrt-cu13": "11.4.0"})
    (line,) = find_conflicts(NO_TENSORRT, ())
    assert line.startswith(
        "tensorrt-cu12 and tensorrt-cu13 are installed together: they bring the same module"
    )
    assert line.endswith("pip uninstall -y tensorrt-cu12 tensorrt-cu13")


@pytest.mark.parametrize(
    ("version", "capability", "says"),
    [
        ("8.6.0", (9, 0), None),
        ("8.6.1", (12, 0), "8.6.1 does not know yet. Use 10.8 or later."),
        ("10.7.0", (10, 0), "10.7.0 does not know yet. Use 10.8 or later."),
        ("10.8.0", (10, 0), None),
        ("8.6.1", (6, 1), None),
        ("10.0.1", (6, 1), "10.0.1 no longer serves (it needs 7.0). Use an older TensorRT: 8.6."),
        ("10.4.0", (7, 0), None),
        ("10.5.0", (7, 0), "10.5.0 no longer serves (it needs 7.5). Use an older TensorRT: below 10.5."),
        ("11.4.0", (7, 5), None),
    ],
)
def test_gpus_that_a_tensorrt_does_not_serve(
    installed: Install, version: str, capability: tuple[int, int], says: str | None
) -> None:
    gpu = GpuInfo(0, "Some GPU", compute_capability=capability)
    found = find_conflicts(tensorrt(version), (gpu,), python=(3, 10))
    assert [line for line in found if "compute capability" in line] == (
        [f"Some GPU has compute capability {capability[0]}.{capability[1]}, which TensorRT {says}"]
        if says
        else []
    )


@pytest.fixture
def torch_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where torch and torchvision are looked for first, also if others were imported."""
    for name in ("torch", "torchvision"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write_package(folder: Path, name: str, version: str, build: str, requires: str = "") -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise AssertionError('imported')\n")
    (folder / name / "version.py").write_text(f"__version__ = '{version}+{build}'\ncuda = None\n")
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata + requires)


@pytest.mark.parametrize(
    ("torch", "torch_build", "torchvision_build", "expected"),
    [
        ("2.14.1", "cpu", "cpu", []),
        ("2.14.1", "cpu", "cu130", ["torch is built for cpu, but torchvision for cu130"]),
        ("2.13.0", "cpu", "cpu", ["torchvision 0.29.1 was built for torch 2.14.1, but torch 2.13.0"]),
    ],
)
def test_torchvision_must_fit_torch(
    torch_site: Path,
    torch: str,
    torch_build: str,
    torchvision_build: str,
    expected: list[str],
) -> None:
    write_package(torch_site, "torch", torch, torch_build)
    write_package(torch_site, "torchvision", "0.29.1", torchvision_build, "Requires-Dist: torch==2.14.1\n")
    lines = [line for line in find_conflicts(NO_TENSORRT, ()) if "torch" in line]
    assert len(lines) == len(expected)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start)
        assert line.endswith("pip install -U torch torchvision")


def test_a_build_that_says_nothing_is_no_conflict(torch_site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(torch_site, "torch", "2.14.1", "cpu")
    write_package(torch_site, "torchvision", "0.29.1", "cu130", "Requires-Dist: numpy\n")
    (torch_site / "torchvision" / "version.py").unlink()
    assert [line for line in find_conflicts(NO_TENSORRT, ()) if "torch" in line] == []
