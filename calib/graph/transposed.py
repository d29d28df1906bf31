"""Transposed convolutions, which TensorRT 8.6 builds at level 0 alone with an INT8 output."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from calib.graph.branches import Place
from calib.graph.graph_view import GraphView
from calib.graph.intake import OnnxModel
from calib.graph.operators import is_standard
from calib.graph.placement_rules import weighted_writers

__all__ = ["count_transposed", "roundable_inputs", "transposed_in_float"]

_REASON = (
    "above level 0 TensorRT 8.6 builds no engine where a transposed convolution has an INT8 output; "
    "--conv-transpose int8 quantizes it"
)


def transposed_in_float(graph: GraphView) -> dict[int, str]:
    """The transposed convolutions of a network, and why they stay in float.

    TensorRT 8.6.0 on an H200 built no engine of two U-Nets above optimization level 0 ("Assertion engine
    failed"), by the cache and by Q/DQ pairs. With these layers in FP16 it does (reports/tensorrt-8.6.md).

    Args:
        graph: The network.
    """
    return {
        index: _REASON
        for index, node in enumerate(graph.nodes)
        if node.op_type == "ConvTranspose" and is_standard(node)
    }


def roundable_inputs(graph: GraphView, transposed: Iterable[int], quantized: Collection[int]) -> list[Place]:
    """The inputs of float transposed convolutions that can get a pair all the same: what INT8 layers make.

    The layer before one writes INT8 then, which is faster by more than what making FP16 of it costs: on an
    H200 a U-Net at batch 32 took 1.71 ms with these pairs and 1.81 ms without. TensorRT's implicit INT8 does
    the same (TensorRT 8.6.0; reports/tensorrt-8.6.md).

    Args:
        graph: The network, with the scales.
        transposed: The transposed convolutions that stay in float.
        quantized: Nodes with a weight that run in INT8.
    """
    inputs = {index: graph.nodes[index].input[0] for index in transposed}
    return [
        (index, 0)
        for index, tensor in inputs.items()
        if not graph.obstacle(tensor) and not weighted_writers(tensor, graph).isdisjoint(quantized)
    ]


def count_transposed(model: OnnxModel) -> int:
    """How many nodes of a model ``transposed_in_float`` leaves in float."""
    return len(transposed_in_float(GraphView(model.proto, {})))
