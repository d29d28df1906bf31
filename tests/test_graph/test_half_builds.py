"""NVIDIA's current builder takes FP16 models and Q/DQ models with a float16 rest, strongly typed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from goldens import NETS
from half_networks import attention, in_memory, large_in_the_middle, layer_norm_chain

from calib.graph import OnnxModel, convert_float16, quantize


def rtx() -> ModuleType:
    try:
        import tensorrt_rtx
    except ImportError:
        return pytest.importorskip("tensorrt_rtx_bindings", reason="TensorRT-RTX is not installed")
    return tensorrt_rtx


def build(target: OnnxModel, shapes: dict[str, tuple[int, ...]]) -> tuple[Any, Any]:
    """Parses and builds for compute capability 8.6 without a GPU; the network, and the engine or None."""
    trt = rtx()

    class Log(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines: list[str] = []

        def log(self, severity: Any, text: str) -> None:
            if severity <= trt.ILogger.ERROR:
                self.lines.append(text)

    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    assert parser.parse(target.to_bytes()), [parser.get_error(i).desc() for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM86, 0)
    profile = builder.create_optimization_profile()
    for name, shape in shapes.items():
        profile.set_shape(name, shape, shape, shape)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, log.lines
    return network, plan


def layer_types(network: Any) -> dict[str, str]:
    found = {}
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        found[layer.name] = layer.get_output(0).dtype.name
    return found


@pytest.mark.parametrize("net", ["plain", "res", "unet"])
@pytest.mark.parametrize("form", ["fp16", "int8 and fp16"])
def test_trained_nets(net: str, form: str) -> None:
    source, cache = NETS / f"{net}.onnx", NETS / f"{net}.minmax.cache"
    if form == "fp16":
        target = convert_float16(source, ranges=cache).model
    else:
        target = quantize(source, cache, target="tensorrt-11", float_type="fp16").model
    network, plan = build(target, {"input": (4, 1, 32, 32)})
    assert plan.nbytes > 1000
    types = layer_types(network)
    convolutions = {name: kind for name, kind in types.items() if "/Conv" in name or "conv" in name.lower()}
    assert convolutions
    assert network.get_input(0).dtype.name == network.get_output(0).dtype.name == "FLOAT"
    assert "HALF" in types.values()
    assert ("INT8" in types.values()) is (form != "fp16")


@pytest.mark.parametrize("net", ["plain", "res", "unet"])
def test_pairs_in_float16_models(net: str) -> None:
    cache = NETS / f"{net}.minmax.cache"
    source = convert_float16(NETS / f"{net}.onnx", ranges=cache, keep_io=False).model
    network, plan = build(quantize(source, cache, target="tensorrt-11").model, {"input": (4, 1, 32, 32)})
    assert plan.nbytes > 1000
    types = set(layer_types(network).values())
    assert {"INT8", "HALF"} <= types
    assert network.get_input(0).dtype.name == network.get_output(0).dtype.name == "HALF"


@pytest.mark.parametrize(
    ("proto", "shapes"),
    [
        (large_in_the_middle(), {"x": (3, 4)}),
        (layer_norm_chain(), {"x": (3, 8)}),
        (attention(), {"x": (2, 6, 8), "keep": (2, 1, 6)}),
        (attention(np.float32(-1e4)), {"x": (2, 6, 8), "keep": (2, 1, 6)}),
    ],
    ids=["large", "layer norm", "attention", "attention with a small mask"],
)
def test_networks_that_are_float16_in_part(proto: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    network, _ = build(convert_float16(in_memory(proto)).model, shapes)
    assert "HALF" in layer_types(network).values()


def test_weights_of_a_file_reach_the_builder(tmp_path: Path) -> None:
    out = tmp_path / "res.fp16.onnx"
    convert_float16(NETS / "res.onnx", ranges=NETS / "res.minmax.cache", out=out)
    half, full = out.stat().st_size, (NETS / "res.onnx").stat().st_size
    assert half < 0.6 * full
