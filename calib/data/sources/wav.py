"""Wav files: their values, as they are stored or from -1 to 1."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calib.data.dataset import Array
from calib.errors import DatasetError

__all__ = ["Wav", "mono", "open_wav"]

_FULL_SCALE = {"int16": 1 << 15, "int32": 1 << 31}


class Wav(NamedTuple):
    """A wav file.

    Attributes:
        rate: Values a second.
        values: As they are stored, (values) or (values, channels); read when they are used, but for
            files of 24 bits.
    """

    rate: int
    values: Array

    @property
    def channels(self) -> int:
        """Number of channels."""
        return 1 if self.values.ndim == 1 else int(self.values.shape[1])


def open_wav(path: Path) -> Wav:
    """Opens a wav file.

    Raises:
        DatasetError: The file cannot be read, or is cut short.
    """
    try:
        return _opened(path, mapped=True)
    except ValueError:
        # scipy does not map files of 24 bits.
        pass
    except Exception as error:  # whatever scipy raises on a header that makes no sense
        raise _unreadable(path, error) from error
    try:
        return _opened(path, mapped=False)
    except Exception as error:  # likewise
        raise _unreadable(path, error) from error


def _opened(path: Path, *, mapped: bool) -> Wav:
    from scipy.io import wavfile

    with warnings.catch_warnings():
        warnings.simplefilter("error", wavfile.WavFileWarning)
        # Chunks that scipy does not know do no harm; what ends early does.
        warnings.filterwarnings("ignore", ".*not understood", wavfile.WavFileWarning)
        return Wav(*wavfile.read(path, mmap=mapped))


def _unreadable(path: Path, error: Exception) -> DatasetError:
    reason = str(error).strip().rstrip(".") or type(error).__name__
    return DatasetError(f"Cannot read {path}: {reason}. Write it as a wav file anew.")


def mono(values: Array) -> Array:
    """Values as float32 from -1 to 1, the channels averaged.

    Args:
        values: As they are stored, (values) or (values, channels). Numbers of 24 bits are the upper ones
            of 32, as scipy has them.

    >>> mono(np.array([[-32768, 0], [16384, 16384]], np.int16)).tolist()
    [-0.5, 0.5]
    """
    exact = values.astype(np.float64)
    offset, scale = (128, 128) if values.dtype == np.uint8 else (0, _FULL_SCALE.get(values.dtype.name, 1))
    exact = (exact - offset) / scale
    mixed: Array = (exact if exact.ndim == 1 else exact.mean(axis=1)).astype(np.float32)
    return mixed
