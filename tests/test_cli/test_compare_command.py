"""``calib compare`` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Ran
from test_report import report_results as made
from test_validation.test_versions import with_wrong

from calib.validation import write_results


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    old = write_results(with_wrong(range(10)), tmp_path / "old.json")
    return old, write_results(with_wrong(range(5, 45)), tmp_path / "new.json")


def test_without_a_margin_nothing_is_judged(
    files: tuple[Path, Path], calib: Callable[..., Ran], tmp_path: Path
) -> None:
    status, out, err = calib("compare", *files, "--out", tmp_path / "out")
    assert status == 0
    assert out.splitlines()[0] == ("digits on digits, 360 samples: worse: INT8 top1, INT8 top1_agreement")
    assert "INT8: 40 of 360 changed: 35 became wrong, 5 became right" in out
    assert (tmp_path / "out" / "compare.html").is_file()
    assert f"Comparison: {tmp_path / 'out' / 'compare.html'}" in out + err


def test_a_margin_that_is_not_kept(files: tuple[Path, Path], calib: Callable[..., Ran]) -> None:
    status, out, _ = calib("compare", *files, "--margin", "1%")
    assert (status, out.splitlines()[0].split(": ")[1]) == (1, "FAIL; worse")
    assert calib("compare", *files, "--margin", "20%")[0] == 0
    status, out, _ = calib("compare", *files, "--margin", "1%", "--json")
    assert (status, json.loads(out)["verdict"]) == (1, "fail")


def test_mistakes_are_one_message(
    files: tuple[Path, Path], calib: Callable[..., Ran], tmp_path: Path
) -> None:
    base = made.classifier()
    changed = replace(base, dataset=replace(base.dataset, preprocess={"mean": 0.1}))
    other = write_results(changed, tmp_path / "other.json")
    for words, message in (
        ((files[0], tmp_path / "none.json"), "Cannot read results"),
        ((files[0], other), "The comparison would be unfair: preprocessing"),
        ((*files, "--margin", "nan"), "would switch the gate off"),
        ((*files, "--alpha", "2"), "Alpha lies between 0 and 0.5"),
        ((*files, "--noise", files[0]), "Rebuild noise shows in two or more results"),
    ):
        status, out, err = calib("compare", *words)
        assert (status, out) == (2, "")
        assert message in err
        assert "Traceback" not in err
    assert calib("compare", files[0], other, "--anyway")[0] == 0
