"""Clocks, power, temperature and throttling of a GPU, sampled by NVML while something runs on it."""

from __future__ import annotations

import importlib
import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from typing_extensions import Self

__all__ = ["GpuReading", "GpuReadings", "TelemetrySampler"]

# nvml.h, nvmlClocksEventReason*: why the clocks are not higher.
_REASONS = {
    0x1: "GPU idle",
    0x2: "applications clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake slowdown",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability",
}

_MISSING = "nvidia-ml-py is not installed. Install it with: pip install 'int8-calib[tensorrt]'"


@dataclass(frozen=True)
class GpuReading:
    """One reading; what the GPU does not tell is None.

    Attributes:
        seconds: Time since the first reading.
        sm_clock_mhz: Clock of the multiprocessors.
        memory_clock_mhz: Clock of the memory.
        power_w: Power.
        temperature_c: Temperature of the GPU, in °C.
        reasons: Why the clocks are not higher, "GPU idle" among them.
    """

    seconds: float
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    reasons: tuple[str, ...]

    @property
    def idle(self) -> bool:
        """Whether the GPU had nothing to do."""
        return "GPU idle" in self.reasons


@dataclass(frozen=True)
class GpuReadings:
    """What was sampled.

    Attributes:
        readings: In the order of time.
        problem: Why there are none, or which of their fields are missing; empty otherwise.
    """

    readings: tuple[GpuReading, ...] = ()
    problem: str = ""


class TelemetrySampler:
    """A context manager that samples a GPU in a thread until its block ends.

    It never fails: where NVML, or one of its fields, is not there, ``readings.problem`` says so.

    ::

        with TelemetrySampler(0) as sampler:
            run()
        print(sampler.readings.readings[0].sm_clock_mhz)
    """

    def __init__(
        self,
        device: int | str = 0,
        *,
        interval_s: float = 0.05,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts nothing yet.

        Args:
            device: CUDA's number of the GPU, with CUDA_VISIBLE_DEVICES applied; or its UUID ("GPU-…"),
                or its PCI bus id.
            interval_s: Time between two readings, in seconds.
            now: Clock of the readings, in seconds.
        """
        self._device = device
        self._interval_s = interval_s
        self._now = now
        self._reset()

    def _reset(self) -> None:
        self._found: list[GpuReading] = []
        self._problems: dict[str, None] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml: Any = None
        self._start = self._now()

    @property
    def readings(self) -> GpuReadings:
        """What was sampled so far."""
        return GpuReadings(tuple(self._found), "; ".join(self._problems))

    def __enter__(self) -> Self:
        self._reset()
        try:
            self._nvml, handle = _open(self._device)
        except Exception as error:
            # NVML's errors have no common base that could be named without it; none may stop a measurement.
            self._problems[str(error) or type(error).__name__] = None
            return self
        self._read(handle)
        self._thread = threading.Thread(target=self._sample, args=(handle,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._nvml is not None:
            _quietly(self._nvml.nvmlShutdown)
            self._nvml = None

    def _sample(self, handle: Any) -> None:
        while not self._stop.wait(self._interval_s):
            self._read(handle)
        self._read(handle)

    def _read(self, handle: Any) -> None:
        nvml = self._nvml
        power = self._field("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        sm_clock = self._field("SM clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        reading = GpuReading(
            seconds=self._now() - self._start,
            sm_clock_mhz=sm_clock,
            memory_clock_mhz=self._field(
                "memory clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
            ),
            power_w=None if power is None else power / 1e3,
            temperature_c=self._field(
                "temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            reasons=self._reasons(handle),
        )
        if any(value is not None for value in (reading.sm_clock_mhz, power, reading.temperature_c)):
            self._found.append(reading)

    def _reasons(self, handle: Any) -> tuple[str, ...]:
        # NVML 12 renamed it; the old name stayed.
        nvml = self._nvml
        read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        read = read or getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
        if read is None:
            self._problems["no throttle reasons: this nvidia-ml-py does not ask for them"] = None
            return ()
        mask = int(self._field("throttle reasons", lambda: read(handle)) or 0)
        return tuple(name for bit, name in _REASONS.items() if mask & bit)

    def _field(self, name: str, read: Callable[[], float]) -> float | None:
        try:
            return float(read())
        except Exception as error:
            self._problems[f"no {name}: {error}"] = None
            return None


def _open(device: int | str) -> tuple[Any, Any]:
    """NVML, started, and its handle of the GPU."""
    nvml = _import()
    nvml.nvmlInit()
    try:
        return nvml, _handle(nvml, device)
    except BaseException:
        _quietly(nvml.nvmlShutdown)
        raise


def _import() -> Any:
    try:
        with warnings.catch_warnings():
            # An abandoned package of the same module name warns that nvidia-ml-py replaced it.
            warnings.simplefilter("ignore")
            return importlib.import_module("pynvml")
    except ImportError as error:
        raise RuntimeError(_MISSING) from error


def _handle(nvml: Any, device: int | str) -> Any:
    found = _visible(device) if isinstance(device, int) else device
    if isinstance(found, int):
        return nvml.nvmlDeviceGetHandleByIndex(found)
    if found.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(found)
    return nvml.nvmlDeviceGetHandleByPciBusId(found)


def _visible(index: int) -> int | str:
    """NVML's number or UUID of a GPU that CUDA numbers among the visible ones only."""
    visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if index >= len(visible) or not visible[index]:
        return index
    return int(visible[index]) if visible[index].isdigit() else visible[index]


def _quietly(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception:
        # Closing NVML fails where its driver went away; the readings are there already.
        return
