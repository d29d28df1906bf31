"""What a failing CUDA call means for a user, whichever package made it."""

from __future__ import annotations

import os

from calib.errors import EngineError

__all__ = ["cuda_failure", "no_driver", "no_such_gpu", "out_of_memory", "too_old"]

_DOCTOR = "calib doctor shows the GPUs and the driver of this machine."

# Parts of what cuGetErrorString says → what it comes from and what to do.
_MEANINGS = (
    (
        "no CUDA-capable device",
        "No GPU here: the NVIDIA driver finds none{hidden}. Run this on a machine with an NVIDIA GPU; in a "
        "container, start it with --gpus all.",
    ),
    (
        "initialization error",
        "The NVIDIA driver cannot be initialized: its kernel modules are not loaded, or this process is a "
        "copy (a fork) of one that used CUDA. Start a new process; nvidia-smi tells whether the driver "
        "answers.",
    ),
    (
        "stub library",
        "No GPU here: the libcuda that was loaded is the CUDA toolkit's stub, not the driver's. Take the "
        "toolkit's stubs folder out of LD_LIBRARY_PATH.",
    ),
    (
        "busy or unavailable",
        "The GPU is taken: another process uses it exclusively, or it is in prohibited mode. Wait for it, or "
        "choose another with CUDA_VISIBLE_DEVICES.",
    ),
    (
        "unsupported display driver",
        "The NVIDIA driver does not fit: its kernel module and libcuda are of different versions, as after "
        "an update without a restart. Restart the machine.",
    ),
    (
        "forward compatibility",
        "The NVIDIA driver is too old for the CUDA compatibility package, which works on data-centre GPUs "
        "only. Update the driver, or take the compat folder out of LD_LIBRARY_PATH.",
    ),
    (
        "driver version is insufficient",
        "The NVIDIA driver is too old. Update it, or use packages for an older CUDA.",
    ),
    (
        "unsupported toolchain",
        "The NVIDIA driver is too old for code made with a newer CUDA. Update it, or use packages for an "
        "older CUDA.",
    ),
    (
        "system not yet initialized",
        "The GPUs are not ready: on machines with NVSwitch the service nvidia-fabricmanager must run, in "
        "the driver's version.",
    ),
    (
        "illegal memory access",
        "Earlier work on the GPU wrote or read outside its memory; this process cannot use the GPU any "
        "more. Start it again, with CUDA_LAUNCH_BLOCKING=1 to see which call it was.",
    ),
    (
        "out of memory",
        "Out of memory on the GPU. End other programs there (nvidia-smi shows them), or choose another GPU "
        "with CUDA_VISIBLE_DEVICES.",
    ),
    (
        "capturing",
        "It is not allowed while a CUDA graph is captured: copy and wait before or after the capture.",
    ),
)


def cuda_failure(call: str, reason: str) -> EngineError:
    """The error for a CUDA call that failed.

    Args:
        call: The driver's function, such as "cuInit".
        reason: What ``cuGetErrorString`` says of it.

    >>> print(cuda_failure("cuEventQuery", "device not ready"))
    CUDA failed: cuEventQuery: device not ready. calib doctor shows the GPUs and the driver of this machine.
    """
    for part, meaning in _MEANINGS:
        if part in reason:
            return EngineError(f"{meaning.format(hidden=_hidden())} (CUDA: {call}: {reason})")
    return EngineError(f"CUDA failed: {call}: {reason}. {_DOCTOR}")


def _hidden() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if visible is None else f", with CUDA_VISIBLE_DEVICES={visible!r} in the environment"


def no_driver(detail: str) -> EngineError:
    """The error where the driver's library is not there."""
    return EngineError(
        f"No GPU here: the NVIDIA driver is not installed ({detail}). Run this on a machine with an NVIDIA "
        f"GPU and its driver; in a container, start it with --gpus all. {_DOCTOR}"
    )


def no_such_gpu(index: int, count: int) -> EngineError:
    """The error for a GPU number that CUDA does not have."""
    if count < 1:
        return cuda_failure("cuDeviceGetCount", "no CUDA-capable device is detected")
    have = "GPU 0 alone" if count == 1 else f"GPUs 0 to {count - 1}"
    return EngineError(f"No GPU {index}: CUDA has {have}{_hidden()}.")


def too_old(call: str) -> EngineError:
    """The error for a function that the driver does not have."""
    return EngineError(
        f"The NVIDIA driver is too old: it has no {call}. Update it to one that serves CUDA 11.4 or later. "
        f"{_DOCTOR}"
    )


def out_of_memory(nbytes: int, what: str, info: tuple[int, int] | None) -> EngineError:
    """The error where memory is short.

    Args:
        nbytes: Bytes that were wanted.
        what: What for: "GPU 0 (NVIDIA H200)".
        info: Free and total bytes; None where that cannot be asked.

    >>> print(out_of_memory(2 << 20, "GPU 0", (1 << 20, 4 << 20)))
    Out of memory on GPU 0: wanted 2,097,152 bytes, free are 1,048,576 of 4,194,304. Use a smaller batch or
    end other programs on the GPU.
    """
    free = "" if info is None else f", free are {info[0]:,} of {info[1]:,}"
    return EngineError(
        f"Out of memory on {what}: wanted {nbytes:,} bytes{free}. Use a smaller batch or end other programs "
        "on the GPU."
    )
