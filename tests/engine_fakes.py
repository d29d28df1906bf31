"""What tests of builds put around the fake TensorRT."""

from __future__ import annotations

from collections.abc import Callable

from fake_tensorrt import Behaviour

from calib.calibrators import CalibrationCache

TENSORS = ("x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y")

InstallTensorRT = Callable[..., Behaviour]


class FakeDevice:
    name = "NVIDIA H200"
    compute_capability = (9, 0)

    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class HandingOver:
    """A calibrator that hands a cache over, as ``calib.engine.native`` makes them."""

    def __init__(self, cache: CalibrationCache) -> None:
        self.cache, self.asked, self.failure = cache, 0, None

    def read_calibration_cache(self) -> bytes:
        return self.cache.to_text().encode()

    def get_batch(self, names: list[str]) -> None:
        self.asked += 1
