"""What tests of builds put around the fake TensorRT."""

from __future__ import annotations

from collections.abc import Callable

from fake_tensorrt import Behaviour

TENSORS = ("x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y")

InstallTensorRT = Callable[..., Behaviour]


class FakeDevice:
    name = "NVIDIA H200"
    compute_capability = (9, 0)

    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass
