"""Networks that end in plug-ins of TensorRT, which ONNX Runtime has no kernel for."""

from __future__ import annotations

import numpy as np
import onnx
from networks import model, node, weight
from onnx import TensorProto, helper

BOXES = 18


def detector(
    plugin: str = "EfficientNMS_TRT", domain: str = "", opset: int = 17, behind: bool = True
) -> onnx.ModelProto:
    """Conv → Relu → boxes [n, 18, 4] and scores [n, 18, 2] by a Conv each → plug-in → what TensorRT's makes.

    Args:
        plugin: EfficientNMS_TRT or BatchedNMS_TRT.
        domain: Its domain: TensorRT's exporters leave it empty.
        opset: The opset.
        behind: Whether the boxes go on to a Mul and a MatMul with a weight.
    """
    heads = [
        node("Conv", ["x", "w1", "b1"], ["c"], name="stem", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], ["r"], name="act"),
        node("Conv", ["r", "w2"], ["head_b"], name="box_head"),
        node("Reshape", ["head_b", "box_shape"], ["boxes"], name="box_list"),
        node("Conv", ["r", "w3"], ["head_s"], name="score_head"),
        node("Reshape", ["head_s", "score_shape"], ["raw"], name="score_list"),
        node("Sigmoid", ["raw"], ["scores"], name="probability"),
    ]
    weights = {
        **{"w1": weight(8, 3, 3, 3), "b1": weight(8), "w2": weight(8, 8, 1, 1), "w3": weight(4, 8, 1, 1)},
        "box_shape": np.array([-1, BOXES, 4]),
        "score_shape": np.array([-1, BOXES, 2]),
        **({"size": np.float32(640), "w4": weight(4, 4)} if behind else {}),
    }
    proto = model(heads, {"x": ["n", 3, 6, 6]}, {"boxes": None, "scores": None}, weights, opset=opset)
    found = ["num_dets", "det_boxes", "det_scores", "det_classes"]
    proto.graph.node.append(
        helper.make_node(plugin, ["boxes", "scores"], found, name="nms", domain=domain, max_output_boxes=5)
    )
    if domain:
        proto.opset_import.append(helper.make_opsetid(domain, 1))
    shapes = {"num_dets": ["n", 1], "det_boxes": ["n", 5, 4], "det_scores": ["n", 5], "det_classes": ["n", 5]}
    if behind:
        proto.graph.node.append(node("Mul", ["det_boxes", "size"], ["pixels"], name="in_pixels"))
        proto.graph.node.append(node("MatMul", ["pixels", "w4"], ["corners"], name="to_corners"))
        shapes["corners"] = ["n", 5, 4]
        del shapes["det_boxes"]
    del proto.graph.output[:]
    kinds = {"num_dets": TensorProto.INT32, "det_classes": TensorProto.INT32}
    proto.graph.output.extend(
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
        for name, shape in shapes.items()
    )
    return proto
