"""``calib.build`` on fakes of TensorRT 8.6, 10 and 11: what the builder is told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_tensorrt
import pytest
from engine_fakes import TENSORS, InstallTensorRT
from networks import conv_relu_gemm, model, node, save, weight

import calib
from calib.calibrators import CalibrationCache
from calib.errors import (
    CacheError,
    CalibrationError,
    EngineError,
    ModelError,
    OutputError,
    UsageError,
)
from calib.graph import load_model, quantize

EXPLICIT_BATCH = 1
RELEASES = ("8.6.0", "10.16.1.11", "11.4.0.106")


@pytest.mark.parametrize("version", RELEASES)
def test_fp32(install_tensorrt: InstallTensorRT, network: Path, version: str) -> None:
    trt = install_tensorrt(version)
    engine = calib.build(network)
    (told,) = trt.builds
    assert told["network_flags"] == {"8": EXPLICIT_BATCH, "10": EXPLICIT_BATCH}.get(version.split(".")[0], 1)
    assert told["flags"] == []  # TF32, which is on by default, was cleared
    assert told["shapes"] == {"x": ((1, 3, 8, 8), (8, 3, 8, 8), (32, 3, 8, 8))}
    assert told["verbosity"] == "DETAILED"
    assert not told["calibrated"]
    record = engine.record
    assert (record.precision, record.route, record.flavour) == ("fp32", "float", "tensorrt")
    assert (record.tensorrt, record.device, record.compute_capability) == (version, "NVIDIA H200", (9, 0))
    assert record.plan_bytes == len(engine.plan) > 0
    assert engine.path is None
    assert not record.from_cache


@pytest.mark.parametrize("version", RELEASES[:2])
@pytest.mark.parametrize(
    ("precision", "flags"), [("fp16", ["FP16"]), ("int8", ["INT8"]), ("best", ["FP16", "INT8"])]
)
def test_flags_where_there_are_some(
    install_tensorrt: InstallTensorRT, network: Path, version: str, precision: str, flags: list[str]
) -> None:
    trt = install_tensorrt(version)
    scales = CalibrationCache(dict.fromkeys(TENSORS, 0.02), version=version)
    engine = calib.build(network, precision=precision, cache=None if precision == "fp16" else scales)
    (told,) = trt.builds
    assert told["flags"] == flags
    assert not told["qdq"]
    implicit = precision != "fp16"
    assert told["calibrated"] is implicit
    assert told["calibration_shapes"] == (told["shapes"] if implicit else None)
    assert engine.record.route == ("implicit INT8" if implicit else "float")
    assert any("runs in FP32" in note for note in engine.record.notes) is (precision == "int8")


@pytest.mark.parametrize("version", RELEASES)
def test_the_explicit_route_builds_from_nodes(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path, version: str
) -> None:
    trt = install_tensorrt(version)
    engine = calib.build(network, precision="int8", cache=cache, route="explicit")
    (told,) = trt.builds
    assert told["qdq"]
    assert not told["calibrated"]
    assert told["flags"] == (["INT8"] if version != RELEASES[2] else [])
    assert engine.record.route == "explicit INT8"
    target = {"8": "tensorrt-8.6", "10": "tensorrt-10", "11": "tensorrt-11"}[version.split(".")[0]]
    assert any(
        note.endswith(f"quantized by Q/DQ nodes, in the form for {target}") for note in engine.record.notes
    )


def test_without_calibrators_auto_is_explicit(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path
) -> None:
    trt = install_tensorrt("11.4.0")
    assert calib.build(network, precision="int8", cache=cache).record.route == "explicit INT8"
    assert trt.builds[0]["qdq"]
    with pytest.raises(EngineError, match=r"TensorRT 11\.4\.0 has no calibrators.*Use --route explicit"):
        calib.build(network, precision="int8", cache=cache, route="implicit")


def test_a_model_with_nodes_is_built_as_it_is(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path, tmp_path: Path
) -> None:
    trt = install_tensorrt("8.6.0")
    quantize(network, cache, out=tmp_path / "qdq.onnx")
    record = calib.build(tmp_path / "qdq.onnx", precision="best").record
    assert record.route == "explicit INT8"
    assert (trt.builds[0]["flags"], trt.builds[0]["qdq"]) == (["FP16", "INT8"], True)
    for options, error, message in (
        ({"precision": "int8", "cache": cache}, ModelError, "already has .* whose scales count"),
        (
            {"precision": "int8", "keep_float": ["conv1"]},
            ModelError,
            "already has .* --keep-float is of no use",
        ),
        (
            {"precision": "int8", "route": "implicit"},
            UsageError,
            "has Q/DQ nodes, which is the explicit route",
        ),
        ({"precision": "fp32"}, UsageError, "has .* which run in INT8: pass --precision int8 or best"),
    ):
        with pytest.raises(error, match=message):
            calib.build(tmp_path / "qdq.onnx", **options)


def test_options_reach_the_builder(install_tensorrt: InstallTensorRT, network: Path) -> None:
    trt = install_tensorrt("8.6.0")
    calib.build(
        network,
        shapes=["x:2x3x8x8"],
        level=0,
        workspace_mib=256,
        tf32=True,
        version_compatible=True,
        hardware_compatible=True,
    )
    (told,) = trt.builds
    assert told["flags"] == ["TF32", "VERSION_COMPATIBLE"]
    assert told["level"] == 0
    assert told["pools"] == {"WORKSPACE": 256 << 20}
    assert told["hardware"] == "AMPERE_PLUS"
    assert told["shapes"] == {"x": ((2, 3, 8, 8),) * 3}


@pytest.mark.parametrize(
    ("precision", "kind", "others"),
    [("int8", "FLOAT", "FP32"), ("best", "HALF", "FP16"), ("fp16", "FLOAT", "FP32")],
)
def test_layers_are_kept_float(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path, precision: str, kind: str, others: str
) -> None:
    trt = install_tensorrt("8.6.0")
    options = {"precision": precision, "cache": None if precision == "fp16" else cache}
    record = calib.build(network, keep_float=["^conv1$", "^y$"], **options).record  # type: ignore[arg-type]
    (told,) = trt.builds
    assert told["bound"] == {"conv1": kind, "fc": kind}
    assert "OBEY_PRECISION_CONSTRAINTS" in told["flags"]
    assert f"2 layers kept in {others} by --keep-float" in record.notes
    for pattern, message in (("conv7", "'conv7' finds no layer"), ("(", r"'\(' is no regular expression")):
        with pytest.raises(UsageError, match=message):
            calib.build(network, keep_float=[pattern], **options)  # type: ignore[arg-type]


def test_all_layers_of_a_node_are_kept_float(install_tensorrt: InstallTensorRT, tmp_path: Path) -> None:
    """TensorRT 8.6's parser gives a node's name to the first of its layers, which may be a shuffle."""
    trt = install_tensorrt("8.6.0")
    nodes = [node("Conv", ["x", "w"], ["a"], name="flat"), node("Relu", ["a"], ["y"])]
    proto = model(nodes, {"x": [1, 8, 6]}, {"y": [1, 8, 6]}, {"w": weight(8, 8, 1)})
    calib.build(save(proto, tmp_path / "flat.onnx"), precision="fp16", keep_float=["^flat$", "^y$"])
    assert trt.builds[0]["bound"] == dict.fromkeys(("flat", "flat_0", "flat_1", "node_of_y"), "FLOAT")


def test_what_never_is_int8_cannot_be_kept_float(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_tensorrt("8.6.0")
    made = fake_tensorrt._layers

    def with_sizes(graph: Any, trt: Any) -> Iterator[Any]:
        yield from made(graph, trt)
        sizes = fake_tensorrt._Layer("sizes before conv1", trt.LayerType.SHUFFLE, [], ["s"], trt)
        sizes.outputs[0].dtype = trt.DataType.INT32
        yield sizes

    monkeypatch.setattr(fake_tensorrt, "_layers", with_sizes)
    with pytest.raises(UsageError, match="'sizes' finds sizes before conv1 alone: constants"):
        calib.build(network, precision="int8", cache=cache, keep_float=["sizes"])
    # With a layer beside them, they are passed over.
    record = calib.build(network, precision="int8", cache=cache, keep_float=["conv1"]).record
    assert "1 layer kept in FP32 by --keep-float" in record.notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int4"}, "--precision must be one of fp32, fp16, int8, best, got 'int4'"),
        (
            {"precision": "int8", "route": "both"},
            "--route must be one of auto, implicit, explicit, got 'both'",
        ),
        ({"level": 6}, "--level must be 0 to 5, got 6"),
        ({"workspace_mib": 0}, "--workspace must be at least 1 MiB, got 0"),
        ({"device": -1}, "--device must be 0 or higher, got -1"),
        ({"flavour": "rtx"}, "--flavour must be one of tensorrt, tensorrt_rtx, got 'rtx'"),
        ({"route": "explicit"}, "--route explicit is for --precision int8 or best, not fp32"),
        ({"keep_float": ["c"]}, "--keep-float is for --precision fp16, int8 or best: with fp32 all is float"),
        ({"compute_capability": (8, 6)}, "--compute-capability is for TensorRT-RTX"),
        ({"precision": "int8"}, r"needs the ranges of net.onnx: pass --cache MODEL.cache .*calib calibrate"),
        ({"precision": "fp32", "cache": True}, "--precision fp32 uses no calibration cache"),
        ({"precision": "fp16", "cache": True}, "--precision fp16 uses no calibration cache"),
    ],
)
def test_options_that_cannot_be_meant(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path, options: dict[str, Any], message: str
) -> None:
    install_tensorrt("8.6.0")
    if "cache" in options:
        options = {**options, "cache": cache}
    with pytest.raises(UsageError, match=message):
        calib.build(network, **options)


def test_the_cache_must_be_for_this_release(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path
) -> None:
    """TensorRT ignores such a cache and then calibrates without data."""
    trt = install_tensorrt("10.3.0")
    with pytest.raises(
        CacheError, match=r"net\.cache is headed for TensorRT 8\.6\.0, but this is TensorRT 10\.3\.0"
    ) as e:
        calib.build(network, precision="int8", cache=cache)
    assert trt.builds == []
    # The command that the message gives makes the cache fit.
    command = re.search(r"calib cache convert (\S+) OUT\.cache --tensorrt 10\.3\.0", str(e.value))
    assert command is not None
    assert command[1] == str(cache)
    fitting = CalibrationCache.read(cache).replaced(version="10.3.0")
    assert calib.build(network, precision="int8", cache=fitting).record.route == "implicit INT8"
    # Nodes have no header.
    assert calib.build(network, precision="int8", cache=cache, route="explicit").record.cache_sha256


def test_a_cache_of_the_legacy_calibrator_names_no_version(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path
) -> None:
    install_tensorrt("8.6.0")
    rows = cache.read_text().partition("\n")[2]
    cache.write_text(f"0 3ff0000000000000 3fefff2e48e8a71e\n{rows}")
    assert calib.build(network, precision="int8", cache=cache).record.route == "implicit INT8"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("TRT-8XXX-EntropyCalibration2", r"of no version \(TRT-8XXX-EntropyCalibration2\)"),
        ("TRT-8601-EntropyCalibration2", r"for TensorRT 8\.6\.1, but this is TensorRT 8\.6\.0"),
        (
            "TRT-8600-PercentileCalibration",
            "algorithm 'PercentileCalibration', for which TensorRT has no calibrator",
        ),
    ],
)
def test_headers_that_tensorrt_does_not_read(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path, header: str, message: str
) -> None:
    install_tensorrt("8.6.0")
    cache.write_text(cache.read_text().replace("TRT-8600-EntropyCalibration2", header))
    with pytest.raises(CacheError, match=message):
        calib.build(network, precision="int8", cache=cache)


def test_the_cache_of_another_model(install_tensorrt: InstallTensorRT, network: Path) -> None:
    install_tensorrt("8.6.0")
    other = CalibrationCache({"images": 0.1, "conv": 0.2})
    with pytest.raises(CacheError, match="belongs to another model: none of its 2 entries names"):
        calib.build(network, precision="int8", cache=other)


def test_how_the_cache_fits_is_told(install_tensorrt: InstallTensorRT, network: Path) -> None:
    install_tensorrt("8.6.0")
    partly = CalibrationCache({"x": 0.1, "c1": 0.0, "stranger": 0.3})
    notes = calib.build(network, precision="best", cache=partly).record.notes
    assert any("2 matched, 1 only in the cache, 7 only in the model" in note for note in notes)
    assert "1 entry holds a scale that INT8 cannot use: c1" in notes
    assert "Entries that name nothing in the model: stranger." in notes


def test_what_an_explicit_engine_leaves_in_float_is_told(
    install_tensorrt: InstallTensorRT, network: Path
) -> None:
    install_tensorrt("11.1.0")
    notes = calib.build(network, precision="int8", cache=CalibrationCache({"x": 0.1, "p1": 0.0})).record.notes
    (told,) = (note for note in notes if "in float:" in note)
    assert told == (
        "2 quantizable nodes in float: conv2 (the scale of its input 'p1' is zero); "
        "fc (no scale for its input 'f')"
    )


class Native:
    """A calibrator with data."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.asked, self.used, self.failure = 0, 0, failure
        self.shapes: dict[str, tuple[int, ...]] = {}

    def read_calibration_cache(self) -> None:
        return None

    def get_batch(self, names: list[str]) -> list[int] | None:
        self.asked += 1
        if self.asked > 3 or self.failure is not None:
            return None
        self.used += 1
        return [4096]


def test_a_calibrator_with_data(install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path) -> None:
    trt = install_tensorrt("8.6.0")
    record = calib.build(network, precision="int8", calibrator=Native(), engine_cache=tmp_path / "e").record
    assert trt.builds[0]["calibrated"]
    assert "TensorRT asked for 4 batches and got 3" in record.notes
    assert record.key == ""
    assert "not kept in the engine cache: a calibrator's data have no hash" in record.notes
    assert not (tmp_path / "e").exists()


def test_what_a_calibrator_raised_fails_the_build(install_tensorrt: InstallTensorRT, network: Path) -> None:
    install_tensorrt("8.6.0")
    broken = Native(CalibrationError("sample 'cat.png' has 1 channel"))
    with pytest.raises(CalibrationError, match=r"sample 'cat\.png' has 1 channel"):
        calib.build(network, precision="int8", calibrator=broken)
    with pytest.raises(CalibrationError, match=r"The calibrator failed during the build: KeyError\(7\)"):
        calib.build(network, precision="int8", calibrator=Native(KeyError(7)))
    with pytest.raises(KeyboardInterrupt):
        calib.build(network, precision="int8", calibrator=Native(KeyboardInterrupt()))


def test_calibration_runs_with_the_shapes_of_the_batches(
    install_tensorrt: InstallTensorRT, network: Path
) -> None:
    trt = install_tensorrt("8.6.0")
    native = Native()
    native.shapes = {"x": (4, 3, 8, 8)}
    calib.build(network, precision="int8", calibrator=native)
    assert trt.builds[0]["calibration_shapes"] == {"x": ((4, 3, 8, 8),) * 3}
    assert trt.builds[0]["shapes"] == {"x": ((1, 3, 8, 8), (8, 3, 8, 8), (32, 3, 8, 8))}


def test_a_calibrator_excludes_a_cache_and_nodes(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path
) -> None:
    install_tensorrt("8.6.0")
    with pytest.raises(UsageError, match="Pass a cache or a calibrator, not both"):
        calib.build(network, precision="int8", cache=cache, calibrator=Native())
    with pytest.raises(UsageError, match="A calibrator of TensorRT works on the implicit route alone"):
        calib.build(network, precision="int8", route="explicit", calibrator=Native())


def test_a_cache_that_tensorrt_did_not_take(
    install_tensorrt: InstallTensorRT, network: Path, cache: Path
) -> None:
    install_tensorrt("8.6.0").refuse_cache = True
    with pytest.raises(EngineError, match=r"TensorRT 8\.6\.0 did not take the calibration cache \(TRT-8600-"):
        calib.build(network, precision="int8", cache=cache)


def test_the_cache_is_completed_for_helper_layers(install_tensorrt: InstallTensorRT, network: Path) -> None:
    trt = install_tensorrt("8.6.0")
    partly = CalibrationCache({"x": 0.1, "c1": 0.2, "f": 0.3})
    record = calib.build(network, precision="int8", cache=partly).record
    helper = "(Unnamed Layer* 7) [Shuffle]_output"
    # Tensors of the model that have no row get none: r1, p1 and the others.
    assert trt.builds[0]["rows"] == ["x", "c1", "f", helper]
    assert f"1 row for helper layers added: {helper}" in record.notes


def test_missing_scales_are_counted(install_tensorrt: InstallTensorRT, network: Path, cache: Path) -> None:
    trt = install_tensorrt("8.6.0")
    missing = "Missing scale and zero-point for tensor {}, expect fall back to non-int8 implementation"
    trt.says = [("WARNING", missing.format(name)) for name in ("a:0", "b")] + [("WARNING", "TF32 is off")] * 2
    record = calib.build(network, precision="int8", cache=cache).record
    assert record.warnings == ("TF32 is off",)
    assert any(
        note.startswith("2 tensors have no usable scale") and note.endswith("a:0, b") for note in record.notes
    )


def test_files_are_written_together(install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path) -> None:
    install_tensorrt("8.6.0")
    engine = calib.build(network, out=tmp_path / "out" / "net.engine")
    assert engine.path == tmp_path / "out" / "net.engine"
    assert engine.path.read_bytes() == engine.plan
    record = json.loads((tmp_path / "out" / "net.engine.json").read_text())
    assert (record["schema"], record["precision"], record["model"]) == (1, "fp32", "net.onnx")
    with pytest.raises(UsageError, match="is the model itself"):
        calib.build(network, out=network)
    with pytest.raises(OutputError, match="it is a folder"):
        calib.build(network, out=tmp_path)


def test_nothing_is_written_where_the_build_fails(
    install_tensorrt: InstallTensorRT, network: Path, tmp_path: Path
) -> None:
    install_tensorrt("8.6.0").fails_with = [("ERROR", "no")]
    with pytest.raises(EngineError):
        calib.build(network, out=tmp_path / "net.engine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx"]


def test_weights_in_a_file_of_their_own(install_tensorrt: InstallTensorRT, tmp_path: Path) -> None:
    import onnx

    trt = install_tensorrt("8.6.0")
    path = tmp_path / "net.onnx"
    onnx.save(conv_relu_gemm(), path, save_as_external_data=True, location="net.data", size_threshold=0)
    first = calib.build(path)
    assert trt.builds[0]["source"] == "file"
    data = bytearray((tmp_path / "net.data").read_bytes())
    data[0] ^= 1
    (tmp_path / "net.data").write_bytes(data)
    second = calib.build(path)
    assert first.record.model_sha256 == second.record.model_sha256
    assert first.record.key != second.record.key
    # A model that was read before is its own: its file may be another by now.
    calib.build(load_model(path))
    assert trt.builds[2]["source"] == "bytes"


def test_a_scalar_input_needs_no_shape(install_tensorrt: InstallTensorRT, tmp_path: Path) -> None:
    trt = install_tensorrt("8.6.0")
    proto = model(
        [node("Mul", ["x", "s"], ["a"]), node("MatMul", ["a", "w"], ["y"])],
        {"x": [2, 4], "s": []},
        {"y": [2, 3]},
        {"w": weight(4, 3)},
    )
    calib.build(save(proto, tmp_path / "scalar.onnx"))
    assert trt.builds[0]["shapes"] == {"x": ((2, 4),) * 3}


def test_what_tensorrt_says_of_weights_is_one_warning(
    install_tensorrt: InstallTensorRT, network: Path
) -> None:
    """8.6 says it in five lines, of which the last two make no sense alone."""
    trt = install_tensorrt("8.6.0")
    head = "TensorRT encountered issues when converting weights between types and that could affect accuracy."
    trt.says = [
        ("WARNING", head),
        ("WARNING", "Check verbose logs for the list of affected weights."),
        ("WARNING", "- 16 weights are affected by this issue: Detected subnormal FP16 values."),
        ("WARNING", "- 4 weights are affected by this issue: Detected values that became zero."),
    ]
    assert calib.build(network, precision="fp16").record.warnings == (
        f"{head[:-1]}; 16 weights are affected by this issue: Detected subnormal FP16 values; "
        "4 weights are affected by this issue: Detected values that became zero.",
        "Check verbose logs for the list of affected weights.",
    )
