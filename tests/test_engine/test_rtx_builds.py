"""Models that calib writes, parsed and built by NVIDIA's own builder, which needs no GPU in TensorRT-RTX.

It builds strongly typed networks, as TensorRT 11 does: a Q/DQ form that it refuses would be refused there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from goldens import NETS
from networks import conv_relu_gemm, model, node, save, weight

import calib
from calib.calibrators import CalibrationCache
from calib.demo import DEMO_MODEL
from calib.engine import Engine, load_api
from calib.engine.api import capture_log
from calib.engine.fusion import node_label
from calib.engine.layer_names import metadata_nodes
from calib.errors import EngineError, UsageError
from calib.graph import OnnxModel, load_model, quantize, quantize_model, to_float16
from calib.graph.cache_model import compare_names

pytest.importorskip("tensorrt_rtx_bindings", reason="extra [tensorrt-rtx] is not installed")

TARGETS = ("tensorrt-8.6", "tensorrt-10", "tensorrt-11")
TRAINED = {name: NETS / f"{name}.onnx" for name in ("plain", "res", "unet")} | {"demo": DEMO_MODEL}


def scales(network: OnnxModel) -> CalibrationCache:
    """A scale for every float activation."""
    return CalibrationCache(dict.fromkeys(compare_names((), network).only_model, 0.05))


def trained_scales(name: str) -> CalibrationCache:
    if name == "demo":
        return scales(load_model(DEMO_MODEL))
    return CalibrationCache.read(NETS / f"{name}.entropy2.cache")


def unexpected(engine: Engine) -> list[str]:
    """What the builder warned of, but for scales in float16 that it makes float32 again."""
    return [line for line in engine.record.warnings if not line.endswith("scales to fp32.")]


def build(network: Path | OnnxModel, **options: object) -> Engine:
    return calib.build(network, flavour="tensorrt_rtx", compute_capability=(8, 6), **options)  # type: ignore[arg-type]


def test_the_parser_calls_nodes_as_we_do() -> None:
    """A layer's metadata tell its node, also where a node becomes several layers or names are there twice."""
    api = load_api("tensorrt_rtx")
    nodes = [
        node("Conv", ["x", "w"], ["a"], kernel_shape=[1]),
        node("Conv", ["a", "w"], ["b"], name="twice", kernel_shape=[1]),
        node("Conv", ["b", "w"], ["y"], name="twice", kernel_shape=[1]),
    ]
    proto = model(nodes, {"x": [1, 8, 6]}, {"y": [1, 8, 6]}, {"w": weight(8, 8, 1)})
    log = capture_log(api)
    builder = api.trt.Builder(log)
    network = builder.create_network(0)
    assert api.trt.OnnxParser(network, log).parse(proto.SerializeToString())
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    called = [metadata_nodes(layer.metadata) for layer in layers if layer.type.name == "CONVOLUTION"]
    assert called == [(node_label(one),) for one in nodes] == [("node_of_a",), ("twice",), ("twice",)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TRAINED)
def test_trained_nets_with_nodes(name: str, target: str) -> None:
    quantized = quantize_model(load_model(TRAINED[name]), trained_scales(name), target=target)
    engine = build(quantized.model, precision="int8")
    assert engine.record.route == "explicit INT8"
    assert engine.record.warnings == ()
    assert len(engine.plan) == engine.record.plan_bytes > 10_000


@pytest.mark.parametrize("share", [False, True])
def test_shared_scales(share: bool) -> None:
    network = load_model(TRAINED["unet"])
    quantized = quantize_model(network, trained_scales("unet"), target="tensorrt-11", share_scales=share)
    assert build(quantized.model, precision="int8").plan


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8", "best"])
@pytest.mark.parametrize("name", TRAINED)
def test_trained_nets_from_float_and_cache(name: str, precision: str) -> None:
    quantized = precision in ("int8", "best")
    engine = build(TRAINED[name], precision=precision, cache=trained_scales(name) if quantized else None)
    assert engine.record.route == ("explicit INT8" if quantized else "float")
    assert engine.record.device == "any GPU of compute capability 8.6"
    assert unexpected(engine) == []


def concat() -> onnx.ModelProto:
    return model(
        [
            node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
            node("Conv", ["x", "w2"], ["b"], pads=[1, 1, 1, 1]),
            node("MaxPool", ["b"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            node("Concat", ["a", "p"], ["c"], axis=1),
            node("Conv", ["c", "w3"], ["y"]),
        ],
        {"x": ["n", 4, 8, 8]},
        {"y": None},
        {"w1": weight(8, 4, 3, 3), "w2": weight(4, 4, 3, 3), "w3": weight(6, 12, 1, 1)},
    )


def transposed(group: int) -> onnx.ModelProto:
    return model(
        [
            node("Conv", ["x", "w1"], ["a"]),
            node("ConvTranspose", ["a", "w2", "b2"], ["t"], kernel_shape=[2, 2], strides=[2, 2], group=group),
            node("Relu", ["t"], ["r"]),
            node("Conv", ["r", "w3"], ["y"]),
        ],
        {"x": ["n", 4, 8, 8]},
        {"y": None},
        {
            "w1": weight(8, 4, 1, 1),
            "w2": weight(8, 8 // group, 2, 2),
            "b2": weight(8),
            "w3": weight(4, 8, 1, 1),
        },
    )


def fully_connected() -> onnx.ModelProto:
    return model(
        [
            node("Gemm", ["x", "w1", "b1"], ["a"], transB=1),
            node("Relu", ["a"], ["r"]),
            node("Gemm", ["r", "w2"], ["b"]),
            node("MatMul", ["b", "w3"], ["y"]),
        ],
        {"x": ["n", 16]},
        {"y": None},
        {"w1": weight(32, 16), "b1": weight(32), "w2": weight(32, 24), "w3": weight(24, 8)},
    )


def tokens() -> onnx.ModelProto:
    """A projection of three-dimensional data and a product of two activations."""
    return model(
        [
            node("MatMul", ["x", "wq"], ["q"]),
            node("MatMul", ["x", "wk"], ["k"]),
            node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
            node("MatMul", ["q", "kt"], ["s"]),
            node("Softmax", ["s"], ["p"], axis=-1),
            node("MatMul", ["p", "q"], ["y"]),
        ],
        {"x": ["n", 10, 16]},
        {"y": None},
        {"wq": weight(16, 16), "wk": weight(16, 16, seed=1)},
    )


def grouped(group: int) -> onnx.ModelProto:
    return model(
        [
            node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], group=group),
            node("Clip", ["a", "low", "high"], ["c"]),
            node("Conv", ["c", "w2", "b2"], ["y"]),
        ],
        {"x": ["n", 16, 8, 8]},
        {"y": None},
        {
            "w1": weight(16, 16 // group, 3, 3),
            "low": np.float32(0),
            "high": np.float32(6),
            "w2": weight(8, 16, 1, 1),
            "b2": weight(8),
        },
    )


def residual() -> onnx.ModelProto:
    return model(
        [
            node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["a", "g", "b", "m", "v"], ["bn"]),
            node("Relu", ["bn"], ["r"]),
            node("Conv", ["r", "w2"], ["c"], pads=[1, 1, 1, 1]),
            node("Add", ["c", "x"], ["s"]),
            node("Sigmoid", ["s"], ["g1"]),
            node("Mul", ["s", "g1"], ["silu"]),
            node("AveragePool", ["silu"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Resize", ["p", "", "up"], ["u"], mode="nearest"),
            node("Conv", ["u", "w3"], ["y"]),
        ],
        {"x": ["n", 8, 8, 8]},
        {"y": None},
        {
            **{"w1": weight(8, 8, 3, 3), "w2": weight(8, 8, 3, 3, seed=1), "w3": weight(4, 8, 1, 1)},
            **{"g": np.ones(8, np.float32), "b": weight(8), "m": weight(8), "v": np.ones(8, np.float32)},
            "up": np.array([1, 1, 2, 2], np.float32),
        },
    )


def dead_channel() -> onnx.ModelProto:
    """A channel of zeros and one of numbers so small that their scale is no normal number."""
    proto = conv_relu_gemm()
    values = weight(4, 3, 3, 3)
    values[1] = 0
    values[2] *= 1e-38
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(values, "w1"))
    return proto


SMALL: dict[str, Callable[[], onnx.ModelProto]] = {
    "conv, pool, gemm": conv_relu_gemm,
    "concat": concat,
    "transposed": lambda: transposed(1),
    "transposed, grouped": lambda: transposed(2),
    "fully connected": fully_connected,
    "tokens": tokens,
    "grouped": lambda: grouped(4),
    "depthwise": lambda: grouped(16),
    "residual": residual,
    "dead channel": dead_channel,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SMALL)
def test_layers_with_nodes(name: str, target: str) -> None:
    network = OnnxModel(Path(f"{name}.onnx"), SMALL[name]())
    quantized = quantize_model(network, scales(network), target=target, attention="int8")
    assert len(quantized.pairs) >= 2
    assert build(quantized.model, precision="int8").record.warnings == ()


@pytest.mark.parametrize("opset", [20, 22])
def test_what_was_lowered_and_folded(opset: int) -> None:
    """As PyTorch's exporter writes it: a Gelu, a Split by number, a packed weight that the graph cuts."""
    proto = model(
        [
            node("Split", ["w"], ["first", "second"], axis=0, num_outputs=2),
            node("Transpose", ["second"], ["turned"]),
            node("MatMul", ["x", "first"], ["a"]),
            node("Gelu", ["a"], ["b"]),
            node("Split", ["b"], ["left", "right"], axis=-1, num_outputs=2),
            node("Concat", ["right", "left"], ["c"], axis=-1),
            node("MatMul", ["c", "turned"], ["y"]),
        ],
        {"x": ["n", 16]},
        {"y": ["n", 16]},
        {"w": weight(32, 16)},
        opset=opset,
    )
    network = OnnxModel(Path("packed.onnx"), proto)
    quantized = quantize_model(network, scales(network), target="tensorrt-8.6")
    assert (quantized.model.opset, len(quantized.pairs), quantized.left_float) == (17, 4, ())
    assert build(quantized.model, precision="int8").record.warnings == ()


@pytest.mark.parametrize("precision", ["fp16", "best"])
@pytest.mark.parametrize("name", SMALL)
def test_layers_in_half(name: str, precision: str) -> None:
    network = OnnxModel(Path(f"{name}.onnx"), SMALL[name]())
    assert unexpected(build(network, precision=precision, cache=scales(network))) == []


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    wide = model(
        [node("Conv", ["x", "w1"], ["a"]), node("Relu", ["a"], ["r"]), node("Conv", ["r", "w2"], ["y"])],
        {"x": ["n", 16, 8, 8]},
        {"y": None},
        {"w1": weight(64, 16, 3, 3), "w2": weight(8, 64, 3, 3)},
    )
    onnx.save(wide, path, save_as_external_data=True, location="net.data", size_threshold=0)
    network = load_model(path)
    quantize(network, scales(network), out=tmp_path / "net.int8.onnx", target="tensorrt-11")
    assert load_model(tmp_path / "net.int8.onnx").external_files
    assert build(path).plan
    assert build(tmp_path / "net.int8.onnx", precision="int8").plan


def test_more_than_one_protocol_buffer_is_parsed_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calib.engine import network_source

    network = load_model(save(conv_relu_gemm(), tmp_path / "net.onnx"))
    monkeypatch.setattr(network_source, "PROTOBUF_LIMIT", 100)
    assert build(network).plan


def unknown_operators() -> onnx.ModelProto:
    proto = conv_relu_gemm()
    proto.graph.node[1].op_type, proto.graph.node[1].domain = "SwishOfAcme", "acme"
    proto.graph.node[4].op_type, proto.graph.node[4].domain = "EfficientNMS_TRT", "acme"
    proto.opset_import.append(onnx.helper.make_opsetid("acme", 1))
    return proto


def test_operators_that_nobody_knows_are_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        build(save(unknown_operators(), tmp_path / "net.onnx"))
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{load_api('tensorrt_rtx').title} cannot parse {tmp_path / 'net.onnx'}:"
    assert lines[1].startswith("  SwishOfAcme 'relu1' (node 1): ")
    assert "Plugin not found" in lines[1]
    assert lines[2].startswith("  EfficientNMS_TRT 'relu2' (node 4): ")
    assert lines[-1].startswith("Try: The parser has no such operator: load the library of the plug-in")


def test_a_quantized_bias_is_refused_with_the_way_out() -> None:
    """As ONNX Runtime's defaults write it: int32 under a DequantizeLinear, onnx/onnx-tensorrt#850."""
    proto = model(
        [
            node("QuantizeLinear", ["x", "s", "zero"], ["xq"]),
            node("DequantizeLinear", ["xq", "s", "zero"], ["xd"]),
            node("DequantizeLinear", ["wq", "s", "zero"], ["w"]),
            node("DequantizeLinear", ["bq", "s"], ["b"], name="b_DequantizeLinear"),
            node("Conv", ["xd", "w", "b"], ["y"], name="conv"),
        ],
        {"x": ["n", 4, 8, 8]},
        {"y": None},
        {
            **{"s": np.float32(0.1), "zero": np.int8(0), "wq": np.ones((4, 4, 3, 3), np.int8)},
            "bq": np.ones(4, np.int32),
        },
    )
    with pytest.raises(EngineError, match=r"b_DequantizeLinear[\s\S]*Try: TensorRT takes no quantized bias"):
        build(OnnxModel(Path("net.onnx"), proto), precision="int8")


def test_an_invalid_form_is_refused_with_its_node(tmp_path: Path) -> None:
    """An asymmetric activation, as ONNX Runtime's defaults write it."""
    network = load_model(save(conv_relu_gemm(), tmp_path / "net.onnx"))
    proto = quantize_model(network, scales(network), target="tensorrt-11").model.edited()
    (point,) = (tensor for tensor in proto.graph.initializer if tensor.name == "x_zero_point")
    point.CopyFrom(onnx.numpy_helper.from_array(np.array(3, np.int8), "x_zero_point"))
    with pytest.raises(EngineError, match=r"QuantizeLinear 'x_QuantizeLinear' \(node 0\).*zero point"):
        build(OnnxModel(Path("asymmetric.onnx"), proto), precision="int8")


def test_shapes_are_the_networks(tmp_path: Path) -> None:
    path = save(conv_relu_gemm(), tmp_path / "net.onnx")
    record = build(path, shapes=["x:2x3x8x8:4x3x8x8:4x3x8x8"], level=0, workspace_mib=64).record
    assert record.shapes == ("x:2x3x8x8:4x3x8x8:4x3x8x8",)
    assert record.level == 0


class TestInputsThatHoldSizes:
    """Shape tensors: TensorRT builds for a range of their values."""

    @pytest.fixture
    def resized(self, tmp_path: Path) -> Path:
        nodes = [
            node("Resize", ["x", "", "", "size"], ["y"], mode="nearest"),
            node("Add", ["ids", "ids"], ["twice"]),
        ]
        proto = model(
            nodes,
            {"x": [1, 3, 8, 8], "size": [4], "ids": [2]},
            {"y": [1, 3, "h", "w"], "twice": [2]},
            types=dict.fromkeys(("size", "ids", "twice"), onnx.TensorProto.INT64),
        )
        return save(proto, tmp_path / "resize.onnx")

    def test_their_values_are_given_like_shapes(self, resized: Path) -> None:
        given = "size:1x3x4x4:1x3x16x16:1x3x32x32"
        assert build(resized, shapes=[given]).record.shapes == ("x:1x3x8x8", given, "ids:2")

    def test_values_that_cannot_be_meant(self, resized: Path) -> None:
        with pytest.raises(
            UsageError, match=r"'size' of .* holds sizes of other tensors .*--shapes size:VALUES"
        ):
            build(resized)
        with pytest.raises(
            UsageError, match="of value 2 expected 0 ≤ smallest ≤ usual ≤ largest, got 9, 8, 9"
        ):
            build(resized, shapes=["size:1x3x9x9:1x3x8x8:1x3x9x9"])
        with pytest.raises(UsageError, match=r"input 'size' has 1 axis .*, but 4x4 has 2"):
            build(resized, shapes=["size:4x4"])
        good = "size:1x3x4x4:1x3x16x16:1x3x32x32"
        with pytest.raises(UsageError, match="'ids' holds no sizes of other tensors, and its shape is 2"):
            build(resized, shapes=[good, "ids:7x7"])


def test_what_tensorrt_rtx_has_not(tmp_path: Path) -> None:
    path = save(conv_relu_gemm(), tmp_path / "net.onnx")
    with pytest.raises(UsageError, match=r"does not build for compute capability 9\.0\. It has 7\.5, 8\.0"):
        calib.build(path, flavour="tensorrt_rtx", compute_capability=(9, 0))
    with pytest.raises(EngineError, match=r"has no calibrators.*--route explicit"):
        build(path, precision="int8", cache=scales(load_model(path)), route="implicit")
    notes = build(path, timing_cache=tmp_path).record.notes
    assert any("keeps no timings: --timing-cache was left out" in note for note in notes)


@pytest.mark.parametrize("option", ["version_compatible", "hardware_compatible"])
def test_options_that_it_takes_and_does_not_heed_are_refused(tmp_path: Path, option: str) -> None:
    path = save(conv_relu_gemm(), tmp_path / "net.onnx")
    with pytest.raises(EngineError, match=rf"has nothing for --{option.replace('_', '-')}: its engines"):
        build(path, **{option: True})


def test_how_much_of_an_fp16_engine_is_in_fp16_is_told(tmp_path: Path) -> None:
    """Without ranges a sum stays in FP32, since nothing tells how large it may become."""
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("ReduceSum", ["x"], ["total"])]
    proto = model(nodes, {"x": [4, 8]}, {"y": [4, 8], "total": [1, 1]}, {"w": weight(8, 8)})
    network = OnnxModel(tmp_path / "m.onnx", proto)
    first, second = build(network, precision="fp16").record.notes[:2]
    assert ", in which 1 of 2 nodes stay in FP32 (calib fp16 --explain lists them" in first
    assert second.startswith("no ranges were given")
    product = OnnxModel(
        tmp_path / "p.onnx", model(nodes[:1], {"x": [4, 8]}, {"y": [4, 8]}, {"w": weight(8, 8)})
    )
    whole = build(product, precision="fp16").record.notes[0]
    assert whole.endswith("built from an FP16 form of the model")


def test_nodes_are_kept_in_fp32_by_the_models_types(tmp_path: Path) -> None:
    network = load_model(save(conv_relu_gemm(), tmp_path / "net.onnx"))

    def in_fp32(keep_float: list[str]) -> int:
        notes = build(network, precision="fp16", keep_float=keep_float).record.notes
        (note,) = (note for note in notes if "FP16 form" in note)
        found = re.search(r"in which (\d+) of", note)
        return int(found[1]) if found else 0

    assert in_fp32(["^conv1$"]) == in_fp32([]) + 1


def test_a_model_in_half_is_no_fp32_engine(tmp_path: Path) -> None:
    """Types are the model's own here: asking for FP32 changes none."""
    network = load_model(save(conv_relu_gemm(), tmp_path / "net.onnx"))
    half = to_float16(network)
    typed = "takes every type from the model, in which"
    notes = build(half, precision="fp32").record.notes
    assert any(typed in note and "are FP16 or BF16" in note for note in notes)
    for plain in (build(network), build(half, precision="fp16")):
        assert not any(typed in note for note in plain.record.notes)


def test_compute_capability_of_a_machine_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    record = calib.build(save(conv_relu_gemm(), tmp_path / "net.onnx"), flavour="tensorrt_rtx").record
    assert record.compute_capability == (8, 6)
    assert "built for compute capability 8.6; --compute-capability chooses another" in record.notes


def test_an_engine_is_found_again(tmp_path: Path) -> None:
    path = save(conv_relu_gemm(), tmp_path / "net.onnx")
    first = build(path, engine_cache=tmp_path / "engines")
    second = build(path, engine_cache=tmp_path / "engines")
    assert (first.record.from_cache, second.record.from_cache) == (False, True)
    assert second.plan == first.plan
