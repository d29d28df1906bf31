"""Layers that TensorRT 8.6 gets wrong: found in real engines, and built again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from engine_fakes import InstallTensorRT
from goldens import TENSORRT
from networks import model, node, save, weight

import calib
from calib.calibrators import CalibrationCache
from calib.engine import EngineLayer, EngineTensor, parse_layers, summarize_layers
from calib.engine.wrong_layers import find_wrong_layers
from calib.graph import quantize_model

REAL = json.loads(gzip.decompress((TENSORRT / "layers_and_answers.json.gz").read_bytes()))
DENSE = "sm80_xmma_fprop_avdt_dense_chw_int8int8_tilesize16x16_k32"
BLOCKS = "Thirty-two wide channel vectorized row major Int8 format"


@pytest.mark.parametrize("one", REAL, ids=[one["engine"] for one in REAL])
def test_a_real_engine_is_wrong_where_a_wrong_layer_is_found(one: dict[str, Any]) -> None:
    """TensorRT 8.6.0 on an H200: its layers, and how far its answers were from what they should be."""
    layers = parse_layers(json.dumps({"Layers": one["layers"]}))
    assert bool(find_wrong_layers(layers)) == (one["sqnr_db"] < 20)


def test_the_reasons_name_node_tensor_and_kernel() -> None:
    found = {
        one["engine"]: find_wrong_layers(parse_layers(json.dumps({"Layers": one["layers"]}))) for one in REAL
    }
    (dense,) = found["golden-new-int8"]
    assert dense.nodes[0] == "/e2/e2.0/Conv"
    assert str(dense).startswith(
        "'/e2/e2.0/Conv' takes its part of '/Concat_output_0_quantized' for a tensor without gaps, by the "
        "kernel sm80_xmma_fprop_avdt_dense_chw_int8int8"
    )
    # A reformat before the convolution, and the copies to the Concat.
    assert [str(wrong) for wrong in found["c2f16-new-best"]] == [
        f"{node!r} reads 16 channels of 'Split_output_0', which holds them in blocks of 32"
        for node in ("b.0/Conv", "Concat", "Concat")
    ]


def tensor(channels: int, layout: str = "", name: str = "c") -> EngineTensor:
    return EngineTensor(name, (1, channels, 8, 8), "INT8", layout)


X, Y = tensor(3, name="x"), tensor(8, name="y")


def layer(name: str, reads: EngineTensor, writes: EngineTensor, tactic: str = "") -> EngineLayer:
    return EngineLayer(name, "CaskConvolution", "INT8", inputs=(reads,), outputs=(writes,), tactic=tactic)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # The whole of a buffer, and other kernels on parts.
        ([layer("a", X, tensor(32), DENSE), layer("b", tensor(16), Y)], []),
        ([layer("a", X, tensor(32)), layer("b", tensor(16), Y, DENSE)], ["b"]),
        ([layer("a", X, tensor(16), DENSE), layer("b", tensor(32), Y)], ["a"]),
        # Half a block of what is written whole; a whole block; parts that are written as parts.
        ([layer("a", X, tensor(32)), layer("b", tensor(16, BLOCKS), Y)], ["b"]),
        ([layer("a", X, tensor(64)), layer("b", tensor(32, BLOCKS), Y)], []),
        ([layer("a", X, tensor(16)), layer("b", tensor(16, BLOCKS), Y)], []),
        # Parts of a Concat are not of one size; and half of the height, which begins with a block.
        ([layer("a", X, tensor(24)), layer("d", X, tensor(96)), layer("b", tensor(24, BLOCKS), Y)], []),
        ([layer("a", X, tensor(24)), layer("b", EngineTensor("c", (1, 24, 4, 8), "INT8", BLOCKS), Y)], []),
        # Sizes that only some layers tell, and a view of the same elements.
        ([layer("a", X, tensor(16)), layer("b", EngineTensor("c", (1, 16, -1, -1), "", ""), Y, DENSE)], []),
        ([layer("a", X, tensor(16)), layer("b", EngineTensor("c", (1, 8, 16, 8), "", ""), Y, DENSE)], []),
    ],
)  # fmt: skip
def test_parts_of_a_buffer(layers: list[EngineLayer], expected: list[str]) -> None:
    assert [wrong.layer for wrong in find_wrong_layers(layers)] == expected


def test_a_copy_is_for_the_nodes_that_read_it() -> None:
    (found,) = (one for one in REAL if one["engine"] == "c2f16-new-best")
    wrong = find_wrong_layers(parse_layers(json.dumps({"Layers": found["layers"]})))
    assert wrong[0].layer.startswith("Reformatting CopyNode for Input Tensor 0 to b.0")
    assert wrong[0].nodes == ("b.0/Conv", "b.2/Relu")
    copy = EngineLayer("copy", "Reformat", "INT8", inputs=(tensor(16, BLOCKS),), outputs=(Y,))
    (last,) = find_wrong_layers([layer("a", X, tensor(32)), copy])
    assert (last.nodes, str(last)[:12]) == ((), "'copy' reads")


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


def told(*wrong: str) -> str:
    """What the inspector says of an engine in which these nodes have a wrong kernel."""

    def entry(name: str, channels: int) -> dict[str, Any]:
        shape = {"Name": "cat", "Dimensions": [1, channels, 6, 6], "Format/Datatype": BLOCKS}
        kernel = DENSE if name in wrong else "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8"
        facts = {"Name": name, "LayerType": "CaskConvolution", "Inputs": [], "Outputs": [shape]}
        return {**facts, "TacticName": kernel, "Metadata": f"[ONNX Layer: {name}]"}

    return json.dumps({"Layers": [entry("first", 8), entry("second", 8), entry("whole", 16)]})


def cache_for(version: str = "8.6.0") -> CalibrationCache:
    return CalibrationCache(dict.fromkeys(("x", "a", "b", "cat", "y"), 0.02), version=version)


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


def test_what_stays_wrong_is_warned_of(install_tensorrt: InstallTensorRT, network: Path) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second")]
    record = build(network)
    assert len(trt.builds) == 2
    (warning,) = record.warnings
    assert warning.startswith("The engine computes something else: 'second' takes its part of 'cat'")
    assert "TensorRT 8.6.0 gets wrong. Build it at another --level" in warning


def test_a_model_with_qdq_nodes_is_built_as_it_is(
    install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path
) -> None:
    trt = install_tensorrt("8.6.0")
    trt.layers = [told("second")]
    calib.quantize(network, cache_for(), out=tmp_path / "q.onnx")
    record = calib.build(tmp_path / "q.onnx", precision="best").record
    assert len(trt.builds) == 1
    assert any("computes something else: 'second'" in text for text in record.warnings)


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
    assert any("its layers were not looked at" in note and "out of memory" in note for note in record.notes)


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
