"""An engine in a few figures, and why INT8 is no faster than FP16."""

from __future__ import annotations

import pytest
from goldens import NETS
from layer_answers import FP16, FP32, INT8, conv, golden, parsed, pointwise, reformat

from calib.calibrators import CalibrationCache
from calib.engine import explain_slower, summarize_layers
from calib.engine.engine_summary import NAMES_ALONE
from calib.graph import load_model


def test_a_real_engine() -> None:
    found = summarize_layers(
        golden("res.minmax"),
        model=load_model(NETS / "res.onnx"),
        scales=CalibrationCache.read(NETS / "res.minmax.cache"),
    )
    assert (found.layers, found.int8_layers, found.copies) == (15, 8, 1)
    assert found.int8_share == pytest.approx(8 / 15)
    assert found.by_precision == {"INT8": 8, "FP32": 7}
    assert sum(found.reasons.values()) == 7
    assert list(found.reasons.values()) == [4, 2, 1]
    assert (found.int8_time_share, found.copy_time_share, found.slowest, found.notes) == (None, None, (), ())


def test_shares_of_time() -> None:
    layers = parsed(
        reformat("in", FP32, INT8), conv("a", INT8, INT8), conv("b", INT8, FP16), conv("c", FP16, FP16)
    )
    times = {"in": 0.1, "a": 0.4, "b": 0.2, "c": 0.3, "of another engine": 9.0}
    found = summarize_layers(layers, times)
    assert found.int8_time_share == pytest.approx(0.6)
    assert found.copy_time_share == pytest.approx(0.1)
    assert [(name, kind) for name, kind, _ in found.slowest] == [
        ("a", "INT8"),
        ("c", "FP16"),
        ("b", "INT8"),
        ("in", "copy"),
    ]
    assert [share for *_, share in found.slowest] == pytest.approx([0.4, 0.3, 0.2, 0.1])


def test_the_five_slowest() -> None:
    layers = parsed(*(conv(f"c{number}", INT8, INT8) for number in range(7)))
    found = summarize_layers(layers, {f"c{number}": float(number) for number in range(7)})
    assert [name for name, *_ in found.slowest] == ["c6", "c5", "c4", "c3", "c2"]


def test_float_engines_need_no_reasons() -> None:
    model = load_model(NETS / "res.onnx")
    assert summarize_layers(golden("res.fp16"), model=model).reasons == {}


def test_an_int8_engine_without_int8_layers_has_reasons() -> None:
    """The build succeeds and says nothing: all 15 layers are float."""
    model, cache = load_model(NETS / "res.onnx"), CalibrationCache.read(NETS / "res.best_l3.cache")
    found = summarize_layers(golden("res.best_l3"), None, model, cache)
    assert (found.int8_layers, sum(found.reasons.values())) == (0, 15)


def test_times_of_another_engine_are_told() -> None:
    found = summarize_layers(golden("res.minmax"), {"conv": 1.0})
    assert found.int8_time_share is None
    assert found.notes == (
        "None of the times is of a layer of this engine: they are of another engine, or zero.",
    )


def test_another_model_is_told() -> None:
    found = summarize_layers(golden("res.minmax"), model=load_model(NETS / "unet.onnx"))
    (note,) = found.notes
    assert note.startswith(
        f"No layer names a node of {NETS / 'unet.onnx'}: the engine was built from another"
    )
    assert summarize_layers(golden("res.minmax"), model=load_model(NETS / "res.onnx")).notes == ()


def test_names_alone_are_told() -> None:
    found = summarize_layers(parsed("conv + relu", "Reformatting CopyNode for Input Tensor 0 to x"))
    assert (found.layers, found.copies, found.by_precision) == (1, 1, {"unknown": 1})
    assert found.notes == (NAMES_ALONE,)


def test_where_the_time_of_int8_goes() -> None:
    """1 ms: 0.30 reformats, 0.20 an unfused add, 0.15 float, 0.25 padded, 0.10 a plain INT8 layer."""
    wide = ((1, 64, 8, 8), (1, 48, 8, 8))
    int8 = parsed(
        reformat("r1", FP32, INT8),
        reformat("r2", INT8, FP16),
        pointwise("PWN(add)", INT8, FP16, ["add"]),
        conv("head", FP32, FP32),
        conv("odd", INT8, INT8, shapes=wide),
        conv("body", INT8, FP32),
    )
    times = {"r1": 0.2, "r2": 0.1, "PWN(add)": 0.2, "head": 0.15, "odd": 0.25, "body": 0.1}
    fp16 = parsed(reformat("r", FP32, FP16), conv("odd", FP16, FP16, shapes=wide), conv("body", FP16, FP16))
    found = explain_slower((int8, times), (fp16, {"r": 0.05, "odd": 0.15, "body": 0.12}))
    assert found == (
        "30% of the layers' time (0.3 ms) goes to 2 reformats changing the format or type between layers "
        "(0.05 ms in 1 in FP16).",
        "25% of the layers' time (0.25 ms) goes to 1 INT8 convolution whose channels are padded to a "
        "multiple of 32.",
        "20% of the layers' time (0.2 ms) goes to 1 elementwise layer which fused into no convolution: "
        "PWN(add).",
        "15% of the layers' time (0.15 ms) goes to 1 layer that stayed in float (1 in FP32: allow FP16 "
        "beside INT8).",
        "10% of the layers' time (0.1 ms) goes to 1 INT8 convolution writing float, for what reads float.",
        "1 of 2 INT8 layers take longer than the same nodes in FP16, by 0.1 ms in all; most of all odd: "
        "0.25 ms against 0.15 ms.",
    )


def test_fp16_is_advised_where_it_was_not_allowed() -> None:
    """An engine with an FP16 layer was allowed FP16, whatever stayed in FP32."""
    single = parsed(conv("a", INT8, INT8), conv("b", FP32, FP32))
    mixed = parsed(conv("a", INT8, INT8), conv("b", FP32, FP32), conv("c", FP16, FP16))
    (alone,) = explain_slower((single, {"a": 0.9, "b": 0.1}), ((), {}))
    assert "1 layer that stayed in float (1 in FP32: allow FP16 beside INT8)." in alone
    (beside,) = explain_slower((mixed, {"a": 0.8, "b": 0.1, "c": 0.1}), ((), {}))
    assert "2 layers that stayed in float (1 in FP32)." in beside


def test_little_is_left_out() -> None:
    layers = parsed(reformat("r", FP32, INT8), conv("c", INT8, INT8))
    assert explain_slower((layers, {"r": 0.01, "c": 0.99}), ((), {})) == ()
    assert len(explain_slower((layers, {"r": 0.02, "c": 0.98}), ((), {}))) == 1


def test_without_times_nothing_is_said() -> None:
    assert explain_slower((golden("res.minmax"), {}), (golden("res.fp16"), {})) == ()


def test_nodes_are_matched_between_real_engines() -> None:
    """Each layer of both engines is given 1 ms, but one INT8 layer 3 ms."""
    int8, fp16 = golden("res.minmax"), golden("res.fp16")
    times = {one.name: 1.0 for one in int8 if not one.free}
    times["/l/l.2/a/a.0/Conv + /l/l.2/a/a.2/Relu"] = 3.0
    found = explain_slower((int8, times), (fp16, {one.name: 1.0 for one in fp16}))
    assert (
        "1 of 8 INT8 layers take longer than the same nodes in FP16, by 2 ms in all; most of all "
        "/l/l.2/a/a.0/Conv + /l/l.2/a/a.2/Relu: 3 ms against 1 ms." in found
    )
