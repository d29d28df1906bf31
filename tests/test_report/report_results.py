"""Results made by hand, as validation runs on a CPU and on a GPU would save them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

from test_report.engine_results import with_engines, with_hostile_engines

from calib.validation.results import (
    SCHEMA_VERSION,
    CalibrationRecord,
    DatasetRecord,
    Environment,
    Latency,
    Metric,
    ModelRecord,
    OutputError,
    PrecisionRun,
    Results,
    WorstSample,
)

SAMPLES = 360
HOSTILE = '<script>alert("x")</script>|`tick`\n\x1b[31m&'


def latency(p50: float, *, batch_size: int = 32, simulated: bool = True, count: int = 100) -> Latency:
    """A plausible right-skewed spread: 1 + 0.02·(-ln(1 - q)) times the least."""
    quantiles = [(index + 0.5) / count for index in range(count)]
    least = p50 / (1 + 0.06 * math.log(2))
    ordered = [least * (1 - 0.06 * math.log(1 - q)) for q in quantiles]
    times = tuple(ordered[(37 * index) % count] for index in range(count))
    return Latency(
        batch_size=batch_size,
        count=count,
        warmup=10,
        median_ms=p50,
        p90_ms=ordered[int(0.9 * count)],
        p99_ms=ordered[int(0.99 * count)],
        mean_ms=sum(times) / count,
        min_ms=ordered[0],
        first_ms=3.2 * p50,
        throughput_per_s=1000 * batch_size / p50,
        clock="perf_counter around session.run" if simulated else "CUDA events",
        simulated=simulated,
        times_ms=times,
    )


def share(name: str, successes: int, interval: tuple[float, float], **more: Any) -> Metric:
    """A share of SAMPLES; its interval is given, not worked out."""
    return Metric(
        name, successes / SAMPLES, SAMPLES, successes=successes, low=interval[0], high=interval[1], **more
    )


def output(name: str, sqnr_db: float | None, **more: Any) -> OutputError:
    fields: dict[str, Any] = {
        "elements": 3600,
        "max_abs": 0.41234,
        "mean_abs": 0.05123,
        "cosine": 0.999412,
        "reference_amax": 18.23,
    }
    return OutputError(output=name, sqnr_db=sqnr_db, **{**fields, **more})


def run(
    precision: str,
    timing: Latency | None,
    *,
    runner: str = "onnxruntime",
    metrics: tuple[Metric, ...] = (),
    outputs: tuple[OutputError, ...] = (),
    predictions: tuple[int, ...] | None = None,
    simulated: bool = False,
    size: int = 400_000,
    role: Literal["baseline", "candidate"] | None = None,
    label: str = "",
    calibration: str = "",
) -> PrecisionRun:
    made = {"fp32": "the model as given", "fp16": "weights and activations converted to float16"}
    return PrecisionRun(
        label=label or precision.upper(),
        precision=precision,
        runner=runner,
        role=role or ("baseline" if precision == "fp32" else "candidate"),
        simulated=simulated,
        description=made.get(precision, "Q/DQ from the calibration cache, simulated in float"),
        outputs=outputs,
        metrics=metrics,
        predictions=predictions,
        latency=timing,
        model_bytes=size,
        quantized_tensors=31 if precision == "int8" else None,
        seconds=1.234,
        calibration=calibration or ("entropy" if precision == "int8" else ""),
    )


def environment(**more: Any) -> Environment:
    fields: dict[str, Any] = {
        "machine": "x86_64",
        "system": "Linux 6.8",
        "processor": "Intel Xeon Platinum 8481C",
        "logical_cores": 2,
        "memory_gib": 7.75,
        "python": "3.11.9",
        "packages": {"numpy": "2.3.1", "onnx": "1.23.0", "onnxruntime": "1.32.0"},
        "session_options": {"graph_optimization_level": "ORT_DISABLE_ALL", "disable_quant_qdq": "1"},
    }
    return Environment(**{**fields, **more})


def calibration(name: str, algorithm: str, digest: str) -> CalibrationRecord:
    return CalibrationRecord(
        name=name,
        cache=f"digits.{name}.cache",
        sha256=digest * 32,
        header=f"TRT-8600-{algorithm}",
        algorithm=algorithm,
        tensors=58,
        samples=128,
        batch_size=32,
        seed=7,
        dataset="digits",
        overlap=0,
    )


def classifier() -> Results:
    """Digits in three precisions, on a CPU: all latencies simulated."""
    labels = tuple(index % 10 for index in range(SAMPLES))
    fp32 = tuple((label + 1) % 10 if index < 8 else label for index, label in enumerate(labels))
    int8 = tuple((label + 1) % 10 if 4 <= index < 17 else label for index, label in enumerate(labels))
    top5 = share("top5", 360, (0.9894, 1.0), drop=0.0)
    return Results(
        schema=SCHEMA_VERSION,
        calib_version="0.1.0",
        created="2026-07-14T09:30:00Z",
        command="calib validate digits.onnx --data digits --precisions fp32,fp16,int8 --cache digits.cache",
        task="classification",
        model=ModelRecord(
            name="digits",
            path="models/digits.onnx",
            sha256="a3" * 32,
            opset=17,
            inputs={"image": "N×1×16×16 float32"},
            outputs={"logits": "N×10 float32"},
            nodes=74,
            parameters=98_442,
        ),
        dataset=DatasetRecord(
            name="digits",
            recipe="datasets/digits.yaml",
            fingerprint="5c" * 32,
            samples=SAMPLES,
            preprocess={"resize": [16, 16], "scale": 0.0625, "mean": 0.5, "layout": "NCHW"},
            overlap_with_calibration=0,
        ),
        runs=(
            run(
                "fp32",
                latency(4.21),
                metrics=(share("top1", 352, (0.9568, 0.9887)), replace(top5, drop=None)),
                predictions=fp32,
                size=402_113,
            ),
            run(
                "fp16",
                latency(4.4),
                metrics=(
                    share("top1", 352, (0.9568, 0.9887), drop=0.0),
                    top5,
                    share("top1_agreement", 360, (0.9894, 1.0)),
                ),
                outputs=(output("logits", 63.02, max_abs=0.0112, cosine=0.99999975),),
                predictions=fp32,
                simulated=True,
                size=203_551,
            ),
            run(
                "int8",
                latency(9.87),
                metrics=(
                    share(
                        "top1", 347, (0.9392, 0.9788), drop=5 / 360, note="2 samples tie; lowest index wins"
                    ),
                    top5,
                    share("top1_agreement", 347, (0.9392, 0.9788)),
                ),
                outputs=(output("logits", 24.61, max_abs=2.91),),
                predictions=int8,
                simulated=True,
                size=418_920,
            ),
        ),
        sample_ids=tuple(f"digits:{index:04d}" for index in range(SAMPLES)),
        labels=labels,
        worst=(
            *(
                WorstSample(
                    "int8",
                    f"digits:{i:04d}",
                    f"index {i}",
                    str(i % 10),
                    i % 10,
                    (i + 1) % 10,
                    9.5 + i,
                    2.9,
                    "entropy",
                )
                for i in range(8, 17)
            ),
            WorstSample("fp16", "digits:0101", "index 101", "1", 1, 1, 55.2, 0.0112),
        ),
        environment=environment(),
        calibrations=(calibration("entropy", "EntropyCalibration2", "77"),),
        warnings=("FP16 is simulated: ONNX Runtime's CPU kernels compute some operators in float32.",),
    )


def two_calibrations() -> Results:
    """The classifier in INT8 by entropy and by min-max: wrong on samples 4 to 16, and on 0 to 8."""
    base = classifier()
    entropy = replace(base.runs[2], label="INT8 entropy")
    assert base.labels is not None
    answers = tuple((label + 1) % 10 if index < 9 else label for index, label in enumerate(base.labels))
    minmax = replace(
        entropy,
        label="INT8 minmax",
        calibration="minmax",
        latency=latency(9.9),
        metrics=(
            share("top1", 351, (0.9532, 0.9868), drop=1 / 360),
            entropy.metrics[1],
            share("top1_agreement", 359, (0.9844, 0.9995)),
        ),
        outputs=(output("logits", 34.2, max_abs=0.9),),
        predictions=answers,
    )
    worst = WorstSample("int8", "digits:0008", "index 8", "8", 8, 9, 20.5, 0.9, "minmax")
    return replace(
        base,
        runs=(*base.runs[:2], entropy, minmax),
        worst=(*base.worst, worst),
        calibrations=(*base.calibrations, calibration("minmax", "MinMaxCalibration", "78")),
    )


def restated(results: Results) -> Results:
    """The results with top-1 and agreement with FP32 counted again from classes and labels."""
    return replace(results, runs=tuple(_restated(results, one) for one in results.runs))


def _restated(results: Results, one: PrecisionRun) -> PrecisionRun:
    fp32 = results.runs[0].predictions
    counts = {}
    if one.predictions is not None and fp32 is not None:
        counts["top1_agreement"] = sum(a == b for a, b in zip(one.predictions, fp32, strict=True))
        if results.labels is not None:
            right = [sum(map(int.__eq__, answers, results.labels)) for answers in (fp32, one.predictions)]
            counts["top1"] = right[1]
    metrics = []
    for metric in one.metrics:
        if results.labels is None and not metric.name.endswith("_agreement"):
            continue
        if metric.name in counts:
            share = counts[metric.name] / len(results.sample_ids)
            drop = None if metric.drop is None else right[0] / len(results.sample_ids) - share
            metric = replace(metric, value=share, successes=counts[metric.name], drop=drop)
        metrics.append(metric)
    return replace(one, metrics=tuple(metrics))


def two_heads() -> Results:
    """The regressor in INT8 by entropy, which clips boxes, and by min-max."""
    base = regressor()
    int8 = base.runs[2]
    runs = tuple(
        replace(
            int8,
            label=f"INT8 {name}",
            calibration=name,
            outputs=(output("boxes", boxes), output("scores", scores)),
        )
        for name, boxes, scores in (("entropy", 21.4, 33.9), ("minmax", 38.1, 33.4))
    )
    return replace(base, runs=(*base.runs[:2], *runs), calibrations=two_calibrations().calibrations)


def regressor() -> Results:
    """Two outputs, no labels, no classes."""
    base = classifier()
    boxes = {"reference_amax": 639.2, "max_abs": 3.7, "mean_abs": 0.21}
    return replace(
        base,
        task=None,
        model=replace(
            base.model,
            name="keypoints",
            sha256="b1" * 32,
            outputs={"boxes": "N×100×4 float32", "scores": "N×100 float32"},
        ),
        runs=(
            run("fp32", latency(18.4)),
            run(
                "fp16",
                latency(19.1),
                simulated=True,
                outputs=(output("boxes", 61.3, **boxes), output("scores", 66.9, max_abs=0.002)),
            ),
            run(
                "int8",
                latency(31.0),
                simulated=True,
                outputs=(output("boxes", 21.7, **boxes), output("scores", 33.4, max_abs=0.09)),
            ),
        ),
        labels=None,
        worst=(
            WorstSample(
                "int8", "img/0003.jpg", "/data/val/img/0003.jpg", None, None, None, 12.25, 3.7, "entropy"
            ),
            WorstSample(
                "int8", "img/0010.jpg", "/data/val/img/0010.jpg", None, None, None, None, 0.0, "entropy"
            ),
        ),
        warnings=(),
    )


def gpu() -> Results:
    """The classifier on a GPU: INT8 alone, 5 ms, is slower than FP16, 4 ms."""
    base = classifier()
    timings = {"fp32": 10.0, "fp16": 4.0, "int8": 5.0}
    runs = tuple(
        replace(
            one,
            runner="tensorrt",
            simulated=False,
            description=f"TensorRT engine, {one.precision.upper()}",
            latency=latency(timings[one.precision], simulated=False, count=500),
        )
        for one in base.runs
    )
    return replace(
        base,
        created="2026-07-15T11:00:00Z",
        command="calib validate digits.onnx --data digits --runner tensorrt --cache digits.cache",
        runs=runs,
        environment=environment(
            processor="AMD EPYC 9654",
            logical_cores=16,
            gpu="NVIDIA H200",
            driver="550.54",
            cuda="12.4",
            tensorrt="8.6.0",
            session_options={},
        ),
        warnings=(),
    )


def gaps() -> Results:
    """Much is missing or not finite: no FP16 latency, NaN in an INT8 output, nothing measured for top-1."""
    base = classifier()
    fp32, fp16, int8 = base.runs
    nothing = Metric("top1", None, 0, note="every sample was skipped")
    broken = output(
        "logits",
        None,
        max_abs=None,
        mean_abs=float("nan"),
        cosine=None,
        reference_amax=float("inf"),
        non_finite=12,
        reference_non_finite=3,
        note="12 values are NaN or infinite",
    )
    return replace(
        base,
        calibrations=(),
        labels=None,
        runs=(
            replace(fp32, metrics=(nothing,), predictions=None),
            replace(
                fp16,
                metrics=(nothing,),
                predictions=None,
                latency=None,
                outputs=(output("logits", None, max_abs=0.0),),
            ),
            replace(int8, metrics=(nothing,), predictions=None, outputs=(broken,), quantized_tensors=None),
        ),
        worst=(),
    )


def hostile() -> Results:
    """Strings that try to break out of HTML, Markdown, SVG and CSV, everywhere a string may be."""
    base = classifier()
    fp32, fp16, int8 = base.runs
    bad = HOSTILE
    return replace(
        base,
        command=bad,
        warnings=(bad,),
        model=replace(base.model, name=bad, path=bad, inputs={bad: bad}, outputs={bad: bad}),
        dataset=replace(base.dataset, name=bad, recipe=bad, preprocess={bad: [bad]}, notes=(bad,)),
        calibrations=(replace(base.calibrations[0], name=bad, cache=bad, header=bad, dataset=bad),),
        runs=(
            fp32,
            replace(fp16, label=bad, precision=bad, description=bad),
            replace(
                int8,
                label=bad,
                calibration=bad,
                runner=bad,
                outputs=(output("=cmd()" + bad, 20.0, note=bad),),
                metrics=(replace(int8.metrics[0], note=bad), *int8.metrics[1:]),
            ),
        ),
        worst=(WorstSample("int8", bad, "origin " + bad, bad, 1, 2, 3.0, 4.0, bad),),
        environment=environment(processor=bad, packages={bad: bad}, session_options={bad: bad}),
    )


SETS = {
    "classifier": lambda: [classifier()],
    "regressor": lambda: [regressor()],
    "calibrations": lambda: [two_calibrations()],
    "gpu": lambda: [gpu()],
    "engines": lambda: [with_engines(gpu())],
    "hostile engines": lambda: [with_hostile_engines(gpu(), HOSTILE)],
    "gaps": lambda: [gaps()],
    "hostile": lambda: [hostile()],
    "merged": lambda: [classifier(), gpu()],
}
