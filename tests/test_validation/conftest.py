from __future__ import annotations

import pytest

from calib.validation import (
    DatasetRecord,
    Environment,
    Metric,
    ModelRecord,
    OutputError,
    PrecisionRun,
    Results,
)
from calib.validation.latency import summarize


def precision_run(precision: str, median_ms: float, *, simulated: bool = True) -> PrecisionRun:
    baseline = precision == "fp32"
    metrics = [Metric("top1", 0.9, 10, 9, 0.6, 0.98, drop=None if baseline else 0.1, ties=1)]
    if not baseline:
        metrics.append(Metric("top1_agreement", 0.8, 10, 8, 0.49, 0.94))
    outputs = (OutputError("y", 60, 0.5, 0.1, 0.99, 31.6, 4.0),)
    return PrecisionRun(
        label=precision.upper(),
        precision=precision,
        runner="onnxruntime",
        role="baseline" if baseline else "candidate",
        simulated=not baseline,
        description=f"{precision} of a net",
        outputs=() if baseline else outputs,
        metrics=tuple(metrics),
        predictions=(0, 1),
        latency=summarize([median_ms], [9.0], 4, clock="host", simulated=simulated),
        model_bytes=2048,
        quantized_tensors=3 if precision == "int8" else None,
        seconds=1.5,
    )


@pytest.fixture(scope="session")
def results() -> Results:
    """What a run on two samples could have found."""
    return Results(
        schema=1,
        calib_version="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        command="calib validate net.onnx --data noise",
        task="classification",
        model=ModelRecord("net.onnx", "net.onnx", "a" * 64, 17, {"x": "float32 [N]"}, {"y": "?"}, 3, 99),
        dataset=DatasetRecord("noise", "noise.yaml", "b" * 64, 2, {"scale": 1 / 255}, 0),
        runs=(precision_run("fp32", 2.0), precision_run("int8", 1.25)),
        sample_ids=("noise#0", "noise#1"),
        labels=(0, 1),
        worst=(),
        environment=Environment("x86_64", "Linux", "CPU", 2, 8.0, "3.11.7", {"numpy": "2.4.6"}),
        warnings=("Latency is of a CPU simulation.",),
    )
