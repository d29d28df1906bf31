"""Engines built several times on a real GPU: ``python -m pytest -m gpu -s tests/test_gpu/test_rebuilds_on_tensorrt.py``.

Run by hand on a machine with an NVIDIA GPU, TensorRT 8.6 or later, and PyCUDA or cuda-python.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from calib.demo import DEMO_MODEL
from calib.graph import calibrate
from calib.report.qualification import write_qualification
from calib.report.qualification_text import qualification_text
from calib.validation import EngineOptions, check, compare, read_results, validate

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]


def test_builds_of_one_engine_and_two_runs_compared(tmp_path: Path) -> None:
    cache = tmp_path / "digits.cache"
    calibrate(DEMO_MODEL, "digits", out=cache)
    for name, builds in (("first", 2), ("second", 1)):
        validate(
            DEMO_MODEL,
            "digits",
            runner="tensorrt",
            cache=cache,
            samples=320,
            latency_batch=32,
            latency_seconds=5.0,
            engine=EngineOptions(level=0, rebuilds=builds),
            out=tmp_path / name,
        )
    old, new = (read_results(tmp_path / name / "results.json") for name in ("first", "second"))
    assert new.rebuilds == ()
    assert [(one.run, one.builds) for one in old.rebuilds] == [
        *(("TensorRT FP32", 2), ("TensorRT FP16", 2), ("TensorRT INT8", 2)),
    ]
    for record in old.rebuilds:
        print(f"\n{record}")
        assert len(record.median_ms) == len(record.int8_layers) == len(record.engine_bytes) == 2
        assert len(record.between) == 1
    timed = [run.latency for run in old.runs if run.runner == "tensorrt" and run.latency]
    # "2 x NVIDIA H200" on a machine with two.
    assert all(one.on_gpu and one.device and one.device in (old.environment.gpu or "") for one in timed)
    assert all(run.engine is None or run.engine.nodes for run in old.runs)

    found = compare(old, new, margin="2%")
    print(qualification_text(found))
    assert found.builds == 2
    assert [one.run for one in found.engines] == ["TensorRT FP32", "TensorRT FP16", "TensorRT INT8"]
    assert all(one.ratio for one in found.latencies if one.run != "FP32")
    assert write_qualification(found, tmp_path / "compared").html.is_file()
    gate = check(new, baseline=old, max_latency_ratio=1.2, against="baseline", noise=[old])
    print([(one.name, one.verdict, one.note) for one in gate.outcomes if one.gate == "max_latency_ratio"])
