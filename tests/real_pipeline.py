"""The whole job on a real model: two calibrations, Q/DQ models, validation, report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
import yaml

import calib
from calib.data import Dataset
from calib.validation import Results

__all__ = ["METHODS", "Outcome", "recipe_beside", "run_pipeline"]

METHODS = ("entropy", "minmax")
RECIPES = Path(__file__).parents[1] / "datasets"


def recipe_beside(folder: Path, name: str, **changes: Any) -> Path:
    """Copies a shipped recipe beside its data, as its comment says, with some keys changed.

    Args:
        folder: The folder that holds the data.
        name: The recipe's name.
        changes: Key → what to change in it; None leaves the key out.
    """
    recipe = yaml.safe_load((RECIPES / f"{name}.yaml").read_text())
    for key, change in changes.items():
        recipe[key] = {**recipe.get(key, {}), **change} if isinstance(change, dict) else change
    recipe = {key: value for key, value in recipe.items() if value is not None}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return path


@dataclass(frozen=True)
class Outcome:
    """What the job made and found.

    Attributes:
        results: The validation's results.
        pairs: Method → number of QuantizeLinear nodes and of DequantizeLinear nodes.
        report: The report's HTML file.
    """

    results: Results
    pairs: dict[str, tuple[int, int]]
    report: Path

    def fp32(self, metric: str) -> float:
        return self._value(0, metric)

    def int8(self, metric: str) -> dict[str, float]:
        """The figure of INT8 by method."""
        return {
            run.calibration: self._value(index, metric)
            for index, run in enumerate(self.results.runs)
            if run.precision == "int8"
        }

    def sqnr(self, output: str) -> dict[str, float]:
        """SQNR in dB of one output by method; infinite where there is no error."""
        return {
            run.calibration: next(
                float("inf") if error.sqnr_db is None else error.sqnr_db
                for error in run.outputs
                if error.output == output
            )
            for run in self.results.runs
            if run.precision == "int8"
        }

    def _value(self, index: int, metric: str) -> float:
        found = {item.name: item.value for item in self.results.runs[index].metrics}
        value = found[metric]
        assert value is not None
        return value


def run_pipeline(
    model: Path,
    data: Path | Dataset,
    out: Path,
    *,
    batch_size: int = 16,
    methods: Sequence[str] = METHODS,
    target: str = "tensorrt-8.6",
    shapes: Sequence[str] = (),
    **validation: Any,
) -> Outcome:
    """Calibrates by each method, quantizes, checks the models, validates and reports.

    Args:
        model: The FP32 model.
        data: A recipe or a dataset.
        out: Folder for everything that is made.
        batch_size: Samples a batch.
        methods: Of calibration.
        target: Of the Q/DQ models.
        shapes: Of the inputs of an INT8 engine; TensorRT-RTX builds it where it is installed.
        validation: More arguments of ``calib.validate``.
    """
    caches, pairs = [], {}
    for method in methods:
        cache = out / f"{method}.cache"
        calib.calibrate(model, data, method=method, batch_size=batch_size, out=cache)
        quantized = out / f"{method}.onnx"
        calib.quantize(model, cache, target=target, out=quantized)
        pairs[method] = _checked_pairs(quantized)
        caches.append(cache)
    if shapes and find_spec("tensorrt_rtx_bindings") is not None:
        engine = out / "int8.engine"
        options = {"precision": "int8", "cache": caches[-1], "shapes": shapes}
        calib.build(model, **options, flavour="tensorrt_rtx", out=engine)
        assert engine.stat().st_size > 10_000
    results = calib.validate(
        model,
        data,
        precisions=("fp32", "int8"),
        cache=caches,
        batch_size=batch_size,
        latency_count=0,
        out=out / "run",
        **validation,
    )
    calib.write_report([results], out / "report")
    report = out / "report" / "report.html"
    assert report.stat().st_size > 10_000
    assert (out / "run" / "results.json").is_file()
    assert [run.label for run in results.runs] == ["FP32", *(f"INT8 {method}" for method in methods)]
    return Outcome(results, pairs, report)


def _checked_pairs(path: Path) -> tuple[int, int]:
    onnx.checker.check_model(path, full_check=True)
    operators = [node.op_type for node in onnx.load(path).graph.node]
    found = operators.count("QuantizeLinear"), operators.count("DequantizeLinear")
    assert 0 < found[0] <= found[1], found
    return found


def run_commands(arguments: Sequence[object], monkeypatch: Any) -> int:
    """Runs ``calib`` with some arguments in this process and gives its exit status."""
    from calib.cli import main

    monkeypatch.setattr(sys, "argv", ["calib", *map(str, arguments)])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
