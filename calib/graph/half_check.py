"""Running a model and its FP16 form on samples: ranges before, infinities and errors after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calib.data import Array
from calib.graph.half_simulation import simulate_float16
from calib.graph.intake import OnnxModel
from calib.graph.observed import ObservedSession

__all__ = ["HalfError", "Observation", "compare_half", "observe"]

Feeds = Sequence[Mapping[str, Array]]


@dataclass(frozen=True)
class Observation:
    """What a float32 model's tensors hold on samples.

    Attributes:
        amax: Tensor → largest finite absolute value.
        infinite: Tensors that hold infinities or NaN in float32 already, as masks do.
    """

    amax: dict[str, float]
    infinite: frozenset[str]


@dataclass(frozen=True)
class HalfError:
    """What the FP16 form gets wrong on samples.

    Attributes:
        overflows: Tensors that hold infinities or NaN there and not in float32, in network order.
        sqnr_db: Float output → signal to quantization noise against float32, in dB, over all batches;
            infinite where there is no error. Outputs that ONNX Runtime cannot compute are not in it.
    """

    overflows: tuple[str, ...]
    sqnr_db: Mapping[str, float]


def observe(model: OnnxModel, feeds: Feeds) -> Observation:
    """Runs a float32 model in ONNX Runtime and takes the largest values of its tensors.

    Args:
        model: The model.
        feeds: Batches, one array for each input.

    Raises:
        ModelError: ONNX Runtime cannot run it.
        MissingExtraError: ONNX Runtime is not installed.
    """
    session = ObservedSession(model, masks=True)
    amax: dict[str, float] = {}
    infinite: set[str] = set()
    for batch in feeds:
        for name, values in session.run(batch, slot=0).items():
            largest = _largest(values)
            if not math.isfinite(largest):
                infinite.add(name)
                largest = _largest(values[np.isfinite(values)])
            amax[name] = max(amax.get(name, 0.0), largest)
    shared = {name: amax[source] for name, source in session.source_of.items() if source in amax}
    return Observation(shared, frozenset(infinite))


def compare_half(model: OnnxModel, half: OnnxModel, feeds: Feeds, before: Observation) -> HalfError:
    """Runs the FP16 form on the same samples.

    Each result is computed in float32 and rounded to float16: an overflow of a result is seen, one of a
    partial sum inside of an operator is not.

    Args:
        model: The float32 model.
        half: Its FP16 form.
        feeds: The same batches.
        before: What the float32 model's tensors hold.

    Raises:
        ModelError: ONNX Runtime cannot run it.
    """
    exact = ObservedSession(model, masks=True)
    rounded = ObservedSession(simulate_float16(half), masks=True)
    outputs = [spec.name for spec in model.outputs if spec.dtype.kind == "f"]
    overflows: dict[str, None] = {}
    sums: dict[str, Array] = {}
    for batch in feeds:
        wanted = exact.run(batch, slot=0)
        found = rounded.run(_cast(batch, half), slot=0)
        # Tensors of the FP16 form alone are casts of these.
        shared = (name for name in found if name in before.amax and name not in before.infinite)
        overflows.update(dict.fromkeys(n for n in shared if not math.isfinite(_largest(found[n]))))
        for name in outputs:
            if name in wanted and name in found:
                sums[name] = sums.get(name, np.zeros(2)) + _powers(wanted[name], found[name])
    return HalfError(tuple(overflows), {name: _decibels(*pair) for name, pair in sums.items()})


def _cast(batch: Mapping[str, Array], model: OnnxModel) -> dict[str, Array]:
    return {spec.name: np.asarray(batch[spec.name], spec.dtype) for spec in model.inputs}


def _largest(values: Array) -> float:
    """max|x|; NaN where there is one."""
    return float(np.max(np.abs(values), initial=0.0))


def _powers(wanted: Array, found: Array) -> Array:
    """Σ x² and Σ (x − y)² over elements that are finite in float32."""
    finite = np.isfinite(wanted)
    signal = wanted[finite].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        noise = signal - found[finite].astype(np.float64)
    return np.array([signal @ signal, noise @ noise])


def _decibels(signal: float, noise: float) -> float:
    """10·log10(Σ x² / Σ (x − y)²).

    >>> _decibels(1.0, 0.001)
    30.0
    """
    if not math.isfinite(noise):
        return -math.inf
    if noise == 0:
        return math.inf
    return round(10 * math.log10(signal / noise), 10) if signal > 0 else -math.inf
