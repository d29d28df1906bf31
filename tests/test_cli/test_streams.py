"""Standard output and error that are closed, full or cannot take every sign: in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from calib.calibrators import CalibrationCache

CALIB = [sys.executable, "-m", "calib"]
# Whether typer prints or rich does, the end is the same.
PRINTING = [["plan", "--margin", "0.5", "--baseline", "76"], ["cache", "show", "m.cache"]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # U+2212, the minus that stands before our figures too, is in no 8-bit alphabet of ISO's.
    CalibrationCache({"a\N{MINUS SIGN}b": 0.5}).write(tmp_path / "m.cache")
    return tmp_path


def run(arguments: list[str], stdout: IO[Any] | int, **more: Any) -> tuple[int, str]:
    ended = subprocess.run(
        [*CALIB, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, **more
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("arguments", PRINTING)
def test_reader_that_went_away_is_no_failed_gate(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert run(arguments, writing) == (2, "")
    finally:
        os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", PRINTING)
def test_full_disk_behind_standard_output(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        status, message = run(arguments, full)
    assert status == 2
    assert message == "calib: Cannot write to standard output: No space left on device. Free space there.\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_signs_that_an_encoding_lacks_are_spelled_out(encoding: str) -> None:
    ended = subprocess.run(
        [*CALIB, "cache", "show", "m.cache"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    assert b"a\\u2212b" in ended.stdout


def test_closed_standard_error() -> None:
    # Its progress goes there.
    script = f'exec "{sys.executable}" -m calib data show digits 2>&-'
    ended = subprocess.run(["sh", "-c", script], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split(":")[0]) == (0, "digits, calibration")
