from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.errors import ValidationError
from calib.validation import OutputError, Results, make_baseline, read_results, write_baseline, write_results
from calib.validation.results import SCHEMA_VERSION


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


finite = st.floats(allow_nan=False, allow_infinity=False)
figure = st.none() | finite
counts = st.integers(0, 10**12)
output_errors = st.builds(
    OutputError,
    output=st.text(),
    elements=counts,
    max_abs=figure,
    mean_abs=figure,
    cosine=figure,
    sqnr_db=figure,
    reference_amax=figure,
    non_finite=counts,
    reference_non_finite=counts,
    note=st.text(),
    verdict=st.sampled_from(["differs", "equal", "both not finite"]),
    both_non_finite=counts,
)


@settings(deadline=None)
@given(errors=st.lists(output_errors, max_size=3), warnings=st.lists(st.text(), max_size=2))
def test_json_gives_back_every_bit(results: Results, errors: list[OutputError], warnings: list[str]) -> None:
    runs = (results.runs[0], replace(results.runs[1], outputs=tuple(errors)), *results.runs[2:])
    changed = replace(results, runs=runs, warnings=tuple(warnings))
    text = changed.to_json()
    json.loads(text, parse_constant=refuse)
    assert Results.from_json(text) == changed


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_does_not_have_becomes_none(results: Results, value: float) -> None:
    """A-G3."""
    broken = replace(
        OutputError("y", 1, 0.0, 0.0, 1.0, 20.0, 1.0), sqnr_db=value, max_abs=value, mean_abs=value
    )
    runs = (results.runs[0], replace(results.runs[1], outputs=(broken,)))
    text = replace(results, runs=runs).to_json()
    json.loads(text, parse_constant=refuse)
    (errors,) = Results.from_json(text).runs[1].outputs
    assert (errors.sqnr_db, errors.max_abs, errors.mean_abs) == (None, None, None)
    assert errors.cosine == 1.0


def test_a_file_is_read_as_it_was_written(results: Results, tmp_path: Path) -> None:
    path = write_results(results, tmp_path / "deep" / "results.json")
    assert read_results(path) == results


def test_files_of_earlier_layout_without_the_newer_fields(results: Results) -> None:
    content = json.loads(results.to_json())
    for run in content["runs"]:
        for errors in run["outputs"]:
            del errors["verdict"], errors["both_non_finite"]
        for metric in run["metrics"]:
            del metric["ties"]
        del run["latency"]["warmup_ms"]
    assert Results.from_json(json.dumps(content)).sample_ids == results.sample_ids


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "r.json is not a calib results file: the whole file"),
        ("[1, 2]", "r.json is not a calib results file"),
        ("{}", r"r.json is not a calib results file: schema: Field required \(\d+ faults\)"),
    ],
)
def test_anything_else_is_refused(text: str, match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        Results.from_json(text, "r.json")


def test_another_schema_is_refused(results: Results) -> None:
    text = replace(results, schema=SCHEMA_VERSION + 1).to_json()
    match = f"has results schema {SCHEMA_VERSION + 1}, this calib reads {SCHEMA_VERSION}"
    with pytest.raises(ValidationError, match=match):
        Results.from_json(text)


def test_another_schema_is_told_though_its_fields_are_others(results: Results) -> None:
    document = json.loads(results.to_json()) | {"schema": SCHEMA_VERSION + 1}
    document["precisions"] = document.pop("runs")
    match = f"has results schema {SCHEMA_VERSION + 1}, this calib reads {SCHEMA_VERSION}"
    with pytest.raises(ValidationError, match=match):
        Results.from_json(json.dumps(document))


def test_a_baseline_is_not_taken_for_results(results: Results, tmp_path: Path) -> None:
    path = write_baseline(make_baseline(results), tmp_path / "base.json")
    with pytest.raises(ValidationError, match=r"base\.json is a baseline, not results\. Give the"):
        read_results(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"Cannot read results file .*none\.json: no such file"):
        read_results(tmp_path / "none.json")


def test_files_from_before_drops_had_intervals_are_read(results: Results) -> None:
    record = json.loads(results.to_json())
    for run in record["runs"]:
        del run["outcomes"]
        for metric in run["metrics"]:
            for key in [key for key in metric if key.startswith("drop_")]:
                del metric[key]
        for output in run["outputs"]:
            for key in ("sqnr_low", "sqnr_high", "sqnr_method"):
                del output[key]
    assert Results.from_json(json.dumps(record)) == results
