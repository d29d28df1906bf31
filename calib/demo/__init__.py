"""The whole job on shipped data, on a CPU: two caches, a Q/DQ model, a validation, a report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calib.files import check_writable, write_bytes

if TYPE_CHECKING:
    from calib.report import ReportFiles
    from calib.validation import Results

__all__ = ["DEMO_MODEL", "DemoFiles", "run_demo"]

DEMO_MODEL = Path(__file__).parent / "digits.onnx"
"""The shipped network; ``train.py`` beside it made it."""

_RECIPE = "digits"


@dataclass(frozen=True)
class DemoFiles:
    """What the demonstration made.

    Attributes:
        model: A copy of the shipped network.
        caches: Calibration method → cache.
        quantized: The Q/DQ model made from the entropy cache.
        results: The validation with both caches.
        results_path: Where they were written.
        report: The report on them.
    """

    model: Path
    caches: dict[str, Path]
    quantized: Path
    results: Results
    results_path: Path
    report: ReportFiles


def run_demo(out: str | os.PathLike[str]) -> DemoFiles:
    """Runs calibration, quantization, validation and report on the shipped network and digits.

    Args:
        out: Folder for everything that is made; files of an earlier demonstration are replaced.

    Returns:
        The files.

    Raises:
        CalibError: The folder cannot be written, or an extra is missing.
    """
    from calib.graph import calibrate, quantize
    from calib.report import write_report
    from calib.validation import validate

    folder = Path(out)
    check_writable(folder / DEMO_MODEL.name)
    model = write_bytes(folder / DEMO_MODEL.name, DEMO_MODEL.read_bytes())
    caches = {method: folder / f"digits.{method}.cache" for method in ("entropy", "minmax")}
    for method, cache in caches.items():
        calibrate(model, _RECIPE, method=method, out=cache)
    quantized = folder / "digits.int8.onnx"
    quantize(model, caches["entropy"], out=quantized)
    results = validate(model, _RECIPE, cache=tuple(caches.values()), out=folder)
    report = write_report([results], folder / "report")
    return DemoFiles(model, caches, quantized, results, folder / "results.json", report)
