"""The layers that every user meets, quantized and built by NVIDIA's own builder, without a GPU."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from layer_networks import LAYERS

import calib
from calib.engine import Engine
from calib.errors import EngineError
from calib.graph import OnnxModel, quantize_model
from calib.graph.cache_model import compare_names

pytest.importorskip("tensorrt_rtx_bindings", reason="extra [tensorrt-rtx] is not installed")

TARGETS = ("tensorrt-8.6", "tensorrt-10")
BUILT = [name for name, layer in LAYERS.items() if not layer.refused]
REFUSED = [name for name, layer in LAYERS.items() if layer.refused]


@cache
def network(name: str) -> OnnxModel:
    return OnnxModel(Path(f"{name}.onnx"), LAYERS[name].proto())


def quantized(name: str, target: str) -> OnnxModel:
    scales = dict.fromkeys(compare_names((), network(name)).only_model, 0.05)
    return quantize_model(network(name), scales, target=target, attention="int8", conv_transpose="int8").model


def build(name: str, model: OnnxModel, precision: str) -> Engine:
    layer = LAYERS[name]
    after = 1 if layer.time_first else 0
    sizes = [[*layer.shape[:after], n, *layer.shape[after:]] for n in (1, 4, 8)]
    return calib.build(
        model,
        precision=precision,
        flavour="tensorrt_rtx",
        compute_capability=(8, 6),
        level=0,
        shapes=["x:" + ":".join("x".join(map(str, size)) for size in sizes)],
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BUILT)
def test_layer_with_pairs_is_built(name: str, target: str) -> None:
    engine = build(name, quantized(name, target), "int8")
    assert engine.record.route == "explicit INT8"
    assert engine.record.warnings == ()


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_parser_refuses_is_not_of_our_making(name: str) -> None:
    """With pairs and without, the same nodes are refused."""
    refused = []
    for model, precision in ((network(name), "fp32"), (quantized(name, "tensorrt-8.6"), "int8")):
        with pytest.raises(EngineError, match="cannot parse") as caught:
            build(name, model, precision)
        lines = re.findall(r"^  \S+ '(\S+)' \(node", str(caught.value), re.MULTILINE)
        refused.append([*dict.fromkeys(lines)])  # One node may have several faults.
    assert refused[0] == refused[1] == list(LAYERS[name].refused)
