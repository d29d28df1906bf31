from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from goldens import NETS, REAL, digits
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import conv_relu_gemm, model, node, samples, save, weight
from onnx import TensorProto, helper, numpy_helper

from calib.errors import ModelError, UsageError, ValidationError
from calib.graph import load_model
from calib.runners import OnnxRuntimeRunner, Runner

X = samples(4, 3, 8, 8)


def relu(**options: Any) -> bytes:
    """x [N,3] → Relu → y."""
    shape = {"x": ["N", 3]}
    return model([node("Relu", ["x"], ["y"])], shape, {"y": ["N", 3]}, **options).SerializeToString()


def quantized_identity(scale: float) -> bytes:
    """x → QuantizeLinear → DequantizeLinear → y, INT8 with zero point 0."""
    return model(
        [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        {"x": ["N", 256]},
        {"y": ["N", 256]},
        {"s": scale, "z": np.zeros((), np.int8)},
    ).SerializeToString()


def conv_pair() -> bytes:
    """A convolution between Q/DQ pairs, a pattern that ONNX Runtime would fuse into integer kernels."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        node("QuantizeLinear", ["w", "s", "z"], ["wq"]),
        node("DequantizeLinear", ["wq", "s", "z"], ["wd"]),
        node("Conv", ["xd", "wd"], ["c"], pads=[1, 1, 1, 1]),
        node("QuantizeLinear", ["c", "t", "z"], ["cq"]),
        node("DequantizeLinear", ["cq", "t", "z"], ["y"]),
    ]
    weights = {"w": weight(4, 3, 3, 3), "s": 0.02, "t": 0.03, "z": np.zeros((), np.int8)}
    return model(nodes, {"x": ["N", 3, 8, 8]}, {"y": ["N", 4, 8, 8]}, weights).SerializeToString()


class TestInfer:
    def test_it_gives_what_tensorrt_gave_in_fp32(self) -> None:
        images = digits()["xte"][:64]
        with OnnxRuntimeRunner(NETS / "plain.onnx", "fp32") as runner:
            (name,) = runner.output_names
            outputs = runner.infer({next(iter(runner.input_names)): images})
        expected = np.load(NETS / "plain.fp32.npy")
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("form", [lambda path: path, lambda path: path.read_bytes(), load_model])
    def test_bytes_file_and_loaded_model_are_alike(self, form: Callable[[Path], Any], tmp_path: Path) -> None:
        path = save(conv_relu_gemm(), tmp_path / "net.onnx")
        plain = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        with OnnxRuntimeRunner(form(path), "fp32") as runner:
            outputs = runner.infer({"x": X})
        np.testing.assert_allclose(outputs["y"], plain.run(None, {"x": X})[0], rtol=1e-5, atol=1e-6)
        assert runner.model_bytes == path.stat().st_size

    def test_later_batches_leave_earlier_outputs_alone(self) -> None:
        with OnnxRuntimeRunner(relu(), "fp32") as runner:
            first = runner.infer({"x": np.full((2, 3), 7, np.float32)})["y"]
            runner.infer({"x": np.full((2, 3), 9, np.float32)})
        assert (first == 7).all()

    def test_an_input_that_is_an_output_is_copied(self) -> None:
        proto = model(
            [node("Relu", ["x"], ["y"])], {"x": ["N", 3]}, {"y": ["N", 3], "x": ["N", 3]}
        ).SerializeToString()
        feed = np.ones((2, 3), np.float32)
        with OnnxRuntimeRunner(proto, "fp32") as runner:
            outputs = runner.infer({"x": feed})
        feed[:] = 5
        assert (outputs["x"] == 1).all()

    def test_outputs_keep_the_models_order(self) -> None:
        with OnnxRuntimeRunner(REAL / "models" / "multi_output.onnx", "fp32") as runner:
            graph = onnx.load(REAL / "models" / "multi_output.onnx").graph
            assert runner.output_names == tuple(output.name for output in graph.output)

    def test_it_is_a_runner(self) -> None:
        runner: Runner = OnnxRuntimeRunner(relu(), "fp32")
        assert (runner.name, runner.precision) == ("onnxruntime", "fp32")


class TestInt8:
    @settings(deadline=None)
    @given(scale=st.floats(2**-10, 8.0, width=32), seed=st.integers(0, 2**32 - 1))
    def test_pairs_round_to_even_and_saturate_in_float(self, scale: float, seed: int) -> None:
        steps = np.arange(-160, 160, 1.25, dtype=np.float32)  # beyond ±127, and halves
        values = np.random.default_rng(seed).permutation(steps)[None, :256] * np.float32(scale)
        with OnnxRuntimeRunner(quantized_identity(scale), "int8", threads=1) as runner:
            found = runner.infer({"x": values})["y"]
        step = np.float32(scale)
        expected = np.clip(np.rint(values / step), -128, 127) * step
        np.testing.assert_array_equal(found, expected)

    def test_no_integer_kernel_takes_part(self) -> None:
        """The figures are those of float arithmetic on rounded values, to float32's rounding."""
        with OnnxRuntimeRunner(conv_pair(), "int8") as runner:
            found = runner.infer({"x": X})["y"]
        rounded_x = np.clip(np.rint(X / np.float32(0.02)), -128, 127) * np.float32(0.02)
        rounded_w = np.clip(np.rint(weight(4, 3, 3, 3) / np.float32(0.02)), -128, 127) * np.float32(0.02)
        padded = np.pad(rounded_x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        exact = np.einsum("ncijkl,ockl->noij", windows, rounded_w.astype(np.float64))
        expected = np.clip(np.rint(exact / np.float32(0.03)), -128, 127) * np.float32(0.03)
        # A sum that lies within float32's rounding of a half may fall to either side.
        near_half = np.abs(exact / 0.03 - np.floor(exact / 0.03) - 0.5) < 1e-4
        np.testing.assert_allclose(found[~near_half], expected[~near_half], atol=1e-6)

    def test_it_says_that_it_is_simulated(self) -> None:
        runner = OnnxRuntimeRunner(relu(), "int8")
        assert runner.simulated
        assert runner.note.startswith("INT8 simulated on the CPU")
        assert not OnnxRuntimeRunner(relu(), "fp32").simulated

    def test_every_setting_is_recorded(self) -> None:
        plain = OnnxRuntimeRunner(relu(), "fp32").session_options
        assert plain["graph_optimization_level"] == "ORT_DISABLE_ALL"
        assert plain["session.disable_quant_qdq"] == "1"
        assert plain["session.intra_op.allow_spinning"] == "0"
        tuned = OnnxRuntimeRunner(relu(), "fp32", threads=1, optimize=True).session_options
        assert tuned["graph_optimization_level"] == "ORT_ENABLE_ALL"
        assert tuned["intra_op_num_threads"] == "1"


class TestFeeds:
    def half(self) -> OnnxRuntimeRunner:
        types = {"x": TensorProto.FLOAT16, "y": TensorProto.FLOAT16}
        return OnnxRuntimeRunner(relu(types=types), "fp16")

    def test_float32_is_cast_to_a_declared_float16(self) -> None:
        found = self.half().infer({"x": np.array([[0.1, -1, 2]], np.float32)})["y"]
        assert found.dtype == np.float16
        assert found.tolist() == [[np.float16(0.1), 0, 2]]

    def test_values_beyond_float16_are_refused(self) -> None:
        with pytest.raises(ValidationError, match=r"'x' is declared float16, which cannot hold 70000\.0"):
            self.half().infer({"x": np.array([[1, 70000, 80000]], np.float32)})

    def test_integers_that_do_not_fit_are_refused(self) -> None:
        runner = OnnxRuntimeRunner(relu(types={"x": TensorProto.INT32, "y": TensorProto.INT32}), "fp32")
        assert runner.infer({"x": np.array([[1, -2, 3]], np.int64)})["y"].tolist() == [[1, 0, 3]]
        with pytest.raises(ValidationError, match="declared int32, which cannot hold 4294967296"):
            runner.infer({"x": np.array([[2**32, 0, 0]], np.int64)})

    def test_float_to_integer_is_refused(self) -> None:
        runner = OnnxRuntimeRunner(relu(types={"x": TensorProto.INT32, "y": TensorProto.INT32}), "fp32")
        with pytest.raises(ValidationError, match="'x' is declared int32, got float32"):
            runner.infer({"x": np.ones((1, 3), np.float32)})

    @pytest.mark.parametrize("names", [(), ("z",), ("x", "z")])
    def test_names_must_be_the_models(self, names: Sequence[str]) -> None:
        feeds = {name: np.ones((1, 3), np.float32) for name in names}
        with pytest.raises(ValidationError, match=r"has inputs \['x'\], the feeds are"):
            OnnxRuntimeRunner(relu(), "fp32").infer(feeds)

    def test_a_wrong_shape_is_explained(self) -> None:
        with pytest.raises(ValidationError, match=r"fp32 model failed .* input: x .*Got: 4 Expected: 3"):
            OnnxRuntimeRunner(relu(), "fp32").infer({"x": np.ones((1, 4), np.float32)})

    def test_initializers_are_not_asked_for(self) -> None:
        runner = OnnxRuntimeRunner(REAL / "models" / "add_infinity.onnx", "fp32")
        assert runner.input_names == ("A",)


class TestFaults:
    def test_an_operator_without_kernel_is_named_with_domain_and_node(self) -> None:
        graph = helper.make_graph(
            [
                helper.make_node("Relu", ["x"], ["r"]),
                helper.make_node("Foo", ["r"], ["y"], "nms", domain="trt"),
            ],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("trt", 1)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        match = r"Node 'nms' \(operator Foo, domain 'trt'\) has no CPU kernel"
        with pytest.raises(ModelError, match=match):
            OnnxRuntimeRunner(proto.SerializeToString(), "fp32")

    @pytest.mark.parametrize(
        ("element", "name"), [(TensorProto.DOUBLE, "float64"), (TensorProto.BFLOAT16, "bfloat16")]
    )
    def test_a_type_without_kernel_is_named(self, element: int, name: str) -> None:
        """ONNX Runtime convolves in float32 and float16 alone; the first Conv here has a kernel."""
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["a"], "first"),
            helper.make_node("Cast", ["a"], ["b"], to=element),
            helper.make_node("Cast", ["w"], ["v"], to=element),
            helper.make_node("Conv", ["b", "v"], ["c"], "second"),
            helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
        ]
        shape = [1, 2, 4, 4]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [helper.make_tensor("w", TensorProto.FLOAT, [2, 2, 1, 1], [1.0] * 4)],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        match = rf"Node 'second' \(operator Conv, .*\) has no CPU kernel in ONNX Runtime for {name}\. Export"
        with pytest.raises(ModelError, match=match):
            OnnxRuntimeRunner(proto.SerializeToString(), "fp32")

    def test_a_real_plugin_model(self) -> None:
        path = REAL / "models" / "custom_op_node.onnx"
        with pytest.raises(ModelError, match=r"cannot load .*custom_op_node\.onnx: Node .*\(operator "):
            OnnxRuntimeRunner(path, "fp32")

    def test_a_node_that_fails_while_running_is_named(self) -> None:
        proto = model(
            [node("Reshape", ["x", "s"], ["y"], name="fold")],
            {"x": ["N", 3]},
            {"y": ["M", 2]},
            {"s": np.array([-1, 2])},
        )
        runner = OnnxRuntimeRunner(proto.SerializeToString(), "int8")
        match = r"The int8 model failed in ONNX Runtime: Node 'fold' \(operator Reshape, domain 'ai.onnx'\)"
        with pytest.raises(ValidationError, match=match):
            runner.infer({"x": np.ones((1, 3), np.float32)})

    def test_nothing_else_is_printed(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(ModelError, match="cannot load the model"):
            OnnxRuntimeRunner(b"no model", "fp32")
        assert capfd.readouterr() == ("", "")

    def test_outputs_that_are_no_tensors_are_refused(self) -> None:
        graph = helper.make_graph(
            [helper.make_node("SequenceConstruct", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
            [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        with pytest.raises(ModelError, match=r"Output 'y' is a seq\(tensor\(float\)\)"):
            OnnxRuntimeRunner(proto.SerializeToString(), "fp32")

    @pytest.mark.parametrize(
        ("content", "match"),
        [(None, r"Cannot read .*net\.onnx: No such file"), (b"text", "is not an ONNX model|cannot load")],
    )
    def test_files_that_are_no_models(self, content: bytes | None, match: str, tmp_path: Path) -> None:
        path = tmp_path / "net.onnx"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ModelError, match=match):
            OnnxRuntimeRunner(path, "fp32")

    @pytest.mark.parametrize("options", [{"precision": "int4"}, {"precision": "fp32", "threads": 0}])
    def test_options_that_cannot_be_meant(self, options: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match=r"Precision must be one of|Threads must be at least 1"):
            OnnxRuntimeRunner(relu(), **options)

    def test_a_closed_runner_says_so(self) -> None:
        with OnnxRuntimeRunner(relu(), "fp32") as runner:
            pass
        with pytest.raises(UsageError, match="runner is closed"):
            runner.infer({"x": np.ones((1, 3), np.float32)})


class TestExternalData:
    def big(self, folder: Path) -> Path:
        proto = conv_relu_gemm()
        path = folder / "net.onnx"
        onnx.save(proto, path, save_as_external_data=True, location="net.data", size_threshold=0)
        return path

    def test_its_size_counts(self, tmp_path: Path) -> None:
        path = self.big(tmp_path)
        with OnnxRuntimeRunner(path, "fp32") as runner:
            assert runner.infer({"x": X})["y"].shape == (4, 5)
        assert runner.model_bytes == path.stat().st_size + (tmp_path / "net.data").stat().st_size

    def test_a_missing_data_file_is_named(self, tmp_path: Path) -> None:
        path = self.big(tmp_path)
        (tmp_path / "net.data").unlink()
        with pytest.raises(ModelError, match=r"Cannot read .*net\.data: No such file"):
            OnnxRuntimeRunner(path, "fp32")


def test_time_covers_the_whole_run() -> None:
    """A chain of products of 512 × 512 matrices takes milliseconds; the clock must see all of it."""
    size, depth = 512, 12
    nodes = [node("MatMul", [f"t{i}", "w"], [f"t{i + 1}"]) for i in range(depth)]
    proto = model(nodes, {"t0": [size, size]}, {f"t{depth}": [size, size]}, {"w": weight(size, size)})
    with OnnxRuntimeRunner(proto.SerializeToString(), "fp32", threads=1) as runner:
        feeds = {"t0": np.ones((size, size), np.float32)}
        runner.time_ms(feeds)
        found = min(runner.time_ms(feeds) for _ in range(3))
    operations = depth * 2 * size**3
    # No core does more than 500 billion float32 operations a second.
    assert found > operations / 500e9 * 1e3


def test_weights_stored_in_float_data() -> None:
    proto = conv_relu_gemm()
    for tensor in proto.graph.initializer:
        values = numpy_helper.to_array(tensor)
        tensor.CopyFrom(helper.make_tensor(tensor.name, TensorProto.FLOAT, values.shape, values.ravel()))
    with (
        OnnxRuntimeRunner(proto.SerializeToString(), "fp32") as typed,
        OnnxRuntimeRunner(conv_relu_gemm().SerializeToString(), "fp32") as raw,
    ):
        np.testing.assert_array_equal(typed.infer({"x": X})["y"], raw.infer({"x": X})["y"])
