from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from calib.cli.doctor import doctor_command
from calib.engine import checkup
from calib.engine.checkup import Ability, examine, judge
from calib.engine.cuda_libraries import LibraryInfo
from calib.engine.detect import GpuInfo, GpuProbe, ModuleProbe, TensorRTInfo

NO_GPU = GpuProbe((), "nvidia-smi was not found")
T4 = GpuProbe((GpuInfo(0, "Tesla T4", "535.1", "12.2", (7, 5), 15360),))
HERE = {"onnxruntime": None, "tensorrt": None, "tensorrt_rtx": None, "pycuda.driver": None}


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calib that has every part, on a machine where no other module needs to be looked for."""
    monkeypatch.setattr(checkup, "_has", lambda part: True)
    monkeypatch.setattr(checkup, "_absent", lambda module: None)


def one(what: str, problems: dict[str, str | None], gpus: GpuProbe) -> Ability:
    return next(ability for ability in judge(problems, gpus) if ability.what == what)


@pytest.mark.usefixtures("everything")
def test_all_can_be_done() -> None:
    abilities = judge(dict(HERE), T4)
    assert len(abilities) == 21
    assert all(ability.able for ability in abilities)
    assert all(ability.missing == () and ability.install is None for ability in abilities)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(
    ("what", "missing", "install"),
    [
        ("calib calibrate", ("no module onnxruntime",), "pip install 'int8-calib[onnxruntime]'"),
        ("calib demo", ("no module onnxruntime",), "pip install 'int8-calib[cpu]'"),
        (
            "calib build",
            ("no module tensorrt", "no GPU: nvidia-smi was not found"),
            "pip install 'int8-calib[tensorrt]'",
        ),
        ("calib build --rtx", ("no module tensorrt_rtx",), "pip install 'int8-calib[tensorrt-rtx]'"),
        (
            "calib validate --runner tensorrt",
            ("no module tensorrt", "no module pycuda", "no GPU: nvidia-smi was not found"),
            "pip install 'int8-calib[tensorrt]'",
        ),
    ],
)
def test_what_is_missing_is_named(what: str, missing: tuple[str, ...], install: str) -> None:
    found = one(what, dict.fromkeys(HERE, "not installed"), NO_GPU)
    assert found == Ability(what, False, missing, install)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(("version", "able"), [("10.16.1", True), ("11.4.0", False)])
def test_tensorrts_own_calibrators_ended_with_10(version: str, able: bool) -> None:
    found = TensorRTInfo("tensorrt", installed=True, usable=True, version=version, calibrators=able)
    native = next(one for one in judge(dict(HERE), T4, found) if one.what == "calib calibrate --native")
    why = f"TensorRT {version} has no calibrators: they ended with TensorRT 10"
    assert (native.able, native.missing) == (able, () if able else (why,))


@pytest.mark.usefixtures("everything")
def test_what_pip_cannot_mend_has_no_pip_command() -> None:
    problems = {**HERE, "tensorrt": "ImportError: libnvinfer.so.8"}
    found = one("calib build", problems, T4)
    assert found.missing == ("tensorrt fails to import: ImportError: libnvinfer.so.8",)
    assert found.install is None
    assert one("calib build", dict(HERE), NO_GPU).install is None


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("what", ["calib quantize", "calib check", "calib cache"])
def test_these_need_nothing_more(what: str) -> None:
    assert one(what, dict.fromkeys(HERE, "not installed"), NO_GPU).able


@pytest.mark.parametrize("what", ["recipes with source: images", "calib data show"])
def test_images_need_pillow_alone(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(checkup, "_has", lambda part: True)
    for missing in ("torch", "torchvision", "PIL"):
        monkeypatch.setattr(checkup, "_absent", {missing: "not installed"}.get)
        found = one(what, {}, NO_GPU)
        assert found.able is (missing != "PIL")
    assert found.install == "pip install 'int8-calib[images]'"


def test_modules_that_were_not_tried_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_has", lambda part: True)
    monkeypatch.setattr(
        checkup.importlib.util, "find_spec", lambda name: None if name == "vl_convert" else object()
    )
    found = one("calib report", {}, NO_GPU)
    assert found.missing == ("no module vl_convert",)
    assert found.install == "pip install 'int8-calib[report]'"


def test_parts_that_this_version_lacks_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_has", lambda part: part == "cli/quantize")
    assert [ability.what for ability in judge({}, NO_GPU)] == ["calib quantize"]


def test_parts_are_found_as_files() -> None:
    assert checkup._has("cli/doctor")
    assert checkup._has("engine")
    assert not checkup._has("cli/no_such_command")


app = typer.Typer()
app.command()(doctor_command)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No nvidia-smi; the real Python and packages otherwise."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("bare")
def test_json_of_a_machine_without_gpu() -> None:
    result = CliRunner().invoke(app, ["--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["gpus"] == {
        "gpus": [],
        "problem": "nvidia-smi was not found: no NVIDIA driver, or it is not on PATH",
    }
    assert found["onnxruntime"]["imports"] is True
    assert "CPUExecutionProvider" in found["onnxruntime"]["answer"]
    assert {"what": "calib quantize", "able": True, "missing": [], "install": None} in found["abilities"]
    assert found["cuda_visible_devices"] is None


@pytest.mark.usefixtures("bare")
def test_text_of_a_machine_without_gpu() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "GPU none: nvidia-smi was not found: no NVIDIA driver, or it is not on PATH" in lines
    assert "calib calibrate yes" in lines
    assert "calib quantize yes" in lines


@pytest.fixture
def gpu_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A T4 with TensorRT 8.6.0 and a numpy that is too new, and PyCUDA that does not load."""
    modules = {
        "onnxruntime": ModuleProbe("onnxruntime", installed=False, problem="not installed"),
        "pycuda.driver": ModuleProbe(
            "pycuda.driver", installed=True, problem="ImportError: libcuda.so.1 [not found]"
        ),
        "cuda.bindings.driver": ModuleProbe("cuda.bindings.driver", installed=False, problem="not installed"),
        "cuda.cuda": ModuleProbe("cuda.cuda", installed=True, imports=True),
    }
    found = TensorRTInfo(
        "tensorrt",
        installed=True,
        usable=True,
        version="8.6.0",
        detected_by="import",
        distribution="tensorrt",
        location="/opt/tensorrt",
        calibrators=True,
        int8_flag=True,
    )
    none = TensorRTInfo("tensorrt_rtx", installed=False, problem="not installed")
    monkeypatch.setattr(checkup, "probe_gpus", lambda: T4)
    monkeypatch.setattr(checkup, "probe_module", lambda name, call=None: modules[name])
    monkeypatch.setattr(
        checkup, "detect_tensorrt", lambda module="tensorrt": found if module == "tensorrt" else none
    )
    libraries = (
        LibraryInfo("CUDA runtime", "12.2", "libcudart.so.12", ("nvidia-cuda-runtime-cu12 12.4.1",)),
        LibraryInfo("cuDNN"),
    )
    monkeypatch.setattr(checkup, "detect_libraries", lambda: libraries)
    monkeypatch.setattr(checkup, "find_conflicts", lambda tensorrt, gpus: ("numpy 2 with [8.6.0] fails",))
    monkeypatch.setattr(checkup, "_has", lambda part: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")


@pytest.mark.usefixtures("gpu_machine")
def test_text_of_a_machine_with_gpu() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for expected in (
        "ONNX Runtime not installed",
        "GPU 0: Tesla T4, 15 GiB, compute capability 7.5, driver 535.1 (CUDA 12.2)",
        "GPU int8: tensor cores",
        "GPU bf16: not faster than FP32",
        "GPU CUDA_VISIBLE_DEVICES='1' limits programs to these",
        "TensorRT 8.6.0, in /opt/tensorrt, version from import, package tensorrt, has INT8 calibrators",
        "TensorRT-RTX not installed",
        "PyCUDA ImportError: libcuda.so.1 [not found]",
        "cuda-python imports",
        "CUDA runtime 12.2 from libcudart.so.12; also installed: nvidia-cuda-runtime-cu12 12.4.1",
        "cuDNN not found",
        "calib validate --runner tensorrt yes",
        "calib build yes",
        "calib calibrate no no module onnxruntime; pip install 'int8-calib[onnxruntime]'",
        "Known to fail: numpy 2 with [8.6.0] fails",
    ):
        assert expected in lines


@pytest.mark.usefixtures("gpu_machine")
def test_examine_puts_precisions_to_gpus() -> None:
    found = examine()
    (row,) = found.precisions
    assert row.gpu == 0
    assert [p.precision for p in row.precisions if p.fast] == ["fp16", "int8"]
    assert found.cuda_visible_devices == "1"
