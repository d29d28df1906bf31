from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from fake_tensorrt import make_tensorrt
from goldens import NETS

from calib.calibrators import CalibrationCache
from calib.calibrators.cache_names import helper_reason
from calib.engine import NetworkLayer, complete_cache, load_api, read_network
from calib.engine.api import Api, find_features
from calib.engine.completion import find_helper_scales
from calib.errors import CacheError

# The Gemms of the trained nets as TensorRT 8.6.0's parser makes them: number of the first layer that it
# adds, input, weights and bias, output. The numbers are those of the rows in TensorRT's own caches.
GEMMS = {
    "plain": [
        (15, "/Flatten_output_0", "fc1.weight", "fc1.bias", "/fc1/Gemm_output_0"),
        (21, "/Relu_output_0", "fc2.weight", "fc2.bias", "logits"),
    ],
    "res": [(30, "/ReduceMean_output_0", "fc.weight", "fc.bias", "logits")],
}


def network_of(net: str) -> list[NetworkLayer]:
    """The layers of a net's Gemms, in TensorRT's names."""
    graph = onnx.load(NETS / f"{net}.onnx").graph
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    layers: list[NetworkLayer] = []
    for first, source, weight, bias, output in GEMMS[net]:
        matrix, product, vector, shaped = (
            f"(Unnamed Layer* {first + place}) [{kind}]_output"
            for place, kind in enumerate(("Constant", "Matrix Multiply", "Constant", "Shuffle"))
        )
        layers += [
            NetworkLayer("w", "CONSTANT", (), (matrix,), values=weights[weight]),
            NetworkLayer("m", "MATRIX_MULTIPLY", (source, matrix), (product,)),
            NetworkLayer("b", "CONSTANT", (), (vector,), values=weights[bias]),
            NetworkLayer("s", "SHUFFLE", (vector,), (shaped,)),
            NetworkLayer("a", "ELEMENTWISE", (product, shaped), (output,), operation="SUM"),
        ]
    return layers


def without_helpers(cache: CalibrationCache) -> CalibrationCache:
    return cache.replaced({name: scale for name, scale in cache.items() if not helper_reason(name)})


@pytest.mark.parametrize("method", ["entropy2", "minmax"])
@pytest.mark.parametrize("net", GEMMS)
def test_the_rows_that_tensorrt_itself_wrote(net: str, method: str) -> None:
    theirs = CalibrationCache.read(NETS / f"{net}.{method}.cache")
    ours = without_helpers(theirs)
    assert len(theirs) - len(ours) == 4 * len(GEMMS[net])
    completed = complete_cache(ours, network_of(net))
    assert completed.header == theirs.header
    assert set(completed) == set(theirs)
    for name in theirs:
        if "[Matrix Multiply]" in name:
            # The product's own range is not known without data: the sum's stands for it.
            assert completed[name] == pytest.approx(theirs[name], rel=0.1)
        else:
            assert completed.bits(name) == theirs.bits(name), name


@pytest.mark.parametrize("net", GEMMS)
def test_rows_are_taken_over_from_a_cache_of_tensorrts_own(net: str) -> None:
    theirs = CalibrationCache.read(NETS / f"{net}.entropy2.cache")
    completed = complete_cache(without_helpers(theirs), theirs)
    assert {name: completed.bits(name) for name in completed} == {name: theirs.bits(name) for name in theirs}
    changed = theirs.replaced(dict(theirs) | {"logits": 1.0})
    assert complete_cache(changed, theirs)["logits"] == 1.0


def test_how_each_scale_was_found_and_what_has_none() -> None:
    two = np.array([2.0, -1.0], np.float32)
    network = [
        NetworkLayer("shape", "SHAPE", ("x",), ()),
        NetworkLayer("view", "SHUFFLE", ("x",), ("x2",)),
        NetworkLayer("pool", "POOLING", ("x2",), ("x3",)),
        NetworkLayer("exp", "UNARY", ("x3",), ("e",)),
        NetworkLayer("two", "CONSTANT", (), ("two",), values=two),
        NetworkLayer("indices", "CONSTANT", (), ()),
        NetworkLayer("spread", "SHUFFLE", ("two",), ("two2",)),
        NetworkLayer("biased", "ELEMENTWISE", ("two2", "e"), ("y",), operation="SUM"),
        NetworkLayer("product", "MATRIX_MULTIPLY", ("y", "two"), ("p",)),
        NetworkLayer("difference", "ELEMENTWISE", ("p", "y"), ("z",), operation="SUB"),
        NetworkLayer("scaled", "ELEMENTWISE", ("q", "two"), ("z2",), operation="PROD"),
        NetworkLayer("unknown", "UNARY", ("z",), ("q",)),
    ]
    cache = CalibrationCache({"x": 0.5, "y": 0.25, "z": 0.01, "z2": 3.0}, "MinMaxCalibration")
    found = find_helper_scales(cache, network)
    assert found.rules == {
        "x2": "copy of x",
        "x3": "copy of x2",
        "e": "near y",
        "two": "constant",
        "two2": "copy of two",
    }
    scale = float(np.float32(2.0) / np.float32(127))
    assert found.scales == {"x2": 0.5, "x3": 0.5, "e": 0.25, "two": scale, "two2": scale}
    # A difference of two that vary may be far smaller than they are, and a product has another size.
    assert found.missing == ("p", "q")
    completed = complete_cache(cache, network)
    assert list(completed) == ["x", "y", "z", "z2", "two", "x2", "x3", "two2", "e"]
    assert complete_cache(completed, network[:4]) is completed


def test_a_constant_of_zeros_and_one_without_values() -> None:
    zeros = NetworkLayer("c", "CONSTANT", (), ("c",), values=np.zeros(3, np.float32))
    empty = NetworkLayer("e", "CONSTANT", (), ("e",), values=np.zeros(0, np.float32))
    # TensorRT writes 0 for a tensor that is uniformly zero.
    assert complete_cache(CalibrationCache({"x": 1.0}), [zeros]).bits("c") == "0"
    assert find_helper_scales(CalibrationCache({"x": 1.0}), [empty]).missing == ("e",)


def test_a_mask_that_is_infinite() -> None:
    native = CalibrationCache.parse(b"TRT-8600-EntropyCalibration2\nmask: 7f800000\n")
    with pytest.raises(CacheError, match="Scale of tensor 'mask' must be finite"):
        complete_cache(CalibrationCache({"x": 1.0}), native)


class FakeLayer:
    """A layer as TensorRT 8.6 hands it out: always of the base class."""

    def __init__(self, name: str, kind: str, inputs: list[Any], outputs: list[Any], own: Any = None) -> None:
        self.name, self.type, self._own = name, SimpleNamespace(name=kind), own
        self._inputs, self._outputs = inputs, outputs

    num_inputs = property(lambda self: len(self._inputs))
    num_outputs = property(lambda self: len(self._outputs))

    def get_input(self, index: int) -> Any:
        return self._inputs[index]

    def get_output(self, index: int) -> Any:
        return self._outputs[index]


class FakeElementWise(FakeLayer):
    op = property(lambda self: SimpleNamespace(name=self._own))


class FakeConstant(FakeLayer):
    weights = property(lambda self: self._own)


def test_reading_a_network_of_tensorrt_8() -> None:
    module: Any = make_tensorrt("8.6.0")
    module.IElementWiseLayer, module.IConstantLayer = FakeElementWise, FakeConstant
    api = Api(module, "tensorrt", "8.6.0", (8, 6, 0), find_features(module))

    def tensor(name: str, dtype: Any = module.DataType.FLOAT, shape: bool = False) -> Any:
        return SimpleNamespace(name=name, dtype=dtype, is_shape_tensor=shape)

    values = np.array([1.0, -3.0], np.float16)
    layers = [
        FakeLayer("c", "CONSTANT", [], [tensor("c_output")], values),
        FakeLayer("c2", "CONSTANT", [], [tensor("d")], SimpleNamespace(numpy=lambda: values)),
        FakeLayer("i", "CONSTANT", [], [tensor("i_output", module.DataType.INT32)], values),
        FakeLayer("s", "SHAPE", [tensor("x")], [tensor("n", shape=True)]),
        FakeLayer("a", "ELEMENTWISE", [tensor("x"), None], [tensor("y")], "SUM"),
    ]
    network = SimpleNamespace(num_layers=len(layers), get_layer=lambda index: layers[index])
    constant, wrapped, integers, shape, added = read_network(api, network)
    for read in (constant, wrapped):
        assert read.values is not None
        assert (read.values.dtype, read.values.tolist()) == (np.float32, [1.0, -3.0])
    assert (integers.outputs, integers.values) == ((), None)
    assert (shape.kind, shape.inputs, shape.outputs) == ("SHAPE", ("x",), ())
    assert added == NetworkLayer("a", "ELEMENTWISE", ("x",), ("y",), operation="SUM")


@pytest.mark.parametrize(("net", "method"), [("res", "entropy2"), ("plain", "minmax")])
def test_the_network_that_nvidias_newest_parser_makes(net: str, method: str) -> None:
    pytest.importorskip("tensorrt_rtx_bindings")
    api = load_api("tensorrt_rtx")
    trt = api.trt
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    assert parser.parse((NETS / f"{net}.onnx").read_bytes())
    layers = read_network(api, network)
    theirs = CalibrationCache.read(NETS / f"{net}.{method}.cache")
    found = find_helper_scales(without_helpers(theirs), layers)
    assert found.missing == ()
    # Its names are others than those of 8.6, its layers the same: so are the scales of the constants.
    numbers = {
        name: number
        for first, _, weight, bias, _ in GEMMS[net]
        for name, number in ((f"{weight}_output", first), (f"{bias}_output", first + 2))
    }
    for name, number in numbers.items():
        assert found.rules[name] == "constant"
        assert found.scales[name] == theirs[f"(Unnamed Layer* {number}) [Constant]_output"]
    assert any(rule == "near logits" for rule in found.rules.values())
