from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calib.engine import GpuInfo, detect_gpus, detect_tensorrt
from calib.engine.detect import package_version, probe_gpus, probe_module

# As printed by driver 580.159.04 on an H200, shortened to the lines that matter.
HEADING = """\
Mon Nov 30 02:11:33 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |"""
H200 = "0, NVIDIA H200, 580.159.04, 143771, 9.0"

Smi = Callable[[str], None]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """Writes an nvidia-smi with a given shell script, the only program on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def write(script: str) -> None:
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return write


def answering(rows: str, heading: str = HEADING) -> str:
    return f'case "$1" in\n--query-gpu=*) echo "{rows}" ;;\n*) echo "{heading}" ;;\nesac'


def test_one_gpu(smi: Smi) -> None:
    smi(answering(H200))
    expected = GpuInfo(0, "NVIDIA H200", "580.159.04", "13.0", (9, 0), 143771)
    assert detect_gpus() == (expected,)


def test_several_gpus_keep_their_order(smi: Smi) -> None:
    smi(answering(f"{H200}\n1, Tesla T4, 580.159.04, 15360, 7.5"))
    assert [(gpu.index, gpu.name, gpu.compute_capability) for gpu in detect_gpus()] == [
        (0, "NVIDIA H200", (9, 0)),
        (1, "Tesla T4", (7, 5)),
    ]


def test_a_driver_that_does_not_know_compute_capability(smi: Smi) -> None:
    smi(
        'case "$1" in\n'
        "*compute_cap*) echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2 ;;\n"
        "--query-gpu=*) echo '0, Tesla P4, 418.67, 7611' ;;\n"
        "*) echo 'Driver Version: 418.67  CUDA Version: 10.1' ;;\nesac"
    )
    assert detect_gpus() == (GpuInfo(0, "Tesla P4", "418.67", "10.1", None, 7611),)


def test_facts_that_the_driver_withholds_are_none(smi: Smi) -> None:
    smi(answering("0, GRID V100, [N/A], [Not Supported], [N/A]", heading="no version here"))
    assert detect_gpus() == (GpuInfo(0, "GRID V100", None, None, None, None),)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'No devices were found'; exit 6", "exit status 6: No devices were found"),
        ("echo 'cannot talk to the driver' >&2; exit 9", "exit status 9: cannot talk to the driver"),
        ("exit 1", "exit status 1: it said nothing"),
        ("exit 0", "reports no GPU"),
        ("echo 'Segmentation something'", "answered something unexpected: Segmentation something"),
    ],
)
def test_an_nvidia_smi_that_fails_is_reported(smi: Smi, script: str, problem: str) -> None:
    smi(script)
    probe = probe_gpus()
    assert probe.gpus == ()
    assert problem in (probe.problem or "")


def test_no_nvidia_smi(smi: Smi) -> None:
    probe = probe_gpus()
    assert probe.gpus == ()
    assert "nvidia-smi was not found" in (probe.problem or "")


def test_an_nvidia_smi_that_may_not_be_started(smi: Smi, tmp_path: Path) -> None:
    smi("exit 0")
    (tmp_path / "bin" / "nvidia-smi").write_text("not a program")
    assert "cannot be started" in (probe_gpus().problem or "")


def test_an_nvidia_smi_that_hangs(smi: Smi) -> None:
    smi("exec /bin/sleep 60")
    assert "did not answer within 0.2 s" in (probe_gpus(timeout_s=0.2).problem or "")


def test_output_that_is_not_utf8(smi: Smi) -> None:
    smi(r"printf '0, NVIDIA \377 X, 580.1, 100, 9.0\n'")
    assert [gpu.compute_capability for gpu in detect_gpus()] == [(9, 0)]


def fake_module(folder: Path, name: str, code: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)


def fake_package(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on this process's module path alone."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


TENSORRT_8 = """
__version__ = "8.6.0"
class IInt8EntropyCalibrator2: ...
class BuilderFlag:
    INT8 = 1
"""


def test_tensorrt_tells_its_version(site: Path) -> None:
    fake_module(site, "tensorrt", TENSORRT_8)
    found = detect_tensorrt()
    assert (found.installed, found.usable, found.version) == (True, True, "8.6.0")
    assert found.detected_by == "import"
    assert (found.calibrators, found.int8_flag) == (True, True)
    assert found.location == str(site / "tensorrt")
    assert found.distribution is None
    assert found.problem is None
    assert "tensorrt" not in sys.modules


def test_tensorrt_11_has_no_calibrators(site: Path) -> None:
    fake_module(site, "tensorrt", '__version__ = "11.0.0"\nclass BuilderFlag: ...\n')
    found = detect_tensorrt()
    assert (found.usable, found.calibrators, found.int8_flag) == (True, False, False)


def test_tensorrt_that_does_not_import_is_known_by_its_package(site: Path) -> None:
    fake_module(site, "tensorrt", 'raise ImportError("libnvinfer.so.8: cannot open")')
    fake_package(site, "tensorrt", "8.6.1")
    found = detect_tensorrt()
    assert (found.installed, found.usable, found.version) == (True, False, "8.6.1")
    assert (found.detected_by, found.distribution) == ("package metadata", "tensorrt")
    assert found.calibrators is None
    assert found.problem == "ImportError: libnvinfer.so.8: cannot open"


def test_the_package_that_names_cuda_is_preferred(site: Path) -> None:
    fake_module(site, "tensorrt", '__version__ = "10.16.1"')
    fake_package(site, "tensorrt", "10.16.1")
    fake_package(site, "tensorrt_cu13", "10.16.1")
    assert detect_tensorrt().distribution == "tensorrt-cu13"


def test_no_tensorrt(site: Path) -> None:
    found = detect_tensorrt("tensorrt_of_nobody")
    assert (found.installed, found.usable, found.version) == (False, False, None)
    assert found.detected_by is None
    assert found.problem == "not installed"


def test_a_folder_without_init_is_no_module(site: Path) -> None:
    (site / "left_over").mkdir()
    assert not probe_module("left_over").installed
    assert not probe_module("left_over.driver").installed


def test_a_module_inside_of_a_folder_without_init_is_one(site: Path) -> None:
    (site / "shared_by_packages" / "bindings").mkdir(parents=True)
    (site / "shared_by_packages" / "bindings" / "driver.py").write_text("__version__ = '12.9'\n")
    found = probe_module("shared_by_packages.bindings.driver")
    assert (found.installed, found.imports, found.version) == (True, True, "12.9")
    assert found.location == str(site / "shared_by_packages" / "bindings")


def test_the_bindings_alone_are_tensorrt_too(site: Path) -> None:
    fake_module(site, "tensorrt_of_nobody_bindings", '__version__ = "11.4.0.106"')
    found = detect_tensorrt("tensorrt_of_nobody")
    assert (found.module, found.usable, found.version) == ("tensorrt_of_nobody", True, "11.4.0.106")
    assert found.location == str(site / "tensorrt_of_nobody_bindings")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        ("import os; os._exit(3)", "exit status 3"),
        ("import os; os._exit(0)", "exit status 0"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_breaks_does_not_break_us(site: Path, code: str, problem: str) -> None:
    fake_module(site, "broken", code)
    probe = probe_module("broken")
    assert (probe.installed, probe.imports, probe.version) == (True, False, None)
    assert problem in (probe.problem or "")


def test_a_module_that_hangs_is_left(site: Path) -> None:
    fake_module(site, "hanging", "import time; time.sleep(60)")
    probe = probe_module("hanging", timeout_s=0.5)
    assert (probe.installed, probe.imports) == (True, False)
    assert "did not end within 0.5 s" in (probe.problem or "")


def test_a_module_that_prints_is_understood(site: Path) -> None:
    fake_module(
        site,
        "chatty",
        "import atexit\nprint('hello', end='')\natexit.register(print, 'bye')\n"
        "__version__ = '1'\nclass A:\n    b = 2\ndef names(): return ['x']\n",
    )
    probe = probe_module("chatty", ("A.b", "A.c", "B"), call="names")
    assert (probe.imports, probe.version) == (True, "1")
    assert probe.found == ("A.b",)
    assert probe.answer == ["x"]


def test_python_that_cannot_be_started(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_module(site, "fine", "")
    monkeypatch.setattr(sys, "executable", str(site / "no-python"))
    assert "Python cannot be started" in (probe_module("fine").problem or "")


def test_package_version(site: Path) -> None:
    fake_package(site, "somebody", "3.2.1")
    assert package_version("somebody") == "3.2.1"
    assert package_version("nobody-at-all") is None


def test_detection_imports_no_heavy_module() -> None:
    code = (
        "import sys; from calib.engine.detect import detect_gpus, detect_tensorrt\n"
        "detect_gpus(); detect_tensorrt()\n"
        "print([m for m in ('numpy', 'torch', 'tensorrt', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
