"""INT8 engines beside the simulation of their arithmetic: what a kernel gets wrong, or leaves in float."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from calib.validation.options import Options
from calib.validation.peer_records import SimulationDifference
from calib.validation.provenance import Calibration
from calib.validation.variants import Variant

if TYPE_CHECKING:
    from calib.graph import OnnxModel
    from calib.graph.targets import Treatment

__all__ = ["Simulations", "simulate", "simulation_sentence"]

Simulations = Sequence[tuple[Variant, tuple[Variant, ...]]]
"""Simulated runs, each with the engines that were built with the same scales."""

_MORE_ERROR_DB = 6.0
"""Twice the amplitude of the error that INT8 explains: kernels that round otherwise stay well below it."""


def simulate(
    variants: Sequence[Variant],
    model: OnnxModel,
    calibrations: Sequence[Calibration],
    options: Options,
    stack: ExitStack,
) -> Simulations:
    """Opens a simulated run for each calibration that INT8 engines were built with.

    Args:
        variants: The runs.
        model: The FP32 model.
        calibrations: Scales for INT8.
        options: Whether to simulate, and nodes that stay in float.
        stack: Closes the runners.
    """
    if not options.engine.simulation or importlib.util.find_spec("onnxruntime") is None:
        return ()
    from calib.validation.variants_onnxruntime import make_simulation

    found = []
    for calibration in calibrations:
        built = tuple(one for one in variants if one.engine is not None and one.scales is calibration.cache)
        if built:
            simulated = make_simulation(model, calibration, options, _conv_transpose(options, built))
            stack.enter_context(simulated.runner)
            found.append((simulated, built))
    return found


def _conv_transpose(options: Options, built: Sequence[Variant]) -> Treatment:
    """What transposed convolutions are in the engines, which come of one TensorRT and the same options."""
    from calib.engine.float_layers import floats_transposed

    records = (one.engine.record for one in built if one.engine is not None)
    chosen = options.engine.conv_transpose
    floats = any(floats_transposed(chosen, record.flavour, record.tensorrt) for record in records)
    return "float" if floats else "int8"


def simulation_sentence(found: SimulationDifference) -> str:
    """A warning where an engine's error is more than INT8 arithmetic explains; empty elsewhere.

    >>> figures = {"engine_db": -2.7, "simulation_db": 29.9, "between_db": -2.8, "verdict": "differs"}
    >>> simulation_sentence(SimulationDifference("TensorRT INT8", "INT8 simulation", "y", **figures))
    "TensorRT INT8 output 'y' has an SQNR of -2.7 dB where the simulation of the same scales has 29.9 dB: a
    kernel of the engine computes something else. Build it with --route explicit, at another --level, or with
    layers in float (--keep-float)."
    """
    engine, simulated = found.engine_db, found.simulation_db
    if engine is None or simulated is None or engine > simulated - _MORE_ERROR_DB:
        return ""
    return (
        f"{found.run} output {found.output!r} has an SQNR of {engine:.3g} dB where the simulation of the "
        f"same scales has {simulated:.3g} dB: a kernel of the engine computes something else. Build it with "
        "--route explicit, at another --level, or with layers in float (--keep-float)."
    )
