"""FP16 conversion: graphs of every form, and what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from decibels import decibels
from goldens import REAL
from half_networks import branches, in_memory, kept, large_in_the_middle, run, run_half, weight_types
from networks import conv_relu_gemm, model, node, samples, weight
from onnx import TensorProto, numpy_helper

from calib.graph import HalfModel, convert_float16, load_model

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def types(result: HalfModel) -> dict[str, int]:
    """Element type of every tensor, by inference over the written graph."""
    graph = onnx.shape_inference.infer_shapes(result.model.proto, strict_mode=True).graph
    found = {info.name: info.type.tensor_type.elem_type for info in (*graph.value_info, *graph.input)}
    found.update({info.name: info.type.tensor_type.elem_type for info in graph.output})
    return {**found, **{tensor.name: tensor.data_type for tensor in graph.initializer}}


class TestForms:
    def test_subgraphs_stay_in_float32(self) -> None:
        network = in_memory(branches())
        result = convert_float16(network)
        assert set(kept(result)) == {"if"}
        assert "what is inside 1 If stays in float32" in result.notes
        onnx.checker.check_model(result.model.proto, full_check=True)
        x = samples(3, 4)
        for condition in (True, False):
            feeds = {"x": x, "c": np.array(condition)}
            assert decibels(run(network, **feeds)[0], run_half(result.model, **feeds)[0]) > 55

    def test_operators_of_coordinates_and_customs_are_left(self) -> None:
        nodes = [
            node("Relu", ["x"], ["r"], name="relu"),
            node("TopK", ["r", "k"], ["t", "i"], name="topk"),
            node("Thing", ["t"], ["u"], name="thing", domain="my.plugins"),
        ]
        graph = onnx.helper.make_graph(
            nodes,
            "g",
            [onnx.helper.make_tensor_value_info("x", FLOAT, [1, 8])],
            [onnx.helper.make_tensor_value_info("u", FLOAT, [1, 3])],
            [numpy_helper.from_array(np.array([3]), "k")],
        )
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("my.plugins", 1)]
        result = convert_float16(in_memory(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)))
        assert kept(result)["topk"].startswith("coordinates")
        assert kept(result)["thing"] == "no operator of ONNX's own (my.plugins)"
        assert kept(result)["relu"] == "stands between nodes in float32"

    def test_sizes_are_not_touched(self) -> None:
        nodes = [
            node("Shape", ["x"], ["s"], name="shape"),
            node("Cast", ["s"], ["f"], name="to_float", to=FLOAT),
            node("Mul", ["f", "twice"], ["g"], name="double"),
            node("Cast", ["g"], ["sizes"], name="to_int", to=TensorProto.INT64),
            node("Resize", ["x", "", "", "sizes"], ["y"], name="resize"),
        ]
        proto = model(nodes, {"x": [1, 2, 3, 3001]}, {"y": [1, 2, 6, 6002]}, {"twice": [1, 1, 2, 2]})
        result = convert_float16(in_memory(proto), keep_io=False)
        assert result.kept == ()
        assert types(result)["g"] == FLOAT
        x = samples(1, 2, 3, 3001).astype(np.float16)
        # Above 4096 float16 has multiples of 4 alone: a size in it would be 6000 or 6004.
        assert run_half(result.model, x=x)[0].shape == (1, 2, 6, 6002)

    def test_float_scales_of_resize_stay_float32(self) -> None:
        nodes = [node("Resize", ["x", "", "scales"], ["y"], name="resize")]
        proto = model(nodes, {"x": [1, 2, 3, 3]}, {"y": [1, 2, 6, 6]}, {"scales": [1, 1, 2, 2]})
        result = convert_float16(in_memory(proto), keep_io=False)
        assert result.kept == ()
        assert weight_types(result) == {"scales": FLOAT}

    def test_sequences_stay_float32(self) -> None:
        proto = model(
            [
                node("MatMul", ["x", "w"], ["a"], name="first"),
                node("SplitToSequence", ["a", "two"], ["parts"], name="cut"),
                node("SequenceAt", ["parts", "one"], ["b"], name="pick"),
                node("MatMul", ["b", "v"], ["y"], name="last"),
            ],
            {"x": [4, 4]},
            {"y": [2, 4]},
            {"w": weight(4, 4), "v": weight(4, 4), "two": np.array(2), "one": np.array(1)},
        )
        result = convert_float16(in_memory(proto), ranges=dict.fromkeys("xaby", 4.0))
        assert kept(result) == {"cut": "has no float16 form", "pick": "has no float16 form"}
        x = samples(4, 4)
        # Two products of four terms each, rounded to 11 bits.
        np.testing.assert_allclose(run_half(result.model, x=x)[0], run(in_memory(proto), x=x)[0], atol=4e-3)

    def test_an_output_that_is_read_further(self) -> None:
        nodes = [node("Relu", ["x"], ["mid"], name="relu"), node("MatMul", ["mid", "w"], ["y"], name="mm")]
        proto = model(nodes, {"x": [2, 4]}, {"mid": [2, 4], "y": [2, 4]}, {"w": weight(4, 4)})
        result = convert_float16(in_memory(proto))
        found = types(result)
        assert (found["mid"], found["mid_float16"], found["y"]) == (FLOAT, HALF, FLOAT)
        assert result.casts == 3

    def test_inputs_and_outputs_in_float16(self) -> None:
        result = convert_float16(in_memory(conv_relu_gemm()), keep_io=False, ranges={"x": 4.0})
        assert [s.dtype for s in (*result.model.inputs, *result.model.outputs)] == [np.float16, np.float16]
        x = samples(2, 3, 8, 8)
        exact = run(in_memory(conv_relu_gemm()), x=x)[0]
        assert decibels(exact, run_half(result.model, x=x.astype(np.float16))[0].astype(np.float32)) > 50

    def test_an_input_too_large_for_float16_keeps_its_type(self) -> None:
        result = convert_float16(in_memory(conv_relu_gemm()), keep_io=False, ranges={"x": 1e5})
        assert result.model.inputs[0].dtype == np.float32
        assert "'x' reaches 100000" in kept(result)["conv1"]

    def test_a_model_that_is_float16_already(self) -> None:
        before = load_model(REAL / "models" / "matmul.fp16.onnx")
        result = convert_float16(before)
        assert any("has no float32 tensors: nothing was converted" in note for note in result.notes)
        assert result.model.proto == before.proto

    def test_a_model_that_is_float16_in_part(self) -> None:
        nodes = [
            node("Cast", ["x"], ["h"], name="down", to=HALF),
            node("MatMul", ["h", "w"], ["p"], name="mm"),
            node("Cast", ["p"], ["f"], name="up", to=FLOAT),
            node("MatMul", ["f", "v"], ["y"], name="out"),
        ]
        weights = {"w": weight(4, 4).astype(np.float16), "v": weight(4, 4)}
        proto = model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, weights)
        result = convert_float16(in_memory(proto))
        assert weight_types(result) == {"w": HALF, "v": HALF}
        x = samples(2, 4)
        assert decibels(run(in_memory(proto), x=x)[0], run_half(result.model, x=x)[0]) > 50

    def test_initializers_among_the_inputs_of_old_models(self) -> None:
        proto = conv_relu_gemm()
        proto.ir_version = 3
        for tensor in proto.graph.initializer:
            proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, FLOAT, tensor.dims))
        result = convert_float16(in_memory(proto))
        declared = {info.name: info.type.tensor_type.elem_type for info in result.model.proto.graph.input}
        assert declared == {"x": FLOAT, **dict.fromkeys(("w1", "b1", "w2", "w3", "b3"), HALF)}
        assert result.model.proto.ir_version == 3
        assert np.isfinite(run_half(result.model, x=samples(1, 3, 8, 8))[0]).all()

    def test_a_constant_in_both_types_in_an_old_model(self) -> None:
        """IR version 3 wants each initializer among the inputs, the second one of a constant as well."""
        nodes = [
            node("MatMul", ["x", "w"], ["s"]),
            node("Exp", ["s"], ["e"]),
            node("MatMul", ["e", "w"], ["y"]),
        ]
        proto = model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, {"w": np.diag(np.float32([1, 2, 3, 4]))})
        proto.ir_version = 3
        proto.graph.input.append(onnx.helper.make_tensor_value_info("w", FLOAT, [4, 4]))
        result = convert_float16(in_memory(proto), ranges={"x": 3.0, "s": 12.0, "e": 2e5, "y": 7e5})
        assert (result.converted, len(result.kept)) == (1, 2)
        onnx.checker.check_model(result.model.proto, full_check=True)
        # 3·(1 … 4) are numbers of float16: e³·1 … e¹²·4.
        expected = [np.exp(3.0), np.exp(6.0) * 2, np.exp(9.0) * 3, np.exp(12.0) * 4]
        x = np.full((2, 4), 3, np.float32)
        np.testing.assert_allclose(run_half(result.model, x=x)[0], [expected] * 2, rtol=1e-5)

    def test_nodes_without_names(self) -> None:
        proto = large_in_the_middle()
        for item in proto.graph.node:
            item.name = ""
        result = convert_float16(in_memory(proto))
        assert set(kept(result)) == {"c", "d", "y"}
        names = [n.name for n in result.model.proto.graph.node if n.name]
        assert len(names) == len(set(names)) == result.casts

    def test_weights_in_a_file_of_their_own(self, tmp_path: Path) -> None:
        proto = conv_relu_gemm()
        onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
        convert_float16(tmp_path / "m.onnx", out=tmp_path / "h.onnx")
        again = load_model(tmp_path / "h.onnx")
        assert (tmp_path / "h.onnx.data").is_file() or not again.external_files
        assert {t.data_type for t in again.proto.graph.initializer} == {HALF}
