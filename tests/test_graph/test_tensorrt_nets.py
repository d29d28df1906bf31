"""Trained nets: ranges and INT8 outputs against those of TensorRT 8.6.0."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from decibels import decibels
from goldens import NETS, digits, hex_of

from calib.calibrators import CalibrationCache, Calibrator, EntropyCalibrator, make_calibrator, scale_of
from calib.graph import ObservedSession, OnnxModel, load_model, open_session, quantize_model, session_options

NAMES = ("plain", "res", "unet")
CASES = {"entropy2": ("entropy", 32), "minmax": ("minmax", 32), "entropy2_b64": ("entropy", 64)}
ONNX_ROWS = {"plain": 14, "res": 32, "unet": 16}


@cache
def calibrated(net: str, case: str) -> tuple[dict[str, float], Calibrator, ObservedSession]:
    method, batch_size = CASES[case]
    session = ObservedSession(load_model(NETS / f"{net}.onnx"))
    calibrator = make_calibrator(method)
    images = digits()["xtr"]
    for start in range(0, len(images), batch_size):
        calibrator.collect(session.run({"input": images[start : start + batch_size]}))
    return dict(calibrator.compute().arranged(session.source_of)), calibrator, session


def golden(net: str, case: str) -> CalibrationCache:
    return CalibrationCache.read(NETS / f"{net}.{case}.cache")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("net", NAMES)
def test_every_row_with_an_onnx_name(net: str, case: str) -> None:
    ours, _, _ = calibrated(net, case)
    theirs = golden(net, case)
    named = {row: scale for row, scale in theirs.items() if not row.startswith("(Unnamed Layer*")}
    assert list(ours) == list(named)
    assert len(named) == ONNX_ROWS[net]
    tolerance = 1e-6 if case == "minmax" else 1e-5
    for row, scale in named.items():
        assert scale_of(ours[row]) == pytest.approx(scale, rel=tolerance), row


def test_bits_are_equal_where_the_maximum_is() -> None:
    """The grid hangs on one number, the maximum; where it has TensorRT's bits, so has the scale.

    Activations differ in their last bits between ONNX Runtime on a CPU and TensorRT on a GPU. Rows are
    taken whose grid ends at the maximum over all samples (TensorRT's min-max cache tells that one) and
    not at a multiple of the first batch's, which no cache tells.
    """
    equal = total = 0
    for net, case in product(NAMES, ("entropy2", "entropy2_b64")):
        entropy, calibrator, session = calibrated(net, case)
        maxima, _, _ = calibrated(net, "minmax")
        assert isinstance(calibrator, EntropyCalibrator)
        for row, source in session.source_of.items():
            grid_ends_at_maximum = calibrator.statistics[source].limit == maxima[row]
            if grid_ends_at_maximum and hex_of(scale_of(maxima[row])) == golden(net, "minmax").bits(row):
                total += 1
                equal += hex_of(scale_of(entropy[row])) == golden(net, case).bits(row)
    # How many rows agree in their maximum hangs on the processor's kernels.
    assert total >= 10
    assert equal / total >= 0.95


def run_simulated(model: OnnxModel, images: np.ndarray) -> np.ndarray:
    options = session_options(float_qdq=True)
    return np.asarray(open_session(model, options).run(None, {"input": images})[0])


@pytest.mark.parametrize(
    ("net", "case", "least_agreement"),
    [
        ("plain", "entropy2", 1.0),
        ("plain", "minmax", 1.0),
        ("res", "entropy2", 1.0),
        ("res", "minmax", 1.0),
        ("unet", "entropy2", 0.95),
        ("unet", "minmax", 0.95),
    ],
)
def test_simulation_answers_as_tensorrts_int8_engine(net: str, case: str, least_agreement: float) -> None:
    engine = np.load(NETS / f"{net}.{case}.npy")
    model = load_model(NETS / f"{net}.onnx")
    # The engine took the cache as it is, with a scale of its own for each tensor; so does the default here.
    simulation = quantize_model(model, golden(net, case)).model
    simulated = run_simulated(simulation, digits()["xte"][: len(engine)])
    assert (simulated.argmax(1) == engine.argmax(1)).mean() >= least_agreement


@pytest.mark.parametrize(("net", "case"), [("plain", "entropy2"), ("unet", "entropy2"), ("unet", "minmax")])
def test_simulation_loses_what_tensorrts_int8_engine_loses(net: str, case: str) -> None:
    """Nets of which TensorRT ran every layer in INT8: within half a decibel."""
    engine = np.load(NETS / f"{net}.{case}.npy")
    model = quantize_model(load_model(NETS / f"{net}.onnx"), golden(net, case)).model
    simulated = run_simulated(model, digits()["xte"][: len(engine)])
    reference = np.load(NETS / f"{net}.fp32.npy")
    assert decibels(reference, simulated) == pytest.approx(decibels(reference, engine), abs=0.5)


@pytest.mark.parametrize(
    ("net", "expected", "tensors"),
    [
        # 41.28 with the average pooling in float; TensorRT's own engine has 40.84.
        ("plain", 41.17, set()),
        ("res", 31.60, set()),
        # 20.42 with the cache's own scales.
        ("unet", 20.61, {"/e2/e2.2/Relu_output_0", "/Concat_1_output_0"}),
    ],
)
def test_placement_keeps_its_accuracy(net: str, expected: float, tensors: set[str]) -> None:
    result = quantize_model(load_model(NETS / f"{net}.onnx"), golden(net, "entropy2"), share_scales=True)
    reference = np.load(NETS / f"{net}.fp32.npy")
    simulated = run_simulated(result.model, digits()["xte"][: len(reference)])
    assert decibels(reference, simulated) == pytest.approx(expected, abs=0.1)
    assert {pair.tensor for pair in result.activations if pair.own_scale is not None} == tensors


@pytest.mark.parametrize("case", ["entropy2", "minmax"])
def test_shared_scales_cost_next_to_nothing_over_all_images(case: str) -> None:
    model, images = load_model(NETS / "unet.onnx"), digits()["xte"]
    reference = np.asarray(open_session(model, session_options()).run(None, {"input": images})[0])
    shared, own = (
        decibels(
            reference,
            run_simulated(quantize_model(model, golden("unet", case), share_scales=on).model, images),
        )
        for on in (True, False)
    )
    assert shared > own - 0.2
