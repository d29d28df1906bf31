"""A GPU and a TensorRT that need none, and a runner on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from test_runners.fake_gpu import FakeDevice
from test_runners.fake_tensorrt_runtime import FakeNetwork, FakeTensorRT

from calib.runners import TensorRTRunner


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def fake(device: FakeDevice) -> FakeTensorRT:
    return FakeTensorRT(device)


@pytest.fixture
def open_runner(fake: FakeTensorRT, device: FakeDevice) -> Iterator[Callable[..., TensorRTRunner]]:
    """Opens a network's engine; everything is closed, and looked at for leaks, after the test."""
    with ExitStack() as stack:

        def opened(network: FakeNetwork, precision: str = "fp32", **options: Any) -> TensorRTRunner:
            plan = f"plan {len(fake.plans)}".encode()
            fake.plans[plan] = network
            options = {"device": device, "api": fake.api, "now": device.now, **options}
            return stack.enter_context(TensorRTRunner(plan, precision, **options))

        yield opened
    device.check_nothing_left()
