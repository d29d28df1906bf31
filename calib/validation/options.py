"""The arguments of a validation run, checked before anything is loaded."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calib.errors import UsageError
from calib.validation.engine_options import EngineOptions
from calib.validation.latency import LatencyPlan
from calib.validation.pytorch_options import PyTorchOptions
from calib.wording import suggestion

__all__ = ["PRECISIONS", "Options", "default_precisions", "ordered_precisions"]

PRECISIONS = ("fp32", "fp16", "int8")

_RUNNERS = ("onnxruntime", "tensorrt", "pytorch")
_WITHOUT_INT8 = ("pytorch",)


@dataclass(frozen=True)
class Options:
    """How to validate; construction checks, but reads and writes nothing.

    Attributes:
        precisions: "fp32", "fp16", "int8"; FP32 is always run, as the baseline.
        runner: "onnxruntime", "tensorrt" or "pytorch".
        caches: Calibration caches; INT8 needs one, and is run once for each.
        samples: Number of validation samples; None for all.
        batch_size: Samples a batch.
        seed: Seed of the choice of samples where the data is a dataset from Python.
        out: Folder for ``results.json``; None writes nothing.
        latency: How latency is timed.
        keep_float: Regular expressions of nodes that stay in float in INT8.
        scores: The output that holds class scores.
        allow_overlap: Whether calibration samples may be validated on.
        threads: Threads within an operator; None for every core.
        workers: Processes that read samples; None for what the recipe says.
        torch: The PyTorch network and how it is run, for the runner "pytorch".
        engine: How engines are built and timed, for the runner "tensorrt".
        integer_kernels: Whether INT8 is run by ONNX Runtime's integer kernels too.
    """

    precisions: tuple[str, ...] = PRECISIONS
    runner: str = "onnxruntime"
    caches: tuple[str, ...] = ()
    samples: int | None = None
    batch_size: int = 32
    seed: int | None = None
    out: str | None = None
    latency: LatencyPlan = field(default_factory=LatencyPlan)
    keep_float: tuple[str, ...] = ()
    scores: str | None = None
    allow_overlap: bool = False
    threads: int | None = None
    workers: int | None = None
    torch: PyTorchOptions | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)
    integer_kernels: bool = False

    def __post_init__(self) -> None:
        _check_known("runner", self.runner, _RUNNERS)
        if self.engine.changed() and self.runner != "tensorrt":
            given = " ".join(self.engine.words())
            raise UsageError(f"{given} is for --runner tensorrt, got --runner {self.runner}.")
        if self.integer_kernels and (self.runner != "onnxruntime" or "int8" not in self.precisions):
            raise UsageError(
                "--integer-kernels shows what ONNX Runtime's own INT8 kernels answer: it needs --runner "
                "onnxruntime and int8 among the precisions."
            )
        self._check_torch()
        if self.precisions != ordered_precisions(self.precisions):
            raise UsageError(f"Precisions must begin with fp32 and not repeat, got {self.precisions}.")
        for name, value in (("Samples", self.samples), ("Batch size", self.batch_size)):
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, got {value}.")

    def _check_torch(self) -> None:
        if self.torch is not None and not isinstance(self.torch, PyTorchOptions):
            raise UsageError(
                "torch takes the network and how it is run, calib.validation.PyTorchOptions('net.py:Net'); "
                f"got {type(self.torch).__name__}."
            )
        if (self.runner == "pytorch") != (self.torch is not None):
            raise UsageError(
                "--runner pytorch needs the network that the model came from: --torch module:factory, such "
                "as --torch net.py:Net."
                if self.torch is None
                else f"--torch {self.torch.name} is for --runner pytorch, got --runner {self.runner}."
            )
        if self.runner in _WITHOUT_INT8 and "int8" in self.precisions:
            raise UsageError(
                f"--runner {self.runner} runs {' and '.join(default_precisions(self.runner))}: INT8 is in "
                "the ONNX model alone. Leave int8 out of --precisions, and validate it with another runner; "
                "calib report puts the results in one table."
            )

    @property
    def results_path(self) -> Path | None:
        """Where the results go."""
        return None if self.out is None else Path(self.out) / "results.json"

    @property
    def lacks_cache(self) -> bool:
        """Whether INT8 is asked for without a calibration cache."""
        return "int8" in self.precisions and not self.caches

    def cache_missing(self, model: str, data: str) -> UsageError:
        """What is raised where INT8 lacks its cache; it gives the commands to run.

        Args:
            model: The model's path.
            data: The recipe.
        """
        cache = os.fspath(Path(model).with_suffix(".cache"))
        recipe = shlex.quote(data)
        return UsageError(
            "INT8 needs the ranges of a calibration, and no cache was given. Run:\n"
            f"  calib calibrate {shlex.quote(model)} --data {recipe} --out {shlex.quote(cache)}\n"
            f"  calib validate {shlex.quote(model)} --data {recipe} --cache {shlex.quote(cache)}\n"
            "or leave INT8 out with --precisions fp32,fp16."
        )

    def command(self, model: str, data: str) -> str:
        """The command that repeats the run on a recipe.

        Args:
            model: The model's path.
            data: The recipe.
        """
        words = ["calib", "validate", model, "--data", data, "--precisions", ",".join(self.precisions)]
        for name, value in self._changed().items():
            flag = "--" + name.replace("_", "-")
            values = value if isinstance(value, tuple) else (value,)
            for item in values:
                words += [flag] if item is True else [flag, str(item)]
        words += self.torch.words() if self.torch else []
        return shlex.join([*words, *self.engine.words()])

    def call(self, model: str, dataset: str) -> str:
        """The call that repeats the run on a dataset that was made in Python.

        Args:
            model: The model's path.
            dataset: The dataset's name.
        """
        options = {"precisions": self.precisions, **self._changed()}
        if self.seed is not None:
            options["seed"] = self.seed
        words = [f"{name}={value!r}" for name, value in options.items()]
        words += [f"torch={self.torch.call()}"] if self.torch is not None else []
        words += [f"engine={self.engine.call()}"] if self.engine.changed() else []
        given = ", ".join(words)
        return f"calib.validate({model!r}, dataset, {given})  # dataset: {dataset}"

    def _changed(self) -> dict[str, Any]:
        """Options that are not as they are by default, by the name they have in Python."""
        usual = Options()
        caches = self.caches[0] if len(self.caches) == 1 else self.caches
        pairs = {
            "runner": (self.runner, "onnxruntime"),
            "cache": (caches, ()),
            "samples": (self.samples, None),
            "batch_size": (self.batch_size, usual.batch_size),
            "latency_batch": (self.latency.batch_size, usual.latency.batch_size),
            "latency_count": (self.latency.count, usual.latency.count),
            "latency_seconds": (self.latency.seconds, usual.latency.seconds),
            "keep_float": (self.keep_float, ()),
            "scores": (self.scores, None),
            "allow_overlap": (self.allow_overlap, False),
            "threads": (self.threads, None),
            "workers": (self.workers, None),
            "integer_kernels": (self.integer_kernels, False),
            "out": (self.out, None),
        }
        return {name: value for name, (value, default) in pairs.items() if value != default}


def ordered_precisions(names: Sequence[str]) -> tuple[str, ...]:
    """Precisions in the order they are asked for, without repeats, the FP32 baseline first.

    Raises:
        UsageError: A name is unknown, or there is none.

    >>> ordered_precisions(["int8", "fp32", "int8"])
    ('fp32', 'int8')
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else tuple(names)
    if not names:
        raise UsageError(f"No precision given. Choose from {', '.join(PRECISIONS)}.")
    for name in names:
        _check_known("precision", name, PRECISIONS)
    return tuple(dict.fromkeys(("fp32", *names)))


def default_precisions(runner: str) -> tuple[str, ...]:
    """The precisions that a runner has.

    >>> default_precisions("onnxruntime"), default_precisions("pytorch")
    (('fp32', 'fp16', 'int8'), ('fp32', 'fp16'))
    """
    return PRECISIONS[:2] if runner in _WITHOUT_INT8 else PRECISIONS


def _check_known(what: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    hint = suggestion(name.lower(), known)
    raise UsageError(f"Unknown {what} {name!r}.{hint} Choose from {', '.join(known)}.")
