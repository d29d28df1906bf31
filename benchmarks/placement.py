"""Latency and SQNR of Q/DQ placements on a GPU, against TensorRT's implicit INT8 and FP16.

    python benchmarks/placement_networks.py NETS                    # once, where torch is
    python benchmarks/placement.py NETS OUT [--networks resnet18,unet] [--batches 32,1] [--level 3]
    python benchmarks/placement.py NETS OUT --jobs resnet18:1,unet:32      # in that order

Needs an NVIDIA GPU, TensorRT 8.6 to 10 and PyCUDA. Each network is calibrated here (min-max, 32 images), and
written as Q/DQ model by calib and by ONNX Runtime's quantizer with the same ranges (symmetric, per channel,
float bias, its default placement). FP16 is allowed in all engines. The engines of one network and batch share
one timing cache, so that they choose kernels by the same measurements. Builds of one model differ all the
same: with `--builds 3` each is built three times, with a timing cache for each round, and the table has the
medians and how far they lie apart. What a run before left in its work folder is taken up. The latency is
measured afterwards, alone on the GPU, engines in turn, as CUDA graphs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import placement_networks as networks

FORMS = ("implicit", "calib", "fp16", "onnxruntime")
MORE_FORMS = ("shared",)
"""What ``--forms`` takes as well: the Q/DQ model with ``--shared-scales``."""
MOST_BUILDS = 9


def prepare(nets: Path, work: Path, name: str) -> None:
    """Writes the float model, its cache, the two Q/DQ models, the reference and the simulation."""
    if (work / f"{name}.simulation.npy").is_file():
        return
    import calib
    from calib.data import from_arrays
    from calib.graph import load_model, quantize_model

    size = networks.SIZES[name]
    path = work / f"{name}.onnx"
    path.write_bytes(networks.load(nets, name))
    data = from_arrays(name, {"input": networks.images(32, size, 5)})
    cache = calib.calibrate(path, data, method="minmax", batch_size=8, tensorrt="8.6.0").cache
    (work / f"{name}.cache").write_text(cache.to_text())
    shared = quantize_model(load_model(path), cache, share_scales=True).model
    (work / f"{name}.shared.onnx").write_bytes(shared.to_bytes())
    quantized = quantize_model(load_model(path), cache).model
    (work / f"{name}.calib.onnx").write_bytes(quantized.to_bytes())
    (work / f"{name}.onnxruntime.onnx").write_bytes(onnxruntime_default(path, cache))
    images = networks.images(32, size, 9)
    np.save(work / f"{name}.images.npy", images)
    np.save(work / f"{name}.reference.npy", run_onnx(load_model(path), images))
    np.save(work / f"{name}.simulation.npy", run_onnx(quantized, images))


def run_onnx(model: Any, images: np.ndarray) -> np.ndarray:
    """First output of a model for images, in batches of 8."""
    from calib.graph import open_session, session_options

    session = open_session(model, session_options(float_qdq=True))
    outputs = [session.run(None, {"input": images[i : i + 8]})[0] for i in range(0, len(images), 8)]
    return np.concatenate(outputs)


def onnxruntime_default(path: Path, cache: Any) -> bytes:
    """The model as ONNX Runtime's quantizer writes it, in the form that TensorRT 8.6 reads."""
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorData, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    model = onnx.load(path)
    ranges = {name: 127 * scale for name, scale in cache.items()}
    for node in model.graph.node:
        for name in node.output:
            ranges.setdefault(name, 1.0)
    data = {
        name: TensorData(lowest=np.float32(-amax), highest=np.float32(amax)) for name, amax in ranges.items()
    }
    options = {
        "ActivationSymmetric": True,
        "WeightSymmetric": True,
        "QuantizeBias": False,
        "AddQDQPairToWeight": True,
    }
    kinds = list(dict.fromkeys([*QLinearOpsRegistry, *QDQRegistry]))
    tensors = TensorsData(CalibrationMethod.MinMax, data)
    int8 = QuantType.QInt8
    quantizer = QDQQuantizer(model, True, False, int8, int8, tensors, [], [], kinds, options)
    quantizer.quantize_model()
    return bytes(quantizer.model.model.SerializeToString())


def plan_path(work: Path, name: str, batch: int, form: str, number: int) -> Path:
    """Where one engine is; the level that it was built at lies beside it."""
    return work / f"{name}.{batch}.{form}.{number}.plan"


def build(work: Path, name: str, batch: int, options: argparse.Namespace) -> None:
    """Builds the engines of one network and batch, one after another, with one timing cache a round."""
    for number in range(1, options.builds + 1):
        build_round(work, name, batch, options, number)


def build_round(work: Path, name: str, batch: int, options: argparse.Namespace, number: int) -> None:
    """Builds each form once."""
    import pycuda.autoprimaryctx  # noqa: F401

    from calib.calibrators import CalibrationCache
    from calib.engine import cache_calibrator, load_api
    from calib.engine.build_request import BuildRequest
    from calib.engine.float_layers import keep_layers_float

    api = load_api()
    trt, timings = api.trt, None
    for form in options.forms.split(","):
        path = plan_path(work, name, batch, form, number)
        if path.with_suffix(".level").is_file():
            continue
        start = time.monotonic()
        source = f"{name}.onnx" if form in ("implicit", "fp16") else f"{name}.{form}.onnx"
        logger = trt.Logger(trt.Logger.ERROR)
        builder = trt.Builder(logger)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
        parser = trt.OnnxParser(network, logger)
        if not parser.parse((work / source).read_bytes()):
            print(name, form, "is not parsed:", parser.get_error(0), flush=True)
            continue
        config = configure(trt, builder, network, batch, options.level)
        if form != "fp16":
            config.set_flag(trt.BuilderFlag.INT8)
        if form == "implicit":
            config.int8_calibrator = cache_calibrator(api, CalibrationCache.read(work / f"{name}.cache"))
            keep_layers_float(api, network, config, BuildRequest(precision="best"))
        timings = timings or config.create_timing_cache(b"")
        config.set_timing_cache(timings, True)
        plan, how = serialize(builder, network, config)
        seconds = time.monotonic() - start
        print(name, batch, form, number, f"{seconds:.0f} s" if plan else "NOT BUILT", flush=True)
        if plan:
            path.write_bytes(bytes(plan))
            path.with_suffix(".level").write_text(how)


def serialize(builder: Any, network: Any, config: Any) -> tuple[Any, str]:
    """The engine, and its level: 0 where TensorRT 8.6.0 fails on a network at the level asked for."""
    level = config.builder_optimization_level
    plan = builder.build_serialized_network(network, config)
    if plan is None and level:
        config.builder_optimization_level = 0
        return builder.build_serialized_network(network, config), "0"
    return plan, str(level)


def configure(trt: Any, builder: Any, network: Any, batch: int, level: int) -> Any:
    """A configuration with FP16 allowed and one shape."""
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    config.set_flag(trt.BuilderFlag.FP16)
    config.builder_optimization_level = level
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    entry = network.get_input(0)
    shape = (batch, *tuple(entry.shape)[1:])
    profile = builder.create_optimization_profile()
    profile.set_shape(entry.name, shape, shape, shape)
    config.add_optimization_profile(profile)
    config.set_calibration_profile(profile)
    return config


def measure(work: Path, name: str, batch: int) -> list[dict[str, Any]]:
    """Latency, SQNR and layers of every engine of one network and batch."""
    from contextlib import ExitStack

    from calib.engine import summarize_layers
    from calib.runners import TensorRTRunner
    from calib.validation.gpu_latency import GpuLatencyPlan, measure_gpu_latency
    from calib.validation.tensors import sqnr_db

    images = np.load(work / f"{name}.images.npy")[:batch]
    reference = np.load(work / f"{name}.reference.npy")[:batch]
    simulation = np.load(work / f"{name}.simulation.npy")[:batch]
    plans = {
        (form, number): plan_path(work, name, batch, form, number)
        for form in (*FORMS, *MORE_FORMS)
        for number in range(1, MOST_BUILDS + 1)
    }
    rows = []
    with ExitStack() as stack:
        runners = {
            key: stack.enter_context(
                TensorRTRunner(path, "fp16" if key[0] == "fp16" else "int8", cuda_graph=True)
            )
            for key, path in plans.items()
            if path.with_suffix(".level").is_file()
        }
        outputs = {
            key: next(iter(runner.infer({"input": images}).values())) for key, runner in runners.items()
        }
        found = measure_gpu_latency(
            list(runners.values()),
            [{"input": images}] * len(runners),
            GpuLatencyPlan(batch_size=batch, count=300, seconds=8.0),
            [f"{form} {number}" for form, number in runners],
        )
        for (key, runner), latency in zip(runners.items(), found.latencies, strict=True):
            layers = runner.layers()
            times = runner.profile({"input": images}, 10)
            summary = summarize_layers(layers, times)
            rows.append(
                {
                    "network": name,
                    "batch": batch,
                    "form": key[0],
                    "build": key[1],
                    "level": plans[key].with_suffix(".level").read_text(),
                    "ms": latency.median_ms,
                    "p90_ms": latency.p90_ms,
                    "sqnr_db": sqnr_db(reference, outputs[key]),
                    "against_simulation_db": sqnr_db(simulation, outputs[key]),
                    "bytes": plans[key].stat().st_size,
                    "layers": len(layers),
                    "int8_layers": summary.int8_layers,
                    "int8_time_share": summary.int8_time_share,
                    "times_ms": {layer: round(value, 5) for layer, value in times.items()},
                    "warnings": list(found.warnings),
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Medians of each form's builds as Markdown, each latency beside its ratio to implicit INT8."""
    cases: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        cases.setdefault((row["network"], row["batch"], row["form"]), []).append(row)
    medians = {case: float(np.median([row["ms"] for row in found])) for case, found in cases.items()}
    lines = [
        "| network | batch | engine | level | ms | builds, ms | × implicit | SQNR dB | INT8 layers |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (name, batch, form), found in cases.items():
        base, ms = medians.get((name, batch, "implicit")), medians[name, batch, form]
        times = sorted(row["ms"] for row in found)
        spread = f"{times[0]:.4f} to {times[-1]:.4f}" if len(times) > 1 else "one"
        cells = (
            *(name, str(batch), form, found[0]["level"], f"{ms:.4f}", spread),
            "–" if base is None else f"{ms / base:.3f}",
            *("not finite" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f}" for row in found[:1]),
            f"{found[0]['int8_layers']} of {found[0]['layers']}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run_all(options: argparse.Namespace) -> None:
    """Prepares all, builds side by side within the time limit, then measures."""
    start = time.monotonic()
    jobs = wanted(options)
    for process in [spawn(options, "prepare", name) for name in dict(jobs)]:
        process.wait()
    waiting = list(jobs)
    free = [int(gpu) for gpu in options.gpus.split(",")]
    running: list[tuple[subprocess.Popen[bytes], int]] = []
    while (waiting or running) and time.monotonic() - start < options.limit:
        for process, gpu in [item for item in running if item[0].poll() is not None]:
            running.remove((process, gpu))
            free.append(gpu)
        while waiting and free:
            gpu = free.pop(0)
            name, batch = waiting.pop(0)
            running.append((spawn(options, "build", name, batch, gpu), gpu))
        time.sleep(0.1)
    for process, _ in running:
        process.kill()
    if waiting or running:
        print(f"Out of time: {len(running)} builds stopped, {len(waiting)} not begun.", flush=True)
    rows = [row for name, batch in jobs for row in collect(options, name, batch)]
    (options.out / "placement.json").write_text(json.dumps(rows, indent=1))
    (options.out / "placement.md").write_text(table(rows) + "\n")
    print(table(rows))


def wanted(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Network and batch of each job, in the order in which they are built."""
    if options.jobs:
        pairs = (job.split(":") for job in options.jobs.split(","))
        return [(name, int(batch)) for name, batch in pairs]
    names = options.networks.split(",")
    return [(name, batch) for batch in map(int, options.batches.split(",")) for name in names]


def collect(options: argparse.Namespace, name: str, batch: int) -> list[dict[str, Any]]:
    """Measures in a process of its own, so that one broken engine does not end the rest."""
    result = options.work / f"{name}.{batch}.json"
    gpu = int(options.gpus.split(",")[0])
    if spawn(options, "measure", name, batch, gpu).wait() or not result.is_file():
        print(name, batch, "NOT MEASURED", flush=True)
        return []
    return list(json.loads(result.read_text()))


def visible(gpu: int) -> str:
    """One of the GPUs that this process may see, as its own stages count them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[gpu] if given else str(gpu)


def spawn(
    options: argparse.Namespace, stage: str, name: str, batch: int = 0, gpu: int = 0
) -> subprocess.Popen[bytes]:
    """Runs one stage in a process of its own, on one GPU."""
    command = [sys.executable if not options.python else options.python, __file__]
    command += [options.nets, options.out, "--work", options.work, "--stage", stage, "--networks", name]
    command += ["--batches", batch, "--level", options.level, "--forms", options.forms]
    command += ["--builds", options.builds]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible(gpu), "OMP_NUM_THREADS": "4"}
    return subprocess.Popen([str(word) for word in command], env=environment)


def main() -> None:
    """Reads the options and runs one stage, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("nets", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--work", type=Path, default=Path("/tmp/placement"))
    parser.add_argument("--networks", default=",".join(networks.SIZES))
    parser.add_argument("--batches", default="32,1")
    parser.add_argument("--jobs", help="network:batch,… instead of all networks with all batches")
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--forms", default=",".join(FORMS), help="engines to build, in this order")
    parser.add_argument("--builds", type=int, default=1, choices=range(1, MOST_BUILDS + 1))
    parser.add_argument("--gpus", default="0", help="a GPU for each build at a time, such as 0,0,1,1")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for preparing and building")
    parser.add_argument("--python", help="interpreter of the stages, where TensorRT needs another one")
    parser.add_argument("--stage", choices=("prepare", "build", "measure"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.stage is None:
        run_all(options)
    elif options.stage == "prepare":
        prepare(options.nets, options.work, options.networks)
    elif options.stage == "build":
        build(options.work, options.networks, int(options.batches), options)
    else:
        rows = measure(options.work, options.networks, int(options.batches))
        (options.work / f"{options.networks}.{options.batches}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
