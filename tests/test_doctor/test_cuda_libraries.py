from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from calib.engine import cuda_libraries
from calib.engine.cuda_libraries import LibraryInfo, detect_libraries

CUDNN = "size_t cudnnGetVersion(void) { return 8907; }"
CUDART = "int cudaRuntimeGetVersion(int *version) { *version = 12020; return 0; }"

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler makes the libraries")


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_libraries, "_packages", lambda pattern: [])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the loader looks first."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return tmp_path


def compile_library(file: Path, code: str) -> None:
    source = file.with_suffix(".c")
    source.write_text(f"#include <stddef.h>\n{code}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(file), str(source)], check=True)


@needs_compiler
@pytest.mark.usefixtures("no_packages")
def test_libraries_tell_their_versions(folder: Path) -> None:
    compile_library(folder / "libcudnn.so", CUDNN)
    compile_library(folder / "libcudart.so", CUDART)
    assert detect_libraries() == (
        LibraryInfo("CUDA runtime", "12.2", "libcudart.so"),
        LibraryInfo("cuDNN", "8.9.7", "libcudnn.so"),
    )


@needs_compiler
@pytest.mark.usefixtures("no_packages")
def test_a_library_that_ends_its_process_does_not_end_ours(folder: Path) -> None:
    compile_library(folder / "libcudnn.so", "#include <stdlib.h>\nsize_t cudnnGetVersion(void) { abort(); }")
    compile_library(folder / "libcudart.so", CUDART)
    runtime, cudnn = detect_libraries()
    assert runtime.version == "12.2"
    assert cudnn == LibraryInfo("cuDNN")


def test_packages_are_told_where_the_loader_finds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_libraries, "_ask", lambda library, timeout_s: None)
    for name, version in (("nvidia_cudnn_cu12", "8.9.7.29"), ("nvidia-cudnn-cu13", "9.24.0.43")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    _, cudnn = detect_libraries()
    assert cudnn == LibraryInfo(
        "cuDNN",
        "9.24.0.43",
        "package nvidia-cudnn-cu13",
        ("nvidia-cudnn-cu13 9.24.0.43", "nvidia-cudnn-cu12 8.9.7.29"),
    )
