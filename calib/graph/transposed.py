"""Transposed convolutions, which TensorRT 8.6 builds wrong, or not at all, with an INT8 output."""

from __future__ import annotations

from calib.graph.graph_view import GraphView
from calib.graph.intake import OnnxModel

__all__ = ["count_transposed", "transposed_in_float"]

_REASON = (
    "TensorRT 8.6 fails on transposed convolutions with an INT8 output, or computes something else; "
    "--conv-transpose int8 quantizes it"
)


def transposed_in_float(graph: GraphView) -> dict[int, str]:
    """The transposed convolutions of a network, and why they stay in float.

    TensorRT 8.6.0 on an H200 built no engine of two U-Nets above optimization level 0 ("Assertion engine
    failed"), by the cache and by Q/DQ pairs, and at level 0 engines whose outputs are wrong. With these
    layers in FP16 it builds them, and they are right (reports/tensorrt-8.6.md).

    Args:
        graph: The network.
    """
    return {index: _REASON for index, node in enumerate(graph.nodes) if node.op_type == "ConvTranspose"}


def count_transposed(model: OnnxModel) -> int:
    """How many nodes of a model ``transposed_in_float`` leaves in float."""
    return len(transposed_in_float(GraphView(model.proto, {})))
