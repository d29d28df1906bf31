"""Layer by layer: calibrate → quantize → check → run → compare with FP32 and with PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from decibels import decibels
from layer_networks import LAYERS, Layer
from networks import samples

import calib
from calib.calibrators import CalibrationCache
from calib.graph import OnnxModel, QuantizedModel, open_session, quantize_model, session_options

BATCH = 8
SEED = 100  # Another stream of numbers than any weight's.
AS_COMPUTED, WITH_TIES = 60.0, 36.0
"""SQNR of one way to compute a network against another, in dB: one value in some thousands rounds the other
way; or many, of those that lie halfway.
"""


@dataclass(frozen=True)
class Made:
    """A layer's network in float and in INT8."""

    model: OnnxModel
    cache: CalibrationCache
    quantized: QuantizedModel


def inputs(layer: Layer) -> np.ndarray:
    values = samples(BATCH, *layer.shape, seed=SEED)
    return np.ascontiguousarray(values.swapaxes(0, 1)) if layer.time_first else values


@cache
def made(name: str) -> Made:
    model = OnnxModel(Path(f"{name}.onnx"), LAYERS[name].proto())
    found = calib.calibrate(model, [{"x": inputs(LAYERS[name])}], method="minmax").cache
    return Made(model, found, quantize_model(model, found, attention="int8", conv_transpose="int8"))


def run(model: OnnxModel, x: np.ndarray) -> np.ndarray:
    return np.asarray(open_session(model, session_options(float_qdq=True)).run(None, {"x": x})[0])


@pytest.mark.parametrize("name", LAYERS)
def test_pairs_and_float_nodes_are_those_of_the_table(name: str) -> None:
    found, expected = made(name).quantized, LAYERS[name]
    assert {pair.tensor: ", ".join(pair.readers) for pair in found.pairs} == dict(expected.pairs)
    floats = {node for group in found.explanation.float_groups for node in group.nodes}
    assert floats | {left.node for left in found.left_float} == expected.floats


@pytest.mark.parametrize("name", LAYERS)
def test_int8_is_as_near_to_fp32_as_its_roundings_allow(name: str) -> None:
    x = inputs(LAYERS[name])
    found = decibels(run(made(name).model, x), run(made(name).quantized.model, x))
    assert LAYERS[name].least_sqnr < found < AS_COMPUTED, LAYERS[name].reason


@pytest.mark.parametrize("name", LAYERS)
def test_model_is_valid_and_its_interface_as_before(name: str) -> None:
    before, after = made(name).model.proto, made(name).quantized.model.proto
    onnx.checker.check_model(after, full_check=True)
    assert list(after.graph.input) == list(before.graph.input)
    assert [output.name for output in after.graph.output] == ["y"]
    assert after.opset_import[0].version == max(LAYERS[name].opset, 13)
    kinds = [node.op_type for node in after.graph.node]
    activations = [pair for pair in made(name).quantized.pairs if not pair.weight]
    assert kinds.count("DequantizeLinear") == len(LAYERS[name].pairs)
    assert kinds.count("QuantizeLinear") in (len(activations), len(LAYERS[name].pairs))


def rounded_weight(values: np.ndarray, axis: int) -> np.ndarray:
    """round(w / s) · s with s = max|w| / 127 of each channel."""
    others = tuple(i for i in range(values.ndim) if i != axis)
    scale = np.abs(values).max(axis=others, keepdims=True) / np.float32(127)
    return (np.rint(values / scale) * scale).astype(np.float32)


def channel_axis(layer: Layer, name: str) -> int:
    """Where the output's channels lie: first in a Conv and a transposed Gemm, else second, or last."""
    reader = next(node for node in layer.nodes if len(node.input) > 1 and node.input[1] == name)
    turned = any(attribute.name == "transB" and attribute.i for attribute in reader.attribute)
    return 0 if reader.op_type == "Conv" or turned else 1


COMPARED = [name for name in LAYERS if name != "upsampling, linear, of opset 10"]


class TestAgainstPyTorch:
    """The same network in PyTorch, in float and with PyTorch's fake quantization."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        pytest.importorskip("torchvision", reason="extra [torch] is not installed")

    def computed(self, name: str, scales: Mapping[str, float]) -> np.ndarray:
        """PyTorch's answer, with pairs where there are scales."""
        import torch
        from layer_references import REFERENCES

        layer = LAYERS[name]
        constants = {key: np.asarray(value) for key, value in layer.weights.items()}
        if scales:
            weights = [key for key in layer.pairs if key in constants]
            constants |= {key: rounded_weight(constants[key], channel_axis(layer, key)) for key in weights}
        tensors = {key: torch.from_numpy(np.array(value)) for key, value in constants.items()}
        tensors["x"] = torch.from_numpy(inputs(layer))

        def rounded(key: str, value: torch.Tensor) -> torch.Tensor:
            assert key in layer.pairs, key
            if not scales:
                return value
            return torch.fake_quantize_per_tensor_affine(value, float(np.float32(scales[key])), 0, -128, 127)

        with torch.no_grad():
            return REFERENCES[name](tensors, rounded).numpy()

    @pytest.mark.parametrize("name", LAYERS)
    def test_every_layer_has_an_independent_answer(self, name: str) -> None:
        from layer_references import REFERENCES

        # PyTorch has no linear resizing with asymmetric coordinates; test_old_resizing counts it out.
        assert (name in REFERENCES) is (name in COMPARED)

    @pytest.mark.parametrize("name", COMPARED)
    def test_float_network_is_pytorchs(self, name: str) -> None:
        found = run(made(name).model, inputs(LAYERS[name]))
        np.testing.assert_allclose(found, self.computed(name, {}), rtol=1e-4, atol=2e-5)

    @pytest.mark.parametrize("name", COMPARED)
    def test_quantized_network_is_pytorchs_with_fake_quantization(self, name: str) -> None:
        found = run(made(name).quantized.model, inputs(LAYERS[name]))
        expected = self.computed(name, made(name).cache)
        assert decibels(expected, found) > (WITH_TIES if LAYERS[name].ties else AS_COMPUTED)
