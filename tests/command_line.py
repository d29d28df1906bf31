"""The command line, run in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from calib.cli import main


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def command_line(
    monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str], *words: str
) -> Callable[..., Ran]:
    """What runs ``calib``, with these words before its arguments."""

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["calib", *words, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capture.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run
