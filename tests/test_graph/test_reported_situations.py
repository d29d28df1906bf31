"""Situations that users reported of other tools: models and data in odd forms, written out from a cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from goldens import REAL
from networks import conv_relu_gemm, model, node, samples, save, weight
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import calib
from calib.calibrators import read_sidecar
from calib.data import from_arrays
from calib.errors import DatasetError, MixedShapesError, NonFiniteError
from calib.graph import OnnxModel, load_model, open_session, quantize_model, session_options

MODELS = REAL / "models"


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def run(target: OnnxModel, **feeds: np.ndarray) -> np.ndarray:
    return np.asarray(open_session(target, session_options(float_qdq=True)).run(None, feeds)[0])


# Data and inputs.


@pytest.mark.parametrize("batch", ["batch", None, -1])
@pytest.mark.parametrize("count", [1, 7])
def test_batch_that_is_named_or_nameless_or_minus_one_takes_any_number_of_samples(
    batch: str | int | None, count: int, tmp_path: Path
) -> None:
    proto = conv_relu_gemm()
    first = proto.graph.input[0].type.tensor_type.shape.dim[0]
    first.Clear()
    if isinstance(batch, str):
        first.dim_param = batch
    elif batch is not None:
        first.dim_value = batch
    source = save(proto, tmp_path / "m.onnx")
    result = calib.calibrate(source, from_arrays("a", {"x": samples(count, 3, 8, 8)}), batch_size=7)
    assert (result.samples, result.batches_used) == (count, 1)


def open_network() -> onnx.ModelProto:
    """Height and width are open, and nothing in the network tells them."""
    return model(
        [node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["y"])],
        {"image": ["n", 3, "height", "width"]},
        {"y": ["n", 4, "height", "width"]},
        {"w": weight(4, 3, 3, 3)},
    )


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with open height and width, and a folder of pictures of three sizes."""
    monkeypatch.chdir(tmp_path)
    save(open_network(), tmp_path / "m.onnx")
    (tmp_path / "img").mkdir()
    for index, size in enumerate([(24, 16), (16, 16), (20, 12), (16, 16)]):
        pixels = np.random.default_rng(index).integers(0, 255, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "img" / f"{index}.png")
    return tmp_path


def recipe(folder: Path, preprocess: str) -> Path:
    path = folder / "r.yaml"
    path.write_text(
        f"schema: 1\nname: mine\nsource: {{kind: images, path: img}}\npreprocess: {{{preprocess}}}\n"
        "calibration: {samples: 4, seed: 0}\n"
    )
    return path


def test_dynamic_height_and_width_ask_for_a_size(pictures: Path) -> None:
    """The message names the input, its open axes, the recipe's key and the option."""
    pytest.importorskip("torchvision", reason="extra [torch] is not installed")
    with pytest.raises(MixedShapesError) as caught:
        calib.calibrate("m.onnx", recipe(pictures, "scale: 1/255"))
    text = str(caught.value)
    assert "input 'image' (float32 [n, 3, height, width]) leaves axes 2 (height), 3 (width) open" in text
    assert "preprocess: {resize: 256, crop: 224}" in text
    assert "--batch-size 1" in text
    assert isinstance(caught.value, DatasetError)


def test_dynamic_height_and_width_take_a_size_and_record_it(pictures: Path) -> None:
    pytest.importorskip("torchvision", reason="extra [torch] is not installed")
    result = calib.calibrate("m.onnx", recipe(pictures, "resize: 16, crop: 12, scale: 1/255"), out="m.cache")
    assert "input 'image' leaves axes 2 (height), 3 (width) open: all samples were 3x12x12" in result.notes
    sidecar = read_sidecar("m.cache")
    assert sidecar is not None
    assert (sidecar.preprocess["resize"], sidecar.preprocess["crop"]) == (16, 12)


def test_dynamic_height_and_width_take_mixed_sizes_one_at_a_time_and_say_so(pictures: Path) -> None:
    pytest.importorskip("torchvision", reason="extra [torch] is not installed")
    result = calib.calibrate("m.onnx", recipe(pictures, "scale: 1/255"), method="minmax", batch_size=1)
    assert result.batches_used == 4
    assert (
        "input 'image' leaves axes 2 (height), 3 (width) open: samples had 3 shapes, 3x16x16 to 3x24x16"
        in result.notes
    )


def test_fixed_height_and_width_say_nothing_of_sizes(tmp_path: Path) -> None:
    data = from_arrays("a", {"x": samples(3, 3, 8, 8)})
    assert not any("open" in note for note in calib.calibrate(in_memory(conv_relu_gemm()), data).notes)


def two_inputs() -> onnx.ModelProto:
    return model(
        [
            node("Gemm", ["a", "wa"], ["ya"], name="first"),
            node("Gemm", ["b", "wb"], ["yb"], name="second"),
            node("Add", ["ya", "yb"], ["y"]),
        ],
        {"a": ["n", 4], "b": ["n", 2]},
        {"y": ["n", 3]},
        {"wa": weight(4, 3), "wb": weight(2, 3, seed=1)},
    )


def from_npz(folder: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    np.savez(folder / "s.npz", **arrays)  # type: ignore[arg-type]
    path = folder / "r.yaml"
    path.write_text(
        "schema: 1\nname: mine\nsource: {kind: arrays, path: s.npz}\ncalibration: {samples: 5, seed: 0}\n"
    )
    return path


A, B = samples(5, 4), samples(5, 2, seed=1)


def test_npz_with_an_array_for_each_of_two_inputs_goes_by_name(tmp_path: Path) -> None:
    """Whatever their order; the ranges are the arrays' own."""
    data = from_npz(tmp_path, {"b": B, "a": A})
    result = calib.calibrate(in_memory(two_inputs()), data, method="minmax")
    assert result.ranges["a"] == float(np.abs(A).max())
    assert result.ranges["b"] == float(np.abs(B).max())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": A}, r"missing \['b'\], surplus \[\]"),
        (
            {"a": A, "b": B, "c": B},
            r"missing \[\], surplus \['c'\].* where it holds labels, say so: source.labels: c\.",
        ),
        ({"a": A, "b": B[:3]}, r"'a' and 'b' differ in length: 5 and 3 samples"),
    ],
    ids=["without b", "with an unknown c", "unequal counts"],
)
def test_npz_that_does_not_fit_two_inputs_is_refused_by_name(
    arrays: Mapping[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=message):
        calib.calibrate(in_memory(two_inputs()), from_npz(tmp_path, arrays), out=tmp_path / "m.cache")
    assert not (tmp_path / "m.cache").exists()


def test_three_inputs_one_of_integers(tmp_path: Path) -> None:
    """Tokens, their types and a mask, as transformers take them; integers of another width are cast."""
    proto = model(
        [
            node("Gather", ["table", "ids"], ["e"]),
            node("Gather", ["kinds", "types"], ["k"]),
            node("Add", ["e", "k"], ["s"]),
            node("Unsqueeze", ["mask", "last"], ["m"]),
            node("Mul", ["s", "m"], ["h"]),
            node("MatMul", ["h", "w"], ["y"]),
        ],
        {"ids": ["n", 6], "types": ["n", 6], "mask": ["n", 6]},
        {"y": None},
        {"table": weight(9, 8), "kinds": weight(2, 8), "last": np.array([2]), "w": weight(8, 4)},
        types={"ids": TensorProto.INT64, "types": TensorProto.INT64},
    )
    random = np.random.default_rng(0)
    data = from_npz(
        tmp_path,
        {
            "mask": np.ones((5, 6), np.float32),
            "types": np.zeros((5, 6), np.int32),
            "ids": random.integers(0, 9, (5, 6)),
        },
    )
    result = calib.calibrate(in_memory(proto), data)
    assert "input 'types': int32 converted to int64" in result.notes
    assert {"mask", "e", "s", "h", "y"} <= set(result.ranges)
    assert not {"ids", "types"} & set(result.ranges)


def test_initializer_among_the_inputs_that_makes_an_output_infinite_is_told_by_the_output() -> None:
    """Only A is asked for; its sum with the infinite initializer is B."""
    with pytest.raises(
        NonFiniteError, match="Tensor 'B' has values that are not finite: 0 NaN and 1 infinite"
    ):
        calib.calibrate(load_model(MODELS / "add_infinity.onnx"), [{"A": samples(1, 1)[0]}])


def test_float16_model_takes_float32_data_and_gives_ranges_in_float32() -> None:
    a = samples(8, 16)
    result = calib.calibrate(load_model(MODELS / "matmul.fp16.onnx"), [{"a": a}], method="minmax")
    assert "input 'a': float32 converted to float16" in result.notes
    # Each value is rounded to float16, the largest of them is kept as it is.
    assert result.ranges["a"] == float(np.abs(a.astype(np.float16)).max().astype(np.float32))


# What is written.


def test_several_nodes_with_empty_optional_inputs_leave_none_of_them_dangling() -> None:
    proto = model(
        [
            node("Pad", ["x", "by", ""], ["p1"], mode="reflect"),
            node("Clip", ["p1", "", "six"], ["c1"]),
            node("Resize", ["c1", "", "twice"], ["r1"]),
            node("Conv", ["r1", "w"], ["a"], name="first"),
            node("Pad", ["a", "by", "", ""], ["p2"], mode="edge"),
            node("Clip", ["p2", "zero", ""], ["c2"]),
            node("Resize", ["c2", "", "twice"], ["r2"]),
            node("Conv", ["r2", "w", ""], ["y"], name="second"),
        ],
        {"x": [1, 3, 4, 4]},
        {"y": None},
        {
            **{"by": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "six": np.float32(6), "zero": np.float32(0)},
            **{"twice": np.array([1, 1, 2, 2], np.float32), "w": weight(3, 3, 3, 3)},
        },
        opset=18,
    )
    names = [name for item in proto.graph.node for name in item.output]
    result = quantize_model(in_memory(proto), dict.fromkeys(["x", *names], 0.02), target="tensorrt-10")
    written = result.model.proto
    onnx.checker.check_model(written, full_check=True)
    assert {pair.tensor: pair.readers for pair in result.activations} == {"r1": ("first",), "r2": ("second",)}
    kept = [list(item.input) for item in written.graph.node if item.op_type in ("Pad", "Clip", "Resize")]
    assert kept == [
        list(item.input) for item in proto.graph.node if item.op_type in ("Pad", "Clip", "Resize")
    ]
    read = {name for item in written.graph.node for name in item.input} | {"y"}
    made = [name for item in written.graph.node for name in item.output]
    assert set(made) <= read
    assert len(made) == len(set(made))
    assert {tensor.name for tensor in written.graph.initializer} <= read
    assert "" not in made
    run(result.model, x=samples(1, 3, 4, 4))


GATES = {
    "SiLU": [node("Sigmoid", ["c"], ["g"]), node("Mul", ["c", "g"], ["r"])],
    "Relu": [node("Relu", ["c"], ["r"])],
}


@pytest.mark.parametrize("gate", GATES)
def test_error_is_that_of_rounding_what_the_fused_convolution_gives(gate: str) -> None:
    """A pair between the convolution and its activation adds an error; none stands there."""
    w, v = weight(8, 8, 3, 3), weight(4, 8, 1, 1, seed=1)
    proto = model(
        [node("Conv", ["x", "w"], ["c"]), *GATES[gate], node("Conv", ["r", "v"], ["y"])],
        {"x": [4, 8, 8, 8]},
        {"y": None, "r": None},
        {"w": w, "v": v},
    )
    x = samples(4, 8, 8, 8, seed=50)
    cache = calib.calibrate(in_memory(proto), [{"x": x}], method="minmax").cache
    result = quantize_model(in_memory(proto), cache)
    assert {pair.tensor for pair in result.activations} == {"x", "r"}

    def rounded(values: np.ndarray, scale: float) -> np.ndarray:
        return (np.clip(np.rint(values / np.float32(scale)), -128, 127) * np.float32(scale)).astype(
            np.float32
        )

    def coarse(values: np.ndarray) -> np.ndarray:
        steps = np.abs(values).max(axis=(1, 2, 3), keepdims=True) / np.float32(127)
        return (np.rint(values / steps) * steps).astype(np.float32)

    simple = model(
        [node("Conv", ["x", "w"], ["c"]), *GATES[gate]], {"x": [4, 8, 8, 8]}, {"r": None}, {"w": coarse(w)}
    )
    fused = rounded(run(in_memory(simple), x=rounded(x, cache["x"])), cache["r"])
    last = model([node("Conv", ["r", "v"], ["y"])], {"r": [4, 8, 6, 6]}, {"y": None}, {"v": coarse(v)})
    simulated = run(in_memory(last), r=fused)
    exact, found = run(in_memory(proto), x=x), run(result.model, x=x)
    errors = [float(((exact - other) ** 2).sum()) for other in (found, simulated)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-2)


def test_bias_is_never_under_a_dequantization_nor_of_integers() -> None:
    cache = dict.fromkeys(["x", "p1", "f"], 0.02)
    written = quantize_model(in_memory(conv_relu_gemm()), cache).model.proto
    constants = {tensor.name: tensor.data_type for tensor in written.graph.initializer}
    biases = [
        item.input[2]
        for item in written.graph.node
        if item.op_type in ("Conv", "Gemm") and len(item.input) > 2
    ]
    assert {constants[name] for name in biases} == {TensorProto.FLOAT}
    restored = [item.input[0] for item in written.graph.node if item.op_type == "DequantizeLinear"]
    assert TensorProto.INT32 not in {constants.get(name) for name in restored}


def test_output_of_a_quantized_node_keeps_its_name_type_and_shape() -> None:
    """Gemm straight to the output: no integers are handed out."""
    proto = model(
        [node("Gemm", ["x", "w"], ["y"], transB=1)], {"x": ["n", 8]}, {"y": ["n", 4]}, {"w": weight(4, 8)}
    )
    result = quantize_model(in_memory(proto), {"x": 0.02, "y": 0.05})
    assert list(result.model.proto.graph.output) == list(proto.graph.output)
    assert list(result.model.proto.graph.input) == list(proto.graph.input)
    found = run(result.model, x=samples(3, 8))
    assert (found.dtype, found.shape) == (np.float32, (3, 4))


@pytest.mark.parametrize(("ir", "opset"), [(3, 9), (4, 11), (8, 17), (10, 17), (8, 13)])
def test_ir_version_and_opset_are_kept_or_raised_with_the_reason(ir: int, opset: int) -> None:
    proto = model(
        [node("Conv", ["x", "w"], ["y"])],
        {"x": [1, 3, 5, 5]},
        {"y": None},
        {"w": weight(2, 3, 3, 3)},
        opset=opset,
    )
    proto.ir_version = ir
    if ir < 4:  # Weights are inputs too then.
        proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3, 3, 3]))
    result = quantize_model(in_memory(proto), {"x": 0.02})
    written = result.model.proto
    assert written.opset_import[0].version == max(opset, 13)
    assert written.ir_version == max(ir, 7 if opset < 13 else 3)
    assert any("opset raised" in note for note in result.notes) is (opset < 13)
    assert any(f"IR version raised from {ir} to 7" in note for note in result.notes) is (ir < 7)


def test_weight_in_a_node_or_as_typed_numbers_or_without_any_number() -> None:
    """The first two are quantized, the third is passed over with a reason."""
    typed = helper.make_tensor("typed", TensorProto.FLOAT, [4, 3], weight(4, 3).ravel().tolist())
    proto = model(
        [
            node("Constant", [], ["held"], value=numpy_helper.from_array(weight(3, 2))),
            node("MatMul", ["x", "typed"], ["a"], name="as numbers"),
            node("MatMul", ["a", "held"], ["y"], name="in a node"),
            node("MatMul", ["x", "none"], ["z"], name="empty"),
        ],
        {"x": [2, 4]},
        {"y": None, "z": None},
        {"typed": weight(4, 3), "none": np.zeros((4, 0), np.float32)},
    )
    proto.graph.initializer[0].CopyFrom(typed)
    assert not proto.graph.initializer[0].HasField("raw_data")
    result = quantize_model(in_memory(proto), {"x": 0.02, "a": 0.02})
    assert {pair.tensor for pair in result.pairs if pair.weight} == {"typed", "held"}
    assert [(left.node, left.reason) for left in result.left_float] == [
        ("empty", "its weight 'none' has no elements")
    ]
    run(result.model, x=samples(2, 4))
