from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _path_as_before() -> Iterator[None]:
    """``module:object`` puts the current folder on ``sys.path``: its modules are for one test alone."""
    before = [*sys.path]
    yield
    sys.path[:] = before
