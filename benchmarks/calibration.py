"""Calibration against plain inference, and against ONNX Runtime's own calibrators, in one run.

    python benchmarks/calibration.py speed  [--model resnet50] [--samples 32] [--batch-size 1]
    python benchmarks/calibration.py memory [--model resnet50] [--samples 32 512] [--batch-size 1]
    python benchmarks/calibration.py search

``speed`` times, one after another in this process and in turn over several rounds, the same samples
through a plain FP32 session and through calib's calibrators; each of ONNX Runtime's calibrators is timed
once after that. ``memory`` measures the peak resident size of new processes. ``search`` times the entropy
search a tensor. Networks are torchvision's with random weights at 224 × 224.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 224
ROUNDS = 5


def exported(name: str) -> Path:
    """The network as ONNX, made once and kept in the temporary folder."""
    path = Path(tempfile.gettempdir()) / f"calib-benchmark-{name}.onnx"
    if not path.exists():
        import torch
        import torchvision

        torch.manual_seed(0)
        network = getattr(torchvision.models, name)(weights=None).eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network,
                (torch.zeros(1, 3, SIDE, SIDE),),
                str(path),
                dynamo=False,
                opset_version=17,
                input_names=["input"],
                output_names=["logits"],
                dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}},
            )
    return path


def dataset(count: int) -> Any:
    """Random images that are made when they are read."""
    from calib.data import Dataset, Sample

    def load(index: int) -> Sample:
        image = np.random.default_rng(index).standard_normal((3, SIDE, SIDE), np.float32)
        return Sample(f"random#{index}", {"input": image})

    return Dataset("random", tuple(f"random#{i}" for i in range(count)), load)


def plain(model: Path, count: int, batch_size: int, *, optimize: bool) -> None:
    """Plain FP32 inference of the samples."""
    from calib.graph import load_model, open_session, session_options

    session = open_session(load_model(model), session_options(optimize=optimize))
    for batch in dataset(count).batches(batch_size):
        session.run(None, dict(batch.inputs))


def calibrated(model: Path, count: int, batch_size: int, method: str) -> None:
    """Calibration of the samples by calib."""
    import calib

    calib.calibrate(model, dataset(count), method=method, batch_size=batch_size)


class Reader:
    """The samples as ONNX Runtime's calibrators read them."""

    def __init__(self, count: int, batch_size: int) -> None:
        self._batches: Iterator[Any] = dataset(count).batches(batch_size)

    def get_next(self) -> dict[str, Any] | None:
        """The next batch; None at the end."""
        batch = next(self._batches, None)
        return None if batch is None else dict(batch.inputs)


def runtime_calibrated(model: Path, count: int, batch_size: int, method: str) -> None:
    """Calibration of the samples by ONNX Runtime."""
    from onnxruntime.quantization import CalibrationMethod, create_calibrator

    with tempfile.TemporaryDirectory() as folder:
        calibrator = create_calibrator(
            model,
            None,
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=getattr(CalibrationMethod, method),
        )
        calibrator.collect_data(Reader(count, batch_size))
        calibrator.compute_data()


def seconds(work: Callable[[], None]) -> float:
    """Wall time of some work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def speed(model: Path, count: int, batch_size: int) -> None:
    """Prints times and ratios to plain inference."""
    jobs: dict[str, Callable[[], None]] = {
        "plain inference": lambda: plain(model, count, batch_size, optimize=False),
        "plain inference, graph optimized": lambda: plain(model, count, batch_size, optimize=True),
        **{
            f"calib {method}": lambda method=method: calibrated(model, count, batch_size, method)
            for method in ("entropy", "minmax", "percentile", "mse")
        },
    }
    for job in jobs.values():
        job()
    rounds = [{name: seconds(job) for name, job in jobs.items()} for _ in range(ROUNDS)]
    print(f"{count} samples, batch size {batch_size}, median of {ROUNDS} rounds in turn")
    for name in jobs:
        report(name, [turn[name] for turn in rounds], rounds)
    for method in ("MinMax", "Percentile", "Entropy"):
        taken = seconds(lambda method=method: runtime_calibrated(model, count, batch_size, method))
        report(f"ONNX Runtime {method.lower()}", [taken], rounds)


def report(name: str, times: list[float], rounds: list[dict[str, float]]) -> None:
    """Prints a job's time and its ratio to both kinds of plain inference, round by round."""
    ratios = []
    for base in ("plain inference", "plain inference, graph optimized"):
        bases = [turn[base] for turn in rounds]
        if len(times) == len(bases):
            ratios.append(statistics.median(t / b for t, b in zip(times, bases, strict=True)))
        else:
            ratios.append(times[0] / statistics.median(bases))
    print(
        f"  {name:34} {statistics.median(times):8.2f} s   × {ratios[0]:5.2f}   × {ratios[1]:5.2f} optimized"
    )


def memory(model: Path, counts: list[int], batch_size: int) -> None:
    """Prints the peak resident size of a process for each job and number of samples."""
    print(f"peak resident size in MiB, batch size {batch_size}")
    for job in ("plain", "entropy", "minmax", "percentile", "mse"):
        sizes = [peak(model, job, count, batch_size) for count in counts]
        shown = "   ".join(f"{count} samples: {size:7.0f}" for count, size in zip(counts, sizes, strict=True))
        print(f"  {job:12} {shown}")


def peak(model: Path, job: str, count: int, batch_size: int) -> float:
    """Peak resident size of a new process that does one job, in MiB."""
    command = [sys.executable, __file__, "child", "--model", str(model), "--job", job]
    command += ["--samples", str(count), "--batch-size", str(batch_size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def child(model: Path, job: str, count: int, batch_size: int) -> None:
    """Does one job and prints this process's peak resident size in MiB."""
    if job == "plain":
        import calib.graph  # noqa: F401  so that both jobs have the same modules

        plain(model, count, batch_size, optimize=False)
    else:
        calibrated(model, count, batch_size, job)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def search() -> None:
    """Prints how long the entropy search takes for one tensor."""
    from calib.calibrators.entropy import entropy_amax

    counts = np.random.default_rng(0).poisson(1000 * np.exp(-np.arange(2048) / 300))
    entropy_amax(counts, 1.0)
    times = [seconds(lambda: entropy_amax(counts, 1.0)) for _ in range(50)]
    print(f"entropy search: median {statistics.median(times) * 1e3:.2f} ms a tensor")


def main() -> None:
    """Reads the arguments and runs one of the measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "memory", "search", "child"))
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--samples", type=int, nargs="+", default=None)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--job", default="plain")
    given = parser.parse_args()
    if given.what == "search":
        search()
        return
    model = Path(given.model) if given.model.endswith(".onnx") else exported(given.model)
    if given.what == "child":
        child(model, given.job, given.samples[0], given.batch_size)
        return
    print(f"{model.stem}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    if given.what == "speed":
        speed(model, (given.samples or [32])[0], given.batch_size)
    else:
        memory(model, given.samples or [32, 512], given.batch_size)


if __name__ == "__main__":
    main()
