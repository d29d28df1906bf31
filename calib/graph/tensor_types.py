"""Element types and sizes of a graph's tensors, as far as onnx infers them."""

from __future__ import annotations

import onnx

from calib.graph.cache_model import without_large_weights

__all__ = ["infer_tensors"]


def infer_tensors(proto: onnx.ModelProto) -> tuple[dict[str, int], dict[str, tuple[int | None, ...]]]:
    """Infers what a model does not state.

    Args:
        proto: The model.

    Returns:
        Tensor → element type, and tensor → sizes, None where one is not fixed.
    """
    light = without_large_weights(proto)
    try:
        light = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        # An inconsistent graph still says the types of its inputs, outputs and annotated tensors.
        light = without_large_weights(proto)
    types: dict[str, int] = {}
    shapes: dict[str, tuple[int | None, ...]] = {}
    for info in (*light.graph.value_info, *light.graph.input, *light.graph.output):
        kind = info.type.tensor_type
        if info.type.HasField("tensor_type") and kind.elem_type:
            types[info.name] = kind.elem_type
            if kind.HasField("shape"):
                shapes[info.name] = tuple(
                    dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim
                )
    return types, shapes
