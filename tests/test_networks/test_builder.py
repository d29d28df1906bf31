"""The networks with pairs, built by NVIDIA's own builder, which needs no GPU in TensorRT-RTX."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

pytest.importorskip("torchvision", reason="extra [torch] is not installed")
pytest.importorskip("tensorrt_rtx_bindings", reason="extra [tensorrt-rtx] is not installed")

from torchvision_networks import NETWORKS

import calib
from calib.engine import Engine
from calib.errors import EngineError
from calib.graph import OnnxModel, QuantizedModel

Exported = Callable[[str], OnnxModel]
Quantized = Callable[[str, str, str], QuantizedModel]

TARGETS = ("tensorrt-8.6", "tensorrt-10")
WHOLE = tuple(name for name, network in NETWORKS.items() if not network.detector)
DETECTORS = tuple(name for name, network in NETWORKS.items() if network.detector)
SLOW = ("mask_rcnn", "ssd")
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in DETECTORS]


def build(network: OnnxModel, **options: object) -> Engine:
    return calib.build(network, flavour="tensorrt_rtx", compute_capability=(8, 6), level=0, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WHOLE)
def test_networks_with_pairs_are_built(name: str, target: str, quantized: Quantized) -> None:
    size = NETWORKS[name].size
    engine = build(
        quantized(name, "entropy", target).model,
        precision="int8",
        shapes=[f"images:1x3x{size}x{size}:2x3x{size}x{size}:4x3x{size}x{size}"],
    )
    assert engine.record.route == "explicit INT8"
    assert engine.record.warnings == ()


@pytest.mark.parametrize("name", NAMES)
def test_dense_layers_of_detectors_are_built(name: str, exported: Exported, quantized: Quantized) -> None:
    """From the image to what scores and boxes are found from."""
    pattern = NETWORKS[name].compared
    heads = [node.output[0] for node in exported(name).proto.graph.node if re.search(pattern, node.name)]
    whole = onnx.shape_inference.infer_shapes(quantized(name, "entropy", "tensorrt-10").model.proto)
    dense = onnx.utils.Extractor(whole).extract_model(["images"], [*dict.fromkeys(heads)])
    pairs = sum(node.op_type == "QuantizeLinear" for node in dense.graph.node)
    assert pairs > 20
    engine = build(OnnxModel(Path(f"{name}.dense.onnx"), dense), precision="int8")
    assert engine.record.warnings == ()


@pytest.mark.parametrize("name", NAMES)
def test_what_the_builder_refuses_of_a_detector_is_not_of_our_making(
    name: str, exported: Exported, quantized: Quantized
) -> None:
    """TensorRT-RTX has no plug-ins, and so no NonZero: with pairs and without, the same nodes are refused."""
    refused = []
    for model in (exported(name), quantized(name, "entropy", "tensorrt-8.6").model):
        with pytest.raises(EngineError, match="cannot parse") as caught:
            build(model, precision="int8" if model.quantized_nodes else "fp32")
        refused.append(re.findall(r"^  (\S+) '(\S+)' \(node", str(caught.value), re.MULTILINE))
    assert refused[0] == refused[1]
    assert {operator for operator, _ in refused[0]} == {"NonZero"}
