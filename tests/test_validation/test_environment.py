from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import pytest

from calib.validation import environment
from calib.validation.environment import describe_environment, find_gpu, processor_name

SMI = """#!/bin/sh
case "$1" in
  --query-gpu*) printf 'NVIDIA H200, 570.86.15\\nNVIDIA H200, 570.86.15\\n' ;;
  *) printf '| NVIDIA-SMI 570.86.15   Driver Version: 570.86.15   CUDA Version: 12.8 |\\n' ;;
esac
"""


def put_nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_this_machine() -> None:
    found = describe_environment({"threads": "2"})
    assert found.python == platform.python_version()
    assert found.packages["numpy"] == np.__version__
    assert found.logical_cores >= 1
    assert found.memory_gib > 0
    assert found.session_options == {"threads": "2"}


def test_gpus_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, SMI, monkeypatch)
    assert find_gpu() == ("2 x NVIDIA H200", "570.86.15", "12.8")


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\nexec sleep 60\n", "no program"])
def test_a_broken_driver_fails_nothing(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, script, monkeypatch)
    monkeypatch.setattr(environment, "_NVIDIA_SMI_SECONDS", 0.2)
    assert find_gpu() == (None, None, None)


def test_no_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_gpu() == (None, None, None)


def test_processor_name(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nmodel name\t: AMD EPYC 9654 96-Core\nmodel name : other\n")
    assert processor_name(str(cpuinfo)) == "AMD EPYC 9654 96-Core"
    assert processor_name(str(tmp_path / "missing")) in (platform.processor(), platform.machine())
