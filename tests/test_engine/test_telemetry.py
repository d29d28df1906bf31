from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from calib.engine import GpuReading, TelemetrySampler

MISSING = "nvidia-ml-py is not installed. Install it with: pip install 'int8-calib[tensorrt]'"


class FakeNvml:
    """The functions of the module ``pynvml``, with their names and units: MHz, mW, °C, a bit mask."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.started = 0
        self.clocks = {1: 1980, 2: 2619}
        self.reasons = 0
        self.asked: list[object] = []
        self.read = threading.Event()
        self.reads = 0

    def nvmlInit(self) -> None:
        self.started += 1

    def nvmlShutdown(self) -> None:
        self.started -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        self.asked.append(index)
        if index > 7:
            raise self.NVMLError("Invalid Argument")
        return f"handle {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked.append(("uuid", uuid))
        return uuid

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> str:
        self.asked.append(("bus", bus))
        return bus

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return self.clocks[kind]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 345_600

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 41

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        self.reads += 1
        if self.reads >= 3:
            self.read.set()
        return self.reasons


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def sample(device: int | str = 0, during: Callable[[], Any] = lambda: None) -> TelemetrySampler:
    with TelemetrySampler(device, interval_s=0.001, now=lambda: 5.0) as sampler:
        during()
    return sampler


def test_units_and_names(nvml: FakeNvml) -> None:
    nvml.reasons = 0x4 | 0x40
    found = sample().readings
    assert found.problem == ""
    assert found.readings[0] == GpuReading(
        0.0, 1980.0, 2619.0, 345.6, 41.0, ("software power cap", "hardware thermal slowdown")
    )
    assert not found.readings[0].idle
    assert nvml.started == 0


def test_it_samples_until_the_block_ends(nvml: FakeNvml) -> None:
    before = set(threading.enumerate())
    sampler = sample(during=lambda: nvml.read.wait(30))
    assert len(sampler.readings.readings) >= 3
    assert len(sampler.readings.readings) == nvml.reads
    started = set(threading.enumerate()) - before
    assert not any(thread.daemon and thread.is_alive() for thread in started)


def test_it_ends_when_the_block_fails(nvml: FakeNvml) -> None:
    with pytest.raises(KeyError, match="late"), TelemetrySampler(interval_s=0.001) as sampler:
        raise KeyError("late")
    assert nvml.started == 0
    assert sampler.readings.readings


def test_without_nvml_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = sample().readings
    assert found.readings == ()
    assert found.problem == MISSING


def test_without_a_driver_nothing_fails(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise nvml.NVMLError("NVML Shared Library Not Found")

    monkeypatch.setattr(nvml, "nvmlInit", refuse)
    assert sample().readings.problem == "NVML Shared Library Not Found"


def test_a_gpu_that_is_not_there(nvml: FakeNvml) -> None:
    assert sample(9).readings.problem == "Invalid Argument"
    assert nvml.started == 0


def test_fields_that_a_gpu_does_not_have(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> int:
        raise nvml.NVMLError("Not Supported")

    monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", unsupported)
    monkeypatch.setattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", unsupported)
    found = sample().readings
    assert found.readings[0] == GpuReading(0.0, 1980.0, 2619.0, None, 41.0, ())
    assert found.problem == "no power: Not Supported; no throttle reasons: Not Supported"


def test_the_older_name_of_throttle_reasons(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeNvml, "nvmlDeviceGetCurrentClocksEventReasons")
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x1  # type: ignore[attr-defined]
    assert sample().readings.readings[0].idle


@pytest.mark.parametrize(
    ("visible", "device", "asked"),
    [
        (None, 1, 1),
        ("", 1, 1),
        ("3,5", 1, 5),
        ("GPU-abc,GPU-def", 1, ("uuid", "GPU-def")),
        ("3", "00000000:1B:00.0", ("bus", "00000000:1B:00.0")),
        ("3", "GPU-abc", ("uuid", "GPU-abc")),
    ],
)
def test_cudas_numbers_are_not_nvmls(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str | None, device: int | str, asked: object
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    sample(device)
    assert nvml.asked == [asked]
