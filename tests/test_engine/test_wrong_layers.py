"""Layers that TensorRT 8.6 gets wrong: found in real engines, and built again."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fake_tensorrt
import pytest
from engine_fakes import InstallTensorRT
from goldens import TENSORRT
from networks import model, node, save, weight

import calib
from calib.calibrators import CalibrationCache
from calib.engine import EngineLayer, EngineTensor, parse_layers, summarize_layers
from calib.engine.wrong_layers import WrongLayer, find_wrong_layers
from calib.graph import quantize_model

REAL = json.loads(gzip.decompress((TENSORRT / "layers_and_answers.json.gz").read_bytes()))
DENSE = "sm80_xmma_fprop_avdt_dense_chw_int8int8_tilesize16x16_k32"
BLOCKS = "Thirty-two wide channel vectorized row major Int8 format"


def found_in(engine: str) -> tuple[WrongLayer, ...]:
    (one,) = (one for one in REAL if one["engine"] == engine)
    return find_wrong_layers(parse_layers(json.dumps({"Layers": one["layers"]})))


@pytest.mark.parametrize("one", REAL, ids=[one["engine"] for one in REAL])
def test_a_real_engine_is_wrong_where_a_wrong_layer_is_found(one: dict[str, Any]) -> None:
    """TensorRT 8.6.0 on an H200: its layers, and how far its answers were from what they should be."""
    found = found_in(one["engine"])
    if any(layer.sure for layer in found):
        assert one["sqnr_db"] < 20
    elif not found:
        assert one["sqnr_db"] > 20


def test_of_engines_with_the_same_layers_one_is_wrong() -> None:
    """Their plans differ in seven bytes: 0x20000 or 0x10000 between the samples of the copy, among them."""
    wrong, right = (one for one in REAL if one["engine"] in ("c2f16-copy-wrong", "c2f16-copy-right"))
    assert wrong["layers"] == right["layers"]
    assert (wrong["sqnr_db"], right["sqnr_db"]) == (-1.88, 70.25)
    (found,) = found_in("c2f16-copy-wrong")
    assert (found.nodes[0], found.sure) == ("b.0/Conv", False)


def test_the_reasons_name_node_tensor_and_kernel() -> None:
    (dense,) = found_in("golden-new-int8")
    assert dense.nodes[0] == "/e2/e2.0/Conv"
    assert str(dense).startswith(
        "'/e2/e2.0/Conv' takes its part of '/Concat_output_0_quantized' for a tensor without gaps, by the "
        "kernel sm80_xmma_fprop_avdt_dense_chw_int8int8"
    )
    (copy,) = found_in("c2f16-new-best")
    assert str(copy).startswith(
        "'b.0/Conv' takes a copy of its part of 'Split_output_0' for a tensor without gaps, by the kernel "
    )
    first, last = found_in("c2f16-two-dense")
    assert (first.nodes[0], first.sure, last.nodes[0], last.sure) == ("b.0/Conv", False, "d.0/Conv", True)


def tensor(channels: int, samples: int = 4, height: int = 8, name: str = "c") -> EngineTensor:
    return EngineTensor(name, (samples, channels, height, 8), "INT8", BLOCKS)


X, Y = tensor(3, name="x"), tensor(8, name="y")


def layer(name: str, reads: EngineTensor, writes: EngineTensor, tactic: str = "") -> EngineLayer:
    return EngineLayer(name, "CaskConvolution", "INT8", inputs=(reads,), outputs=(writes,), tactic=tactic)


def reformat(reads: EngineTensor, writes: EngineTensor, nodes: tuple[str, ...] = ()) -> EngineLayer:
    return EngineLayer("copy", "Reformat", "INT8", inputs=(reads,), outputs=(writes,), onnx_nodes=nodes)


HALF = tensor(16, name="half")


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # The whole of a buffer, and other kernels on parts.
        ([layer("a", X, tensor(32), DENSE), layer("b", tensor(16), Y)], []),
        ([layer("a", X, tensor(32)), layer("b", tensor(16), Y)], []),
        ([layer("a", X, tensor(32)), layer("b", tensor(16), Y, DENSE)], ["b"]),
        ([layer("a", X, tensor(16), DENSE), layer("b", tensor(32), Y)], ["a"]),
        # A part in one piece: of one sample, or whole samples. And one in pieces, of one sample as well.
        ([layer("a", X, tensor(32, 1)), layer("b", tensor(16, 1), Y, DENSE)], []),
        ([layer("a", X, tensor(32)), layer("b", tensor(32, 2), Y, DENSE)], []),
        ([layer("a", X, tensor(32, 1)), layer("b", tensor(32, 1, 4), Y, DENSE)], ["b"]),
        # A reformat that may leave the gaps in its copy, before and behind; a Concat's copy leaves none.
        ([layer("a", X, tensor(32)), reformat(tensor(16), HALF), layer("b", HALF, Y, DENSE)], ["b?"]),
        ([layer("a", X, HALF, DENSE), reformat(HALF, tensor(16)), layer("b", tensor(32), Y)], ["a?"]),
        ([layer("a", X, tensor(32)), reformat(tensor(16), HALF), layer("b", HALF, Y)], []),
        ([layer("a", X, HALF, DENSE), reformat(HALF, tensor(16), ("join",)), layer("b", tensor(32), Y)], []),
        # Sizes that only some layers tell, and a view of the same elements.
        ([layer("a", X, tensor(16)), layer("b", EngineTensor("c", (4, 16, -1, -1), "", ""), Y, DENSE)], []),
        ([layer("a", X, tensor(16)), layer("b", EngineTensor("c", (4, 8, 16, 8), "", ""), Y, DENSE)], []),
    ],
)
def test_parts_of_a_buffer(layers: list[EngineLayer], expected: list[str]) -> None:
    assert [f"{wrong.layer}{'' if wrong.sure else '?'}" for wrong in find_wrong_layers(layers)] == expected


def test_an_inspected_engine_says_so() -> None:
    parts = [layer("a", X, tensor(16), DENSE), layer("b", tensor(32), Y)]
    (note,) = (text for text in summarize_layers(parts).notes if "8.6.0" in text)
    assert note.startswith("'a' takes its part of 'c' for a tensor without gaps")


@pytest.fixture
def network(tmp_path: Path) -> Path:
    nodes = [
        node("Conv", ["x", "wa"], ["a"], name="first"),
        node("Conv", ["a", "wb"], ["b"], name="second"),
        node("Concat", ["a", "b"], ["cat"], name="join", axis=1),
        node("Conv", ["cat", "wc"], ["y"], name="third"),
    ]
    weights = {"wa": weight(8, 8, 1, 1), "wb": weight(8, 8, 1, 1, seed=1), "wc": weight(4, 16, 1, 1)}
    return save(model(nodes, {"x": [1, 8, 6, 6]}, {"y": [1, 4, 6, 6]}, weights), tmp_path / "net.onnx")


def chain(names: list[str], folder: Path) -> Path:
    """Convolutions in a row, which write a, b, c …"""
    made = "abcdefghi"[: len(names) - 1]
    nodes = [
        node("Conv", [read, "w"], [write], name=name)
        for name, read, write in zip(names, f"x{made}", f"{made}y", strict=True)
    ]
    proto = model(nodes, {"x": [1, 8, 6, 6]}, {"y": [1, 8, 6, 6]}, {"w": weight(8, 8, 1, 1)})
    return save(proto, folder / "chain.onnx")


def told(*wrong: str, among: Sequence[str] = ("first", "second")) -> str:
    """What the inspector says of an engine in which these nodes have a wrong kernel."""

    def entry(name: str, channels: int) -> dict[str, Any]:
        shape = {"Name": "cat", "Dimensions": [4, channels, 6, 6], "Format/Datatype": BLOCKS}
        kernel = DENSE if name in wrong else "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8"
        facts = {"Name": name, "LayerType": "CaskConvolution", "Inputs": [], "Outputs": [shape]}
        return {**facts, "TacticName": kernel, "Metadata": f"[ONNX Layer: {name}]"}

    return json.dumps({"Layers": [*(entry(name, 8) for name in among), entry("whole", 16)]})


def cache_for(version: str = "8.6.0") -> CalibrationCache:
    return CalibrationCache(dict.fromkeys(("x", *"abcdefghi", "cat", "y"), 0.02), version=version)


def build(network: Path, route: str = "implicit", version: str = "8.6.0", **options: Any) -> Any:
    options = {"precision": "best", "route": route, "cache": cache_for(version), **options}
    return calib.build(network, **options).record


def test_it_is_built_again_with_the_node_in_float(install_tensorrt: InstallTensorRT, network: Path) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second"), told()]
    record = build(network)
    assert [one["bound"] for one in trt.builds] == [{}, {"second": "HALF"}]
    (note,) = (text for text in record.notes if "built again" in text)
    assert note.startswith(
        "built again with second in float: in INT8 it takes its part of 'cat' for a tensor"
    )
    assert record.warnings == ()


def test_the_explicit_route_places_no_pairs_on_it(install_tensorrt: InstallTensorRT, network: Path) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second"), told()]
    record = build(network, "explicit")
    # On x, a and cat, of which the second node alone is quantized for a.
    assert [one["pairs"] for one in trt.builds] == [3, 2]
    assert any("built again with second in float" in text for text in record.notes)
    # What is said of the engine is said of the last one.
    assert "2 activations quantized by Q/DQ nodes, in the form for tensorrt-8.6" in record.notes
    assert "1 quantizable node in float: second (wrong in INT8)" in record.notes


def test_as_often_as_it_takes(install_tensorrt: InstallTensorRT, network: Path) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second"), told("first"), told()]
    record = build(network, keep_float=["^third$"], precision="int8")
    assert [sorted(one["bound"]) for one in trt.builds] == [
        ["third"],
        ["second", "third"],
        ["first", "second", "third"],
    ]
    assert set(trt.builds[-1]["bound"].values()) == {"FLOAT"}
    assert sum("built again" in text for text in record.notes) == 2


@pytest.mark.parametrize(("at_once", "builds"), [(1, 6), (3, 4)])
def test_builds_are_counted_and_not_nodes(
    install_tensorrt: InstallTensorRT, tmp_path: Path, at_once: int, builds: int
) -> None:
    trt = install_tensorrt("8.6.0")
    names = [f"n{index}" for index in range(9)]
    trt.layers = [told(*names[i : i + at_once], among=names) for i in range(0, 9, at_once)] + [told()]
    record = build(chain(names, tmp_path))
    assert len(trt.builds) == builds
    assert len(trt.builds[-1]["bound"]) == min(9, at_once * (builds - 1))
    assert bool(record.warnings) == (at_once == 1)


@pytest.mark.parametrize("route", ["implicit", "explicit"])
@pytest.mark.parametrize("name", ["", "/a.0/b[1] (c|d)+^$"])
def test_nodes_of_any_name(install_tensorrt: InstallTensorRT, tmp_path: Path, name: str, route: str) -> None:
    trt = install_tensorrt("8.6.0")
    called = name or "node_of_b"
    trt.layers = [told(called, among=[called]), told()]
    record = build(chain(["a", name, "c"], tmp_path), route)
    assert sum("built again with" in text for text in record.notes) == 1
    if route == "implicit":
        assert trt.builds[-1]["bound"] == {called: "HALF"}
    else:
        assert [one["pairs"] for one in trt.builds] == [3, 2]
        assert f"1 quantizable node in float: {name or 'b'} (wrong in INT8)" in record.notes


def test_what_stays_wrong_is_warned_of(install_tensorrt: InstallTensorRT, network: Path) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second")]
    record = build(network)
    assert len(trt.builds) == 2
    (warning,) = record.warnings
    assert warning.startswith("The engine computes something else: 'second' takes its part of 'cat'")
    # That the node is in float was of no use.
    assert warning.endswith("TensorRT 8.6.0 gets wrong. Build it at another --level.")


def refuse_float(builder: Any, network: Any, config: Any) -> str | None:
    kept = [layer.name for layer in network.layers if layer.precision]
    return f"Could not find any implementation for node {kept[0]}" if kept else None


def test_an_engine_is_kept_where_it_cannot_be_built_again(
    install_tensorrt: InstallTensorRT, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers, trt.says = [told("second")], [("WARNING", "of the builder")]
    monkeypatch.setattr(fake_tensorrt._Builder, "_refusal", refuse_float)
    record = build(network)
    assert (len(trt.builds), record.plan_bytes > 0) == (1, True)
    (note,) = (text for text in record.notes if "built again" in text)
    assert note.startswith("not built again with second in float: TensorRT 8.6.0 cannot build")
    assert "any implementation for node second" in note
    assert "\n" not in note
    # The worst comes first.
    assert record.warnings[0].startswith("The engine computes something else: 'second'")
    assert "keep the node in float (--keep-float" in record.warnings[0]
    assert record.warnings[1:] == ("of the builder",)


def test_a_node_that_is_all_there_is_to_quantize(install_tensorrt: InstallTensorRT, tmp_path: Path) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("one", among=["one"])]
    record = build(chain(["one"], tmp_path), "explicit")
    assert len(trt.builds) == 1
    assert any("not built again with one in float: Nothing in" in text for text in record.notes)
    assert any("computes something else: 'one'" in text for text in record.warnings)


def test_a_node_of_which_the_network_has_no_layer(
    install_tensorrt: InstallTensorRT, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second")]
    monkeypatch.setattr(fake_tensorrt, "_layers", lambda graph, trt: iter(()))
    record = build(network)
    assert any("not built again with second in float: no layer of" in text for text in record.notes)


def test_a_model_with_qdq_nodes_is_built_as_it_is(
    install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path
) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second")]
    calib.quantize(network, cache_for(), out=tmp_path / "q.onnx")
    record = calib.build(tmp_path / "q.onnx", precision="best").record
    assert len(trt.builds) == 1
    (warning,) = (text for text in record.warnings if "computes something else: 'second'" in text)
    assert warning.endswith("(--keep-float; of calib quantize, where the model has Q/DQ nodes).")


def test_what_is_sometimes_wrong_is_told_so(install_tensorrt: InstallTensorRT, network: Path) -> None:
    (real,) = (one for one in REAL if one["engine"] == "c2f16-copy-right")
    trt = install_tensorrt("8.6.0")
    trt.layers = [json.dumps({"Layers": real["layers"]})]
    record = build(network)
    (warning,) = (text for text in record.warnings if "something else" in text)
    assert warning.startswith(
        "The engine may compute something else: 'b.0/Conv' takes a copy of its part of "
    )
    assert "which TensorRT 8.6.0 sometimes gets wrong. calib validate --runner tensorrt compares" in warning


@pytest.mark.parametrize(
    ("version", "options"),
    [("10.3.0", {}), ("8.6.0", {"precision": "fp16", "route": "auto", "cache": None})],
)
def test_others_are_not_looked_at(
    install_tensorrt: InstallTensorRT, network: Path, version: str, options: dict[str, Any]
) -> None:
    trt = install_tensorrt(version)
    trt.layers = [told("second")]
    record = build(network, **{"version": version, "route": "implicit", **options})
    assert len(trt.builds) == 1
    assert record.warnings == ()


def test_an_engine_that_cannot_be_loaded_is_told(install_tensorrt: InstallTensorRT, network: Path) -> None:
    trt = install_tensorrt("8.6.0")
    trt.loads = False
    record = build(network)
    (note,) = (text for text in record.notes if text.startswith("its layers were not looked at: "))
    assert "cannot load the engine of " in note
    assert "(the engine just built). TensorRT says: out of memory" in note


@pytest.mark.parametrize(
    ("error", "reason"),
    [(RuntimeError("bad\n  context"), "bad context"), (MemoryError(), "MemoryError"), (None, "says nothing")],
)
def test_no_built_engine_is_lost_to_the_look_at_it(
    install_tensorrt: InstallTensorRT,
    network: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    reason: str,
) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second")]

    def tell(inspector: Any, form: Any) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(fake_tensorrt._Inspector, "get_engine_information", tell)
    record = build(network)
    (note,) = (text for text in record.notes if text.startswith("its layers were not looked at: "))
    assert reason in note
    assert len(trt.builds) == 1


@pytest.mark.parametrize(("refused", "said"), [(False, "timings from "), (True, "timing cache ")])
def test_timings_are_told_of_once(
    install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path, refused: bool, said: str
) -> None:
    for expected in (0, 1):
        trt = install_tensorrt("8.6.0")
        trt.layers = [told("second"), told("first"), told()]
        trt.refuse_timing = refused
        # The fake takes timings that it calls new.
        kept = tmp_path / "kept.nvidia-h200-sm90-trt8.6.0.timing"
        if expected:
            kept.write_bytes(b"of another day")
        record = build(network, timing_cache=tmp_path / "kept.timing")
        assert len(trt.builds) == 3
        # Those that the first of the builds left are no news.
        assert [text.startswith(said) for text in record.notes if "timing" in text] == [True] * expected


def test_the_engine_that_was_built_again_is_kept(
    install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path
) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second"), told()]
    first = build(network, engine_cache=tmp_path / "engines")
    assert build(network, engine_cache=tmp_path / "engines").plan_sha256 == first.plan_sha256
    assert len(trt.builds) == 2


def test_no_pair_stands_on_a_node_in_float() -> None:
    """What the second build of the explicit route is given."""
    nodes = [node("Conv", ["x", "wa"], ["a"], name="a/b.0"), node("Conv", ["a", "wb"], ["y"], name="a/b_0")]
    weights = {"wa": weight(8, 8, 1, 1), "wb": weight(8, 8, 1, 1, seed=1)}
    proto = model(nodes, {"x": [1, 8, 6, 6]}, {"y": [1, 8, 6, 6]}, weights)
    from calib.graph import OnnxModel

    result = quantize_model(OnnxModel(Path("m.onnx"), proto), {"x": 0.02, "a": 0.02}, [r"^a/b\.0$"])
    assert [pair.readers for pair in result.activations] == [("a/b_0",)]
