"""A plug-in for pytest: a quantized model's regression test in a few lines.

In Python::

    from calib.pytest_plugin import assert_gates

    def test_int8(calib_validate):
        results = calib_validate("model.onnx", "recipe.yaml", cache="model.cache")
        assert_gates(results, max_drop="1%", baseline="baseline.json")

or as a file ``calib-gates.yaml`` or ``model.calib.yaml``, which is collected::

    schema: 1
    validate: {model: model.onnx, data: recipe.yaml, cache: model.cache}   # or results: run/results.json
    baseline: baseline.json
    gates:
      - max_drop: 1%

Nothing of calib's stages is imported before a test needs it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from calib.errors import CalibError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from calib.validation import CheckReport, Results

__all__ = ["GateItem", "GateYaml", "assert_gates", "calib_validate"]

_NAME, _SUFFIX = "calib-gates.yaml", ".calib.yaml"
_SHOWN = 5

_folder: Path | None = None
"""Where results and reports of this process go; set when the session starts."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--calib-out``."""
    group = parser.getgroup("calib", "quantized models")
    group.addoption(
        "--calib-out",
        metavar="DIR",
        help="Folder for results and reports of models that fail; in pytest's cache by default.",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remembers where files go: the given folder, or pytest's cache."""
    global _folder
    given, cache = session.config.getoption("--calib-out"), getattr(session.config, "cache", None)
    if given:
        _folder = Path(given).absolute()
    elif cache is not None:
        _folder = cache.mkdir("calib")


def assert_gates(results: Results | str | os.PathLike[str], **options: Any) -> CheckReport:
    """Fails the test where results do not pass gates, and says why.

    Args:
        results: What a validation run found, or the path of its results.json.
        **options: Thresholds, baseline and settings of ``calib.check``.

    Returns:
        The check's report, where it passed.
    """
    __tracebackhide__ = True
    from calib.validation import check, read_results

    found = read_results(results) if isinstance(results, (str, os.PathLike)) else results
    report = check(found, **options)
    if not report.passed:
        pytest.fail(_failure(report, found), pytrace=False)
    return report


def _failure(report: CheckReport, results: Results) -> str:
    """The gates, the precisions side by side, the worst samples, and where the report lies."""
    from calib.report import check_text

    parts = [check_text(report), _table(results), *_worst(results, _failed(report))]
    return "\n\n".join([*parts, _draw(results)])


def _table(results: Results) -> str:
    from rich.console import Console

    from calib.cli.tables import results_table

    console = Console(width=120, highlight=False, no_color=True)
    with console.capture() as captured:
        console.print(results_table(results))
    return captured.get().rstrip()


def _failed(report: CheckReport) -> frozenset[str]:
    """Labels of the runs that a gate did not pass."""
    return frozenset(one.run for one in report.outcomes if one.verdict != "pass" and one.run)


def _worst(results: Results, failed: frozenset[str]) -> Iterator[str]:
    """The samples that moved most in the runs that failed; in all runs where none did by itself."""
    from calib.report.text import visible

    runs = [run for run in results.runs if run.label in failed]
    chosen = [one for one in results.worst if any(map(one.is_of, runs))] or results.worst
    if not chosen:
        return
    lines = ["Samples that moved most:"]
    for sample in chosen[:_SHOWN]:
        label = "" if sample.label is None else f", label {visible(sample.label)}"
        answer = (
            "" if sample.candidate_class is None else f", {sample.baseline_class} → {sample.candidate_class}"
        )
        level = "" if sample.sqnr_db is None else f", SQNR {sample.sqnr_db:.1f} dB"
        name = sample.run or f"{sample.precision.upper()} {sample.calibration}".strip()
        lines.append(f"  {visible(name)}: {visible(sample.sample_id)}{label}{answer}{level}")
    left = len(results.worst) - min(_SHOWN, len(chosen))
    yield "\n".join([*lines, *([f"  and {left} more in the results"] if left > 0 else [])])


def _draw(results: Results) -> str:
    """Writes results and report, and says where."""
    from calib.report import write_report
    from calib.validation import write_results

    folder = _place(results.to_json())
    path = write_results(results, folder / "results.json")
    try:
        return f"Report: {write_report([results], folder / 'report').html}"
    except MissingExtraError as error:
        return f"Results: {path} (no report: {error})"


def _place(content: str) -> Path:
    """A folder of its own for each content: processes of pytest-xdist do not get in each other's way."""
    import tempfile

    root = _folder or Path(tempfile.mkdtemp(prefix="calib-"))
    return root / hashlib.sha256(content.encode()).hexdigest()[:16]


@pytest.fixture(scope="session")
def calib_validate() -> Callable[..., Results]:
    """``calib.validate``; the same call is run once in a session of a process."""
    known: dict[str, Results] = {}

    def validate(model: Any, data: Any, **options: Any) -> Results:
        from calib.validation import validate as run

        key = json.dumps([model, data, options], default=lambda value: f"{value}@{id(value)}", sort_keys=True)
        if key not in known:
            known[key] = run(model, data, **options)
        return known[key]

    return validate


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> GateYaml | None:
    """Collects files named ``calib-gates.yaml`` or ``*.calib.yaml``."""
    if file_path.name != _NAME and not file_path.name.endswith(_SUFFIX):
        return None
    collected: GateYaml = GateYaml.from_parent(parent, path=file_path)
    return collected


class GateYaml(pytest.File):
    """A file of gates, with the results or the validation that they judge."""

    def collect(self) -> Iterator[GateItem]:
        """One test: gates of one file are judged, and corrected, together."""
        yield GateItem.from_parent(self, name="gates")


class GateItem(pytest.Item):
    """The check of one file."""

    def runtest(self) -> None:
        """Reads or makes the results, and judges them."""
        from calib.validation.gate_rules import read_gate_file

        file = read_gate_file(self.path)
        assert_gates(_results(file.subject, self.path.parent, self.path), gates=file)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A user's mistake as one message, without a traceback."""
        if isinstance(excinfo.value, CalibError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """What the test is called in summaries."""
        return self.path, None, self.path.name


def _results(keys: Mapping[str, Any], folder: Path, source: Path) -> Results | Path:
    """The results that a file names, or those of the validation that it describes."""
    saved, described = keys.get("results"), keys.get("validate")
    if (saved is None) == (described is None):
        raise UsageError(
            f"Gates file {source}: give one of results: FILE and validate: {{model: FILE, data: RECIPE}}."
        )
    return folder / str(saved) if saved is not None else _validated(described, folder, source)


def _validated(described: Any, folder: Path, source: Path) -> Results:
    """Runs a validation; paths are relative to the file that describes it."""
    from calib.validation import validate

    known = list(inspect.signature(validate).parameters)
    if not isinstance(described, dict) or not {"model", "data"} <= described.keys():
        raise UsageError(f"Gates file {source}: validate needs model and data, got {described!r}.")
    strange = [str(key) for key in described if key not in known]
    if strange:
        raise UsageError(
            f"Gates file {source}: validate has no {', '.join(strange)}. Choose from {', '.join(known)}."
        )
    options = {**described, "model": folder / str(described["model"])}
    recipe = folder / str(described["data"])
    options["data"] = recipe if recipe.is_file() else described["data"]
    if described.get("cache") is not None:
        caches = described["cache"] if isinstance(described["cache"], list) else [described["cache"]]
        options["cache"] = [folder / str(one) for one in caches]
    return validate(**options)
