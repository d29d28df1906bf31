"""Whether a calibration cache was made with the data and preprocessing of a recipe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calib.data import Recipe
from calib.data.checks_values import Reading
from calib.data.findings import Finding
from calib.validation.provenance import differing_keys

if TYPE_CHECKING:
    from calib.calibrators import CalibrationCache
    from calib.graph import OnnxModel

__all__ = ["check_cache"]

_FAR = 8.0
_STEPS = 127


def check_cache(
    path: str | os.PathLike[str],
    recipe: Recipe | None,
    model: OnnxModel | None,
    readings: Sequence[Reading],
) -> list[Finding]:
    """Compares a cache with what a recipe gives the model now.

    Args:
        path: The calibration cache.
        recipe: The recipe; None for datasets from Python, which have none to compare.
        model: The model, which knows the names of its inputs; None where the dataset's have to do.
        readings: What was read of each use.

    Raises:
        CacheError: The cache or its sidecar cannot be read.
    """
    from calib.calibrators import CalibrationCache, read_sidecar

    cache, sidecar = CalibrationCache.read(path), read_sidecar(path)
    found = []
    differing = [] if recipe is None or sidecar is None else _differing(sidecar.preprocess, recipe)
    if differing:
        message = f"The cache was made with another preprocessing: {'; '.join(differing)}."
        advice = "Calibrate again with this recipe, or validate with the one of the calibration."
        found.append(Finding("cache-preprocessing", "error", message, (str(path),), advice))
    for reading in readings:
        found += _ranges(str(path), cache, model, reading)
    return found


def _differing(before: dict[str, object], recipe: Recipe) -> list[str]:
    return differing_keys(before, recipe.preprocess) if before else []


def _ranges(path: str, cache: CalibrationCache, model: OnnxModel | None, reading: Reading) -> list[Finding]:
    """The cache's range of each input against the values that go in now."""
    names = {name: name for name in reading.pooled}
    if model is not None and len(model.inputs) == len(names) == 1:
        names = {next(iter(names)): model.inputs[0].name}
    found = []
    for ours, tensor in names.items():
        largest = reading.pooled[ours].reach
        amax = cache.get(tensor, 0.0) * _STEPS
        if not amax or not largest or 1 / _FAR < largest / amax < _FAR:
            continue
        message = (
            f"Input {tensor!r} was calibrated for values up to ±{amax:.4g}, and the {reading.use} samples "
            f"reach ±{largest:.4g}."
        )
        advice = "Prepare both alike, and calibrate again."
        found.append(Finding("cache-range", "error", message, (path,), advice))
    return found
