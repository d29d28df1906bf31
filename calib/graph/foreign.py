"""Plug-ins of TensorRT that stand in ONNX's own domain, where ONNX's tools know no operator of their name."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from calib.graph.operators import is_standard
from calib.graph.subgraphs import all_nodes

__all__ = ["give_domain", "has_foreign_nodes", "take_domain"]

_DOMAIN = "calib.plugins"


def has_foreign_nodes(proto: onnx.ModelProto) -> bool:
    """Whether a model has nodes in ONNX's domain that are neither ONNX's nor functions of its own."""
    return next(_foreign(proto), None) is not None


def give_domain(proto: onnx.ModelProto) -> None:
    """Puts such nodes into a domain of their own, so that checker and converter pass them over.

    Args:
        proto: The model, which is changed.
    """
    nodes = list(_foreign(proto))
    for node in nodes:
        node.domain = _DOMAIN
    if nodes:
        proto.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))


def take_domain(proto: onnx.ModelProto) -> None:
    """Puts them back, as TensorRT's parser reads them.

    Args:
        proto: The model, which is changed.
    """
    for node in all_nodes(proto.graph):
        if node.domain == _DOMAIN:
            node.ClearField("domain")
    kept = [entry for entry in proto.opset_import if entry.domain != _DOMAIN]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)


def _foreign(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    functions = {function.name for function in proto.functions if not function.domain}
    for node in all_nodes(proto.graph):
        if not node.domain and node.op_type not in functions and not is_standard(node):
            yield node
