"""Builds that are done again where layers of the engine compute something else."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from calib.engine.api import Api
from calib.engine.builder_run import BuiltPlan
from calib.engine.layer_files import inspect_plan
from calib.engine.target_device import TargetDevice
from calib.engine.wrong_layers import WrongLayer, find_wrong_layers
from calib.errors import EngineError
from calib.graph import OnnxModel
from calib.graph.operators import WEIGHTED

__all__ = ["Again", "avoidable_nodes", "build_soundly"]

_MOST_BUILDS = 5

Again = Callable[[tuple[str, ...]], BuiltPlan]
"""Builds with these nodes in float."""


def avoidable_nodes(model: OnnxModel) -> frozenset[str]:
    """Names of the nodes that calib itself quantizes, so that it can leave them in float.

    Args:
        model: The model as it was given; one with Q/DQ nodes is built as it is.
    """
    if model.quantized_nodes:
        return frozenset()
    return frozenset(node.name for node in model.proto.graph.node if node.name and node.op_type in WEIGHTED)


def build_soundly(
    api: Api,
    device: TargetDevice,
    built: BuiltPlan,
    again: Again,
    avoidable: Container[str],
    *,
    host_code: bool = False,
) -> tuple[BuiltPlan, list[str]]:
    """Builds until no layer of the engine is wrong, with the nodes of those that were in float.

    Args:
        api: TensorRT.
        device: What it is built for.
        built: The engine as it was built first.
        again: Builds it once more.
        avoidable: Names of nodes that can be left in float.
        host_code: Whether the engine holds runtime code of its own, which is what was just built here.

    Returns:
        The last engine, and notes on what was left in float. Wrong layers that stay are warnings of it.
    """
    kept: dict[str, WrongLayer] = {}
    while True:
        try:
            wrong = find_wrong_layers(
                inspect_plan(api, built.plan, origin="the engine", here=device.name, host_code=host_code)
            )
        except EngineError as error:
            return built, [*_notes(kept), f"its layers were not looked at: {error}"]
        new = {
            node: found for found in wrong for node in found.nodes if node in avoidable and node not in kept
        }
        if not new or len(kept) >= _MOST_BUILDS:
            return replace(built, warnings=(*built.warnings, *_warnings(api, wrong))), _notes(kept)
        kept |= new
        built = again(tuple(kept))


def _notes(kept: dict[str, WrongLayer]) -> list[str]:
    return [f"built again with {node} in float: in INT8 it {found.reason}" for node, found in kept.items()]


def _warnings(api: Api, wrong: Sequence[WrongLayer]) -> list[str]:
    return [
        f"The engine computes something else: {found}, which {api.title} gets wrong. Build it at another "
        "--level, or keep the node in float (--keep-float)."
        for found in wrong
    ]
