"""What calib quantize says of a cache that does not fit its model whole, and what --strict refuses."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from networks import conv_relu_gemm

from calib.calibrators import CalibrationCache
from calib.errors import CacheError, ModelError
from calib.graph import OnnxModel, convert_float16, quantize

NETWORK = OnnxModel(Path("m.onnx"), conv_relu_gemm())
NAMES = ("x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y")


def cache_of(rows: dict[str, float]) -> CalibrationCache:
    """A cache as it may lie in a file: the constructor takes no scale that is not finite."""
    bits = {name: struct.pack(">f", scale).hex() for name, scale in rows.items()}
    text = "".join(f"{name}: {digits}\n" for name, digits in bits.items())
    return CalibrationCache.parse(f"TRT-8600-EntropyCalibration2\n{text}".encode())


def notes(rows: dict[str, float]) -> str:
    return "\n".join(quantize(NETWORK, cache_of(rows)).notes)


WHOLE = dict.fromkeys(NAMES, 0.02)


def test_a_cache_that_fits_is_taken_by_strict_without_a_word() -> None:
    result = quantize(NETWORK, cache_of(WHOLE), strict=True)
    assert result.notes == (
        "Names: 9 matched, 0 only in the cache, 0 only in the model (float activations), 0 of helper layers, "
        "constants and integers.",
    )


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        (float("inf"), "infinite"),
        (float("nan"), "not a number"),
        (-0.5, "negative"),
        (0.0, "zero"),
        (1e-40, "subnormal"),
    ],
)
def test_strict_refuses_a_scale_that_leaves_a_convolution_in_float(scale: float, reason: str) -> None:
    rows = {**WHOLE, "p1": scale}
    (left,) = quantize(NETWORK, cache_of(rows)).left_float
    assert (left.node, left.reason) == ("conv2", f"the scale of its input 'p1' is {reason}")
    with pytest.raises(CacheError, match=rf"does not fit m\.onnx\. .*{reason}.* Names: 9 matched"):
        quantize(NETWORK, cache_of(rows), strict=True)


def test_strict_refuses_a_scale_that_float16_does_not_hold() -> None:
    """float16 has steps of 2^-24: one is 1/32 of 2e-6, and a scale grew by as much."""
    half = convert_float16(NETWORK, keep_io=False).model
    rows = {**WHOLE, "r2_float32": 0.02, "g_float16": 0.02, "p1": 2e-6}
    (left,) = quantize(half, cache_of(rows), target="tensorrt-11").left_float
    assert left.node == "conv2"
    with pytest.raises(CacheError, match=r"The scale of its float16 input 'p1' is 2e-06"):
        quantize(half, cache_of(rows), target="tensorrt-11", strict=True)


@pytest.mark.parametrize(("scale", "reason"), [(float("inf"), "infinite"), (float("nan"), "not a number")])
def test_damage_is_told_wherever_it_is(scale: float, reason: str) -> None:
    """No pair stands on c2, but where it is infinite the others are doubtful."""
    rows = {**WHOLE, "c2": scale}
    told = f"Scales that no calibration should give: c2 ({reason})."
    assert told in notes(rows)
    with pytest.raises(CacheError) as caught:
        quantize(NETWORK, cache_of(rows), strict=True)
    assert told in str(caught.value)


def test_a_tensor_that_is_zero_on_the_data_is_no_fault_where_nothing_needs_its_scale() -> None:
    assert not quantize(NETWORK, cache_of({**WHOLE, "y": 0.0}), strict=True).left_float


def test_a_scale_of_a_helper_layer_is_none_of_the_models() -> None:
    rows = {**WHOLE, "(Unnamed Layer* 3) [Constant]_output": 0.0}
    assert len(quantize(NETWORK, cache_of(rows), strict=True).activations) == 4


def test_a_cache_of_another_network_with_the_same_input_is_said_to_be_one() -> None:
    """The first convolution reads "x", as in many networks: that it is quantized says nothing."""
    rows = {"x": 0.02, **{f"other{index}": 0.02 for index in range(7)}}
    told = notes(rows)
    assert "this cache belongs to another model" in told
    assert "Entries that name nothing in the model: other0, other1, other2, other3, other4 …." in told
    assert "this cache belongs to another model" not in notes({**rows, "r1": 0.02})


def test_renamed_tensors_are_guessed_and_the_way_is_said() -> None:
    rows = {f"{name}:0" if name != "x" else name: 0.02 for name in NAMES}
    told = notes(rows)
    assert "c1:0 (did you mean 'c1'?)" in told
    assert "calib cache rename changes names" in told


def test_names_with_a_suffix_each_are_guessed_where_nothing_can_be_quantized() -> None:
    with pytest.raises(ModelError) as caught:
        quantize(NETWORK, cache_of({f"{name}:0": 0.02 for name in NAMES}))
    assert str(caught.value) == (
        "Nothing in m.onnx can be quantized with this cache. For one, Conv 'conv1': no scale for its input "
        "'x'. Does it name tensors otherwise: x:0 for x, c1:0 for c1, r1:0 for r1, p1:0 for p1, c2:0 for "
        "c2 …? calib cache rename changes names."
    )
