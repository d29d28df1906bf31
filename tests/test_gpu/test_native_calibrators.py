"""TensorRT's own calibrators fed by calib: ``python -m pytest -m gpu -s tests/test_gpu/test_native_calibrators.py``.

Needs a GPU, TensorRT 8.6 to 10, and PyCUDA or cuda-python. Everything is built at optimization level 0.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from goldens import NETS, digits

import calib
from calib.calibrators import CalibrationCache, read_sidecar
from calib.calibrators.cache_names import helper_reason
from calib.data import Dataset, Sample, from_arrays, load_recipe, open_calibration
from calib.demo import DEMO_MODEL
from calib.engine import (
    build,
    cache_calibrator,
    calibrate_natively,
    capture_log,
    complete_cache,
    load_api,
    read_network,
)
from calib.engine.completion import find_helper_scales
from calib.errors import CalibrationError, EngineError

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

BATCH = 32
NAMES = ("demo", "plain", "res", "unet")
TOLERANCE = {"entropy": 1e-5, "minmax": 1e-6}


@pytest.fixture(scope="module")
def api() -> Any:
    found = load_api()
    if not found.calibrators:
        pytest.skip(f"{found.title} has no calibrators")
    return found


def model_path(name: str) -> Path:
    return DEMO_MODEL if name == "demo" else NETS / f"{name}.onnx"


def calibration_data(name: str) -> Dataset:
    """As many samples as fill batches, since both sides must see the same."""
    if name != "demo":
        return from_arrays("digits32", {"input": digits()["xtr"]})
    data = open_calibration(load_recipe("digits"))
    return data.subset(range(len(data) // BATCH * BATCH))


def own_scales(name: str, method: str, version: str) -> CalibrationCache:
    return calib.calibrate(model_path(name), calibration_data(name), method=method, tensorrt=version).cache


def layers_of(api: Any, path: Path) -> Any:
    """The layers of TensorRT's network."""
    trt = api.trt
    logger = capture_log(api)
    bits = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH) if api.has("explicit_batch") else 0
    builder = trt.Builder(logger)
    network = builder.create_network(bits)
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(path.read_bytes())
    return read_network(api, network)


@pytest.mark.parametrize("method", TOLERANCE)
@pytest.mark.parametrize("name", NAMES)
def test_tensorrts_rows_are_ours(api: Any, name: str, method: str, tmp_path: Path) -> None:
    out = tmp_path / "native.cache"
    data = calibration_data(name)
    native = calibrate_natively(model_path(name), data, method=method, out=out)
    assert (native.used, native.asked, native.samples) == (
        len(data) // BATCH,
        len(data) // BATCH + 1,
        len(data),
    )
    ours, theirs = own_scales(name, method, api.version), native.cache
    assert theirs.header == ours.header
    assert CalibrationCache.read(out).to_text() == theirs.to_text()
    sidecar = read_sidecar(out)
    assert sidecar is not None
    assert sidecar.method == f"native-{method}"
    helpers = [row for row in theirs if helper_reason(row)]
    apart = {row: abs(ours[row] / theirs[row] - 1) for row in ours if theirs.get(row)}
    equal = sum(ours.bits(row) == theirs.bits(row) for row in ours if row in theirs)
    print(f"\n{name} {method}: {len(theirs)} rows of TensorRT's, {len(helpers)} of helpers; {equal} of {len(ours)} of "
          f"ours equal bit for bit, furthest apart {max(apart.values()):.2e}; {native.notes}")  # fmt: skip
    assert set(ours) <= set(theirs)
    # A last bit of an activation can move a value into the next bin, and the entropy threshold with it.
    moved = [row for row, distance in apart.items() if distance >= TOLERANCE[method]]
    assert len(moved) <= (len(apart) // 20 if method == "entropy" else 0)
    assert max(apart.values()) < 0.01


@pytest.mark.parametrize("method", ["entropy1", "legacy"])
def test_the_older_calibrators_run(api: Any, method: str) -> None:
    native = calibrate_natively(model_path("plain"), calibration_data("plain"), method=method, samples=128)
    print(
        f"\nplain {method}: {len(native.cache)} rows, {native.cache.header}, asked {native.asked}, {native.notes}"
    )
    # Legacy may go through the data more than once.
    assert native.used == 4 or (method == "legacy" and native.used >= 4)
    # And the other way: the builder takes it back, without data.
    engine = build(model_path("plain"), precision="int8", cache=native.cache, level=0)
    assert engine.record.route == "implicit INT8"
    assert native.cache.algorithm == {"entropy1": "EntropyCalibration", "legacy": "LegacyCalibration"}[method]


@pytest.mark.parametrize("method", TOLERANCE)
@pytest.mark.parametrize("name", ["plain", "res"])
def test_completed_rows_are_tensorrts_and_give_an_engine(api: Any, name: str, method: str) -> None:
    layers = layers_of(api, model_path(name))
    ours = own_scales(name, method, api.version)
    theirs = calibrate_natively(model_path(name), calibration_data(name), method=method).cache
    found = find_helper_scales(ours, layers)
    completed = complete_cache(ours, layers)
    apart = {row: abs(completed[row] / theirs[row] - 1) for row in completed if theirs.get(row)}
    print(f"\n{name} {method}: added {found.rules}, none for {found.missing}; only TensorRT has "
          f"{sorted(set(theirs) - set(completed))}, only we {sorted(set(completed) - set(theirs))}; apart "
          f"{ {row: round(apart[row], 4) for row in found.scales if row in apart} }")  # fmt: skip
    assert set(theirs) <= set(completed)
    for row, rule in found.rules.items():
        if row in theirs and not rule.startswith("near"):
            assert apart[row] < TOLERANCE[method], row
    shapes = {"input": (BATCH, *digits()["xtr"].shape[1:])}
    plain = build(model_path(name), precision="int8", cache=ours, shapes=shapes, level=0)
    engine = build(model_path(name), precision="int8", cache=completed, shapes=shapes, level=0)
    print(
        f"without: {plain.record.warnings} {plain.record.notes}\nwith: {engine.record.warnings} {engine.record.notes}"
    )
    assert len(engine.plan) > 0


@pytest.mark.parametrize("at", [0, 70])
def test_a_sample_that_cannot_be_loaded_fails_the_build_and_is_named(api: Any, at: int) -> None:
    images = digits()["xtr"]

    def load(index: int) -> Sample:
        if index == at:
            raise OSError("image file is truncated")
        return Sample(f"image{index}", {"input": images[index]})

    data = Dataset("pictures", tuple(f"image{index}" for index in range(128)), load)
    with pytest.raises(
        CalibrationError, match=f"Sample 'image{at}' of dataset 'pictures' could not be loaded: im"
    ):
        calibrate_natively(model_path("plain"), data)


@pytest.mark.parametrize("version", ["8.5.1", "8.6.1", "7.2.3", "10.3.0"])
def test_a_cache_of_another_version_is_taken_or_refused_with_the_reason(api: Any, version: str) -> None:
    rows = own_scales("plain", "minmax", api.version)
    reader = cache_calibrator(api, CalibrationCache(dict(rows), version=version, algorithm=rows.algorithm))
    shapes = {"input": (BATCH, *digits()["xtr"].shape[1:])}
    refusal = ""
    try:
        build(model_path("plain"), precision="int8", calibrator=reader, shapes=shapes, level=0)
    except EngineError as error:
        refusal = str(error)
    assert bool(refusal) == (reader.asked > 0)
    assert not refusal or re.search(r"did not take the calibration cache .*calib cache convert", refusal)
    print(f"\n{api.title}: a cache of {version} is {'refused' if reader.asked else 'taken'}")


def test_a_dynamic_batch_calibrates_with_batches_that_are_not_the_usual_ones(api: Any) -> None:
    data = calibration_data("plain")
    seven = calibrate_natively(model_path("plain"), data, batch_size=7, samples=70)
    ours = calib.calibrate(model_path("plain"), data, batch_size=7, samples=70, tensorrt=api.version).cache
    assert seven.used == 10
    assert max(abs(ours[row] / seven.cache[row] - 1) for row in ours) < 1e-5
