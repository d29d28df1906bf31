"""FP16 conversion: values, constants and forms that float16 does not hold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from decibels import decibels
from goldens import NETS, digits
from half_networks import (
    attention,
    in_memory,
    kept,
    large_in_the_middle,
    layer_norm_chain,
    run,
    run_half,
    weight_types,
)
from networks import conv_relu_gemm, model, node, samples, save, weight
from onnx import TensorProto, numpy_helper

from calib.calibrators import CalibrationCache
from calib.errors import ModelError, UsageError
from calib.graph import OnnxModel, convert_float16, load_model, to_float16

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


@pytest.mark.parametrize("net", ["plain", "res", "unet"])
class TestTrainedNets:
    """Against TensorRT 8.6.0's own FP16 engines of the same nets, on the same images."""

    def test_error_is_that_of_tensorrt(self, net: str) -> None:
        images = digits()["xte"]
        result = convert_float16(NETS / f"{net}.onnx", ranges=NETS / f"{net}.minmax.cache")
        exact = run(load_model(NETS / f"{net}.onnx"), input=images)[0]
        ours = decibels(exact, run_half(result.model, input=images)[0])
        theirs = decibels(np.load(NETS / f"{net}.fp32.npy"), np.load(NETS / f"{net}.fp16.npy"))
        # A fused kernel rounds once where the graph has several results.
        assert theirs - 6 < ours < theirs + 3
        assert result.kept == ()

    def test_inputs_outputs_and_valid_onnx(self, net: str) -> None:
        before = load_model(NETS / f"{net}.onnx")
        result = convert_float16(before, ranges=NETS / f"{net}.minmax.cache")
        onnx.checker.check_model(result.model.proto, full_check=True)
        assert [(s.name, str(s)) for s in result.model.inputs] == [(s.name, str(s)) for s in before.inputs]
        assert [(s.name, str(s)) for s in result.model.outputs] == [(s.name, str(s)) for s in before.outputs]
        assert (result.model.opset, result.model.proto.ir_version) == (before.opset, before.proto.ir_version)
        floats = [t for t in result.model.proto.graph.initializer if t.data_type == FLOAT]
        assert floats == []

    def test_entropy_ranges_allow_for_what_they_cut_off(self, net: str) -> None:
        result = convert_float16(NETS / f"{net}.onnx", ranges=NETS / f"{net}.entropy2.cache")
        assert any("entropy ranges, which values can exceed 15.9 times" in note for note in result.notes)
        assert not any("no ranges were given" in note for note in result.notes)


class TestLargeValues:
    feeds: ClassVar = ({"x": np.linspace(-5, 5, 40, dtype=np.float32).reshape(10, 4)},)

    def test_without_ranges_a_square_stays_in_float32(self) -> None:
        result = convert_float16(in_memory(large_in_the_middle()))
        assert kept(result)["square"] == "no range is known of its output 'c', which can be large"
        assert set(kept(result)) == {"square", "shrink", "last"}
        assert any("no ranges were given" in note for note in result.notes)

    @pytest.mark.parametrize("by", ["ranges", "check"])
    def test_what_leaves_the_range_stays_in_float32(self, by: str) -> None:
        network = in_memory(large_in_the_middle())
        # x·I·300 squared is 2 250 000 at most; a thousandth of it is 2250.
        amax = {"x": 5.0, "a": 5.0, "b": 1500.0, "c": 2.25e6, "d": 2250.0, "y": 4000.0}
        result = convert_float16(network, **({"ranges": amax} if by == "ranges" else {"check": self.feeds}))
        assert set(kept(result)) == {"square", "shrink"}
        assert "its output 'c' reaches 2.25e+06; the limit here is 32752" in kept(result)["square"]
        found = run_half(result.model, x=self.feeds[0]["x"])[0]
        assert np.isfinite(found).all()
        assert decibels(run(network, x=self.feeds[0]["x"])[0], found) > 55

    def test_ranges_of_too_little_data_are_caught_by_the_check(self) -> None:
        amax = dict.fromkeys("xabcdy", 1.0)
        trusting = convert_float16(in_memory(large_in_the_middle()), ranges=amax)
        assert not np.isfinite(run_half(trusting.model, x=self.feeds[0]["x"])[0]).all()
        checked = convert_float16(in_memory(large_in_the_middle()), ranges=amax, check=self.feeds)
        assert np.isfinite(run_half(checked.model, x=self.feeds[0]["x"])[0]).all()
        assert checked.error is not None
        assert checked.error.overflows == ()
        assert checked.error.sqnr_db["y"] > 55

    @pytest.mark.parametrize(
        ("amax", "margin", "stays"),
        [(30000.0, 2.0, False), (33000.0, 2.0, True), (33000.0, 1.0, False), (65505.0, 1.0, True)],
    )
    def test_margin(self, amax: float, margin: float, stays: bool) -> None:
        proto = model([node("Add", ["x", "x"], ["y"], name="add")], {"x": [1, 4]}, {"y": [1, 4]})
        result = convert_float16(
            in_memory(proto), ranges={"x": amax, "y": amax}, margin=margin, keep_io=False
        )
        assert ("add" in kept(result)) is stays

    def test_partial_sums_of_a_product_get_headroom(self) -> None:
        proto = model(
            [node("MatMul", ["x", "w"], ["y"], name="mm")], {"x": [1, 4]}, {"y": [1, 4]}, {"w": weight(4, 4)}
        )
        # A quarter of 65504 / 2 is 8188.
        assert convert_float16(in_memory(proto), ranges={"x": 1.0, "y": 8000.0}).kept == ()
        assert "8188" in kept(convert_float16(in_memory(proto), ranges={"x": 1.0, "y": 8200.0}))["mm"]

    @pytest.mark.parametrize(("height", "stays"), [(8, False), (100, True)])
    def test_a_mean_is_a_sum_first(self, height: int, stays: bool) -> None:
        proto = model(
            [node("GlobalAveragePool", ["x"], ["y"], name="gap")],
            {"x": [1, 2, height, 8]},
            {"y": [1, 2, 1, 1]},
        )
        # 8·8·100 = 6400; 100·8·100 = 80 000.
        result = convert_float16(in_memory(proto), ranges={"x": 100.0, "y": 90.0}, keep_io=False)
        assert ("gap" in kept(result)) is stays

    def test_an_exponential_needs_a_range(self) -> None:
        nodes = [node("Exp", ["x"], ["e"], name="exp"), node("Add", ["e", "one"], ["y"], name="add")]
        proto = model(nodes, {"x": [1, 4]}, {"y": [1, 4]}, {"one": 1.0})
        assert set(kept(convert_float16(in_memory(proto)))) == {"exp", "add"}
        known = {"x": 8.0, "e": 2981.0, "y": 2982.0}
        assert convert_float16(in_memory(proto), ranges=known, keep_io=False).kept == ()
        assert set(kept(convert_float16(in_memory(proto), ranges={"x": 12.0, "e": 162755.0}))) == {
            "exp",
            "add",
        }

    def test_values_below_the_range(self) -> None:
        proto = model([node("Mul", ["x", "k"], ["y"], name="mul")], {"x": [1, 4]}, {"y": [1, 4]}, {"k": 0.5})
        result = convert_float16(in_memory(proto), ranges={"x": 2e-5, "y": 1e-5})
        assert kept(result)["mul"] == "its input 'x' stays below 2e-05, where float16 loses bits"


class TestConstants:
    def test_weights_beyond_the_range_are_not_clipped(self) -> None:
        nodes = [node("MatMul", ["x", "w"], ["a"], name="mm"), node("Sigmoid", ["a"], ["b"], name="gate")]
        nodes += [node("MatMul", ["b", "v"], ["y"], name="out")]
        large = weight(4, 4) * np.float32(1e7)
        proto = model(nodes, {"x": ["n", 4]}, {"y": ["n", 4]}, {"w": large, "v": weight(4, 4, seed=1)})
        network = in_memory(proto)
        result = convert_float16(network)
        assert f"its constant 'w' reaches {np.abs(large).max():.6g}, beyond" in kept(result)["mm"]
        assert weight_types(result) == {"w": FLOAT, "v": HALF}
        stored = next(t for t in result.model.proto.graph.initializer if t.name == "w")
        assert np.array_equal(numpy_helper.to_array(stored), large)
        # What the large product makes is not known to fit either: the gate stays, the rest does not.
        assert set(kept(result)) == {"mm", "gate"}
        x = samples(8, 4, seed=5)
        assert decibels(run(network, x=x)[0], run_half(result.model, x=x)[0]) > 55

    def test_infinities_that_were_there_stay(self) -> None:
        nodes = [
            node("Where", ["c", "x", "low"], ["m"], name="where"),
            node("Softmax", ["m"], ["y"], name="sm"),
        ]
        proto = model(
            nodes,
            {"c": [1, 4], "x": [1, 4]},
            {"y": [1, 4]},
            {"low": np.float32(-np.inf)},
            types={"c": TensorProto.BOOL},
        )
        feeds = {"c": np.array([[True, True, False, True]]), "x": samples(1, 4)}
        result = convert_float16(in_memory(proto), check=[feeds])
        assert result.kept == ()
        assert np.allclose(run_half(result.model, **feeds)[0], run(in_memory(proto), **feeds)[0], atol=1e-3)

    def test_bounds_of_clip_may_be_float16s_own(self) -> None:
        nodes = [node("Clip", ["x", "low", "high"], ["y"], name="clip")]
        proto = model(nodes, {"x": [1, 4]}, {"y": [1, 4]}, {"low": 0.0, "high": 3.4e38})
        result = convert_float16(in_memory(proto), keep_io=False)
        assert result.kept == ()
        bounds = {t.name: float(numpy_helper.to_array(t)) for t in result.model.proto.graph.initializer}
        assert bounds == {"low": 0.0, "high": 65504.0}

    @pytest.mark.parametrize(
        ("op", "value", "stays"),
        [
            ("Add", 1e-12, True),
            ("Add", 1e-3, False),
            ("Max", 1e-7, True),
            ("Mul", 1e-8, True),
            ("Div", 1e-6, True),
        ],
    )
    def test_a_constant_that_vanishes(self, op: str, value: float, stays: bool) -> None:
        proto = model([node(op, ["x", "k"], ["y"], name="op")], {"x": [1, 4]}, {"y": [1, 4]}, {"k": value})
        assert ("op" in kept(convert_float16(in_memory(proto), keep_io=False))) is stays

    def test_a_bias_may_be_small(self) -> None:
        proto = model(
            [node("Conv", ["x", "w", "b"], ["y"], name="conv")],
            {"x": [1, 2, 4, 4]},
            {"y": [1, 3, 2, 2]},
            {"w": weight(3, 2, 3, 3), "b": [1e-9] * 3},
        )
        assert convert_float16(in_memory(proto)).kept == ()

    @pytest.mark.parametrize(
        ("variance", "reason"),
        [
            (1.0, None),
            (6e4, None),
            (1e6, "reaches 1e+06, beyond"),
            (1e-30, "reaches 3.16e+06, beyond"),
            (1e-7, "too small"),
        ],
    )
    def test_batch_norm(self, variance: float, reason: str | None) -> None:
        proto = model(
            [node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y"], name="bn", epsilon=1e-13)],
            {"x": [1, 2, 4, 4]},
            {"y": [1, 2, 4, 4]},
            {"g": [1, 1], "b": [0, 0], "m": [0, 0], "v": [variance] * 2},
        )
        found = kept(convert_float16(in_memory(proto), keep_io=False))
        assert (found == {}) if reason is None else (reason in found["bn"])

    def test_a_weight_for_both_types_keeps_all_its_bits_in_float32(self) -> None:
        nodes = [node("MatMul", ["x", "w"], ["a"], name="one"), node("MatMul", ["a", "w"], ["y"], name="two")]
        proto = model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, {"w": weight(4, 4)})
        result = convert_float16(in_memory(proto), keep_float=["^two$"])
        assert weight_types(result) == {"w": FLOAT, "w_float16": HALF}
        assert kept(result) == {"two": "kept by '^two$'"}

    def test_weights_in_constant_nodes_and_behind_identity(self) -> None:
        value = numpy_helper.from_array(weight(4, 4), "value")
        nodes = [
            node("Constant", [], ["k"], value=value),
            node("Identity", ["w"], ["alias"]),
            node("MatMul", ["x", "k"], ["a"], name="one"),
            node("MatMul", ["a", "alias"], ["y"], name="two"),
        ]
        result = convert_float16(in_memory(model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, {"w": weight(4, 4)})))
        assert result.kept == ()
        assert set(weight_types(result).values()) == {HALF}
        assert [n.op_type for n in result.model.proto.graph.node if n.op_type == "Identity"] == []


class TestNormalization:
    def test_the_spelled_out_chain_stays_in_float32(self) -> None:
        network = in_memory(layer_norm_chain())
        result = convert_float16(network)
        chain = {"mean", "centre", "square", "variance", "guard", "root", "divide"}
        assert set(kept(result)) == chain
        assert set(kept(result).values()) == {"mean and variance of a normalization need float32"}
        # A row of equal values has no variance: 0 / √1e-12 is 0, and 0 / √0 would be NaN.
        x = np.concatenate([samples(3, 8), np.zeros((1, 8), np.float32)])
        found = run_half(result.model, x=x)[0]
        assert np.isfinite(found).all()
        assert decibels(run(network, x=x)[0], found) > 55

    def test_rms_norm_by_a_reciprocal(self) -> None:
        nodes = [
            node("Mul", ["x", "x"], ["s"], name="square"),
            node("ReduceMean", ["s"], ["m"], name="mean", axes=[-1]),
            node("Add", ["m", "e"], ["g"], name="guard"),
            node("Sqrt", ["g"], ["r"], name="root"),
            node("Reciprocal", ["r"], ["i"], name="invert"),
            node("Mul", ["x", "i"], ["n"], name="times"),
            node("MatMul", ["n", "w"], ["y"], name="out"),
        ]
        proto = model(nodes, {"x": [2, 8]}, {"y": [2, 8]}, {"e": 1e-6, "w": weight(8, 8)})
        result = convert_float16(in_memory(proto))
        assert set(kept(result)) == {"square", "mean", "guard", "root", "invert", "times"}

    def test_the_operator_itself_is_converted(self) -> None:
        result = convert_float16(in_memory(attention(np.float32(-1e4))))
        assert result.kept == ()


class TestAttention:
    feeds: ClassVar = {"x": samples(2, 6, 8), "keep": np.array([[[1] * 6], [[1] * 4 + [0] * 2]], np.float32)}

    @pytest.mark.parametrize("checked", [False, True])
    def test_a_mask_of_minus_the_largest_float32(self, checked: bool) -> None:
        network = in_memory(attention())
        result = convert_float16(network, check=[self.feeds] if checked else ())
        assert set(kept(result)) == {"invert", "mask_out", "add_mask", "softmax"}
        found = run_half(result.model, **self.feeds)[0]
        assert decibels(run(network, **self.feeds)[0], found) > 55
        if not checked:
            assert any("stands for minus infinity" in note and "-65504" in note for note in result.notes)

    def test_a_row_without_any_key_gives_no_nan(self) -> None:
        feeds = {**self.feeds, "keep": np.zeros((2, 1, 6), np.float32)}
        assert np.isfinite(run_half(to_float16(in_memory(attention())), **feeds)[0]).all()


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"keep_float": ["nowhere"]}, "'nowhere' finds no node"),
            ({"keep_float": ["("]}, "is no regular expression"),
            ({"margin": 0.5}, "margin must be ≥ 1, got 0.5"),
            ({"ranges": {"x": -1.0}}, r"range of tensor 'x' must be ≥ 0, got -1"),
            ({"ranges": {"x": math.nan}}, r"range of tensor 'x' must be ≥ 0, got nan"),
        ],
    )
    def test_options(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            convert_float16(in_memory(conv_relu_gemm()), **options)  # type: ignore[arg-type]

    def test_the_model_itself_is_not_overwritten(self, tmp_path: Path) -> None:
        path = save(conv_relu_gemm(), tmp_path / "m.onnx")
        with pytest.raises(UsageError, match="is the model itself"):
            convert_float16(path, out=path)

    def test_overflow_that_nothing_helps_against(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from calib.graph import half

        class Stubborn:
            overflows = ("c",)

        monkeypatch.setattr(half, "compare_half", lambda *_: Stubborn())
        with pytest.raises(ModelError, match=r"gives infinities on the samples, first in 'c'.*--keep-float"):
            convert_float16(in_memory(large_in_the_middle()), check=TestLargeValues.feeds)


@pytest.mark.parametrize(
    ("header", "method", "slack"),
    [
        ("MinMaxCalibration", None, 1.0),
        ("EntropyCalibration2", "its header says that it holds entropy ranges", 2048 / 128.5),
        ("LegacyCalibration", "holds legacy ranges: how far values exceed them is not known", 2048 / 128.5),
    ],
)
def test_what_a_cache_says_of_large_values(header: str, method: str | None, slack: float) -> None:
    from calib.graph.half_ranges import known_ranges

    known = known_ranges(CalibrationCache({"x": 10.0}, header))
    assert known.reach("x") == pytest.approx(1270 * slack)
    assert known.reach("y") is None
    assert (known.notes == ()) if method is None else (method in known.notes[0])


def test_large_model_object_is_not_changed() -> None:
    network = in_memory(conv_relu_gemm())
    before = network.proto.SerializeToString(deterministic=True)
    assert isinstance(to_float16(network), OnnxModel)
    assert network.proto.SerializeToString(deterministic=True) == before
