"""What results of a GPU have beyond others: engines, parts of latencies, ratios, the GPU's state."""

from __future__ import annotations

from dataclasses import replace

from calib.validation.results import EngineRecord, LatencyPart, LatencyRatio, Results, Telemetry

REASONS = {
    "TensorRT found FP32 faster; INT8 would pad its channels to a multiple of 32": 4,
    "no INT8 kernel for ReduceMean: the Reduce layer has float types": 1,
}


def engine(precision: str) -> EngineRecord:
    """15 layers; in INT8 8 of them, 61 % of the time."""
    int8 = precision == "int8"
    name = precision.upper()
    return EngineRecord(
        tensorrt="8.6.0",
        device="NVIDIA H200",
        route="implicit INT8" if int8 else "float",
        level=3 if int8 else None,
        build_seconds=None if precision == "fp16" else 49.6,
        engine_bytes=5_337_228,
        layers=15,
        int8_layers=8 if int8 else 0,
        by_precision={"INT8": 8, "FP32": 7, "copies": 3} if int8 else {name: 15},
        int8_time_share=0.61 if int8 else 0.0,
        reasons=REASONS if int8 else {},
        fusion=("31 ONNX nodes became 15 engine layers: 11 vertical fusions; 3 reformats.",),
        slowest=(("/l/l.4/b/b.0/Conv + /l/l.4/Add + /l/l.4/Relu", name, 0.214), ("/stem", "FP32", 0.05)),
        costs=("30% of the layers' time (0.3 ms) goes to 3 reformats.",) if int8 else (),
    )


def parts(p50: float) -> tuple[LatencyPart, ...]:
    return tuple(
        LatencyPart(name, value, 1.1 * value, 1.2 * value)
        for name, value in (
            ("host to device", 0.373),
            ("device to host", 0.0102),
            ("enqueue", 0.356),
            ("end to end", p50 + 0.4),
            ("with transfers", p50 + 0.3832),
        )
    )


TELEMETRY = Telemetry(
    samples=21,
    sm_clock_mhz=(1755.0, 1980.0, 1980.0),
    memory_clock_mhz=(3201.0, 3201.0, 3201.0),
    power_w=(205.222, 206.552, 208.596),
    temperature_c=(38.0, 39.0, 40.0),
    throttle_reasons=("SwPowerCap",),
)


def with_engines(results: Results) -> Results:
    """Results of a GPU as ``calib validate --runner tensorrt`` saves them."""
    runs = tuple(
        replace(
            run,
            engine=engine(run.precision),
            latency=run.latency and replace(run.latency, parts=parts(run.latency.median_ms)),
        )
        for run in results.runs
    )
    ratios = (
        LatencyRatio("FP16", "FP32", 0.4, 0.398, 0.403),
        LatencyRatio("INT8", "FP32", 0.5, 0.497, 0.504),
        LatencyRatio("INT8", "FP16", 1.25, 1.242, 1.262),
    )
    return replace(results, runs=runs, ratios=ratios, telemetry=TELEMETRY)


def with_hostile_engines(results: Results, bad: str) -> Results:
    """Strings of engines, parts, ratios and telemetry that try to break out."""
    base = with_engines(results)
    hurt = replace(
        engine("int8"),
        tensorrt=bad,
        device=bad,
        route=bad,
        by_precision={bad: 15},
        reasons={bad: 3},
        fusion=(bad,),
        slowest=(("=cmd()" + bad, bad, 0.2),),
        costs=(bad,),
    )
    runs = tuple(
        replace(
            run,
            engine=hurt,
            latency=run.latency and replace(run.latency, parts=(LatencyPart(bad, 1.0, 1.0, 1.0),)),
        )
        for run in base.runs
    )
    ratios = (LatencyRatio(bad, bad, 1.0, None, None, method=bad),)
    telemetry = Telemetry(samples=0, throttle_reasons=(bad,), problem=bad)
    return replace(base, runs=runs, ratios=ratios, telemetry=telemetry)
