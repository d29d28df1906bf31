"""Transposed convolutions in INT8 engines, by release: float before TensorRT 10, on both routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_fakes import InstallTensorRT
from networks import model, node, save, weight

import calib
from calib.calibrators import CalibrationCache
from calib.engine.faults import find_hints
from calib.errors import UsageError


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    proto = model(
        [
            node("Conv", ["x", "wa"], ["a"], name="before"),
            node("ConvTranspose", ["a", "wu"], ["u"], name="up", strides=[2, 2]),
            node("Conv", ["u", "wy"], ["y"], name="behind"),
        ],
        {"x": ["n", 8, 6, 6]},
        {"y": ["n", 4, 12, 12]},
        {"wa": weight(8, 8, 1, 1), "wu": weight(8, 8, 2, 2), "wy": weight(4, 8, 1, 1)},
    )
    return save(proto, tmp_path / "decoder.onnx")


def cache_for(version: str) -> CalibrationCache:
    return CalibrationCache(dict.fromkeys("xauy", 0.02), version=version)


@pytest.mark.parametrize(
    ("version", "precision", "chosen", "bound"),
    [
        ("8.6.0", "best", "auto", {"up": "HALF"}),
        ("8.6.0", "int8", "auto", {"up": "FLOAT"}),
        ("8.6.0", "best", "int8", {}),
        ("10.3.0", "best", "auto", {}),
        ("10.3.0", "best", "float", {"up": "HALF"}),
    ],
)
def test_on_the_implicit_route_they_are_bound(
    install_tensorrt: InstallTensorRT,
    decoder: Path,
    version: str,
    precision: str,
    chosen: str,
    bound: dict[str, str],
) -> None:
    trt = install_tensorrt(version)
    engine = calib.build(
        decoder, precision=precision, route="implicit", cache=cache_for(version), conv_transpose=chosen
    )
    (told,) = trt.builds
    assert told["bound"] == bound
    assert ("OBEY_PRECISION_CONSTRAINTS" in told["flags"]) == bool(bound)
    notes = [note for note in engine.record.notes if "transposed" in note]
    assert [note[:34] for note in notes] == ["1 transposed convolution kept in F"] * bool(bound)


@pytest.mark.parametrize(
    ("version", "chosen", "in_float"),
    [("8.6.0", "auto", True), ("8.6.0", "int8", False), ("10.3.0", "auto", False), ("10.3.0", "float", True)],
)
def test_on_the_explicit_route_their_weights_have_no_pair(
    install_tensorrt: InstallTensorRT, decoder: Path, version: str, chosen: str, in_float: bool
) -> None:
    install_tensorrt(version)
    options: dict[str, Any] = {"precision": "best", "route": "explicit", "conv_transpose": chosen}
    notes = calib.build(decoder, cache=cache_for(version), **options).record.notes
    assert any("1 quantizable node in float: up" in note for note in notes) == in_float


def test_both_binds_are_told(install_tensorrt: InstallTensorRT, decoder: Path) -> None:
    trt = install_tensorrt("8.6.0")
    engine = calib.build(decoder, precision="best", cache=cache_for("8.6.0"), keep_float=["^before$"])
    assert trt.builds[0]["bound"] == {"before": "HALF", "up": "HALF"}
    assert "1 layer kept in FP16 by --keep-float" in engine.record.notes


def test_it_is_an_option_of_int8(install_tensorrt: InstallTensorRT, decoder: Path) -> None:
    install_tensorrt("8.6.0")
    with pytest.raises(UsageError, match="--conv-transpose is for --precision int8 or best, not fp16"):
        calib.build(decoder, precision="fp16", conv_transpose="float")
    with pytest.raises(UsageError, match="--conv-transpose must be one of auto, int8, float, got 'half'"):
        calib.build(decoder, precision="best", cache=cache_for("8.6.0"), conv_transpose="half")


def test_an_engine_kept_with_one_choice_is_not_taken_for_another(
    install_tensorrt: InstallTensorRT, decoder: Path, tmp_path: Path
) -> None:
    trt = install_tensorrt("8.6.0")
    for chosen in ("auto", "int8", "auto"):
        calib.build(
            decoder,
            precision="best",
            cache=cache_for("8.6.0"),
            conv_transpose=chosen,
            engine_cache=tmp_path / "engines",
        )
    assert len(trt.builds) == 2


def test_a_fault_of_the_builder_comes_with_what_to_try() -> None:
    (hint,) = find_hints(["2: [refitUtils.cpp::buildRefitEngine::71] (Assertion engine failed. )"])
    assert "--conv-transpose float" in hint
