"""Builds that are done again where layers of the engine compute something else."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace

from calib.engine.api import Api
from calib.engine.builder_run import BuiltPlan
from calib.engine.fusion import node_label
from calib.engine.layer_files import inspect_plan
from calib.engine.target_device import TargetDevice
from calib.engine.wrong_layers import WrongLayer, find_wrong_layers
from calib.errors import CalibError, first_names
from calib.graph import OnnxModel
from calib.graph.operators import WEIGHTED
from calib.wording import one_line

__all__ = ["Again", "avoidable_nodes", "build_soundly"]

_MOST_AGAIN = 5

Again = Callable[[tuple[str, ...]], BuiltPlan]
"""Builds with these nodes in float."""


def avoidable_nodes(model: OnnxModel) -> frozenset[str]:
    """What TensorRT calls the nodes that calib itself quantizes, so that it can leave them in float.

    Args:
        model: The model as it was given; one with Q/DQ nodes is built as it is.
    """
    if model.quantized_nodes:
        return frozenset()
    return frozenset(node_label(node) for node in model.proto.graph.node if node.op_type in WEIGHTED)


def build_soundly(
    api: Api,
    device: TargetDevice,
    built: BuiltPlan,
    again: Again,
    avoidable: Container[str],
    *,
    host_code: bool = False,
) -> BuiltPlan:
    """Builds until no layer of the engine is wrong, with the nodes of those that were in float.

    An engine that was built is never lost: where it cannot be looked at or built again, notes say so.

    Args:
        api: TensorRT.
        device: What it is built for.
        built: The engine as it was built first.
        again: Builds it once more.
        avoidable: What TensorRT calls the nodes that can be left in float.
        host_code: Whether the engine holds runtime code of its own, which is what was just built here.

    Returns:
        The last engine. Its notes tell what was left in float, and its warnings the layers that stay wrong.
    """
    kept: dict[str, WrongLayer] = {}
    notes: list[str] = []
    for left in reversed(range(_MOST_AGAIN + 1)):
        wrong = _look(api, device, built, host_code, notes)
        new = {
            node: found for found in wrong for node in found.nodes if node in avoidable and node not in kept
        }
        if not new or not left:
            break
        try:
            built = again((*kept, *new))
        except (CalibError, RuntimeError, MemoryError) as error:
            notes.append(f"not built again with {first_names([*new])} in float: {_words(error)}")
            break
        kept |= new
    told = [
        f"built again with {node} in float: in INT8 it {found.often}{found.reason}"
        for node, found in kept.items()
    ]
    warnings = dict.fromkeys(_warnings(api, wrong, kept))
    return replace(built, warnings=(*warnings, *built.warnings), notes=(*built.notes, *told, *notes))


def _look(
    api: Api, device: TargetDevice, built: BuiltPlan, host_code: bool, notes: list[str]
) -> Sequence[WrongLayer]:
    try:
        layers = inspect_plan(
            api, built.plan, origin="the engine just built", here=device.name, host_code=host_code
        )
        return find_wrong_layers(layers)
    # TensorRT's bindings raise what C++ raised, whatever that is.
    except Exception as error:
        notes.append(f"its layers were not looked at: {_words(error)}")
        return ()


def _warnings(api: Api, wrong: Iterable[WrongLayer], kept: Container[str]) -> Iterator[str]:
    for found in wrong:
        text = f"The engine {found.claim} something else: {found}, which {api.title} {found.often}gets wrong."
        if not found.sure:
            text += " calib validate --runner tensorrt compares its answers."
        if any(node in kept for node in found.nodes):
            yield f"{text} Build it at another --level."
        else:
            yield (
                f"{text} Build it at another --level, or keep the node in float (--keep-float; of calib "
                "quantize, where the model has Q/DQ nodes)."
            )


def _words(error: BaseException) -> str:
    return one_line(error) or type(error).__name__
