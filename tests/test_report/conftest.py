"""Reports written once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from test_report import report_results as made

from calib.report import ReportFiles, write_report


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ReportFiles]:
    @cache
    def written(name: str) -> ReportFiles:
        return write_report(made.SETS[name](), tmp_path_factory.mktemp(name))

    return written
