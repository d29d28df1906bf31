"""Raising a model's operator set, or lowering it, by real conversion."""

from __future__ import annotations

import onnx
from google.protobuf.message import EncodeError
from onnx import version_converter

from calib.errors import ModelError
from calib.graph.cache_model import without_large_weights
from calib.graph.foreign import give_domain, take_domain
from calib.graph.graph_edit import attribute_of, remove_attribute
from calib.graph.graph_view import label
from calib.graph.intake import OnnxModel
from calib.graph.lower_opset import LOWEST_OPSET, lower_to_17, refuse_functions
from calib.graph.old_resizing import NEW_RESIZE, mend_resizing
from calib.graph.operators import is_standard
from calib.graph.subgraphs import all_nodes
from calib.graph.targets import Target
from calib.graph.tensor_types import infer_tensors
from calib.graph.whole_shapes import split_shape_ranges

__all__ = ["QDQ_OPSET", "fit_opset", "raise_opset"]

QDQ_OPSET = 13
"""The first opset whose DequantizeLinear has an axis, which weights per channel need."""

_QDQ_IR_VERSION = 7
_IR_OF_17 = 8
# Operator → the opset that gave it another meaning, which the converter does not mind.
_MEANT_OTHERWISE = {"Hardmax": 13, "Scan": 9}
# Later ones may change an operator's meaning in a way that is not known here.
_KNOWN_OPSET = 25
_CONVERSION_ERRORS = (
    RuntimeError,
    ValueError,
    EncodeError,
    version_converter.ConvertError,
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
)


def fit_opset(model: OnnxModel, target: Target) -> tuple[onnx.ModelProto, list[str]]:
    """A copy of a model in an opset that a target reads.

    Args:
        model: The model.
        target: The runtime.

    Returns:
        The copy, and a note for each thing that was changed or that is to know.

    Raises:
        ModelError: The opset is higher than the target reads and cannot be lowered, or is too low and cannot
            be raised.
    """
    too_high = target.most_opset is not None and model.opset > target.most_opset
    proto, notes = _lowered(model, target) if too_high else raise_opset(model, target.least_opset)
    if target.whole_shapes and (split := split_shape_ranges(proto)):
        notes.append(f"{split} Shape nodes of a part of the axes split in two: {target.name} reads no part")
    if target.sure_opset is not None and model.opset > target.sure_opset and not too_high:
        notes.append(
            f"opset {model.opset}: the first releases of {target.name} read up to {target.sure_opset}"
        )
    return proto, notes


def _lowered(model: OnnxModel, target: Target) -> tuple[onnx.ModelProto, list[str]]:
    most = target.most_opset
    if most != LOWEST_OPSET or model.opset > _KNOWN_OPSET:
        raise ModelError(
            f"{model.path} has opset {model.opset}; {target.name} reads up to {most}, and lowering it is "
            f"not safe. Export the network again with opset {most} "
            f"(torch.onnx.export(..., opset_version={most})), or choose another --target."
        )
    proto = model.edited()
    types, shapes = infer_tensors(proto)
    lower_to_17(proto, str(model.path), shapes, types)
    _check_types(model, proto)
    notes = [f"opset lowered from {model.opset} to {most}, the highest that {target.name} reads"]
    if proto.ir_version > _IR_OF_17:
        notes.append(f"IR version lowered from {proto.ir_version} to {_IR_OF_17}: opset {most} came with it")
        proto.ir_version = _IR_OF_17
    return proto, notes


def _check_types(model: OnnxModel, lowered: onnx.ModelProto) -> None:
    """Refuses a model with types that operators have not had before, such as bfloat16."""
    try:
        light = without_large_weights(lowered)
        give_domain(light)
        onnx.shape_inference.infer_shapes(light, check_type=True)
    except onnx.shape_inference.InferenceError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ModelError(
            f"{model.path} has opset {model.opset} and cannot be written in opset {LOWEST_OPSET}: {reason}. "
            "Export the network again without that type, or choose another --target."
        ) from error


def raise_opset(model: OnnxModel, least: int = QDQ_OPSET) -> tuple[onnx.ModelProto, list[str]]:
    """A copy of a model whose opset is high enough for Q/DQ nodes.

    Args:
        model: The model.
        least: The opset that is needed.

    Returns:
        The copy, and a note for each thing that was changed.

    Raises:
        ModelError: The model cannot be converted.
    """
    proto = model.edited()
    if model.opset >= least:
        return proto, []
    if model.opset == 0:
        raise ModelError(f"{model.path} does not use the standard ONNX operators; it cannot be quantized.")
    # The converter leaves them out, and with them what the nodes that call them compute.
    refuse_functions(proto, str(model.path), least)
    _refuse_other_meanings(model, least)
    # The converter takes initializers for data where they are listed among the inputs, as IR 3 did.
    weights = {tensor.name for tensor in proto.graph.initializer}
    inputs = [info for info in proto.graph.input if info.name not in weights]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    proto.ir_version = max(proto.ir_version, _QDQ_IR_VERSION)
    converted, resizing = _converted(model, proto, least)
    notes = [f"opset raised from {model.opset} to {least}: {_needing(least)} it", *resizing]
    if proto.ir_version > model.proto.ir_version:
        was, now = model.proto.ir_version, proto.ir_version
        notes.append(f"IR version raised from {was} to {now}: opset {least} came with it")
    lost = _restore_names(model.proto.graph, converted.graph)
    _restore_node_names(model.proto.graph, converted.graph)
    if lost:
        notes.append(f"tensors that the new opset computes otherwise stay in float: {', '.join(lost[:5])}")
    return converted, notes


def _converted(model: OnnxModel, proto: onnx.ModelProto, least: int) -> tuple[onnx.ModelProto, list[str]]:
    """A prepared copy of the model in another opset, and notes on what was mended."""
    give_domain(proto)
    _drop_idle_values(proto)
    resizing: list[str] = []
    try:
        converted = version_converter.convert_version(proto, least)
        if model.opset < NEW_RESIZE:
            resizing = mend_resizing(converted)
        _check_converted(converted, proto)
    except _CONVERSION_ERRORS as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"{model.path} has opset {model.opset}; {_needing(least)} {least}, and converting it "
            f"failed: {reason}. Export the network again with opset {least} or higher."
        ) from error
    converted.ir_version = proto.ir_version
    take_domain(converted)
    return converted, resizing


def _drop_idle_values(proto: onnx.ModelProto) -> None:
    """Drops a Pad's value where its mode uses none: the converter fails on it."""
    for node in all_nodes(proto.graph):
        pads = node.op_type == "Pad" and is_standard(node)
        if pads and attribute_of(node, "mode", b"constant") != b"constant":
            remove_attribute(node, "value")


def _refuse_other_meanings(model: OnnxModel, least: int) -> None:
    for node in all_nodes(model.proto.graph):
        since = _MEANT_OTHERWISE.get(node.op_type, 0)
        if is_standard(node) and model.opset < since <= least:
            raise ModelError(
                f"{model.path} has opset {model.opset}; {_needing(least)} {least}, where {node.op_type} "
                f"({label(node)}) means something else. Export the network again with opset {least} or "
                "higher."
            )


def _check_converted(converted: onnx.ModelProto, before: onnx.ModelProto) -> None:
    """Refuses what the converter made invalid; a fault that was there before is passed over."""
    try:
        onnx.checker.check_model(converted)
    except onnx.checker.ValidationError as error:
        try:
            onnx.checker.check_model(before)
        except onnx.checker.ValidationError as earlier:
            if str(earlier) == str(error):
                return
        raise


def _needing(least: int) -> str:
    return "Q/DQ per channel needs" if least <= QDQ_OPSET else "Q/DQ with float16 scales needs"


def _restore_names(before: onnx.GraphProto, after: onnx.GraphProto) -> list[str]:
    """Gives tensors that the converter renamed their old names, by which a cache knows them.

    A tensor is found through what reads it: the node that makes the same output as before.

    Returns:
        Old names of activations that are nowhere any more.
    """
    old = {node.output[0]: node for node in before.node if node.output}
    names = {name for node in before.node for name in node.output if name}
    while True:
        present = {name for node in after.node for name in node.output}
        renamed = {
            now: was
            for node in after.node
            for now, was in _changed_inputs(node, old.get(node.output[0] if node.output else ""))
            if now in present and now not in names and was in names - present
        }
        if not renamed:
            constants = {node.output[0] for node in before.node if node.op_type == "Constant"}
            return sorted(names - present - constants)
        # What subgraphs read of the graph around them is renamed there too.
        for node in all_nodes(after):
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]


def _restore_node_names(before: onnx.GraphProto, after: onnx.GraphProto) -> None:
    """Names nodes that the converter made of others, by what they compute."""
    # Of several nodes made of one, such as Softmax and Reshape, another may have kept the name.
    kept = {node.name for node in after.node}
    called = {node.output[0]: node.name for node in before.node if node.output and node.name not in kept}
    for node in after.node:
        if not node.name and node.output:
            node.name = called.get(node.output[0], "")


def _changed_inputs(now: onnx.NodeProto, was: onnx.NodeProto | None) -> list[tuple[str, str]]:
    if was is None:
        return []
    # The first input is the data; others may have become attributes or come from them.
    last = None if now.op_type == was.op_type else 1
    return list(zip(now.input[:last], was.input[:last], strict=False))
