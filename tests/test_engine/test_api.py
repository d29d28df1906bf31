"""The table of features against the real TensorRT-RTX and modules with the names of 8.6, 10 and 11."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
from fake_tensorrt import make_tensorrt

from calib.engine import api as api_module
from calib.engine.api import FEATURES, Api, capture_log, load_api
from calib.engine.detect import GpuInfo
from calib.errors import EngineError, MissingExtraError, UsageError


def loaded(monkeypatch: pytest.MonkeyPatch, version: str) -> Api:
    monkeypatch.setitem(sys.modules, "tensorrt", make_tensorrt(version))
    return load_api()


@pytest.mark.parametrize(
    ("version", "release", "calibrators", "flags", "typing"),
    [
        ("8.6.0", (8, 6, 0), True, True, "none"),
        ("10.16.1.11", (10, 16, 1), True, True, "optional"),
        ("11.4.0.106", (11, 4, 0), False, False, "always"),
    ],
)
def test_releases(
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    release: tuple[int, int, int],
    calibrators: bool,
    flags: bool,
    typing: str,
) -> None:
    api = loaded(monkeypatch, version)
    assert (api.flavour, api.version, api.release) == ("tensorrt", version, release)
    assert (api.calibrators, api.precision_flags, api.strong_typing) == (calibrators, flags, typing)
    assert api.has("explicit_batch") is (release[0] < 11)
    assert api.has("calibration_profile") is calibrators
    assert api.timing_cache
    assert api.title == f"TensorRT {version}"


def test_tensorrt_rtx_itself() -> None:
    pytest.importorskip("tensorrt_rtx_bindings")
    api = load_api("tensorrt_rtx")
    assert api.title.startswith("TensorRT-RTX 1.")
    assert (api.calibrators, api.precision_flags, api.strong_typing) == (False, False, "always")
    assert api.has("compute_capabilities")
    assert not api.timing_cache
    absent = {name for name in FEATURES if not api.has(name)}
    assert absent == {
        "calibrators",
        "calibration_profile",
        "precision_flags",
        "layer_precision",
        "dynamic_range",
        "explicit_batch",
    }


def test_a_flavour_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="flavour must be one of tensorrt, tensorrt_rtx, got 'tensorflow'"):
        load_api("tensorflow")


@pytest.mark.parametrize(("flavour", "extra"), [("tensorrt", "tensorrt"), ("tensorrt_rtx", "tensorrt-rtx")])
def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, flavour: str, extra: str) -> None:
    for name in (flavour, f"{flavour}_bindings"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it then raises ModuleNotFoundError
    monkeypatch.setattr(api_module, "_import_one", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=rf"needs {flavour}, which is not installed.*int8-calib\[{extra}\]"
    ):
        load_api(flavour)


@pytest.mark.parametrize(
    ("gpus", "flavour", "told"),
    [
        ((), "tensorrt", True),
        ((), "tensorrt_rtx", False),
        ((GpuInfo(0, "NVIDIA L4"),), "tensorrt", False),
    ],
)
def test_where_a_gpu_is_missing_too_installing_is_not_all(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[GpuInfo, ...], flavour: str, told: bool
) -> None:
    monkeypatch.setattr(api_module, "_import_one", lambda name: None)
    monkeypatch.setattr(api_module, "detect_gpus", lambda: gpus)
    with pytest.raises(MissingExtraError) as caught:
        load_api(flavour)
    assert ("needs an NVIDIA GPU too, and nvidia-smi shows none here" in str(caught.value)) is told
    assert ("calib build --rtx" in str(caught.value)) is told


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import libraries_of_nobody", "No module named 'libraries_of_nobody'"),
        ("raise OSError('libnvinfer.so.10: cannot open shared object file')", "libnvinfer.so.10"),
        ("raise ImportError('libcudart.so.12: not found')", "libcudart.so.12"),
    ],
)
def test_a_package_that_does_not_import(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, reason: str
) -> None:
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    (tmp_path / "tensorrt.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        EngineError, match=rf"tensorrt is installed but fails to import: .*{reason}.*calib doctor"
    ):
        load_api()


def test_a_module_without_a_version_is_no_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", ModuleType("tensorrt"))
    with pytest.raises(EngineError, match="says that its version is ''"):
        load_api()


def say(logger: Any, severity: str, text: str) -> None:
    logger.log(logger.Severity[severity], text)


def test_a_log_holds_what_was_said_since_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    api = loaded(monkeypatch, "8.6.0")
    log = capture_log(api)
    say(log, "WARNING", "one ")
    say(log, "VERBOSE", "chatter")
    assert log.lines == [("WARNING", "one")]
    other = Thread(target=lambda: say(capture_log(api), "INFO", "from another thread"))
    other.start()
    other.join()
    assert log.lines == [("WARNING", "one"), ("INFO", "from another thread")]
    assert capture_log(api) is log
    assert log.lines == []


COLLECTING = """
import gc
from calib.engine.api import capture_log, load_api
from calib.engine.log import LogStore

class Cycle:
    pass

api = load_api("tensorrt_rtx")
add = LogStore.add
for _ in range(3):
    kept = api.trt.Builder(capture_log(api))
    garbage = Cycle()
    garbage.itself, garbage.builder = garbage, api.trt.Builder(capture_log(api))
    del garbage
    LogStore.add = lambda store, severity, text: (add(store, severity, text), gc.collect())
    log = capture_log(api)
    network = api.trt.Builder(log).create_network(0)
    assert not api.trt.OnnxParser(network, log).parse(b"no model")
    LogStore.add = add
    assert not [text for _, text in log.lines if "logger" in text], log.lines
print("done")
"""


def test_builders_can_be_collected_while_tensorrt_speaks() -> None:
    """With a second logger the process would stand still: TensorRT names it while it holds a lock."""
    pytest.importorskip("tensorrt_rtx_bindings")
    done = subprocess.run(
        [sys.executable, "-c", COLLECTING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
