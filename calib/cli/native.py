"""``calib calibrate --native``: TensorRT calibrates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calib.wording import counted

if TYPE_CHECKING:
    from calib.engine import NativeCalibration

__all__ = ["native_json", "native_text", "run_natively"]

_TAKEN = ("method", "samples", "batch_size", "seed")


def run_natively(
    model: Path, data: str, out: Path, device: int, options: Mapping[str, Any], *, as_json: bool
) -> str:
    """Calibrates by TensorRT and says what came of it.

    Args:
        model: The model.
        data: The recipe, or module:object.
        out: The calibration cache.
        device: Number of the GPU.
        options: The command's other options; None where one was not given.
        as_json: Whether to answer for programs.

    Raises:
        UsageError: An option was given that TensorRT's calibrators do not have.
        CalibError: As ``calib.engine.calibrate_natively``.
    """
    from calib.engine import calibrate_natively
    from calib.errors import UsageError

    for name, value in options.items():
        if name not in _TAKEN and value is not None:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} and --native cannot be combined: TensorRT itself calibrates then.")
    found = calibrate_natively(
        model, data, out=out, device=device, **{name: options[name] for name in _TAKEN}
    )
    return native_json(found) if as_json else native_text(found)


def native_text(found: NativeCalibration) -> str:
    """What a calibration by TensorRT made, for a terminal."""
    from calib.calibrators import sidecar_path

    lines = [
        f"{counted(len(found.cache), 'tensor[s]')} calibrated by TensorRT {found.tensorrt} "
        f"({found.method}) on "
        f"{counted(found.samples, 'sample[s]')} in {counted(found.used, 'batch[es]')} on {found.device}."
    ]
    lines += [f"note: {note}" for note in found.notes]
    if found.path is not None:
        lines.append(f"Calibration cache: {found.path} ({found.cache.header})")
        lines.append(f"Provenance:        {sidecar_path(found.path)}")
        lines.append("Compare with ours:  calib cache diff OURS.cache " + str(found.path))
    return "\n".join(lines)


def native_json(found: NativeCalibration) -> str:
    """What a calibration by TensorRT made, for programs."""
    import json

    return json.dumps(
        {
            "cache": str(found.path),
            "header": found.cache.header,
            "method": found.method,
            "tensorrt": found.tensorrt,
            "device": found.device,
            "tensors": len(found.cache),
            "samples": found.samples,
            "batches_asked": found.asked,
            "batches_used": found.used,
            "notes": found.notes,
            "scales": dict(found.cache),
        },
        indent=1,
    )
