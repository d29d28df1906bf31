"""A loss divided into its parts, on trained networks with TensorRT's own ranges."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from goldens import NETS, digits
from networks import model, node, save

from calib.data import from_arrays
from calib.errors import UsageError
from calib.report.decomposition import decomposition_lines
from calib.validation.decomposition import Decomposition, decompose

SCALE, AMAX = 0.01, 1.27


@pytest.fixture
def one_layer(tmp_path: Path) -> tuple[Path, Path]:
    """y = 1·x, whose weight INT8 holds exactly, and a cache with the scale 0.01 (bits 3c23d70a)."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["N", 1]}, {"y": ["N", 1]}, {"w": [[1.0]]})
    cache = tmp_path / "one.cache"
    cache.write_text("TRT-8600-EntropyCalibration2\nx: 3c23d70a\n")
    return save(proto, tmp_path / "one.onnx"), cache


def test_one_layer_by_arithmetic(one_layer: tuple[Path, Path]) -> None:
    x = np.array([[0.5], [0.004], [0.996], [2.27], [-1.0]], np.float32)
    found = decompose(*one_layer, from_arrays("five", {"x": x}))
    power = float((x.astype(np.float64) ** 2).sum())
    clipped, rounded = (2.27 - 1.27) ** 2, 0.004**2 + 0.004**2
    expected = {
        "int8": clipped + rounded,
        "activations": clipped + rounded,
        "clipping": clipped,
        "rounding": rounded,
    }
    for part, noise in expected.items():
        (output,) = found.part(part).outputs
        assert output.sqnr_db == pytest.approx(10 * np.log10(power / noise), abs=1e-3), part
        assert found.part(part).noise_shares["y"] == pytest.approx(noise / (clipped + rounded), rel=1e-4)
    assert found.part("weights").outputs[0].verdict == "equal"
    assert found.part("weights").noise_shares["y"] == 0.0
    assert "Most comes from clipping: wider ranges lose less" in found.findings[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "Batch size must be at least 1, got 0"),
        ({"samples": 0}, "Samples must be at least 1, got 0"),
        ({"samples": -1}, "Samples must be at least 1, got -1"),
        ({"samples": 2, "seed": -1}, "Seed must be from 0 to 4294967295, got -1"),
        ({"samples": 2, "seed": 2**32}, "Seed must be from 0 to 4294967295, got 4294967296"),
    ],
)
def test_options_that_cannot_be_meant(
    one_layer: tuple[Path, Path], options: dict[str, int], message: str
) -> None:
    dataset = from_arrays("five", {"x": np.ones((5, 1), np.float32)})
    with pytest.raises(UsageError, match=message):
        decompose(*one_layer, dataset, **options)  # type: ignore[arg-type]


def test_no_loss_has_no_parts(one_layer: tuple[Path, Path]) -> None:
    found = decompose(*one_layer, from_arrays("two", {"x": np.array([[0.0], [0.0]], np.float32)}))
    assert found.part("int8").noise_shares == {"y": None}
    assert found.findings == (
        "y: the noise cannot be divided: there is none, or outputs cannot be compared.",
    )
    assert all(line for line in decomposition_lines(found))


@cache
def golden(net: str, method: str) -> Decomposition:
    images = from_arrays("digits", {"input": digits()["xte"][:200]})
    return decompose(NETS / f"{net}.onnx", NETS / f"{net}.{method}.cache", images, threads=1)


@pytest.mark.parametrize("net", ["plain", "res"])
@pytest.mark.parametrize("method", ["entropy2", "minmax"])
def test_parts_of_trained_networks_add_up(net: str, method: str) -> None:
    shares = {part.part: next(iter(part.noise_shares.values())) for part in golden(net, method).parts}
    assert shares["int8"] == 1.0
    assert all(share is not None and share > 0 for share in shares.values())
    # Errors of weights and activations are nearly independent: their powers add.
    assert shares["weights"] + shares["activations"] == pytest.approx(1.0, abs=0.3)  # type: ignore[operator]


def test_minmax_clips_less_than_entropy() -> None:
    for net in ("plain", "res"):
        clipped = {
            method: next(iter(golden(net, method).part("clipping").noise_shares.values()))
            for method in ("entropy2", "minmax")
        }
        assert clipped["minmax"] < clipped["entropy2"], net  # type: ignore[operator]


@pytest.mark.parametrize(("share", "told"), [(1.004, False), (1.006, True), (None, False)])
def test_what_is_above_the_whole_is_explained(share: float | None, told: bool) -> None:
    """100.4% is shown as 100%, 100.6% as 101%."""
    found = golden("plain", "minmax")
    name = next(iter(found.part("int8").noise_shares))
    parts = tuple(
        replace(part, noise_shares={name: share}) if part.part == "rounding" else part for part in found.parts
    )
    text = "\n".join(decomposition_lines(replace(found, parts=parts)))
    assert ("Above 100%: errors that those of other parts cancel." in text) == told
    assert ("101%" in text) == told


def test_json_is_strict_and_lines_name_every_part() -> None:
    found = golden("plain", "minmax")
    record = json.loads(found.to_json(), parse_constant=pytest.fail)
    assert [part["part"] for part in record["parts"]] == [
        "int8",
        "weights",
        "activations",
        "clipping",
        "rounding",
    ]
    lines = decomposition_lines(found)
    assert all(any(f"  {part} " in line for line in lines) for part in ("weights", "clipping"))
