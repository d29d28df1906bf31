"""Timings of tactics, kept between builds: the second build is faster, and chooses the same tactics."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calib.engine.api import Api
from calib.engine.target_device import TargetDevice
from calib.errors import EngineError
from calib.files import write_bytes

__all__ = ["TimingCache", "timing_cache_path"]

_REFUSED = (
    "timing cache will not be used",
    "Timing cache header mismatch",
    "Failed to deserialize timing cache",
)


def timing_cache_path(path: str | os.PathLike[str], api: Api, device: TargetDevice) -> Path:
    """The file of one GPU and one TensorRT; timings of another are of no use.

    Args:
        path: A folder, or a file whose name gets GPU and version added.
        api: TensorRT.
        device: The GPU.
    """
    target = Path(path)
    key = f"{device.key}-trt{api.version}"
    if target.is_dir() or os.fspath(path).endswith(os.sep):
        return target / f"{key}.timing"
    return target.with_name(f"{target.stem}.{key}{target.suffix or '.timing'}")


@dataclass
class TimingCache:
    """One file of timings.

    Attributes:
        file: The file; it need not exist.
        notes: What became of it, each line once: an engine may be built several times.
    """

    file: Path
    notes: list[str] = field(default_factory=list)
    _own: bool = False

    def attach(self, config: Any, log: Any) -> None:
        """Gives the timings to a builder config; refused ones are reported, and new ones taken instead.

        Args:
            config: The ``trt.IBuilderConfig``.
            log: The logger that the builder got.

        Raises:
            EngineError: The file is there and cannot be read.
        """
        content = self._read()
        before = len(log.lines)
        cache = config.create_timing_cache(content)
        taken = cache is not None and config.set_timing_cache(cache, False)
        said = [text for _, text in log.lines[before:] if any(part in text for part in _REFUSED)]
        if content and (not taken or said):
            reason = said[0] if said else "no reason was given"
            self._tell(f"timing cache {self.file} was refused ({reason}); new timings are taken")
            config.set_timing_cache(config.create_timing_cache(b""), False)
        elif content:
            self._tell(f"timings from {self.file}")

    def store(self, config: Any) -> None:
        """Writes the timings, old and new.

        Args:
            config: The config that the engine was built with.

        Raises:
            OutputError: The file cannot be written.
        """
        cache = config.get_timing_cache()
        content = b"" if cache is None else bytes(memoryview(cache.serialize()))
        if content:
            write_bytes(self.file, content)
            self._own = True
        else:
            self._tell("TensorRT gave no timings to keep")

    def _tell(self, note: str) -> None:
        # What an earlier build of the same engine left in the file is no news, nor that it is refused.
        if not self._own and note not in self.notes:
            self.notes.append(note)

    def _read(self) -> bytes:
        if not self.file.exists():
            return b""
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise EngineError(f"Cannot read timing cache {self.file}: {error.strerror}.") from error
