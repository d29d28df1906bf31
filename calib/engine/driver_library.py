"""The NVIDIA driver's own library, which every package that uses the GPU loads."""

from __future__ import annotations

import ctypes

from calib.engine.cuda_failures import no_driver

__all__ = ["DRIVER_LIBRARY", "load_driver_library"]

DRIVER_LIBRARY = "libcuda.so.1"
"""It comes with the driver and not with any package."""


def load_driver_library() -> ctypes.CDLL:
    """Loads the driver's library; starts no CUDA.

    Raises:
        EngineError: There is none, which means no driver.
    """
    try:
        # Global, since PyCUDA is at times linked without naming it.
        return ctypes.CDLL(DRIVER_LIBRARY, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise no_driver(str(error)) from error
