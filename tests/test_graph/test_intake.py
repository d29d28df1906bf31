from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from goldens import REAL
from networks import conv_relu_gemm, model, node, save, weight
from onnx import numpy_helper

from calib.data import Batch
from calib.errors import DatasetError, ModelError
from calib.graph import FeedBuilder, OnnxModel, TensorSpec, load_model

MODELS = REAL / "models"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.onnx", None, r"No such model: .*gone\.onnx"),
        ("text.onnx", b"this is no model", r"text\.onnx is not an ONNX model\. Its content cannot be parsed"),
        ("empty.onnx", b"", r"empty\.onnx is not an ONNX model: it has no nodes"),
        ("cut.onnx", conv_relu_gemm().SerializeToString()[:900], r"cut\.onnx is not an ONNX model"),
    ],
)
def test_what_is_no_model(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        load_model(path)


def test_a_file_of_another_kind_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    """An engine's and a cache's as TensorRT 8.6.0 wrote them; PyTorch writes archives."""
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    kinds = {
        b"ftrt\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00": "TensorRT engine: give the ONNX model",
        b"TRT-8600-EntropyCalibration2\nx: 3c010a14\n": "calibration cache: give the model first",
        (tmp_path / "archive").read_bytes(): r"PyTorch file .*calib export MODULE:FACTORY --weights FILE",
        b"\x1c\x00\x00\x00TFL3\x14\x00 \x00": "TensorFlow Lite model: convert it by",
        b"\x89HDF\r\n\x1a\n": "HDF5 file",
    }
    for content, kind in kinds.items():
        (tmp_path / "m.onnx").write_bytes(content)
        with pytest.raises(ModelError, match=rf"m\.onnx is not an ONNX model\. It is an? {kind}"):
            load_model(tmp_path / "m.onnx")


def test_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        load_model(tmp_path)


def test_missing_external_weights_are_named() -> None:
    with pytest.raises(ModelError, match=r"Expected beside the model, but not there: ext_weights\.data"):
        load_model(MODELS / "ext_weights.onnx")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"data_type": 1, "dims": [3], "raw_data": bytes(8)},
            r"'w' of shape \[3\] .* size 2 into",
        ),
        (
            {"data_type": 1, "dims": [2, 2], "float_data": [0.5] * 3},
            r"'w' of shape \[2, 2\] .* size 3 into",
        ),
        ({"data_type": 7, "dims": [1], "raw_data": bytes(7)}, r"'w' .* multiple of element size"),
        ({"data_type": 99, "dims": [1], "raw_data": bytes(1)}, r"element type 99 of 'w' is unknown"),
    ],
)
@pytest.mark.parametrize("place", ["initializer", "node"])
def test_constants_that_do_not_fit_their_shape(
    fields: dict[str, Any], message: str, place: str, tmp_path: Path
) -> None:
    """8 bytes are 2 float32 and no 3; 7 bytes are no whole number of int64."""
    tensor = onnx.TensorProto(name="w", **fields)
    proto = model([node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]})
    if place == "initializer":
        proto.graph.initializer.append(tensor)
    else:
        proto.graph.node.append(node("Constant", [], ["w"], value=tensor))
    with pytest.raises(ModelError, match=rf"m\.onnx: .*{message}"):
        load_model(save(proto, tmp_path / "m.onnx"))


@pytest.mark.parametrize("dims", [[], [0], [0, 4], [3]])
def test_constants_of_any_size_that_fit(dims: list[int], tmp_path: Path) -> None:
    proto = conv_relu_gemm()
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(dims, np.float32), "more"))
    assert load_model(save(proto, tmp_path / "m.onnx")).inputs


def test_initializers_among_the_inputs_are_not_asked_for() -> None:
    assert [spec.name for spec in load_model(MODELS / "add_infinity.onnx").inputs] == ["A"]
    only_weight = load_model(MODELS / "identity_with_initializer.onnx")
    assert only_weight.inputs == ()
    with pytest.raises(ModelError, match="has no data inputs"):
        FeedBuilder(only_weight.inputs, str(only_weight.path))


@pytest.mark.parametrize("batch", ["batch", None, -1, 0])
def test_every_way_to_say_dynamic(batch: str | int | None, tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": [None, 1, 4, 4]}, {"y": [None, 1, 4, 4]})
    first = proto.graph.input[0].type.tensor_type.shape.dim[0]
    if isinstance(batch, str):
        first.dim_param = batch
    elif batch is not None:
        first.dim_value = batch
    loaded = load_model(save(proto, tmp_path / "m.onnx"))
    assert loaded.fixed_batch is None
    assert not isinstance(loaded.inputs[0].shape[0], int)
    for count in (1, 7):
        feeds = FeedBuilder(loaded.inputs).feeds(batch_of(np.ones((count, 1, 4, 4), np.float32)))
        assert feeds["x"].shape == (count, 1, 4, 4)


def batch_of(*arrays: np.ndarray, names: tuple[str, ...] = ("x",)) -> Batch:
    ids = tuple(f"s{i}" for i in range(len(arrays[0])))
    return Batch(
        ids, dict(zip(names, arrays, strict=True)), (None,) * len(ids), tuple(f"f.npz[{i}]" for i in ids)
    )


IMAGE = (TensorSpec("x", np.dtype(np.float32), ("n", 3, 4, 4)),)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.zeros((2, 4, 4, 3), np.float32),
            r"Sample f\.npz\[s0\] .*expected float32 \[n, 3, 4, 4\], got float32",
        ),
        (np.zeros((2, 3, 4), np.float32), r"got float32 \[2, 3, 4\]"),
        (
            np.full((1, 3, 4, 4), "a"),
            r"expected float32 .*, got <U1 \[1, 3, 4, 4\], whose values that type cannot hold",
        ),
        (np.full((1, 3, 4, 4), 1e300), r"whose values that type cannot hold"),
    ],
)
def test_wrong_shape_or_type_says_both(array: np.ndarray, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        FeedBuilder(IMAGE, "m.onnx").feeds(batch_of(array))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_name_the_sample(bad: float) -> None:
    array = np.zeros((8, 3, 4, 4), np.float32)
    array[6, 1, 2, 3] = bad
    with pytest.raises(DatasetError, match=r"Sample f\.npz\[s6\] \(id 's6'\) holds . NaN and . infinite"):
        FeedBuilder(IMAGE).feeds(batch_of(array))


def test_safe_casts_leave_a_note_and_lossy_ones_are_refused() -> None:
    builder = FeedBuilder(IMAGE)
    feeds = builder.feeds(batch_of(np.full((1, 3, 4, 4), 0.1)))
    assert feeds["x"].dtype == np.float32
    assert builder.notes == ("input 'x': float64 converted to float32",)
    whole = (TensorSpec("x", np.dtype(np.int32), ("n", 2)),)
    assert FeedBuilder(whole).feeds(batch_of(np.array([[1, 2]])))["x"].dtype == np.int32
    for lossy in (np.array([[0.5, 1.0]]), np.array([[2**40, 0]])):
        with pytest.raises(DatasetError, match="expected int32"):
            FeedBuilder(whole).feeds(batch_of(lossy))


TWO = (TensorSpec("a", np.dtype(np.float32), ("n", 4)), TensorSpec("b", np.dtype(np.float32), ("n", 2)))
A, B = np.zeros((3, 4), np.float32), np.zeros((3, 2), np.float32)


def test_several_inputs_go_by_name() -> None:
    feeds = FeedBuilder(TWO).feeds(batch_of(B, A, names=("b", "a")))
    assert {name: array.shape for name, array in feeds.items()} == {"a": (3, 4), "b": (3, 2)}


@pytest.mark.parametrize(
    ("names", "arrays", "message"),
    [(("a",), (A,), r"missing \['b'\], surplus \[\]"), (("a", "b", "c"), (A, B, B), r"surplus \['c'\]")],
)
def test_missing_and_surplus_inputs_are_named(names: tuple[str, ...], arrays: tuple, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        FeedBuilder(TWO, "m.onnx").feeds(batch_of(*arrays, names=names))


def test_one_input_fits_whatever_its_name() -> None:
    array = np.zeros((2, 3, 4, 4), np.float32)
    assert FeedBuilder(IMAGE).feeds(batch_of(array, names=("image",)))["x"] is array


def test_content_hashes_tell_graph_and_weights_apart(tmp_path: Path) -> None:
    first = load_model(save(conv_relu_gemm(), tmp_path / "a.onnx"))
    proto = conv_relu_gemm()
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight(4, 3, 3, 3, seed=9), "w1"))
    second = load_model(save(proto, tmp_path / "b.onnx"))
    (graph_a, weights_a), (graph_b, weights_b) = first.content_hashes(), second.content_hashes()
    assert graph_a == graph_b
    assert weights_a != weights_b


def test_weights_are_counted_wherever_they_stand() -> None:
    constant = node("Constant", [], ["b"], value=numpy_helper.from_array(np.zeros(4, np.float32)))
    proto = model(
        [constant, node("Conv", ["x", "w", "b"], ["c"]), node("Reshape", ["c", "flat"], ["y"])],
        {"x": ["n", 3, 5, 5]},
        {"y": None},
        {"w": weight(4, 3, 3, 3), "flat": np.array([0, -1], np.int64)},
    )
    # 4 × 3 × 3 × 3 of the weight and 4 of the bias; the sizes of the Reshape are no weights.
    assert OnnxModel(Path("m.onnx"), proto).parameters == 108 + 4
