from __future__ import annotations

from collections.abc import Callable

import pytest
from command_line import Ran, command_line


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs ``calib cache …`` in this process."""
    return command_line(monkeypatch, capfd, "cache")
