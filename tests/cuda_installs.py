"""Puts the fake CUDA in the place of the real one."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from fake_cuda import FakeGpu, make_library
from fake_cuda_python import make_cuda_python
from fake_pycuda import make_pycuda

from calib.engine import cuda_capture, cuda_device, driver_library

LAYOUTS = ("pycuda", "cuda.bindings.driver", "cuda.cuda")


def install_driver(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """A driver with one GPU, and no package that gives access to it."""
    gpu = FakeGpu()
    library = make_library(gpu)
    monkeypatch.setattr(driver_library, "load_driver_library", lambda: library)
    monkeypatch.setattr(cuda_capture, "load_driver_library", lambda: library)
    monkeypatch.setattr(cuda_device, "DRIVERS", {})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    install_packages(monkeypatch, gpu)
    return gpu


def install_packages(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu, *layouts: str) -> None:
    """These packages on a driver, and none of the others."""
    for name in ("pycuda", "pycuda.driver", "cuda.bindings", "cuda.bindings.driver", "cuda.cuda"):
        monkeypatch.setitem(sys.modules, name, None)
    for layout in layouts:
        module = "pycuda.driver" if layout == "pycuda" else layout
        parent = module.rpartition(".")[0]
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        made = make_pycuda(gpu) if layout == "pycuda" else make_cuda_python(gpu, layout)
        monkeypatch.setitem(sys.modules, module, made)
