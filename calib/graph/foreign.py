"""Plug-ins of TensorRT that ONNX's tools take for faults: in ONNX's own domain, or in one not imported."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from calib.graph.operators import is_standard
from calib.graph.subgraphs import all_nodes

__all__ = ["give_domain", "has_foreign_nodes", "take_domain"]

_DOMAIN = "calib.plugins:"


def has_foreign_nodes(proto: onnx.ModelProto) -> bool:
    """Whether a model has nodes of no domain that it imports, be it that ONNX's own has none of the name."""
    return next(_foreign(proto), None) is not None


def give_domain(proto: onnx.ModelProto) -> None:
    """Puts such nodes into domains that the model imports, so that checker and converter pass them over.

    Args:
        proto: The model, which is changed.
    """
    nodes = list(_foreign(proto))
    for node in nodes:
        node.domain = _DOMAIN + node.domain
    domains = dict.fromkeys(node.domain for node in nodes)
    proto.opset_import.extend(onnx.helper.make_opsetid(domain, 1) for domain in domains)


def take_domain(proto: onnx.ModelProto) -> None:
    """Puts them back, as TensorRT's parser reads them.

    Args:
        proto: The model, which is changed.
    """
    for node in all_nodes(proto.graph):
        if node.domain.startswith(_DOMAIN):
            node.domain = node.domain.removeprefix(_DOMAIN)
    kept = [entry for entry in proto.opset_import if not entry.domain.startswith(_DOMAIN)]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)


def _foreign(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    functions = {function.name for function in proto.functions if not function.domain}
    imported = {entry.domain for entry in proto.opset_import}
    for node in all_nodes(proto.graph):
        if node.domain in ("", "ai.onnx"):
            known = is_standard(node) or node.op_type in functions
        else:
            known = node.domain in imported
        if not known:
            yield node
