from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_installs import install_driver, install_packages
from fake_cuda import FakeGpu
from fake_tensorrt import make_tensorrt
from goldens import TENSORRT
from native_fakes import ALGORITHMS, Calibration

from calib.calibrators import CalibrationCache
from calib.data import Batch, Dataset, Sample, from_arrays, open_reader
from calib.engine import cache_calibrator, native_calibrator, open_device, set_calibration_profile
from calib.engine.api import Api, find_features
from calib.errors import CacheError, CalibrationError, DatasetError, EngineError, OutputError, UsageError
from calib.graph import FeedBuilder, TensorSpec

SPEC = TensorSpec("x", np.dtype(np.float32), ("batch", 3))
IMAGES = np.arange(30, dtype=np.float32).reshape(10, 3)


def make_api(version: str = "8.6.0") -> Api:
    module = make_tensorrt(version)
    numbers = [int(part) for part in version.split(".")]
    return Api(module, "tensorrt", version, (numbers[0], numbers[1], numbers[2]), find_features(module))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = install_driver(monkeypatch)
    install_packages(monkeypatch, fake, "pycuda")
    return fake


@pytest.fixture
def device(gpu: FakeGpu) -> Iterator[Any]:
    with open_device() as opened:
        yield opened
    assert gpu.kinds() == []


def broken(at: int, error: BaseException) -> Dataset:
    """Ten samples, of which one cannot be loaded."""

    def load(index: int) -> Sample:
        if index == at:
            raise error
        return Sample(f"image{index}", {"x": IMAGES[index]})

    return Dataset("pictures", tuple(f"image{index}" for index in range(10)), load)


@pytest.mark.parametrize(("kind", "name"), [
    ("entropy", "IInt8EntropyCalibrator2"),
    ("minmax", "IInt8MinMaxCalibrator"),
    ("entropy1", "IInt8EntropyCalibrator"),
    ("legacy", "IInt8LegacyCalibrator"),
])  # fmt: skip
def test_every_kind_is_fed_whole_batches(
    gpu: FakeGpu, device: Any, tmp_path: Path, kind: str, name: str
) -> None:
    api = make_api()
    feeds = FeedBuilder([SPEC])
    data = from_arrays("d", {"x": IMAGES})
    calibrator = native_calibrator(api, kind, data, feeds, device, batch_size=4, cache_out=tmp_path / "c")
    assert isinstance(calibrator, getattr(api.trt, name))
    assert calibrator.get_batch_size() == 4
    calibration = Calibration(gpu)
    assert calibration.run("8.6.0", calibrator) is None
    np.testing.assert_array_equal(np.concatenate(calibration.seen).reshape(-1, 3), IMAGES[:8])
    assert (calibrator.asked, calibrator.used, calibrator.samples, calibrator.dropped) == (3, 2, 8, 2)
    # 0.9999 and 1.0, as TensorRT 8.6.0 writes them of its legacy calibrator.
    legacy = "0 3ff0000000000000 3fefff2e48e8a71e"
    assert calibrator.written.header == (legacy if kind == "legacy" else f"TRT-8600-{ALGORITHMS[name]}")
    # The largest value of the first eight samples.
    assert calibrator.written["x"] == pytest.approx(23 / 127)
    assert CalibrationCache.read(tmp_path / "c").to_text() == calibrator.written.to_text()
    assert gpu.kinds() == ["memory"], "one buffer for all batches"
    calibrator.raise_failure()
    calibrator.free()
    assert gpu.kinds() == []


def test_the_base_class_is_initialized() -> None:
    api, begun = make_api(), []
    api.trt.IInt8MinMaxCalibrator = type(
        "IInt8MinMaxCalibrator", (), {"__init__": lambda self: begun.append(self)}
    )
    made = native_calibrator(api, "minmax", iter(()), FeedBuilder([SPEC]), SimpleNamespace())  # type: ignore[arg-type]
    assert begun == [made]


def test_what_the_legacy_calibrator_asks_for_beside_the_data(device: Any) -> None:
    data = from_arrays("d", {"x": IMAGES})
    made = native_calibrator(make_api(), "legacy", data, FeedBuilder([SPEC]), device, quantile=0.99)
    assert (made.get_quantile(), made.get_regression_cutoff()) == (0.99, 1.0)
    assert made.read_histogram_cache(8) is None
    assert made.write_histogram_cache(None, 8) is None
    assert not hasattr(
        native_calibrator(make_api(), "minmax", data, FeedBuilder([SPEC]), device), "get_quantile"
    )


def test_several_inputs_go_by_name_in_the_order_that_is_asked_for(gpu: FakeGpu, device: Any) -> None:
    specs = [
        TensorSpec("ids", np.dtype(np.int64), ("batch", 2)),
        TensorSpec("half", np.dtype(np.float16), ("batch", 1)),
        TensorSpec("on", np.dtype(np.bool_), ("batch",)),
    ]
    arrays = {
        "on": np.array([True, False]),
        "half": np.array([[0.5], [1.5]], np.float16),
        "ids": np.array([[1, -2], [3, 4]]),
    }
    data = from_arrays("d", arrays)
    calibrator = native_calibrator(make_api(), "entropy", data, FeedBuilder(specs), device, batch_size=2)
    assert calibrator.shapes == {"ids": (2, 2), "half": (2, 1), "on": (2,)}
    half, ids, on = calibrator.get_batch(["half", "ids", "on"])
    # TensorRT 8 has no 64-bit integers and calibrates in float32.
    assert gpu.live[half][1].view(np.float32).tolist() == [0.5, 1.5]
    assert gpu.live[ids][1].view(np.int32).tolist() == [1, -2, 3, 4]
    assert gpu.live[on][1].tolist() == [1, 0]
    calibrator = native_calibrator(
        make_api("10.3.0"), "entropy", data, FeedBuilder(specs), device, batch_size=2
    )
    (ids,) = calibrator.get_batch(["ids"])
    assert gpu.live[ids][1].view(np.int64).tolist() == [1, -2, 3, 4]


def test_integers_beyond_32_bits(device: Any) -> None:
    spec = TensorSpec("ids", np.dtype(np.int64), ("batch", 1))
    data = from_arrays("d", {"ids": np.array([[1], [1 << 40]])})
    calibrator = native_calibrator(make_api(), "entropy", data, FeedBuilder([spec]), device, batch_size=2)
    assert calibrator.get_batch(["ids"]) is None
    with pytest.raises(CalibrationError, match="Input 'ids' holds integers beyond 32 bits"):
        calibrator.raise_failure()


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (OSError("cut off."), CalibrationError, "Sample 'image6' of .*'pictures' could not be loaded: cut"),
        (ValueError(), CalibrationError, "'image6' of dataset 'pictures' could not be loaded: ValueError."),
        (DatasetError("No pixels."), CalibrationError, "'image6' .* could not be loaded: No pixels. Te"),
        (KeyboardInterrupt("by hand"), KeyboardInterrupt, "^by hand$"),
    ],
)  # fmt: skip
def test_what_tensorrt_swallows_is_kept_and_names_the_sample(
    gpu: FakeGpu, device: Any, error: BaseException, raised: type[BaseException], message: str
) -> None:
    calibrator = native_calibrator(
        make_api(), "entropy", broken(6, error), FeedBuilder([SPEC]), device, batch_size=4
    )
    assert Calibration(gpu).run("8.6.0", calibrator) is None, "TensorRT is content with one batch"
    assert (calibrator.asked, calibrator.used) == (2, 1)
    assert calibrator.written is None, "a cache of a part of the data is of no use"
    assert calibrator.get_batch(["x"]) is None
    with pytest.raises(raised, match=message):
        calibrator.raise_failure()


def test_a_sample_that_does_not_fit_is_named(gpu: FakeGpu, device: Any) -> None:
    images = IMAGES.copy()
    images[5, 1] = np.nan
    calibrator = native_calibrator(
        make_api(), "minmax", from_arrays("d", {"x": images}), FeedBuilder([SPEC]), device, batch_size=2
    )
    Calibration(gpu).run("8.6.0", calibrator)
    with pytest.raises(DatasetError, match=r"Sample d#5 .* holds 1 NaN|#5.*holds 1 NaN"):
        calibrator.raise_failure()


def test_names_that_the_model_does_not_have(device: Any) -> None:
    batch = native_calibrator(
        make_api(), "minmax", from_arrays("d", {"x": IMAGES}), FeedBuilder([SPEC]), device, batch_size=5
    )
    assert batch.get_batch(["y"]) is None
    with pytest.raises(CalibrationError, match="TensorRT asks for data of y, but the model's inputs are x"):
        batch.raise_failure()


def test_batches_of_other_shapes(device: Any) -> None:
    spec = TensorSpec("x", np.dtype(np.float32), ("batch", "width"))

    def batches() -> Iterator[Batch]:
        for name, width in (("a", 3), ("b", 4)):
            yield Batch((name,), {"x": np.zeros((1, width), np.float32)}, (None,), (name,))

    calibrator = native_calibrator(make_api(), "minmax", batches(), FeedBuilder([spec]), device)
    assert calibrator.shapes == {"x": (1, 3)}
    assert calibrator.get_batch(["x"])
    assert calibrator.get_batch(["x"]) is None
    with pytest.raises(
        CalibrationError, match=r"'x' has shape \(1, 4\) in the batch from sample b, but \(1, 3\)"
    ):
        calibrator.raise_failure()


def test_a_reader_keeps_its_batches_and_its_rest_can_be_read(gpu: FakeGpu, device: Any) -> None:
    reader = open_reader([{"x": IMAGES[:4]}, {"x": IMAGES[4:8]}, {"x": IMAGES[8:]}], "mine", inputs=["x"])
    calibrator = native_calibrator(make_api(), "minmax", reader, FeedBuilder([SPEC]), device)
    calibration = Calibration(gpu)
    calibration.most = 1
    calibration.run("8.6.0", calibrator)
    assert (calibrator.get_batch_size(), calibrator.used) == (4, 1)
    assert calibrator.drain() == 1
    assert len(reader.fingerprint()) == 64


def test_too_few_samples_for_a_batch(device: Any) -> None:
    data = from_arrays("d", {"x": IMAGES})
    calibrator = native_calibrator(make_api(), "minmax", data, FeedBuilder([SPEC]), device, batch_size=11)
    with pytest.raises(CalibrationError, match="No batch to calibrate on: 10 samples do not fill one of 11"):
        _ = calibrator.shapes


def test_a_cache_in_place_of_data(gpu: FakeGpu, device: Any, tmp_path: Path) -> None:
    path = CalibrationCache({"x": 0.5}).write(tmp_path / "c.cache")
    data = from_arrays("d", {"x": IMAGES})
    calibrator = native_calibrator(make_api(), "entropy", data, FeedBuilder([SPEC]), device, cache_in=path)
    assert Calibration(gpu).run("8.6.0", calibrator) is None
    assert calibrator.asked == 0
    with pytest.raises(CacheError, match="no such file"):
        native_calibrator(make_api(), "entropy", data, FeedBuilder([SPEC]), device, cache_in=tmp_path / "no")


def test_a_cache_that_cannot_be_kept(gpu: FakeGpu, device: Any, tmp_path: Path) -> None:
    data = from_arrays("d", {"x": IMAGES})
    calibrator = native_calibrator(
        make_api(), "entropy", data, FeedBuilder([SPEC]), device, batch_size=5, cache_out=tmp_path
    )
    Calibration(gpu).run("8.6.0", calibrator)
    with pytest.raises(OutputError, match="Cannot write"):
        calibrator.raise_failure()
    calibrator = native_calibrator(make_api(), "entropy", data, FeedBuilder([SPEC]), device)
    calibrator.write_calibration_cache(memoryview(b"rubbish"))
    with pytest.raises(CacheError, match="the cache that TensorRT made is not a calibration cache"):
        calibrator.raise_failure()


@pytest.mark.parametrize(
    ("name", "algorithm"), [one for one in ALGORITHMS.items() if one[1] != "LegacyCalibration"]
)
def test_our_cache_is_handed_over_and_no_data_asked_for(gpu: FakeGpu, name: str, algorithm: str) -> None:
    api = make_api()
    calibrator = cache_calibrator(api, CalibrationCache({"x": 0.5, "y:0": 0.0}, algorithm, "8.6.0"))
    assert isinstance(calibrator, getattr(api.trt, name))
    assert Calibration(gpu).run("8.6.0", calibrator) is None
    assert bytes(calibrator.read_calibration_cache()) == (
        f"TRT-8600-{algorithm}\nx: 3f000000\ny:0: 0\n".encode()
    )
    assert (calibrator.asked, calibrator.failure, calibrator.written) == (0, None, None)
    calibrator.raise_failure()
    calibrator.free()


def test_a_legacy_cache_is_handed_over_with_its_settings(gpu: FakeGpu) -> None:
    """A quantile of 0.99 and a cutoff of 1, as TensorRT 8.6.0 wrote them."""
    text = json.loads((TENSORRT / "probe.json").read_text())["one/legacy_.99_1"]
    calibrator = cache_calibrator(make_api(), CalibrationCache.parse(text.encode()))
    assert (calibrator.get_quantile(), calibrator.get_regression_cutoff()) == (0.99, 1.0)
    assert Calibration(gpu).run("8.6.0", calibrator) is None
    assert bytes(calibrator.read_calibration_cache()).decode() == text
    calibrator.get_batch(["x"])
    with pytest.raises(EngineError, match="holds the quantile and the cutoff that it was made with"):
        calibrator.raise_failure()


def test_a_cache_that_tensorrt_refuses(gpu: FakeGpu) -> None:
    old = cache_calibrator(make_api("10.3.0"), CalibrationCache({"x": 0.5}, version="8.6.0"))
    assert "Calibration failure" in (Calibration(gpu).run("10.3.0", old) or "")
    assert old.asked == 1
    message = r"TensorRT 10\.3\.0 did not take .*TRT-8600-EntropyCalibration2, 1 tensor.*headed TRT-100300-"
    with pytest.raises(EngineError, match=rf"{message}EntropyCalibration2.*--tensorrt 10\.3\.0"):
        old.raise_failure()
    fitting = cache_calibrator(make_api(), CalibrationCache({"x": 0.5}))
    assert fitting.get_batch(["x"]) is None
    with pytest.raises(EngineError, match="The header fits, so its log says why; calib cache lint"):
        fitting.raise_failure()


def test_what_tensorrt_does_not_have(device: Any) -> None:
    data = from_arrays("d", {"x": IMAGES})
    with pytest.raises(
        EngineError, match=r"TensorRT 11\.4\.0 has no IInt8MinMaxCalibrator: .*--route explicit"
    ):
        native_calibrator(make_api("11.4.0"), "minmax", data, FeedBuilder([SPEC]), device)
    with pytest.raises(EngineError, match=r"TensorRT 11\.4\.0 has no IInt8EntropyCalibrator2"):
        cache_calibrator(make_api("11.4.0"), CalibrationCache({"x": 0.5}))
    with pytest.raises(UsageError, match="own calibrators are entropy, minmax, entropy1, legacy, got 'mse'"):
        native_calibrator(make_api(), "mse", data, FeedBuilder([SPEC]), device)
    cache = CalibrationCache({"x": 0.5}, "PercentileCalibration")
    with pytest.raises(CacheError, match="no calibrator that reads TRT-8600-PercentileCalibration"):
        cache_calibrator(make_api(), cache)


def test_the_profile_that_is_calibrated_with() -> None:
    told: list[str] = []
    config = SimpleNamespace(set_calibration_profile=told.append)
    assert set_calibration_profile(make_api(), config, "profile")
    assert told == ["profile"]
    assert not set_calibration_profile(make_api("11.4.0"), SimpleNamespace(), "profile")
    with pytest.raises(EngineError, match="does not take the shapes of the calibration batches"):
        set_calibration_profile(
            make_api(), SimpleNamespace(set_calibration_profile=lambda profile: False), "profile"
        )
