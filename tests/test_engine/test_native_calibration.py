from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_tensorrt
import numpy as np
import pytest
from cuda_installs import install_driver, install_packages
from fake_cuda import FakeGpu
from native_fakes import Calibration
from networks import conv_relu_gemm, samples, save
from typer.testing import CliRunner

from calib.calibrators import CalibrationCache, read_sidecar
from calib.cli.app import app
from calib.data import Dataset, Sample, from_arrays, open_reader
from calib.engine import calibrate_natively
from calib.errors import (
    CalibrationError,
    EngineError,
    MissingExtraError,
    UsageError,
)
from calib.graph import calibrate

IMAGES = samples(70, 3, 8, 8)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = install_driver(monkeypatch)
    install_packages(monkeypatch, fake, "pycuda")
    return fake


@pytest.fixture
def calibration(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> Calibration:
    """A TensorRT 8.6.0 that calibrates, on a machine with a GPU."""
    made = Calibration(gpu)
    install_tensorrt(monkeypatch, "8.6.0")
    monkeypatch.setattr(
        fake_tensorrt._Builder,
        "_calibrate",
        lambda builder, calibrator: made.run(builder.trt.__version__, calibrator),
    )
    return made


def install_tensorrt(monkeypatch: pytest.MonkeyPatch, version: str) -> ModuleType:
    module = fake_tensorrt.make_tensorrt(version)
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    return module


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return save(conv_relu_gemm(), tmp_path / "net.onnx")


def test_tensorrt_calibrates_with_our_samples(
    gpu: FakeGpu, calibration: Calibration, network: Path, tmp_path: Path
) -> None:
    out = tmp_path / "native.cache"
    found = calibrate_natively(network, from_arrays("d", {"x": IMAGES[:64]}), method="minmax", out=out)
    assert (found.method, found.asked, found.used, found.samples) == ("minmax", 3, 2, 64)
    assert (found.tensorrt, found.device, found.path, found.notes) == ("8.6.0", "Fake GPU", out, ())
    assert [batch.size for batch in calibration.seen] == [32 * 3 * 8 * 8] * 2
    assert found.cache["x"] == pytest.approx(np.abs(IMAGES[:64]).max() / 127)
    # The same data through our own calibrator.
    ours = calibrate(network, from_arrays("d", {"x": IMAGES[:64]}), method="minmax").cache
    assert ours.header == found.cache.header
    assert ours.bits("x") == found.cache.bits("x")
    assert (gpu.kinds(), gpu.stack) == ([], [])


def test_the_builder_is_told_the_shape_of_the_batches(calibration: Calibration, network: Path) -> None:
    calibrate_natively(network, from_arrays("d", {"x": IMAGES}), batch_size=7)
    (build,) = sys.modules["tensorrt"].behaviour.builds
    assert build["shapes"] == {"x": ((7, 3, 8, 8),) * 3}
    assert (build["level"], build["flags"], build["calibrated"]) == (0, ["INT8"], True)


def test_provenance(calibration: Calibration, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "native.cache"
    calibrate_natively(network, from_arrays("d", {"x": IMAGES}), out=out)
    sidecar = read_sidecar(out)
    assert sidecar is not None
    assert (sidecar.method, sidecar.header) == ("native-entropy", "TRT-8600-EntropyCalibration2")
    assert (sidecar.samples, sidecar.batch_size) == (64, 32)
    assert (sidecar.batches_asked, sidecar.batches_used) == (2, 2)
    assert sidecar.versions["tensorrt"] == "8.6.0"
    assert "onnxruntime" not in sidecar.versions
    assert CalibrationCache.read(out)["x"] > 0


def test_what_fills_no_batch_is_dropped_and_said(calibration: Calibration, network: Path) -> None:
    found = calibrate_natively(network, from_arrays("d", {"x": IMAGES}))
    assert (found.used, found.samples) == (2, 64)
    assert found.notes == (
        "6 samples at the end were dropped: TensorRT takes whole batches of 32 only. --samples 64 says so, "
        "or choose a batch size that divides 70",
    )
    few = calibrate_natively(network, from_arrays("d", {"x": IMAGES[:10]}))
    assert (few.used, few.samples) == (1, 10)
    assert few.notes == ("only 10 samples: one batch of 10 instead of 32",)


def test_a_reader(calibration: Calibration, network: Path, tmp_path: Path) -> None:
    batches = [{"x": IMAGES[:16]}, {"x": IMAGES[16:32]}, {"x": IMAGES[32:40]}]
    calibration.most = 1
    reader = open_reader(batches, "mine", inputs=["x"])
    found = calibrate_natively(network, reader, out=tmp_path / "c.cache")
    assert (found.used, found.samples) == (1, 16)
    assert "TensorRT stopped asking: it took 1 of 2 batches" in found.notes
    sidecar = read_sidecar(tmp_path / "c.cache")
    assert sidecar is not None
    assert (sidecar.batches_asked, sidecar.batches_used) == (2, 1)


@pytest.mark.parametrize("at", [0, 40])
def test_a_sample_that_cannot_be_loaded_fails_the_run(
    gpu: FakeGpu, calibration: Calibration, network: Path, tmp_path: Path, at: int
) -> None:
    def load(index: int) -> Sample:
        if index == at:
            raise OSError("image file is truncated")
        return Sample(f"image{index}", {"x": IMAGES[index]})

    data = Dataset("pictures", tuple(f"image{index}" for index in range(64)), load)
    with pytest.raises(
        CalibrationError, match=f"Sample 'image{at}' of dataset 'pictures' could not be loaded: im"
    ):
        calibrate_natively(network, data, out=tmp_path / "c.cache")
    assert not (tmp_path / "c.cache").exists()
    assert (gpu.kinds(), gpu.stack) == ([], [])


def test_memory_that_is_full_is_told(gpu: FakeGpu, calibration: Calibration, network: Path) -> None:
    gpu.total = 1000
    with pytest.raises(
        EngineError, match=r"Out of memory on GPU 0 \(Fake GPU\): wanted 24,576 bytes, free are 1,000"
    ):
        calibrate_natively(network, from_arrays("d", {"x": IMAGES}))


def test_an_engine_that_fails_after_calibration_is_no_loss(calibration: Calibration, network: Path) -> None:
    calibration.then_fails = True
    found = calibrate_natively(network, from_arrays("d", {"x": IMAGES[:64]}), method="legacy")
    assert found.cache["x"] > 0
    assert "TensorRT calibrated, but could not build the engine then: " in found.notes[0]
    assert "Could not find any implementation for node conv1." in found.notes[0]


def test_a_tensorrt_that_makes_no_cache(
    monkeypatch: pytest.MonkeyPatch, calibration: Calibration, network: Path
) -> None:
    monkeypatch.setattr(fake_tensorrt._Builder, "_calibrate", lambda builder, calibrator: None)
    with pytest.raises(EngineError, match=r"TensorRT 8\.6\.0 asked for 0 batches, got 0 and made no cache"):
        calibrate_natively(network, from_arrays("d", {"x": IMAGES}))


def test_where_it_cannot_be_done(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu, network: Path) -> None:
    data = from_arrays("d", {"x": IMAGES})
    with pytest.raises(UsageError, match="own calibrators are entropy, minmax, entropy1, legacy, got 'mse'"):
        calibrate_natively(network, data, method="mse")
    install_tensorrt(monkeypatch, "11.4.0")
    with pytest.raises(
        EngineError, match=r"TensorRT 11\.4\.0 has no calibrators .* Calibrate without --native"
    ):
        calibrate_natively(network, data)
    install_tensorrt(monkeypatch, "10.16.1.11")
    gpu.fails["cuInit"] = 100
    with pytest.raises(EngineError, match="No GPU here"):
        calibrate_natively(network, data)
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt_bindings", None)
    with pytest.raises(MissingExtraError, match=r"int8-calib\[tensorrt\]"):
        calibrate_natively(network, data)


def test_a_fixed_batch_that_is_larger_than_the_data(calibration: Calibration, tmp_path: Path) -> None:
    model: Any = conv_relu_gemm()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 8
    network = save(model, tmp_path / "fixed.onnx")
    assert calibrate_natively(network, from_arrays("d", {"x": IMAGES[:16]})).used == 2
    with pytest.raises(UsageError, match="insists on batches of 8"):
        calibrate_natively(network, from_arrays("d", {"x": IMAGES[:5]}))


def test_the_command(
    monkeypatch: pytest.MonkeyPatch, calibration: Calibration, network: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", IMAGES[:64])
    code = f"import numpy as np\ndata = {{'x': np.load({str(tmp_path / 'x.npy')!r})}}\n"
    (tmp_path / "natively_calibrated.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    given = ["calibrate", str(network), "--data", "natively_calibrated:data", "--native"]
    run = CliRunner().invoke(app, [*given, "--method", "entropy1"])
    assert run.exit_code == 0, run.output
    assert run.output.startswith(
        "1 tensor calibrated by TensorRT 8.6.0 (entropy1) on 64 samples in 2 batches on Fake GPU."
    )
    assert "(TRT-8600-EntropyCalibration)" in run.output
    told = json.loads(CliRunner().invoke(app, [*given, "--json"]).output)
    assert (told["batches_used"], told["header"]) == (2, "TRT-8600-EntropyCalibration2")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--native", "--assess"], "--assess and --native cannot be combined"),
        (["--native", "--shards", "2"], "--shards and --native cannot"),
        (["--native", "--shard", "1/2"], "--shard and --native cannot"),
        (["--native", "--percentile", "99"], "--percentile and --native cannot"),
        (["--native", "--tensorrt", "10.3.0"], "--tensorrt and --native cannot"),
        (["--device", "1"], "--device goes with --native"),
    ],
)
def test_options_that_do_not_go_together(network: Path, given: list[str], message: str) -> None:
    run = CliRunner().invoke(app, ["calibrate", str(network), "--data", "digits", *given])
    assert isinstance(run.exception, UsageError)
    assert message in str(run.exception)
