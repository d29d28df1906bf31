"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Mapping[str, Sequence[int | str | None] | None],
    weights: Mapping[str, Any] | None = None,
    opset: int = 17,
    types: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A checked model of float32 tensors, but for ``types``; an output's shape may be left out."""
    kinds = types or {}

    def info(name: str, shape: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)

    constants = {
        name: value if isinstance(value, np.ndarray) else np.asarray(value, np.float32)
        for name, value in (weights or {}).items()
    }
    graph = helper.make_graph(
        list(nodes),
        "test",
        [info(name, shape) for name, shape in inputs.items()],
        [info(name, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if None in outputs.values():
        proto = onnx.shape_inference.infer_shapes(proto, strict_mode=True)
    onnx.checker.check_model(proto)
    return proto


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


def scale_of_pair(proto: onnx.ModelProto, tensor: str) -> float:
    """The scale of the QuantizeLinear that reads a tensor."""
    pair = next(n for n in proto.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == tensor)
    return float(next(numpy_helper.to_array(t) for t in proto.graph.initializer if t.name == pair.input[1]))


def save(proto: onnx.ModelProto, path: Path) -> Path:
    onnx.save(proto, path)
    return path


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 0.2


def conv_relu_gemm() -> onnx.ModelProto:
    """x [N,3,8,8] → Conv → Relu → MaxPool → Conv → Relu → GlobalAveragePool → Flatten → Gemm → y [N,5]."""
    return model(
        [
            node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
            node("Relu", ["c1"], ["r1"], name="relu1"),
            node("MaxPool", ["r1"], ["p1"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["p1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
            node("Relu", ["c2"], ["r2"], name="relu2"),
            node("GlobalAveragePool", ["r2"], ["g"], name="gap"),
            node("Flatten", ["g"], ["f"], name="flat"),
            node("Gemm", ["f", "w3", "b3"], ["y"], name="fc", transB=1),
        ],
        {"x": ["batch", 3, 8, 8]},
        {"y": ["batch", 5]},
        {
            "w1": weight(4, 3, 3, 3),
            "b1": weight(4),
            "w2": weight(6, 4, 3, 3, seed=1),
            "w3": weight(5, 6, seed=2),
            "b3": weight(5, seed=3),
        },
    )


def samples(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, *shape)).astype(np.float32)
